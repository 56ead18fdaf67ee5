"""CREATE TABLE: three phases, of which only the last makes the table visible."""

import json
import threading
from typing import Any

import pytest

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CmDeltaError,
    CommitStateUnknownError,
    IllegalCommitError,
    InvalidArgumentError,
    SchemaMismatchError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.tables.create import TableDesign
from cm_delta_dagster.operations.tables.write_attempts import open_or_create
from cm_delta_dagster.protocol.features.table_features import is_catalog_managed
from cm_delta_dagster.protocol.schema.types import ArrayType, PrimitiveType, StructField, StructType
from tests.support.creation import create_table
from tests.support.lake import SCHEMA, Lake, broken_storage

WITH_LIST = StructType((*SCHEMA.fields, StructField("tags", ArrayType(PrimitiveType("string")))))
NAME = TableIdentifier("main", "test", "t")
DESIGN = TableDesign(schema=SCHEMA, partition_columns=["day"])


def version_0(lake: Lake, location: str) -> list[dict[str, Any]]:
    data = lake.memory.read(f"{location}/_delta_log/00000000000000000000.json")
    return [json.loads(line) for line in data.decode().splitlines()]


@pytest.mark.requirements("CM-1", "CM-2", "CM-D2", "LOG-7")
def test_a_new_table_is_catalog_managed_and_empty_at_version_0(lake: Lake) -> None:
    table = lake.new_table()
    snapshot = table.snapshot()
    assert (snapshot.version, snapshot.published_version, snapshot.num_files) == (0, 0, 0)
    assert is_catalog_managed(snapshot.protocol)
    assert "inCommitTimestamp" in (snapshot.protocol.writer_features or ())
    assert snapshot.schema == SCHEMA
    assert snapshot.partition_columns == ("day",)
    assert snapshot.timestamp_ms == lake.clock()


@pytest.mark.requirements("CM-D2", "CINFO-2", "ICT-3", "ICT-8")
def test_version_0_starts_with_the_commit_info_of_the_creation(lake: Lake) -> None:
    context = CommitProperties(tags={"dagster/run_id": "r1"}, user_metadata="first")
    table = lake.new_table(description="what it is", context=context)
    first, *others = version_0(lake, table.location)
    info = first["commitInfo"]
    assert info["operation"] == "CREATE TABLE"
    assert info["txnId"]
    assert info["inCommitTimestamp"] == lake.clock()
    assert info["tags"] == {"dagster/run_id": "r1"}
    assert info["userMetadata"] == "first"
    assert [next(iter(action)) for action in others] == ["protocol", "metaData"]
    assert others[1]["metaData"]["description"] == "what it is"


def test_defaults_that_the_user_replaces_add_no_feature(lake: Lake) -> None:
    plain = {"delta.enableDeletionVectors": "false", "delta.checkpointPolicy": "classic"}
    snapshot = lake.new_table(properties=plain).snapshot()
    assert plain.items() <= snapshot.metadata.configuration.items()
    assert not {"deletionVectors", "v2Checkpoint"} & set(snapshot.protocol.writer_features or ())


def test_user_properties_are_added_to_the_default_properties(lake: Lake) -> None:
    properties = {"delta.appendOnly": "true", "owner": "us", "delta.feature.timestampNtz": "supported"}
    table = lake.new_table(properties=properties)
    snapshot = table.snapshot()
    configuration = snapshot.metadata.configuration
    assert configuration["delta.appendOnly"] == "true"
    assert configuration["owner"] == "us"
    assert configuration["delta.enableInCommitTimestamps"] == "true"
    assert configuration["io.unitycatalog.tableId"] == table.table_id
    assert not any(key.startswith("delta.feature.") for key in configuration)
    assert "timestampNtz" in (snapshot.protocol.reader_features or ())


def test_a_column_that_needs_a_table_feature_enables_it(lake: Lake) -> None:
    schema = StructType((*SCHEMA.fields, StructField("at", PrimitiveType("timestamp_ntz"))))
    table = lake.new_table(schema=schema)
    assert "timestampNtz" in (table.snapshot().protocol.writer_features or ())


