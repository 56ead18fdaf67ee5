"""``cm-delta serve`` as a process: start, access log, several processes, TLS, stop, and clear errors."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.server.wires import UNITY_PATH
from tests.support.waiting import until

SCHEMAS = f"{UNITY_PATH}/schemas?catalog_name=main"


@dataclass
class _Served:
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    url: str = ""

    def has_started(self) -> bool:
        started = [line for line in self.errors if line.startswith("Serving ")]
        self.url = started[0].removeprefix("Serving ").partition(";")[0] if started else ""
        return bool(started) or self.process.poll() is not None

    def access_lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in list(self.lines)]


@contextmanager
def serve(catalog: str, *arguments: str, port: int = 0) -> Iterator[_Served]:
    """The command, on a free port; killed at the end if it did not stop."""
    command = [sys.executable, "-m", "cm_delta_dagster.cli.main", "serve", f"--port={port}", *arguments]
    process = subprocess.Popen(
        command,
        env={**os.environ, "CM_DELTA_CATALOG_URL": catalog},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    served = _Served(process)
    readers = [
        threading.Thread(target=lambda: served.lines.extend(iter(process.stdout.readline, ""))),  # type: ignore[union-attr]  # A pipe.
        threading.Thread(target=lambda: served.errors.extend(iter(process.stderr.readline, ""))),  # type: ignore[union-attr]  # A pipe.
    ]
    for reader in readers:
        reader.start()
    try:
        until(served.has_started)
        yield served
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait()
        for reader in readers:
            reader.join()


def answers(served: _Served, path: str = "/health/ready", *, verify: ssl.SSLContext | bool = True) -> bool:
    try:
        return httpx.get(f"{served.url}{path}", timeout=60, verify=verify).status_code == 200
    except httpx.TransportError:
        return False


def secret_for(catalog: str) -> str:
    with SqlCatalog(catalog) as opened:
        return opened.tokens.create_token("etl").secret


def test_the_command_serves_a_new_catalog_and_logs_each_request(tmp_path: Path) -> None:
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    with serve(catalog, "--warehouse", str(tmp_path / "warehouse")) as served:
        until(lambda: answers(served))
        secret = secret_for(catalog)
        headers = {"Authorization": f"Bearer {secret}", "X-Request-Id": "job-1"}
        httpx.get(f"{served.url}{SCHEMAS}", headers=headers, timeout=60)
        assert httpx.get(f"{served.url}/docs", timeout=60).status_code == 200
        until(lambda: any(line["request_id"] == "job-1" for line in served.access_lines()))
        (line,) = (line for line in served.access_lines() if line["request_id"] == "job-1")
        assert (line["principal"], line["method"], line["client"]) == ("etl", "GET", "127.0.0.1")
        assert datetime.fromisoformat(str(line["time"])).utcoffset() == timedelta(0)
        served.process.send_signal(signal.SIGTERM)
        served.process.wait()
    assert secret not in "".join([*served.lines, *served.errors])
    with SqlCatalog(catalog) as opened:
        assert [token.last_used_ms is not None for token in opened.tokens.tokens()] == [True]


def test_the_principal_of_the_server_is_an_option_of_the_command(tmp_path: Path) -> None:
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    with SqlCatalog(catalog, principal="ana") as opened:
        opened.access.enable_grants()
        opened.access.grant([Privilege.MAINTAIN], "*", "lake-server")
    with serve(catalog, "--principal", "lake-server") as served:
        until(lambda: answers(served))
    assert not any("no principal" in line for line in served.errors)
    with serve(catalog) as served:
        until(lambda: any("the server has no principal" in line for line in served.errors))
    assert not any("Traceback" in line for line in served.errors)


def test_a_request_that_has_begun_is_answered_after_the_server_was_asked_to_stop(tmp_path: Path) -> None:
    with serve(f"sqlite:///{tmp_path}/catalog.db") as served:
        until(lambda: answers(served))
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=300) as begun:
            begun.sendall(f"POST {UNITY_PATH}/schemas HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{".encode())
            assert answers(served)  # The server has accepted the connection before this one.
            served.process.send_signal(signal.SIGTERM)
            until(lambda: not answers(served))
            begun.sendall(b"}")
            assert begun.recv(65536).startswith(b"HTTP/1.1 401")
        served.process.wait()


@pytest.mark.postgres
def test_several_processes_serve_one_catalog(postgres_url: str, tmp_path: Path) -> None:
    with serve(postgres_url, "--workers", "2", "--warehouse", str(tmp_path)) as served:
        until(lambda: answers(served))
        headers = {"Authorization": f"Bearer {secret_for(postgres_url)}"}
        for _ in range(20):  # Each request has a connection of its own, which any process accepts.
            answer = httpx.get(f"{served.url}{SCHEMAS}", headers=headers, timeout=60)
            assert answer.status_code in (200, 404)
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait() == 0
    with SqlCatalog(postgres_url) as opened:
        opened.tokens.revoke_token(opened.tokens.tokens()[0].token_id)


def test_tls_is_served_with_a_certificate(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    options = ["--tls-certificate", str(certificate), "--tls-key", str(key)]
    with serve(f"sqlite:///{tmp_path}/catalog.db", *options) as served:
        assert served.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(certificate))
        until(lambda: answers(served, verify=trusted))
        plain = served.url.replace("https://", "http://")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{plain}/health/live", timeout=60)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "without TLS"),
        (["--workers", "2"], "2 workers over a SQLite file"),
        (["--config", "none.toml"], "cannot be read"),
        (["--tls-key", "none.pem"], "needs both settings"),
        (["--port", "70000"], "port: Input should be less than or equal to 65535"),
    ],
)
def test_a_wrong_configuration_is_an_error_before_anything_starts(
    tmp_path: Path, arguments: Sequence[str], message: str
) -> None:
    with serve(f"sqlite:///{tmp_path}/catalog.db", *arguments) as served:
        assert served.process.wait() == 1
    (error,) = [line for line in served.errors if line.startswith("Error: ")]
    assert message in error and not any("Traceback" in line for line in served.errors)
    assert not (tmp_path / "catalog.db").exists()


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """The files of a certificate for 127.0.0.1 that signs itself, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    files = directory / "certificate.pem", directory / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files
