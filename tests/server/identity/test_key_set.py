"""Key sets: which keys are used for which algorithm, and from where they are read."""

import json
from pathlib import Path
from typing import Any

import pytest
from jwt.algorithms import RSAAlgorithm

from cm_delta_dagster.server.identity.key_set import KeySetError, key_set, read_keys
from cm_delta_dagster.server.identity.provider import SignatureAlgorithm
from tests.server.test_serve_command import make_certificate
from tests.support.identity_provider import (
    Provider,
    curve_key,
    edwards_key,
    identity_provider,
    jwk,
    key_set_of,
    rsa_key,
)

ALL = tuple(SignatureAlgorithm)
RSA = ("PS256", "PS384", "PS512", "RS256", "RS384", "RS512")


def test_a_key_is_for_the_algorithms_of_its_type_and_its_curve() -> None:
    entries = (jwk("r", rsa_key("first")), jwk("c", curve_key("first")), jwk("e", edwards_key("first")))
    keys = key_set(key_set_of(*entries), ALL)
    assert sorted(keys) == sorted([("c", "ES256"), ("e", "EdDSA"), *(("r", algorithm) for algorithm in RSA)])
    named = key_set(key_set_of(jwk("r", rsa_key("first"), alg="PS256")), ALL)
    assert [*named] == [("r", "PS256")]
    assert not key_set(key_set_of(entries[0]), [SignatureAlgorithm.ES256])


FIRST = jwk("first", rsa_key("first"))


@pytest.mark.parametrize(
    "entry",
    [
        {**FIRST, "use": "enc"},
        {**FIRST, "key_ops": ["encrypt"]},
        {**FIRST, "key_ops": "verify"},
        {**FIRST, "alg": "HS256"},
        {**FIRST, "kty": "EC"},
        {
            **RSAAlgorithm.to_jwk(rsa_key("first"), as_dict=True),
            "kid": "first",
            "key_ops": ["verify"],
        },  # A private key.
        {**FIRST, "n": "?"},
        {**FIRST, "n": 5},
        {name: value for name, value in FIRST.items() if name != "kid"},
        {**FIRST, "kid": 7},
        {"kid": "first", "kty": "oct", "k": "c2VjcmV0", "alg": "HS256"},
        jwk("first", rsa_key("short", 1024)),
        {**jwk("first", curve_key("first")), "crv": "P-384"},
        {**jwk("first", curve_key("first")), "x": "AQAB"},
        "text",
        None,
    ],
)
def test_a_key_that_is_not_one_to_verify_with_is_left_out(entry: Any) -> None:
    keys = key_set(key_set_of(entry, jwk("other", rsa_key("first"))), ALL)
    assert {identity for identity, _ in keys} == {"other"}


@pytest.mark.parametrize("data", [b"", b"<html>", b"[]", b"null", b'{"keys": {}}', b"[" * 100_000])
def test_what_is_not_a_key_set_is_an_error(data: bytes) -> None:
    with pytest.raises(KeySetError):
        key_set(data, ALL)


def test_keys_are_read_from_a_file_and_a_url(provider: Provider, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(provider.content)
    assert read_keys(str(file)) == read_keys(provider.url) == provider.content
    assert [entry["kid"] for entry in json.loads(provider.content)["keys"]] == ["first"]


@pytest.mark.parametrize("status", [204, 301, 302, 307, 401, 404, 500])
def test_another_status_is_an_error_and_no_redirect_is_followed(provider: Provider, status: int) -> None:
    provider.status, provider.headers = status, {"Location": f"{provider.url}/elsewhere"}
    with pytest.raises(KeySetError, match=f"the answer has the status {status}"):
        read_keys(provider.url)
    assert provider.paths == ["/keys"]


def test_what_cannot_be_read_is_an_error(provider: Provider, tmp_path: Path) -> None:
    provider.content = b" " * (1024 * 1024 + 1)
    for source in (provider.url, str(tmp_path / "large")):
        (tmp_path / "large").write_bytes(provider.content)
        with pytest.raises(KeySetError, match="larger than 1048576 bytes"):
            read_keys(source)
    provider.headers = {"Transfer-Encoding": "chunked"}
    provider.content = b"no length of a chunk"
    for source in (provider.url, str(tmp_path), str(tmp_path / "none"), "https://127.0.0.1:9/keys", "http://[::1]:9/"):
        with pytest.raises(KeySetError):
            read_keys(source)


def test_keys_are_read_by_tls_from_a_server_whose_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = make_certificate(tmp_path)
    with identity_provider(tls=tls) as provider:
        with pytest.raises(KeySetError, match="CERTIFICATE_VERIFY_FAILED"):
            read_keys(provider.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(tls[0]))
        assert read_keys(provider.url) == provider.content
        assert provider.paths == ["/keys"]
