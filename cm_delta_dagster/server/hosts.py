"""Which hosts only this machine reaches."""

import ipaddress
from contextlib import suppress


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