@pytest.mark.requirements("META-4")
def test_partition_columns_are_spelled_as_in_the_schema(lake: Lake) -> None:
    assert lake.new_table(partition_columns=("DAY",)).snapshot().partition_columns == ("day",)


@pytest.mark.requirements("META-7", "CM-D1")
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"partition_columns": ("month",)}, InvalidArgumentError),
        ({"partition_columns": ("day", "Day")}, InvalidArgumentError),
        ({"partition_columns": ("id", "day")}, InvalidArgumentError),
        ({"properties": {"delta.unheardOf": "1"}}, InvalidArgumentError),
        ({"properties": {"delta.enableInCommitTimestamps": "false"}}, InvalidArgumentError),
        ({"properties": {"delta.enableIcebergCompatV3": "true"}}, CmDeltaError),
        ({"schema": StructType((*SCHEMA.fields, StructField("ID", PrimitiveType("long"))))}, CmDeltaError),
        ({"schema": WITH_LIST, "partition_columns": ("tags",)}, InvalidArgumentError),
    ],
)
def test_an_invalid_definition_is_refused_before_anything_is_reserved(
    lake: Lake, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        lake.new_table(**arguments)
    assert not any(method == "create_staging_table" for method, _ in lake.catalog.calls)
    assert list(lake.memory.list_recursive("memory://lake/warehouse")) == []


def test_a_taken_name_is_refused_before_anything_is_written(lake: Lake) -> None:
    lake.new_table()
    lake.client.wait_for_background()
    lake.store.calls.clear()
    with pytest.raises(TableAlreadyExistsError, match=r"main\.test\.t"):
        lake.new_table()
    assert not any(method.startswith("write") for method, _ in lake.store.calls)


@pytest.mark.requirements("CM-D3")
def test_a_name_taken_while_version_0_is_written_keeps_the_other_table(lake: Lake) -> None:
    winners = []

    def overtake(method: str, location: Any) -> None:
        if method == "write_if_absent" and not winners:
            winners.append(location)
            winners.append(lake.new_table(description="winner"))

    lake.store.fails = overtake
    with pytest.raises(TableAlreadyExistsError):
        lake.new_table(description="loser")
    assert lake.client.table(NAME).snapshot().metadata.description == "winner"


@pytest.mark.requirements("CM-D1", "CM-D4", "CM-D5")
@pytest.mark.parametrize("point", ["reserve", "write", "register"])
def test_a_failure_at_any_point_leaves_nothing_visible(lake: Lake, point: str) -> None:
    """The same name can be created afterwards."""
    methods = {"reserve": "create_staging_table", "register": "register_table"}
    if point == "write":
        lake.store.fails = broken_storage("write_if_absent", "_delta_log")
    else:
        lake.catalog.fails = lambda method, _: CatalogUnavailableError("gone") if method == methods[point] else None
    with pytest.raises((StorageError, CatalogUnavailableError, CommitStateUnknownError)):
        lake.new_table(description="first")
    lake.store.fails = lake.catalog.fails = lambda method, argument: None
    with pytest.raises(TableNotFoundError):
        lake.client.table(NAME)
    assert lake.catalog.registry.list_tables() == ()
    assert lake.new_table(description="second").snapshot().metadata.description == "second"


def test_a_registration_with_an_unknown_outcome_is_retried(lake: Lake) -> None:
    """Registering the same id again returns the entry, so that the table is created once."""
    lost = iter([CatalogUnavailableError("the answer was lost")])
    lake.catalog.fails_after = lambda method, _: next(lost, None) if method == "register_table" else None
    table = lake.new_table()
    assert table.snapshot().version == 0
    assert [method for method, _ in lake.catalog.calls].count("register_table") == 2


def test_a_registration_that_stays_unanswered_is_reported_as_unknown(lake: Lake) -> None:
    lake.catalog.fails_after = lambda method, _: CatalogUnavailableError("lost") if method == "register_table" else None
    with pytest.raises(CommitStateUnknownError, match="whole or not at all"):
        lake.new_table()
    lake.catalog.fails_after = lambda method, _: None
    assert lake.client.table(NAME).snapshot().version == 0


@pytest.mark.requirements("LOG-5")
def test_a_log_at_the_reserved_location_is_never_overwritten(lake: Lake) -> None:
    def occupied(method: str, answer: Any) -> Any:
        if method == "create_staging_table":
            lake.memory.write(f"{answer.location}/_delta_log/00000000000000000000.json", b"theirs")
        return answer

    lake.catalog.changes = occupied
    with pytest.raises(IllegalCommitError, match="already"):
        lake.new_table()
    listed = lake.memory.list_recursive("memory://lake/warehouse")
    (status,) = [found for found in listed if not found.name.startswith("_cm_delta")]
    assert lake.memory.read(status.location) == b"theirs"


@pytest.mark.requirements("CM-D8")
def test_a_dropped_name_can_be_used_for_another_table(lake: Lake) -> None:
    first = lake.new_table()
    lake.catalog.registry.drop_table(NAME)
    second = lake.new_table()
    assert first.table_id != second.table_id
    assert first.location != second.location
    with pytest.raises(TableNotFoundError):
        first.snapshot()


def test_open_or_create_creates_once_and_opens_afterwards(lake: Lake) -> None:
    created = open_or_create(lake.client, identifier=str(NAME), design=DESIGN)
    opened = open_or_create(lake.client, identifier=str(NAME), design=DESIGN)
    assert created.table_id == opened.table_id


def test_open_or_create_opens_a_concurrently_created_table(lake: Lake) -> None:
    winners = []

    def overtake(method: str, location: Any) -> None:
        if method == "write_if_absent" and not winners:
            winners.append(location)
            winners.append(lake.new_table().table_id)

    lake.store.fails = overtake
    table = open_or_create(lake.client, identifier=NAME, design=DESIGN)
    assert table.table_id == winners[1]


@pytest.mark.requirements("CM-D3")
def test_of_many_concurrent_callers_one_creates_and_all_open_the_same_table(lake: Lake) -> None:
    ids: list[str] = []

    def work() -> None:
        ids.append(open_or_create(lake.client, identifier=NAME, design=DESIGN).table_id)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 6
    assert len(set(ids)) == 1


@pytest.mark.parametrize(
    ("schema", "partition_columns"),
    [
        (StructType((*SCHEMA.fields, StructField("new", PrimitiveType("long")))), ["day"]),
        (StructType((StructField("id", PrimitiveType("string")), SCHEMA.fields[1])), ["day"]),
        (SCHEMA, []),
    ],
)
def test_open_or_create_refuses_a_table_that_rows_of_the_schema_do_not_fit(
    lake: Lake, schema: StructType, partition_columns: list[str]
) -> None:
    lake.new_table()
    with pytest.raises(SchemaMismatchError):
        open_or_create(
            lake.client, identifier=NAME, design=TableDesign(schema=schema, partition_columns=partition_columns)
        )


@pytest.mark.requirements("UP-INT-1")
def test_a_column_of_a_type_that_is_only_read_is_refused_and_nothing_is_left(lake: Lake) -> None:
    schema = StructType((*SCHEMA.fields, StructField("spans", ArrayType(PrimitiveType("interval day to second")))))
    with pytest.raises(SchemaMismatchError, match=r"'spans' has the type 'interval day to second'.*Cast the column"):
        create_table(lake.client, identifier=NAME, schema=schema)
    create_table(lake.client, identifier=NAME, schema=SCHEMA)


def test_a_malformed_name_is_refused(lake: Lake) -> None:
    with pytest.raises(InvalidArgumentError, match=r"catalog\.schema\.table"):
        create_table(lake.client, identifier="test.t", schema=SCHEMA)
