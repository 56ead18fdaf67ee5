"""A catalog whose tables are in object stores: one after the other of a user's mistakes, and several stores in one catalog."""

import json
import sqlite3
import sys
import traceback
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from click.testing import CliRunner

from cm_delta_dagster import CmDeltaError, Connection, connect
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.errors import InvalidArgumentError, ObjectNotFoundError, StorageError, StoreNotSupportedError
from cm_delta_dagster.orchestration import CatalogResource
from cm_delta_dagster.storage.fsspec_store import FsspecStore, backend_of
from cm_delta_dagster.storage.storage_options import StorageOptions
from cm_delta_dagster.storage.stores import Stores
from tests.support.object_stores import (
    AZURE_KEY,
    azure_connection_string,
    gcs_options,
    make_bucket,
    s3_options,
)
from tests.support.server_process import free_port

SCHEMA = pa.schema([("id", pa.int64())])
NAME = "main.test.t"
SECRET, KEY = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY", "AKIAIOSFODNN7EXAMPLE"


@pytest.fixture
def s3_bucket(s3_endpoint: str) -> str:
    name = f"b-{uuid.uuid4().hex}"
    make_bucket(FsspecStore("s3", options=s3_options(s3_endpoint)), name)
    return name


@pytest.fixture
def locked_s3(s3_endpoint: str, s3_bucket: str) -> Iterator[str]:
    """The S3 server, which has made the bucket, and checks keys to the end of the test."""

    def check(after: float) -> None:
        address, headers = f"{s3_endpoint}/moto-api/reset-auth", {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(address, data=str(after).encode(), headers=headers)).close()

    check(0)
    yield s3_endpoint
    check(float("inf"))


def fails_before_anything_is_written(lake: Connection, url: str, match: str) -> str:
    """Create a table, which must fail; return everything that Python shows of the error."""
    with pytest.raises(CmDeltaError, match=match) as raised:
        lake.create_table(NAME, SCHEMA)
    assert lake.tables() == () and lake.client.registry.inactive_tables() == ()
    lake.close()
    shown = "".join(traceback.format_exception(raised.value)) + repr(lake)
    stored = Path(url.removeprefix("sqlite:///")).read_bytes()
    for secret in (SECRET, KEY, AZURE_KEY):
        assert secret not in shown and secret.encode() not in stored
    return shown


