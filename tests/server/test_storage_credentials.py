"""Credentials for files that the server gives: as configured, for the files of one table, on each API, and used by our client."""

import json
import logging
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from moto.sts.models import sts_backends

from cm_delta_dagster import connect
from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.storage_credentials import FileAccess
from cm_delta_dagster.errors import InvalidArgumentError, OperationRefusedError, StorageError
from cm_delta_dagster.server.configuration import load_settings
from cm_delta_dagster.server.settings import ServerSettings
from cm_delta_dagster.server.storage_credentials import ConfiguredIssuer, RoleKeys, StaticKeys
from cm_delta_dagster.storage.fsspec_store import FsspecStore
from tests.server.unity.test_commits import error_of
from tests.server.unity.test_older_api import older_error_of
from tests.support.live_server import LiveServer, live_server
from tests.support.object_stores import make_bucket, s3_options
from tests.support.s3_server import S3Server, s3_server
from tests.support.unity_wire import UnityWire

ROLE = "arn:aws:iam::123456789012:role/lake"
NAMES = {"s3.access-key-id", "s3.secret-access-key", "s3.session-token"}
STATIC = {"kind": "static", "access_key_id": "AKIASTATIC", "secret_access_key": "hidden"}


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        make_bucket(FsspecStore("s3", options=s3_options(server.endpoint)), "lake")
        yield server


def role_entry(s3: S3Server, **changes: object) -> dict[str, object]:
    return {
        "prefix": "s3://lake",
        "kind": "aws-role",
        "role_arn": ROLE,
        "region": "us-east-1",
        "endpoint": s3.endpoint,
        "sts_endpoint": s3.endpoint,
        "access_key_id": "AKIASERVER",
        "secret_access_key": "hidden",
        **changes,
    }


