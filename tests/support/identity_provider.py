"""An identity provider in this process: real keys, the JWTs that it signs, and a server of HTTP that publishes its keys."""

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://login.example", "cm-delta"
SKEW = 60
"""Seconds of the default setting."""


@cache
def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """The key of this name."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def curve_key(name: str) -> ec.EllipticCurvePrivateKey:
    """The key of this name, on the curve of ES256."""
    return ec.generate_private_key(ec.SECP256R1())


@cache
def edwards_key(name: str) -> ed25519.Ed25519PrivateKey:
    """The key of this name."""
    return ed25519.Ed25519PrivateKey.generate()


def jwk(kid: str, private: Any, **also: Any) -> dict[str, Any]:
    """The entry of a key set for the public part of a key."""
    kinds = ((rsa.RSAPrivateKey, RSAAlgorithm), (ec.EllipticCurvePrivateKey, ECAlgorithm))
    algorithm: Any = next((algorithm for kind, algorithm in kinds if isinstance(private, kind)), OKPAlgorithm)
    return {**json.loads(algorithm.to_jwk(private.public_key())), "kid": kid, "use": "sig", **also}


def key_set_of(*entries: dict[str, Any]) -> bytes:
    """The document with these entries."""
    return json.dumps({"keys": entries}).encode()


def fields_of(principal: str = "ana", **other: Any) -> dict[str, Any]:
    """The fields of a valid token; those that are None are left out."""
    now = int(time.time())
    fields = {"iss": ISSUER, "aud": AUDIENCE, "sub": principal, "iat": now, "exp": now + 3600, **other}
    return {name: value for name, value in fields.items() if value is not None}


def signed(
    fields: dict[str, Any], *, kid: str | None = "first", key: Any = None, algorithm: str = "RS256", **headers: Any
) -> str:
    """A token, by default signed with the key ``first``."""
    header = headers if kid is None else {"kid": kid, **headers}
    return jwt.encode(fields, rsa_key("first") if key is None else key, algorithm=algorithm, headers=header)


@dataclass
class Provider:
    """A provider that runs. It answers with ``status``, ``headers`` and ``content``, which a test sets.

    Attributes:
        url: where it publishes its keys.
        paths: of the requests.
        answers: a test clears it to let requests wait.
    """

    url: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""
    paths: list[str] = field(default_factory=list)
    answers: threading.Event = field(default_factory=threading.Event)

    def settings(self, **other: Any) -> dict[str, Any]:
        """What the setting ``identity_provider`` of a server has."""
        return {"issuer": ISSUER, "audience": AUDIENCE, "jwks": self.url, **other}


@contextmanager
def identity_provider(*, tls: tuple[Path, Path] | None = None) -> Iterator[Provider]:
    """A provider with the key ``first`` on a free port of this machine; ``tls`` has the files of a certificate and its key."""
    provider = Provider(content=key_set_of(jwk("first", rsa_key("first"))))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.paths.append(self.path)
            provider.answers.wait(300)
            self.send_response(provider.status)
            for name, value in {"Content-Length": str(len(provider.content)), **provider.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(provider.content)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*tls)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        provider.answers.set()
        provider.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}/keys"
        try:
            yield provider
        finally:
            provider.answers.set()
            server.shutdown()
            thread.join()