def test_a_bucket_that_does_not_exist_is_named(
    s3_endpoint: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    options = {"endpoint_url": s3_endpoint, "key": KEY, "secret": SECRET}
    lake = connect(url, warehouse="s3://no-such-bucket/w", storage_options=options)
    fails_before_anything_is_written(lake, url, "the bucket no-such-bucket does not exist. Create it")


@pytest.mark.parametrize("kind", ["azure", "gcs"])
def test_a_bucket_that_does_not_exist_is_named_in_other_stores(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    if kind == "azure":
        options, scheme = {"connection_string": request.getfixturevalue("azurite")}, "az"
    else:
        options, scheme = gcs_options(request.getfixturevalue("gcs_endpoint")), "gs"
    lake = connect(url, warehouse=f"{scheme}://no-such-bucket/w", storage_options=options)
    fails_before_anything_is_written(lake, url, "no-such-bucket does not exist. Create it")


def test_a_wrong_key_is_an_error_without_the_key(locked_s3: str, s3_bucket: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    options = {"endpoint_url": locked_s3, "key": KEY, "secret": SECRET}
    lake = connect(url, warehouse=f"s3://{s3_bucket}/w", storage_options=options)
    fails_before_anything_is_written(lake, url, "does not accept the credentials")


def test_a_wrong_key_of_azure_is_an_error_without_the_key(azurite: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    wrong = "A" + AZURE_KEY[1:]
    endpoint = azurite.rpartition("BlobEndpoint=")[2].rpartition("/")[0]
    options = {"connection_string": azure_connection_string(endpoint, key=wrong)}
    lake = connect(url, warehouse="az://container/w", storage_options=options)
    assert wrong not in fails_before_anything_is_written(lake, url, "does not accept the credentials")


def test_options_that_cannot_be_used_are_an_error_without_secrets(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    lake = connect(url, warehouse="az://container/w", storage_options={"connection_string": f"AccountKey={SECRET}"})
    fails_before_anything_is_written(lake, url, "Azure cannot be opened with storage_options")


@pytest.mark.parametrize(
    ("warehouse", "module", "extra"),
    [
        ("s3://b/w", "s3fs", "s3"),
        ("abfss://c@a.dfs.core.windows.net/w", "adlfs", "azure"),
        ("gs://b/w", "gcsfs", "gcs"),
    ],
)
def test_a_scheme_without_its_package_names_the_extra(
    warehouse: str, module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme in backend_of(warehouse.partition("://")[0]).schemes:
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, scheme, raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    url = f"sqlite:///{tmp_path}/catalog.db"
    lake = connect(url, warehouse=warehouse)
    fails_before_anything_is_written(lake, url, rf"pip install '<path of the clone>\[{extra}\]'")


@pytest.mark.parametrize("warehouse", ["s3://", "s3:///w", "gs://", "abfss:///w"])
def test_a_warehouse_without_a_bucket_is_refused(warehouse: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be the warehouse"):
        connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse)


@pytest.mark.parametrize(
    ("warehouse", "message"),
    [
        ("~/tables", "only a shell replaces '~'"),
        ("  ", "it is empty"),
        ("tables\n", "a control character|another control character"),
        (" tables", "begins or ends with a space"),
        ("C:\\tables", "the drive of another system"),
        ("file:tables", "'file:' is followed by a relative path"),
    ],
)
def test_a_warehouse_that_cannot_be_meant_is_refused(
    warehouse: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError, match=message):
        connect("sqlite:///catalog.db", warehouse=warehouse)
    with connect("sqlite:///catalog.db") as lake, pytest.raises(InvalidArgumentError, match=message):
        lake.path_table(warehouse)
    assert {path.name for path in tmp_path.iterdir()} <= {"catalog.db"}


def test_all_spellings_of_a_warehouse_are_one(s3_endpoint: str, s3_bucket: str, tmp_path: Path) -> None:
    url, options = f"sqlite:///{tmp_path}/catalog.db", s3_options(s3_endpoint)
    with connect(url, warehouse=f"s3://{s3_bucket}/w", storage_options=options) as lake:
        lake.create_table("main.test.first", SCHEMA)
    spellings = ("s3a://{}/w", "S3://{}/w/", "s3n://{}/w", "s3://{}//w//", "s3a://{}/./w")
    for number, spelled in enumerate(spellings):
        with connect(url, warehouse=spelled.format(s3_bucket), storage_options=options) as lake:
            if number < 2:
                table = lake.create_table(f"main.test.t{number}", SCHEMA)
                assert table.location.startswith(f"s3://{s3_bucket}/w/") and table.version() == 0
            identity = lake.client.registry.identity()
            assert identity.warehouse == f"s3://{s3_bucket}/w"


def test_a_vanished_bucket_is_not_an_empty_one(s3_endpoint: str) -> None:
    store = FsspecStore("s3", options=s3_options(s3_endpoint))
    acts = (store.read, store.stat, store.delete, store.list_from, lambda at: list(store.list_recursive(at)))
    for act in (*acts, lambda at: store.write(at, b"x"), lambda at: store.read_range(at, offset=0, length=1)):
        with pytest.raises(StorageError, match="the bucket gone-bucket does not exist") as raised:
            act("s3://gone-bucket/table/x")
        assert not isinstance(raised.value, ObjectNotFoundError)


@pytest.mark.parametrize("kind", ["s3", pytest.param("azure", marks=[pytest.mark.slow, pytest.mark.exhaustive]), "gcs"])
def test_a_path_that_is_not_ascii_works(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    warehouse, options = warehouse_in(kind, request)
    with connect(
        f"sqlite:///{tmp_path}/c.db", warehouse=f"{warehouse}/größe 1/データ", storage_options=options
    ) as lake:
        lake.create_table(NAME, SCHEMA)
        assert lake.table(NAME).version() == 0


def warehouse_in(kind: str, request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    """A fresh bucket, and the options that reach it."""
    scheme, options = {
        "s3": lambda: ("s3", s3_options(request.getfixturevalue("s3_endpoint"))),
        "azure": lambda: ("abfss", {"connection_string": request.getfixturevalue("azurite")}),
        "gcs": lambda: ("gs", gcs_options(request.getfixturevalue("gcs_endpoint"))),
    }[kind]()
    name = f"b-{uuid.uuid4().hex}"
    make_bucket(FsspecStore(scheme, options=options), name)
    host = "@devstoreaccount1.dfs.core.windows.net" if kind == "azure" else ""
    return f"{scheme}://{name}{host}", options


def test_one_catalog_has_tables_in_several_stores(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    places = dict(warehouse_in(kind, request) for kind in ("s3", "azure", "gcs"))
    for number, warehouse in enumerate([*places, f"{tmp_path}/local"]):
        with connect(url, warehouse=warehouse, storage_options=places) as lake:
            lake.create_table(f"main.test.t{number}", SCHEMA)
    with connect(url, warehouse=f"{tmp_path}/local", storage_options=places) as lake:
        locations = [lake.table(name).location for name in lake.tables()]
        assert [location.partition("://")[0] for location in locations] == ["s3", "abfss", "gs", "file"]
        assert [lake.table(name).version() for name in lake.tables()] == [0] * 4
    stored = json.dumps([list(map(str, row)) for row in _rows(tmp_path / "catalog.db")])
    assert AZURE_KEY not in stored and "connection_string" not in stored


def _rows(database: Path) -> Iterator[tuple[object, ...]]:
    with sqlite3.connect(database) as connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            yield from connection.execute(f'SELECT * FROM "{table}"')


@pytest.mark.requirements("LOG-5")
def test_a_server_that_ignores_the_condition_is_refused(tmp_path: Path) -> None:
    server = pytest.importorskip("gcp_storage_emulator.server")
    pytest.importorskip("gcsfs")
    port = free_port()
    ignoring = server.create_server("127.0.0.1", port, in_memory=True, default_bucket="ignoring")
    ignoring.start()
    try:
        store = FsspecStore("gs", options=gcs_options(f"http://127.0.0.1:{port}"))
        with pytest.raises(StoreNotSupportedError, match="ignores ifGenerationMatch=0"):
            store.write_if_absent("gs://ignoring/log/0.json", b"x")
        assert list(store.list_recursive("gs://ignoring/log")) == []
    finally:
        ignoring.stop()


def test_the_command_line_takes_storage_options(s3_endpoint: str, s3_bucket: str, tmp_path: Path) -> None:
    url, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"s3://{s3_bucket}/w"
    with connect(url, warehouse=warehouse, storage_options=s3_options(s3_endpoint)) as lake:
        lake.create_table(NAME, SCHEMA)

    def run(*arguments: str, **environment: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["--catalog", url, *arguments], env=environment)
        return done.exit_code, done.output

    options = [
        text for name, value in s3_options(s3_endpoint).items() for text in ("--storage-option", f"{name}={value}")
    ]
    assert run(*options, "doctor", NAME) == run(
        "doctor", NAME, CM_DELTA_STORAGE_OPTIONS=json.dumps({f"s3a://{s3_bucket}": s3_options(s3_endpoint)})
    )
    assert run(*options, "doctor", NAME)[0] == 0
    prefixed = f"s3://{s3_bucket}/w={json.dumps(s3_options(s3_endpoint))}"
    assert run("--storage-option", prefixed, "maintenance", "orphan-files", "--warehouse", warehouse)[0] == 0
    for wrong in ("no-value", 'client_kwargs={"secret": "wJalrX', "=x"):
        code, output = run("--storage-option", wrong, "tables")
        assert code == 2 and "wJalrX" not in output
    code, output = run("tables", CM_DELTA_STORAGE_OPTIONS="key=wJalrX")
    assert code == 2 and "is not a JSON object" in output and "wJalrX" not in output


def test_a_resource_takes_options_by_prefix_and_nested_values_of_the_environment(
    s3_endpoint: str, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_BUCKET_KEY", KEY)
    monkeypatch.setenv("TEST_BUCKET_SECRET", SECRET)
    seen = []

    @dg.asset
    def looks(catalog: CatalogResource) -> None:
        stores = catalog.client.stores
        assert isinstance(stores, Stores) and isinstance(stores.storage_options, StorageOptions)
        seen.append((stores.storage_options.for_location(f"s3://{s3_bucket}/w"), repr(catalog)))

    options = {
        f"s3a://{s3_bucket}": {
            "key": dg.EnvVar("TEST_BUCKET_KEY"),
            "secret": dg.EnvVar("TEST_BUCKET_SECRET"),
            "client_kwargs": {"endpoint_url": s3_endpoint},
        }
    }
    resource = CatalogResource(
        url=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"s3://{s3_bucket}/w", storage_options=options
    )
    dg.materialize([looks], resources={"catalog": resource})
    [(found, shown)] = seen
    assert found == {"key": KEY, "secret": SECRET, "client_kwargs": {"endpoint_url": s3_endpoint}}
    assert SECRET not in shown and KEY not in shown
    monkeypatch.delenv("TEST_BUCKET_SECRET")
    with pytest.raises(InvalidArgumentError, match="TEST_BUCKET_SECRET, which is not set"):
        dg.materialize([looks], resources={"catalog": resource})


def test_a_failing_request_does_not_reach_the_local_file_system(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        Stores().store_for("s3://bucket/x").read("file:///etc/hostname")
