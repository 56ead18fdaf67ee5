"""Signatures of webhooks, as the Standard Webhooks specification describes them."""

import base64
import hashlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path

from cm_delta_dagster.errors import InvalidArgumentError

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
"""Names of the headers."""

_VERSION = "v1"
_ENCODED = "whsec_"


def secret_of(reference: str) -> bytes:
    """The secret at ``env:NAME`` or ``file:/path``: the text, or its Base64 part after ``whsec_``.

    Raises:
        InvalidArgumentError: there is no secret, or it cannot be decoded. The message does not contain it.
    """
    kind, _, place = reference.partition(":")
    try:
        text = os.environ.get(place, "") if kind == "env" else Path(place).read_text(encoding="utf-8").strip()
        secret = _decoded(text)
    except (OSError, ValueError) as error:  # Also of Base64, of text that is not UTF-8, and of a path with U+0000.
        raise InvalidArgumentError(f"The secret at {reference} cannot be read ({type(error).__name__}).") from None
    if not secret:
        raise InvalidArgumentError(
            f"There is no secret at {reference}. Set it for the process that delivers the webhooks."
        )
    return secret


def _decoded(text: str) -> bytes:
    """The bytes that sign: those of the text, or of its Base64 part after ``whsec_``. Raises ValueError."""
    if not text.startswith(_ENCODED):
        return text.encode()
    return base64.b64decode(text.removeprefix(_ENCODED), validate=True)


def signature(secret: bytes, *, event_id: str, timestamp: int, body: bytes) -> str:
    """The value of the header ``webhook-signature``: HMAC-SHA256 of id, timestamp (epoch seconds) and body."""
    signed = b".".join((event_id.encode(), str(timestamp).encode(), body))
    return f"{_VERSION},{base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()}"


def is_authentic_webhook(
    headers: Mapping[str, str], body: bytes, secret: str | bytes, *, now_s: float, tolerance_s: float = 300
) -> bool:
    """Whether a received request was signed with ``secret`` at most ``tolerance_s`` seconds ago; for receivers.

    Args:
        headers: names are compared without case.
        secret: the text to which the subscription's reference leads, of which a part after ``whsec_`` is Base64-decoded; or the
            bytes that sign.
        now_s: the receiver's time, epoch seconds.

    Raises:
        InvalidArgumentError: the text after ``whsec_`` is not Base64. The message does not contain it.
    """
    try:
        key = _decoded(secret) if isinstance(secret, str) else secret
    except ValueError:
        raise InvalidArgumentError(f"The secret cannot be read: what follows {_ENCODED} is not Base64.") from None
    values = {name.lower(): value for name, value in headers.items()}
    try:
        timestamp = int(values[TIMESTAMP])
        expected = signature(key, event_id=values[ID], timestamp=timestamp, body=body)
        signatures = values[SIGNATURE].split()
    except (KeyError, ValueError):
        return False
    is_recent = abs(now_s - timestamp) <= tolerance_s
    return is_recent and any(hmac.compare_digest(expected.encode(), text.encode()) for text in signatures)
