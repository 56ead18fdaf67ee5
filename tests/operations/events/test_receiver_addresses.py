"""Webhooks reach public addresses only, in whichever way an address is written, unless the configuration permits a network."""

import socket
from typing import Any

import pytest

from cm_delta_dagster.catalog.event_feed import EventFilter
from cm_delta_dagster.catalog.webhooks import Webhook, shown_url, without_path
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.events.deliver_webhooks import DeliverySettings, deliver_webhooks
from cm_delta_dagster.operations.events.http_post import post
from cm_delta_dagster.operations.events.receiver_addresses import (
    NETWORKS_VARIABLE,
    check_new_webhook,
    check_receiver,
    checked_addresses,
    networks_of,
    permitted_networks,
)
from tests.operations.events.test_deliver_webhooks import QUICK, Receiver, position, receiver, subscribe
from tests.support.lake import Lake

__all__ = ["receiver"]

REFUSED = [
    *("127.0.0.1", "127.1", "2130706433", "0x7f.1", "0x7f000001", "017700000001", "127.0.0.1.", "localhost"),
    *("0.0.0.0", "0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "2852039166", "100.64.0.1"),
    *("224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1"),
    *("[::1]", "[::]", "[fe80::1]", "[fe80::1%25lo]", "[fc00::1]", "[fd00:ec2::254]", "[fec0::1]", "[ff02::1]"),
    *("[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[::ffff:10.0.0.1]", "[::127.0.0.1]", "[0:0:0:0:0:ffff:7f00:1]"),
    *("[2002:7f00:1::]", "[2002:a9fe:a9fe::1]", "[64:ff9b::169.254.169.254]", "[64:ff9b:1::7f00:1]"),
    "[2001:0:a9fe:a9fe::1]",
]
PUBLIC = ["8.8.8.8", "134744072", "[2606:4700:4700::1111]", "[::ffff:8.8.8.8]", "[64:ff9b::8.8.8.8]"]


def test_addresses_that_are_not_public_are_refused_in_every_spelling() -> None:
    accepted = []
    for host in REFUSED:
        try:
            check_receiver(f"http://{host}:8080/hook", ())
            accepted.append(host)
        except InvalidArgumentError as refused:
            assert "which is not public" in str(refused) and NETWORKS_VARIABLE in str(refused)
    # Some systems know no zone, or refuse a spelling: then there is nothing to connect to.
    for host in accepted:
        with pytest.raises(OSError):
            socket.getaddrinfo(host.strip("[]"), 80)


def test_public_addresses_are_accepted() -> None:
    for host in PUBLIC:
        check_receiver(f"https://{host}/hook", ())
        assert checked_addresses(host.strip("[]"), 443, ())


@pytest.mark.parametrize(
    ("networks", "host", "is_permitted"),
    [
        (["127.0.0.0/8"], "127.0.0.1", True),
        (["127.0.0.1"], "[::ffff:127.0.0.1]", True),
        (["10.1.0.0/16"], "10.1.2.3", True),
        (["10.1.0.0/16"], "10.2.0.1", False),
        (["10.1.0.0/16", " fd00::/8"], "[fd00::1]", True),
        (["10.1.0.0/16"], "169.254.169.254", False),
        ([], "127.0.0.1", False),
    ],
)
def test_a_permitted_network_permits_its_own_addresses(networks: list[str], host: str, is_permitted: bool) -> None:
    if is_permitted:
        check_receiver(f"http://{host}/", networks_of(networks))
        return
    with pytest.raises(InvalidArgumentError):
        check_receiver(f"http://{host}/", networks_of(networks))


def test_the_environment_permits_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert permitted_networks() == DeliverySettings().networks() == ()
    monkeypatch.setenv(NETWORKS_VARIABLE, "10.1.0.0/16, 127.0.0.1,")
    assert [str(network) for network in DeliverySettings().networks()] == ["10.1.0.0/16", "127.0.0.1/32"]
    assert DeliverySettings(private_networks=()).networks() == ()
    check_new_webhook("http://127.0.0.1/")
    monkeypatch.setenv(NETWORKS_VARIABLE, "everything")
    with pytest.raises(InvalidArgumentError, match="'everything' is not a network"):
        DeliverySettings()
    with pytest.raises(InvalidArgumentError, match="is not a network"):
        DeliverySettings(private_networks=("10.1.0.1/16",))


def test_a_name_is_refused_if_one_of_its_addresses_is_not_public(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["8.8.8.8", "10.0.0.1"]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [_answer(address) for address in answers])
    with pytest.raises(InvalidArgumentError, match=r"alerts\.example\.com has the address 10\.0\.0\.1"):
        check_new_webhook("https://alerts.example.com/")


def test_a_name_that_cannot_be_resolved_yet_is_accepted() -> None:
    check_new_webhook("https://alerts.invalid/")


def test_a_name_whose_address_changes_after_it_was_set_gets_nothing(
    lake: Lake, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check at delivery counts, and the connection goes to the address that was checked."""
    lake.new_table()
    with receiver.serving():
        subscribe(lake, receiver)
        resolved: list[str] = []

        def resolve(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
            resolved.append(host)
            return [_answer("127.0.0.1", port)]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        closed = DeliverySettings(max_attempts=4, first_wait_s=0.01, timeout_s=0.5, private_networks=())
        (report,) = deliver_webhooks(lake.client, settings=closed)
        assert "127.0.0.1, which is not public" in str(report.error)
        assert (receiver.requests, position(lake), report.num_failed) == ([], 0, 0)
        assert len(resolved) == 1  # Not repeated, and not resolved again for a connection.
        assert deliver_webhooks(lake.client, settings=QUICK)[0].error is None
        assert receiver.requests


def test_a_redirect_to_a_private_address_is_not_followed(receiver: Receiver) -> None:
    receiver.answer = lambda number: 302
    with receiver.serving():
        status = post(receiver.url, b"{}", headers={}, timeout_s=5, networks=networks_of(["127.0.0.1"]))
    assert (status, len(receiver.requests)) == (302, 1)


def test_the_address_behind_a_proxy_is_checked(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver.serving():
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{receiver.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        from cm_delta_dagster.operations.events import http_post

        monkeypatch.setattr(http_post, "_OPENER", http_post.opener())
        with pytest.raises(InvalidArgumentError, match=r"169\.254\.169\.254, which is not public"):
            post("http://169.254.169.254/latest", b"{}", headers={}, timeout_s=5)
        assert post("http://alerts.invalid/hook", b"{}", headers={}, timeout_s=5) == 204


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example.com/services/T0/t0ken", "https://hooks.example.com/***"),
        ("https://hooks.example.com:8443/?token=t0ken", "https://hooks.example.com:8443/***"),
        ("https://hooks.example.com/#t0ken", "https://hooks.example.com/***"),
        ("https://hooks.example.com/", "https://hooks.example.com/"),
        ("https://hooks.example.com", "https://hooks.example.com"),
    ],
)
def test_a_shown_url_has_no_token(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    assert "#" in url or "t0ken" not in without_path(f"cannot send {url}", url)
    assert "t0ken" not in repr(Webhook(name="a", url=url, secret="env:A", wanted=EventFilter(), position=0))


def test_a_token_is_neither_in_the_audit_nor_in_the_feed(lake: Lake) -> None:
    for url in ("https://8.8.8.8/services/s3cr3t", "https://8.8.8.8/?token=s3cr3t"):
        hook = Webhook(name="hook", url=url, secret="env:A", wanted=EventFilter(), position=0)
        lake.catalog.put_webhook(hook)
        assert lake.catalog.webhooks()[0].url == url
    lake.catalog.remove_webhook("hook")
    entries = f"{lake.catalog.audit()!r} {lake.catalog.events(after=0, limit=100)!r}"
    assert "hook to https://8.8.8.8/***" in entries and "s3cr3t" not in entries


def _answer(address: str, port: int = 443) -> tuple[Any, ...]:
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
