"""What users get wrong about S3: one clear error before anything is written, or the right thing."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cm_delta_dagster import connect
from cm_delta_dagster.errors import InvalidArgumentError, StoreNotSupportedError
from cm_delta_dagster.storage.fsspec_store import FsspecStore
from tests.support.object_stores import make_bucket
from tests.support.s3_server import S3Server, s3_server
from tests.support.short_lived_keys import KEY_PREFIX, short_lived_keys

SCHEMA = pa.schema([("id", pa.int64())])
ODD = "ä b+c#d?e&f=g/データ"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    pytest.importorskip("s3fs")
    with s3_server() as running:
        yield running


@pytest.fixture
def options(server: S3Server) -> dict[str, Any]:
    return {"endpoint_url": server.endpoint, "key": "k", "secret": "s"}


@pytest.fixture
def bucket(options: dict[str, Any]) -> str:
    name = f"b-{uuid.uuid4().hex}"
    make_bucket(FsspecStore("s3", options=options), name)
    return name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"acess_key": "k"}, "Did you mean 'key'"),
        ({"client_kwargs": {"region": "eu-central-1"}}, "region_name"),
        ({"account_key": "k"}, "It is an option of Azure"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_written(
    wrong: dict[str, Any], message: str, server: S3Server, options: dict[str, Any], bucket: str, tmp_path: Path
) -> None:
    server.requests.clear()
    with (
        connect(
            f"sqlite:///{tmp_path}/c.db", warehouse=f"s3://{bucket}/w", storage_options={**options, **wrong}
        ) as lake,
        pytest.raises(InvalidArgumentError, match=message),
    ):
        lake.create_table("main.test.t", SCHEMA)
    assert server.requests == []


def test_the_root_of_a_bucket_can_be_the_warehouse(options: dict[str, Any], bucket: str, tmp_path: Path) -> None:
    for number, spelled in enumerate((f"s3://{bucket}", f"s3a://{bucket}/", f"s3://{bucket}//")):
        with connect(f"sqlite:///{tmp_path}/c.db", warehouse=spelled, storage_options=options) as lake:
            table = lake.create_table(f"main.test.t{number}", SCHEMA)
            assert table.location.startswith(f"s3://{bucket}/main/test/t{number}") and table.version() == 0
            assert lake.client.registry.identity().warehouse == f"s3://{bucket}"


def test_a_table_has_one_location_whatever_its_spelling(options: dict[str, Any], bucket: str, tmp_path: Path) -> None:
    """Adopted under one name of the bucket, a table is not adopted again under another one."""
    with connect(f"sqlite:///{tmp_path}/old.db", warehouse=f"s3://{bucket}/{ODD}", storage_options=options) as lake:
        location = lake.create_table("main.test.t", SCHEMA).location
    (tmp_path / "old.db").unlink()
    url = f"sqlite:///{tmp_path}/new.db"
    for number, scheme in enumerate(("s3a", "s3", "s3n", "S3")):
        warehouse = f"{scheme}://{bucket}//{ODD}/"
        with connect(url, warehouse=warehouse, storage_options=options) as lake:
            adopted = lake.recovery.plan_recover_warehouse(warehouse).apply().tables
            assert len(adopted) == (1 if number == 0 else 0)
            assert [lake.table(name).location for name in lake.tables()] == [location]
            with pytest.raises(InvalidArgumentError, match="neither lies inside the other"):
                lake.recovery.plan_relocate(f"s3a://{bucket}/{ODD}", f"s3://{bucket}/{ODD}/")


def test_all_spellings_of_a_path_open_one_table(options: dict[str, Any], bucket: str, tmp_path: Path) -> None:
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
    metadata = {
        "id": "1",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {},
    }
    actions = ({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata})
    content = "".join(f"{json.dumps(action)}\n" for action in actions).encode()
    FsspecStore("s3", options=options).write(f"s3://{bucket}/{ODD}/t/_delta_log/{0:020}.json", content)
    with connect(f"sqlite:///{tmp_path}/c.db", warehouse=f"s3://{bucket}/w", storage_options=options) as lake:
        spellings = [f"{scheme}://{bucket}/{ODD}/t" for scheme in ("s3", "s3a", "s3n", "S3A")]
        spellings += [f"s3://{bucket}/{ODD}/t/", f"s3a://{bucket}//{ODD}//t"]
        assert {lake.path_table(spelled).location for spelled in spellings} == {f"s3://{bucket}/{ODD}/t"}
        assert lake.path_table(spellings[-1]).to_arrow().num_rows == 0


def test_a_path_that_the_client_takes_for_a_version_is_refused(
    server: S3Server, options: dict[str, Any], bucket: str, tmp_path: Path
) -> None:
    """s3fs would write every object of the table to one key."""
    server.requests.clear()
    with connect(
        f"sqlite:///{tmp_path}/c.db", warehouse=f"s3://{bucket}/w?versionId=1", storage_options=options
    ) as lake:
        with pytest.raises(StoreNotSupportedError, match="for the version of an object"):
            lake.create_table("main.test.t", SCHEMA)
        assert lake.tables() == ()
    assert server.requests == []
    with connect(f"sqlite:///{tmp_path}/d.db", warehouse=f"s3://{bucket}/w?version=1", storage_options=options) as lake:
        assert lake.create_table("main.test.t", SCHEMA).version() == 0


def test_keys_that_expire_are_renewed(
    server: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profile's program issues another key before the last one expires, without a new connection."""
    # botocore renews keys that expire within ten minutes.
    for name, value in short_lived_keys(tmp_path, seconds=60).items():
        monkeypatch.setenv(name, value)
    options = {"profile": "short-lived", "endpoint_url": server.endpoint}
    with connect(f"sqlite:///{tmp_path}/c.db", warehouse=f"s3://{bucket}/w", storage_options=options) as lake:
        lake.create_table("main.test.t", SCHEMA)
        assert lake.table("main.test.t").version() == 0
    keys = {key for name, key in server.signers if name == bucket and key != "k"}
    assert len(keys) > 1 and all(key.startswith(KEY_PREFIX) for key in keys)
