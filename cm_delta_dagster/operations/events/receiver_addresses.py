"""Which addresses webhooks may have: public ones, and those of the networks that the configuration of the process permits.

Who may set a webhook could otherwise let the delivering process post to services that only its own machine or network reaches,
such as the metadata service of a cloud. A name is resolved when a webhook is set and again for each connection, which is made to
the addresses that were checked: a name whose address changes in between, and each spelling of an address, get the same answer.
"""

import os
import socket
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from cm_delta_dagster.catalog.webhooks import is_deliverable
from cm_delta_dagster.errors import InvalidArgumentError

NETWORKS_VARIABLE = "CM_DELTA_WEBHOOK_NETWORKS"
"""Environment variable with networks that are not public and may have receivers, separated by commas."""

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address
Resolved = tuple[socket.AddressFamily, tuple[object, ...]]
"""The family of a socket, and the address to connect it to."""

_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = IPv6Network("::/96")


def networks_of(texts: Iterable[str]) -> tuple[Network, ...]:
    """The networks of texts such as ``10.1.0.0/16`` or ``127.0.0.1``. Raises InvalidArgumentError for a malformed one."""
    networks = []
    for text in texts:
        try:
            networks.append(ip_network(text.strip()))
        except (AttributeError, ValueError) as error:
            raise InvalidArgumentError(
                f"{text!r} is not a network that webhooks may be sent to: {error}. Give e.g. 10.1.0.0/16, 127.0.0.1 or fd00::/8."
            ) from None
    return tuple(networks)


def permitted_networks() -> tuple[Network, ...]:
    """The networks of ``CM_DELTA_WEBHOOK_NETWORKS``; none if it is not set. Raises InvalidArgumentError."""
    return networks_of(text for text in os.environ.get(NETWORKS_VARIABLE, "").split(",") if text.strip())


def check_new_webhook(url: str) -> None:
    """Check the URL of a webhook before it is set. One that the catalog refuses is left to it. Raises InvalidArgumentError."""
    if isinstance(url, str) and is_deliverable(url):
        check_receiver(url, permitted_networks())


def check_receiver(url: str, networks: Sequence[Network]) -> None:
    """Check the addresses that the host of ``url`` has now. A name that cannot be resolved here is checked at delivery.

    Raises:
        InvalidArgumentError: one of its addresses is not permitted.
    """
    parts = urlsplit(url)
    try:
        checked_addresses(parts.hostname or "", parts.port or 0, networks)
    except OSError:
        return


def checked_addresses(host: str, port: int, networks: Sequence[Network]) -> tuple[Resolved, ...]:
    """All addresses of ``host``.

    Raises:
        InvalidArgumentError: one of them is not permitted.
        OSError: the name cannot be resolved.
    """
    resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for *_, place in resolved:
        address = ip_address(str(place[0]).partition("%")[0])  # fe80::1%eth0
        if not _is_permitted(address, networks):
            raise InvalidArgumentError(
                f"The receiver {host} has the address {address}, which is not public: it is of this machine, of a private network "
                "or reserved. Nothing was sent. If webhooks may be sent there, the operator of the delivering process permits its "
                f"network in {NETWORKS_VARIABLE}, e.g. 10.1.0.0/16, or in DeliverySettings(private_networks=...)."
            )
    return tuple((family, place) for family, _, _, _, place in resolved)


def _is_permitted(address: Address, networks: Sequence[Network]) -> bool:
    forms = (address, *_embedded(address))
    if any(form in network for form in forms for network in networks if form.version == network.version):
        return True
    return all(map(_is_public, forms[1:] or forms))


def _is_public(address: Address) -> bool:
    is_special = address.is_multicast or address.is_reserved or address.is_unspecified
    return address.is_global and not is_special and not getattr(address, "is_site_local", False)


def _embedded(address: Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that packets to an IPv6 address reach: mapped, compatible, 6to4, Teredo, NAT64."""
    if isinstance(address, IPv4Address):
        return ()
    embedded = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    number = int(address)
    if any(address in network for network in _NAT64) or (address in _COMPATIBLE and number > 1):
        embedded.append(IPv4Address(number & 0xFFFFFFFF))
    return tuple(item for item in embedded if item is not None)
