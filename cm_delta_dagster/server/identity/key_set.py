"""Public keys of an identity provider: the format JWKS (RFC 7517), and where it is read.

A key is used only for the algorithms that its type, its curve and its field ``alg`` permit, so that no JWT chooses another one.
"""

import json
import ssl
import threading
import time
from collections.abc import Collection, Mapping
from http.client import HTTPException
from io import BufferedIOBase
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

import jwt

from cm_delta_dagster.server.identity.provider import SignatureAlgorithm, is_url

_TIMEOUT_SECONDS = 5.0
"""Of a connection and of each wait for data; the whole answer must have arrived after twice as long."""
_MAX_BYTES = 1024 * 1024
_CHUNK = 64 * 1024
_MIN_RSA_BITS = 2048

_CURVES: Mapping[str, str] = MappingProxyType(
    {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519"}
)

KeySet: TypeAlias = Mapping[tuple[str, str], jwt.PyJWK]
"""Keys by their id and the algorithm that they are used for."""


class KeySetError(Exception):
    """The keys cannot be read, or are no key set. The message has no content of it."""


def read_keys(source: str) -> bytes:
    """The content of a file or of a URL, whose redirects are not followed. Raises KeySetError."""
    try:
        return _downloaded(source) if is_url(source) else _of_file(source)
    except HTTPError as error:
        raise KeySetError(f"the answer has the status {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise KeySetError(f"{type(error).__name__}: {getattr(error, 'reason', None) or error}") from None


def _of_file(source: str) -> bytes:
    with Path(source).open("rb") as file:
        return _limited(file)


class _WithoutRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """None: the status is an error."""


def _downloaded(url: str) -> bytes:
    """The answer, within a time that also limits its status line and headers."""
    answers: list[bytes | Exception] = []

    def download() -> None:
        try:
            answers.append(_answer(url))
        except Exception as error:  # The caller raises it.
            answers.append(error)

    thread = threading.Thread(target=download, name="cm-delta-keys", daemon=True)
    thread.start()
    thread.join(2 * _TIMEOUT_SECONDS)
    if not answers:
        raise KeySetError(f"it did not arrive within {2 * _TIMEOUT_SECONDS:g} seconds")
    answer = answers[0]
    if isinstance(answer, Exception):
        raise answer
    return answer


def _answer(url: str) -> bytes:
    # A URL with http is of this machine, which no proxy reaches.
    proxies = [ProxyHandler({})] if url.lower().startswith("http:") else []
    opener = build_opener(_WithoutRedirects(), HTTPSHandler(context=ssl.create_default_context()), *proxies)
    request = Request(url, headers={"Accept": "application/jwk-set+json, application/json"})
    with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
        if response.status != 200:
            raise KeySetError(f"the answer has the status {response.status}")
        return _limited(response)


def _limited(stream: BufferedIOBase) -> bytes:
    end = time.monotonic() + 2 * _TIMEOUT_SECONDS
    data = bytearray()
    while chunk := stream.read1(_CHUNK):
        data += chunk
        if len(data) > _MAX_BYTES:
            raise KeySetError(f"it is larger than {_MAX_BYTES} bytes")
        if time.monotonic() > end:
            raise KeySetError(f"it did not arrive within {2 * _TIMEOUT_SECONDS:g} seconds")
    return bytes(data)


def key_set(data: bytes, algorithms: Collection[SignatureAlgorithm]) -> KeySet:
    """The keys that can verify a signature with one of the algorithms; others are left out, perhaps all.

    Raises KeySetError if it is no key set.
    """
    try:
        entries = json.loads(data)["keys"]
    except (ValueError, RecursionError, TypeError, KeyError):
        raise KeySetError("it is not a JSON object with the list keys") from None
    if not isinstance(entries, list):
        raise KeySetError("its keys are not a list")
    keys: dict[tuple[str, str], jwt.PyJWK] = {}
    for entry in entries:
        for algorithm in algorithms:
            key = _key(entry, algorithm) if isinstance(entry, dict) else None
            if key is not None:
                keys[entry["kid"], algorithm.value] = key
    return MappingProxyType(keys)


def _key(entry: Mapping[str, Any], algorithm: SignatureAlgorithm) -> jwt.PyJWK | None:
    """The key for an algorithm; None if it is not for that one, is malformed, private or short, or is not for signatures."""
    identity, operations = entry.get("kid"), entry.get("key_ops", ["verify"])
    curve = _CURVES.get(algorithm)
    type_of_key = "RSA" if curve is None else "OKP" if algorithm is SignatureAlgorithm.EDDSA else "EC"
    is_for_signatures = entry.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
    is_for_algorithm = entry.get("alg", algorithm) == algorithm and entry.get("kty") == type_of_key
    if not isinstance(identity, str) or not is_for_signatures or not is_for_algorithm or "d" in entry:
        return None
    if curve is not None and entry.get("crv") != curve:
        return None
    try:
        key = jwt.PyJWK(dict(entry), algorithm=algorithm.value)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return None if curve is None and key.key.key_size < _MIN_RSA_BITS else key
