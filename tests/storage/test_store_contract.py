"""Every shipped store keeps the rules of the store contract."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from cm_delta_dagster.storage.fsspec_store import FsspecStore
from cm_delta_dagster.storage.local_store import LocalStore, place_by_exclusive_rename
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.store import Store
from tests.contracts.store_contract import STORE_CONTRACT, Rule


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    server_module = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["memory", "local", "local-without-links", "s3"])
def store_and_root(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Store, str]:
    match request.param:
        case "memory":
            return MemoryStore(), "memory://root"
        case "local":
            return LocalStore(), f"file://{tmp_path}/root"
        case "local-without-links":
            return LocalStore(primitives=(place_by_exclusive_rename,)), f"file://{tmp_path}/root"
    endpoint = request.getfixturevalue("s3_endpoint")
    store = FsspecStore("s3", options={"endpoint_url": endpoint, "key": "k", "secret": "s"})
    bucket = f"b-{uuid.uuid4().hex}"
    store._filesystem.mkdir(bucket)
    return store, f"s3://{bucket}/root"


@pytest.mark.parametrize("rule", STORE_CONTRACT, ids=lambda rule: rule.__name__)
def test_store_keeps_the_contract(rule: Rule, store_and_root: tuple[Store, str]) -> None:
    """LOG-5, LOG-18"""
    rule(*store_and_root)
