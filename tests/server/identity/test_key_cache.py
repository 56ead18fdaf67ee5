"""When the keys of a provider are read, and how long they are used while they cannot be read. The provider is a real server."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from cm_delta_dagster.errors import CatalogUnavailableError
from cm_delta_dagster.server.identity import key_cache
from cm_delta_dagster.server.identity.key_cache import MIN_SECONDS_BETWEEN_READS, KeyCache
from cm_delta_dagster.server.identity.provider import IdentityProvider
from tests.support.identity_provider import Provider, jwk, key_set_of, rsa_key
from tests.support.log_records import messages_of
from tests.support.waiting import until

REFRESH, LIMIT = 300.0, 3600.0


class Seconds:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def cache_of(provider: Provider, clock: Seconds) -> KeyCache:
    settings = provider.settings(jwks_refresh_seconds=REFRESH, jwks_max_age_seconds=LIMIT)
    return KeyCache(IdentityProvider.model_validate(settings), clock=clock)


def test_keys_are_read_once_and_again_after_their_time(provider: Provider) -> None:
    clock = Seconds()
    keys = cache_of(provider, clock)
    assert provider.paths == []
    for seconds, reads in ((0.0, 1), (REFRESH, 1), (1.0, 2), (REFRESH, 2)):
        clock.now += seconds
        assert keys.key("first", "RS256") is not None and len(provider.paths) == reads
    assert keys.key("first", "ES256") is None, "the key is for other algorithms"


@pytest.mark.parametrize(
    "content",
    [key_set_of(jwk("second", rsa_key("second"))), key_set_of(), key_set_of(jwk("first", rsa_key("first"), use="enc"))],
)
def test_a_key_that_the_provider_removes_is_refused_after_their_time(provider: Provider, content: bytes) -> None:
    """Also if no key is left."""
    clock = Seconds()
    keys = cache_of(provider, clock)
    assert keys.key("first", "RS256") is not None
    provider.content = content
    clock.now += REFRESH
    assert keys.key("first", "RS256") is not None
    clock.now += 1
    assert keys.key("first", "RS256") is None and (keys.key("second", "RS256") is not None) == (b"second" in content)


def test_few_requests_wait_for_keys_that_another_one_reads(provider: Provider) -> None:
    """JWTs with unknown keys cannot occupy the threads of the server while the provider hangs."""
    keys, most = cache_of(provider, Seconds()), key_cache._MOST_WAITING
    provider.answers.clear()
    with ThreadPoolExecutor(most + 1) as threads:
        try:
            first = threads.submit(keys.key, "first", "RS256")
            until(lambda: len(provider.paths) == 1)
            waiting = [threads.submit(keys.key, "first", "RS256") for _ in range(most)]
            until(lambda: keys._waiting._value == 0)  # type: ignore[attr-defined]
            with pytest.raises(CatalogUnavailableError, match="the keys of the provider are being read"):
                keys.key("first", "RS256")
        finally:
            provider.answers.set()
        assert all(future.result() is not None for future in (first, *waiting))


def test_an_unknown_key_makes_the_keys_be_read_again_but_not_more_often_than_the_limit(provider: Provider) -> None:
    clock = Seconds()
    keys = cache_of(provider, clock)
    assert keys.key("first", "RS256") is not None
    provider.content = key_set_of(jwk("first", rsa_key("first")), jwk("second", rsa_key("second")))
    assert keys.key("second", "RS256") is None, "they were read just now"
    clock.now += MIN_SECONDS_BETWEEN_READS
    assert keys.key("second", "RS256") is not None and len(provider.paths) == 2
    for number in range(100):
        assert keys.key(f"unknown-{number}", "RS256") is None
    assert len(provider.paths) == 2


@pytest.mark.parametrize("content", [None, b"<html>"])
def test_keys_that_cannot_be_read_are_used_until_the_limit(
    provider: Provider, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Missing, or malformed; and from the first read that succeeds the new ones are used."""
    clock = Seconds()
    keys = cache_of(provider, clock)
    assert keys.key("first", "RS256") is not None
    valid = provider.content
    provider.status, provider.content = (503, b"") if content is None else (200, content)
    clock.now += LIMIT
    assert keys.key("first", "RS256") is not None and keys.key("second", "RS256") is None
    clock.now += 1
    for _ in range(3):
        with pytest.raises(CatalogUnavailableError, match="has not been able to read the keys of the provider"):
            keys.key("first", "RS256")
    assert len(provider.paths) == 2, "one more read, however many requests there are"
    (warning,) = messages_of(caplog, key_cache)
    assert f"cannot be read from {provider.url}" in warning
    provider.status, provider.content = 200, valid
    clock.now += MIN_SECONDS_BETWEEN_READS
    assert keys.key("first", "RS256") is not None


def test_without_keys_from_the_start_requests_are_refused_until_they_can_be_read(provider: Provider) -> None:
    clock = Seconds()
    keys = cache_of(provider, clock)
    provider.status = 404
    for _ in range(2):
        with pytest.raises(CatalogUnavailableError):
            keys.key("first", "RS256")
    assert len(provider.paths) == 1
    provider.status = 200
    clock.now += MIN_SECONDS_BETWEEN_READS
    assert keys.key("first", "RS256") is not None


def test_who_has_a_known_key_does_not_wait_while_another_request_reads_the_keys(provider: Provider) -> None:
    clock = Seconds()
    keys = cache_of(provider, clock)
    assert keys.key("first", "RS256") is not None
    provider.content = key_set_of(jwk("second", rsa_key("second")))
    provider.answers.clear()
    clock.now += REFRESH + 1
    with ThreadPoolExecutor(3) as threads:
        try:
            reading = threads.submit(keys.key, "second", "RS256")
            until(lambda: len(provider.paths) == 2)
            known = threads.submit(keys.key, "first", "RS256")
            until(known.done)
            unknown = threads.submit(keys.key, "second", "RS256")
            assert not reading.done() and not unknown.done()
        finally:
            provider.answers.set()
    assert known.result() is not None and reading.result() is not None and unknown.result() is not None
    assert len(provider.paths) == 2