@pytest.fixture
def server(tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    """A server whose clients have no credentials of their own."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    settings = ServerSettings.model_validate(
        {
            "catalog": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": f"s3://lake/{tmp_path.name}",
            "storage_options": s3_options(s3.endpoint),
            "storage_credentials": [role_entry(s3)],
        }
    )
    with live_server(settings) as live:
        yield live


def issuer_of(entries: list[dict[str, object]], **arguments: Any) -> ConfiguredIssuer:
    values = {"catalog": "sqlite:///x", "storage_credentials": entries}
    return ConfiguredIssuer(load_settings(None, {}, values).storage_credentials, **arguments)


def test_a_client_needs_a_token_and_nothing_else(
    server: LiveServer, s3: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    """It creates, writes and reads a table with keys of the role; the server signs with its own."""
    caplog.set_level(logging.DEBUG, logger="cm_delta_dagster")
    s3.signers.clear()
    with connect(server.url, token=server.token_for("ana")) as lake:
        table = lake.open_or_create("main.sales.orders", like=pa.table({"id": pa.array([], pa.int64())}))
        table.append(pa.table({"id": [1, 2]}), engine="arrow")
    keys = {key for bucket, key in s3.signers if bucket == "lake"} - {"k"}
    assert keys and all(key.startswith("ASIA") for key in keys), s3.signers
    with connect(server.url, token=server.token_for("bea", read_only=True)) as lake:
        orders = lake.table("main.sales.orders")
        assert orders.scan().to_arrow()["id"].to_pylist() == [1, 2]
        with pytest.raises(OperationRefusedError, match="read-only"):
            orders.append(pa.table({"id": [3]}), engine="arrow")
    database = Path(server.settings.catalog.removeprefix("sqlite:///")).read_bytes()
    for key in keys:
        assert key.encode() not in database and key not in caplog.text


def test_both_apis_of_unity_catalog_give_the_keys(server: LiveServer) -> None:
    wire, eve = UnityWire(server), UnityWire(server, "eve")
    with connect(server.url, token=server.token_for("ana")) as lake:
        lake.open_or_create("main.s.t", like=pa.table({"id": pa.array([], pa.int64())}))
    loaded = wire.load("t")["metadata"]
    location, table_id = loaded["location"], loaded["table-uuid"]
    for operation in ("READ", "READ_WRITE"):
        (given,) = wire.table("GET", "t/credentials", operation=operation).json()["storage-credentials"]
        assert (given["prefix"], given["operation"], set(given["config"])) == (location, operation, NAMES)
        assert given["expiration-time-ms"] > loaded["created-time"]
        body = {"table_id": table_id, "operation": operation}
        older = wire.older("POST", "temporary-table-credentials", body).json()
        keys = older["aws_temp_credentials"]
        assert older["url"] == location and older["expiration_time"] == given["expiration-time-ms"]
        assert {f"s3.{name.replace('_', '-')}": value for name, value in keys.items()} == given["config"]
    staging = wire.staging("new")
    assert set(staging["storage-credentials"][0]["config"]) == NAMES
    again = wire.delta("GET", f"staging-tables/{staging['table-id']}/credentials").json()["storage-credentials"]
    assert again == staging["storage-credentials"]
    with server.catalog(owner="ana") as catalog:
        catalog.access.enable_grants()
        catalog.access.grant([Privilege.READ], "main.s.t", "eve")
    assert eve.table("GET", "t/credentials", operation="READ").status_code == 200
    assert error_of(eve.table("GET", "t/credentials", operation="READ_WRITE"))[:2] == (403, "PermissionDeniedException")
    body = {"table_id": table_id, "operation": "READ_WRITE"}
    refused = eve.older("POST", "temporary-table-credentials", body)
    assert older_error_of(refused) == (403, "PERMISSION_DENIED")
    assert wire.table("DELETE", "t").status_code == 204
    dropped = wire.older("POST", "temporary-table-credentials", body)
    assert older_error_of(dropped) == (404, "TABLE_NOT_FOUND")
    assert error_of(wire.table("GET", "t/credentials", operation="READ"))[0] == 404
    wire.http.close()
    eve.http.close()


def test_keys_of_a_role_are_given_for_two_thirds_of_their_life(s3: S3Server) -> None:
    now = [0]
    known = issuer_of([role_entry(s3)]).issue("s3://lake/t", FileAccess.READ)
    assert known is not None and known.expires_ms is not None
    now[0] = known.expires_ms - 3_600_000
    issuer = issuer_of([role_entry(s3)], now_ms=lambda: now[0])
    issued = issuer.issue("s3://lake/t", FileAccess.READ)
    assert issued is not None and issued.expires_ms is not None
    begun, life = now[0], issued.expires_ms - now[0]
    now[0] = begun + int(life * 2 / 3) - 1
    assert issuer.issue("s3://lake/t", FileAccess.READ) is issued
    assert issuer.issue("s3://lake/t", FileAccess.READ_WRITE) != issued != issuer.issue("s3://lake/u", FileAccess.READ)
    now[0] += 2
    assert issuer.issue("s3://lake/t", FileAccess.READ) is not issued


def test_the_session_policy_is_that_of_the_table(s3: S3Server) -> None:
    issuer_of([role_entry(s3, external_id="of-the-lake")]).issue("s3://lake/w/t-1", FileAccess.READ)
    assumed = sts_backends["123456789012"]["aws"].assumed_roles[-1]
    assert assumed.role_arn == ROLE and assumed.external_id == "of-the-lake"
    assert json.loads(assumed.policy)["Statement"][0]["Resource"] == "arn:aws:s3:::lake/w/t-1/*"


def test_static_keys_are_given_for_what_they_are_configured_for() -> None:
    issuer = issuer_of(
        [
            {**STATIC, "prefix": "s3://lake", "access": "READ", "session_token": "t", "region": "eu-central-1"},
            {**STATIC, "prefix": "s3a://lake/w/", "access": "READ_WRITE", "endpoint": "http://localhost:9"},
        ]
    )
    read = issuer.issue("s3://lake/w/t", FileAccess.READ)
    assert read is not None and read.expires_ms is None and read.prefix == "s3://lake/w/t"
    assert read.config == {
        "s3.access-key-id": "AKIASTATIC",
        "s3.secret-access-key": "hidden",
        "s3.session-token": "t",
        "client.region": "eu-central-1",
    }
    write = issuer.issue("s3://lake/w/t", FileAccess.READ_WRITE)
    assert write is not None and write.config["s3.endpoint"] == "http://localhost:9"
    assert issuer.issue("s3://lake/other/t", FileAccess.READ_WRITE) is None, "keys to read do not write"
    for location in ("s3://lake2/t", "s3://lake/wx/t", "gs://lake/w/t", "file:///lake/w/t"):
        assert issuer.issue(location, FileAccess.READ_WRITE) is None


def test_a_role_that_cannot_be_assumed_is_an_error_without_secrets(s3: S3Server) -> None:
    issuer = issuer_of([role_entry(s3, sts_endpoint="http://127.0.0.1:9")])
    with pytest.raises(StorageError, match="gave no credentials for s3://lake/t: EndpointConnectionError") as failed:
        issuer.issue("s3://lake/t", FileAccess.READ)
    assert "hidden" not in str(failed.value) and failed.value.__cause__ is None


def test_the_entries_of_the_page_are_valid() -> None:
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
    section = page.partition("## Credentials for files")[2]
    entries = tomllib.loads(section.partition("```toml\n")[2].partition("```")[0])["storage_credentials"]
    issuer = issuer_of(entries)
    assert issuer.issue("s3://archive/t", FileAccess.READ) is not None
    assert issuer.issue("s3://archive/t", FileAccess.READ_WRITE) is None
    listed = {
        name for row in section.splitlines() if row.startswith("| `") for name in row.split("|")[1].split("`")[1::2]
    }
    fields = {*StaticKeys.model_fields, *RoleKeys.model_fields}
    assert fields <= listed | {name for entry in entries for name in entry}


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "static", "prefix": "s3://lake", "access": "READ", "access_key_id": "hidden"},
        {**STATIC, "prefix": "s3://lake"},
        {**STATIC, "prefix": "s3://lake", "access": "WRITE"},
        {**STATIC, "prefix": "lake", "access": "READ"},
        {**STATIC, "prefix": "s3://", "access": "READ"},
        {"kind": "aws-role", "prefix": "s3://lake", "role_arn": "hidden"},
        {"kind": "aws-role", "prefix": "s3://lake", "role_arn": ROLE, "duration_seconds": 60},
        {"kind": "azure", "prefix": "s3://lake"},
        {"kind": "aws-role", "prefix": "s3://lake", "role_arn": ROLE, "hidden": "hidden"},
    ],
)
def test_a_wrong_entry_is_refused_without_its_values(entry: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError, match="storage_credentials") as refused:
        load_settings(None, {"CM_DELTA_SERVER_STORAGE_CREDENTIALS": json.dumps([entry])}, {"catalog": "sqlite:///x"})
    assert "AKIASTATIC" not in str(refused.value)
