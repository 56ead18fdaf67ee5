"""ALTER TABLE: one commit for each change, with the operations and parameters of delta-spark."""

import datetime
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CommitConflictError,
    InvalidArgumentError,
    SchemaMismatchError,
    StorageError,
    UnsupportedFeatureError,
)
from cm_delta_dagster.operations.maintenance.clean_log import plan_clean_log
from cm_delta_dagster.operations.tables.alter import BACKFILL, AlterResult, alter_table
from cm_delta_dagster.operations.tables.alterations import (
    AddColumns,
    Alteration,
    ChangeColumn,
    ChangeColumns,
    DropColumns,
    DropFeature,
    EnableFeature,
    NewColumn,
    RenameColumn,
    SetComment,
    SetProperties,
    UnsetProperties,
)
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.features.table_features import supports
from cm_delta_dagster.protocol.predicates.predicates import Comparison, ComparisonOperator
from cm_delta_dagster.protocol.schema.alterations import Position
from cm_delta_dagster.remedies import DropTableFeature
from tests.support.lake import Lake, broken_storage, vector

MAPPED = {"delta.columnMapping.mode": "name"}
TRACKED = {"delta.enableRowTracking": "true"}


def properties(given: Mapping[str, str], *, force: bool = False) -> SetProperties:
    return SetProperties(properties=given, force=force)


def commit_of(lake: Lake, table: Table, version: int) -> dict[str, list[dict[str, Any]]]:
    lines = lake.memory.read(f"{table.location}/_delta_log/{version:020d}.json").decode().splitlines()
    found: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        for kind, action in json.loads(line).items():
            found.setdefault(kind, []).append(action)
    return found


def info_of(lake: Lake, table: Table, version: int) -> tuple[str, dict[str, Any]]:
    (info,) = commit_of(lake, table, version)["commitInfo"]
    parameters = info["operationParameters"]
    return info["operation"], {key: _parsed(value) for key, value in parameters.items()}


def _parsed(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


@pytest.mark.requirements("META-6", "CINFO-2")
@pytest.mark.parametrize(
    ("alteration", "operation", "parameters"),
    [
        (AddColumns([NewColumn("n", "int", first=True), NewColumn("s", "struct<a: int>", comment="c")]), "ADD COLUMNS",
         {"columns": [{"column": {"name": "n", "type": "int", "nullable": True, "metadata": {}}, "position": "FIRST"},
                      {"column": {"name": "s", "type": "struct<a:int>", "nullable": True, "metadata": {"comment": "c"}}}]}),
        (ChangeColumn(column="ID", position=Position(after="day")), "CHANGE COLUMN",
         {"column": {"name": "id", "type": "bigint", "nullable": True, "metadata": {}}, "position": "AFTER day"}),
        (ChangeColumn(column="id", comment=""), "CHANGE COLUMN",
         {"column": {"name": "id", "type": "bigint", "nullable": True, "metadata": {"comment": ""}}}),
        (ChangeColumn(column="id", nullable=False), "CHANGE COLUMN",
         {"column": {"name": "id", "type": "bigint", "nullable": False, "metadata": {}}}),
        (properties({"delta.appendOnly": "true", "mine": "1"}), "SET TBLPROPERTIES",
         {"properties": {"delta.appendOnly": "true", "mine": "1"}}),
        (properties({"delta.unknown": "1"}, force=True), "SET TBLPROPERTIES", {"properties": {"delta.unknown": "1"}}),
        (UnsetProperties(names=["first"]), "UNSET TBLPROPERTIES", {"properties": ["first"], "ifExists": True}),
        (SetComment("text"), "SET TBLPROPERTIES", {"properties": {"comment": "text"}}),
    ],
)  # fmt: skip
def test_a_change_is_one_commit_of_the_whole_metadata(
    lake: Lake, alteration: Alteration, operation: str, parameters: dict[str, Any]
) -> None:
    """The id and what does not change stay; a second call changes nothing and commits nothing."""
    table = lake.new_table(properties={"first": "1"})
    before = table.snapshot().metadata
    result = alter_table(table, alteration)
    assert (result.version, result.versions) == (1, (1,))
    assert info_of(lake, table, 1) == (operation, parameters)
    after = lake.reopened().table("main.test.t").snapshot().metadata
    assert after == result.snapshot.metadata
    assert after != before
    assert (after.id, after.created_time, after.partition_columns) == (before.id, before.created_time, ("day",))
    if not isinstance(alteration, AddColumns | UnsetProperties):
        assert alter_table(table, alteration) == AlterResult(
            table_id=table.table_id, version=1, snapshot=table.snapshot()
        )


@pytest.mark.requirements("META-7", "COLMAP-13", "TF-13")
@pytest.mark.parametrize(
    ("alteration", "message"),
    [
        (AddColumns([]), "No column to add"),
        (AddColumns([NewColumn("ok", "int"), NewColumn("ID", "int")]), "'id' exists"),
        (AddColumns([NewColumn("n", "int", nullable=False)]), "NOT NULL"),
        (AddColumns([NewColumn("n", "int", first=True, after="id")]), "give one of them"),
        (AddColumns([NewColumn("n", "timestamp_ntz")]), "enable_feature"),
        (AddColumns([NewColumn("a b", "int")]), "cannot store"),
        (DropColumns([]), "No column to drop"),
        (DropColumns(["id"]), "delta.columnMapping.mode"),
        (RenameColumn("id", "x"), "delta.columnMapping.mode"),
        (ChangeColumn(column="id", type="string"), "only a wider type"),
        (properties({"delta.unknown": "1"}), "not known"),
        (properties({"delta.constraints.c": "id > 0"}), "add_constraint"),
        (properties({"delta.columnMapping.maxColumnId": "9"}), "cannot be set"),
        (properties({"delta.columnMapping.mode": "id"}), "cannot change from 'none' to 'id'"),
        (properties({"delta.enableInCommitTimestamps": "false"}), "catalog-managed"),
        (UnsetProperties(names=["delta.enableInCommitTimestamps"]), "cannot be removed"),
        (UnsetProperties(names=["io.unitycatalog.tableId"]), "cannot be removed"),
        (EnableFeature("unheardOf"), "does not know"),
        (EnableFeature("clustering"), "cluster_by"),
    ],
)
def test_a_change_that_cannot_be_made_leaves_the_table_as_it_was(
    lake: Lake, alteration: Alteration, message: str
) -> None:
    """The message names the table."""
    table = lake.new_table()
    with pytest.raises((InvalidArgumentError, SchemaMismatchError, UnsupportedFeatureError), match=message) as refusal:
        alter_table(table, alteration)
    assert "main.test.t" in str(refusal.value)
    assert table.latest_version() == 0


@pytest.mark.requirements("COLMAP-10", "COLMAP-11", "COLMAP-12", "COLMAP-6")
def test_files_stay_while_columns_are_added_renamed_and_dropped(lake: Lake) -> None:
    """Partition values and statistics keep their physical names."""
    table = lake.new_table()
    lake.append(table)
    for alteration in (
        properties(MAPPED),
        RenameColumn("DAY", "the day"),
        AddColumns([NewColumn("n", "int")]),
        DropColumns(["n"]),
        AddColumns([NewColumn("n", "string")]),
    ):
        alter_table(table, alteration)
    snapshot = table.snapshot()
    assert snapshot.num_files == 1
    assert snapshot.partition_columns == ("the day",)
    ids = {item.name: item.metadata["delta.columnMapping.id"] for item in snapshot.schema.fields}
    assert ids == {"id": 1, "the day": 2, "n": 4}
    assert snapshot.metadata.configuration["delta.columnMapping.maxColumnId"] == "4"
    assert dict(snapshot.files["partitionValues"][0].as_py()) == {"day": "2026-01-01"}
    assert {item.metadata["delta.columnMapping.physicalName"] for item in snapshot.schema.fields} > {"id", "day"}
    with pytest.raises(InvalidArgumentError, match="partition column"):
        alter_table(table, DropColumns(["the day"]))
    with pytest.raises(InvalidArgumentError, match="to 'none'"):
        alter_table(table, UnsetProperties(names=["delta.columnMapping.mode"]))


@pytest.mark.requirements("META-6")
def test_the_property_comment_is_the_description_of_the_table(lake: Lake) -> None:
    table = lake.new_table()
    set_both = alter_table(table, properties({"comment": "a table", "owner": "sales"}))
    metadata = set_both.snapshot.metadata
    assert (metadata.description, metadata.configuration["owner"]) == ("a table", "sales")
    assert "comment" not in metadata.configuration
    unset = alter_table(table, UnsetProperties(names=["comment", "owner"]))
    assert unset.snapshot.metadata.description is None
    assert "owner" not in unset.snapshot.metadata.configuration


@pytest.mark.requirements("DEF-5")
def test_not_null_is_refused_where_rows_exist(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table)
    with pytest.raises(InvalidArgumentError, match="CHECK constraint"):
        alter_table(table, ChangeColumn(column="id", nullable=False))
    assert alter_table(table, ChangeColumn(column="id", nullable=True)).versions == ()


class _Meanwhile:
    """An alteration, with a commit of another writer right after the table was read."""

    def __init__(self, alteration: Alteration, act: Any) -> None:
        self._alteration, self._act = alteration, act
        self.operation = alteration.operation

    def parameters(self, table: Any) -> dict[str, str]:
        return self._alteration.parameters(table)

    def apply(self, table: Any, files: Any) -> Any:
        change = self._alteration.apply(table, files)
        self._act()
        return change


@pytest.mark.requirements("OCC-5", "OCC-6", "DOM-7")
def test_changes_conflict_with_other_changes_and_not_with_appends(lake: Lake) -> None:
    table = lake.new_table()
    adds = AddColumns([NewColumn("a", "int")])
    assert alter_table(table, _Meanwhile(adds, lambda: lake.append(table))).version == 2
    with pytest.raises(CommitConflictError, match="schema, partitioning or properties"):
        alter_table(
            table,
            _Meanwhile(AddColumns([NewColumn("b", "int")]), lambda: alter_table(table, properties({"x": "1"}))),
        )
    empty = lake.new_table("empty")
    not_null = ChangeColumn(column="id", nullable=False)
    with pytest.raises(CommitConflictError, match="whole table was read"):
        alter_table(empty, _Meanwhile(not_null, lambda: lake.append(empty)))


# --- row tracking -----------------------------------------------------------------------------------------------------


@pytest.mark.requirements("ROWTRK-2", "ROWTRK-3", "ROWTRK-4", "ROWTRK-6", "ROWTRK-8", "ROWTRK-9")
def test_row_tracking_of_an_existing_table_takes_three_commits(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table)
    lake.append(table)
    result = alter_table(table, properties(TRACKED))
    assert result.versions == (3, 4, 5)
    operations = [info_of(lake, table, version)[0] for version in result.versions]
    assert operations == ["UPGRADE PROTOCOL", BACKFILL, "SET TBLPROPERTIES"]
    adds = commit_of(lake, table, 4)["add"]
    assert sorted(add["baseRowId"] for add in adds) == [0, 10]
    assert {(add["defaultRowCommitVersion"], add["dataChange"]) for add in adds} == {(4, False)}
    snapshot = table.snapshot()
    assert row_tracking.high_water_mark(snapshot.domains) == 19
    assert row_tracking.row_id_columns(snapshot.protocol, snapshot.metadata, "t").row_id.startswith("_row-id-col-")
    lake.append(table)
    assert sorted(table.snapshot().files["baseRowId"].to_pylist()) == [0, 10, 20]
    assert alter_table(table, properties(TRACKED)).versions == ()


@pytest.mark.requirements("ROWTRK-1", "ROWTRK-8")
def test_a_new_table_and_one_without_files_need_one_commit(lake: Lake) -> None:
    created = lake.new_table("created", properties=TRACKED)
    assert row_tracking.is_enabled(created.snapshot().protocol, created.snapshot().metadata)
    table = lake.new_table()
    assert alter_table(table, properties(TRACKED)).versions == (1,)
    with pytest.raises(CommitConflictError):
        other = lake.new_table("other")
        alter_table(other, _MeanwhileProperties(TRACKED, lambda: lake.append(other)))


class _MeanwhileProperties(SetProperties):
    """``SetProperties`` during whose check another writer commits."""

    def __init__(self, given: Mapping[str, str], act: Any) -> None:
        super().__init__(properties=given)
        object.__setattr__(self, "_act", act)

    def apply(self, table: Any, files: Any) -> Any:
        change = SetProperties.apply(self, table, files)
        self._act()  # type: ignore[attr-defined]
        return change


@pytest.mark.requirements("ROWTRK-8", "ROWTRK-16")
@pytest.mark.parametrize("failing", [1, 2, 3])
def test_an_interrupted_enablement_leaves_a_readable_table_and_is_completed_by_the_same_call(
    lake: Lake, failing: int
) -> None:
    """Whichever of the three commits fails."""
    table = lake.new_table()
    lake.append(table)
    lake.store.fails = broken_storage("write_if_absent", f"_staged_commits/{failing + 1:020d}")
    with pytest.raises(StorageError):
        alter_table(table, properties(TRACKED))
    lake.store.fails = lambda method, argument: None
    found = lake.reopened().table("main.test.t").snapshot()
    assert (found.version, found.num_files) == (failing, 1)
    assert not row_tracking.is_enabled(found.protocol, found.metadata)
    lake.append(table)
    result = alter_table(table, properties(TRACKED))
    snapshot = result.snapshot
    assert row_tracking.is_enabled(snapshot.protocol, snapshot.metadata)
    assert sorted(snapshot.files["baseRowId"].to_pylist()) == [0, 10]
    assert snapshot.num_rows == 20


@pytest.mark.requirements("OCC-11", "ROWTRK-5")
def test_a_file_that_is_removed_during_the_backfill_does_not_come_back(lake: Lake) -> None:
    """The backfill starts again without it."""
    table = lake.new_table()
    lake.append(table, "a.parquet")
    lake.append(table, "b.parquet")
    alter_table(table, EnableFeature("rowTracking"))
    removed: list[int] = []

    def fails(method: str, argument: Any) -> Exception | None:
        if method == "write_if_absent" and "_staged_commits" in str(argument) and not removed:
            removed.append(1)
            lake.remove(table, "a.parquet")
        return None

    lake.store.fails = fails
    alter_table(table, properties(TRACKED))
    assert removed
    assert table.snapshot().files["path"].to_pylist() == ["b.parquet"]
    assert table.snapshot().files["baseRowId"].null_count == 0


# --- DROP FEATURE -----------------------------------------------------------------------------------------------------


@pytest.mark.requirements("TF-14")
def test_a_writer_feature_is_dropped_in_one_commit(lake: Lake) -> None:
    """Ids that were given are not given again if the feature comes back."""
    table = lake.new_table(properties=TRACKED)
    lake.append(table)
    result = alter_table(table, DropFeature("rowTracking"))
    assert info_of(lake, table, 2) == ("DROP FEATURE", {"featureName": "rowTracking", "truncateHistory": False})
    snapshot = result.snapshot
    assert not supports(snapshot.protocol, "rowTracking")
    assert not supports(snapshot.protocol, "checkpointProtection")
    assert not any("rowTracking" in key or "RowTracking" in key for key in snapshot.metadata.configuration)
    lake.append(table)
    alter_table(table, properties(TRACKED))
    assert sorted(table.snapshot().files["baseRowId"].to_pylist()) == [0, 10]


GROUPS = "multiTableTransaction-dev"


@pytest.mark.requirements("MTX-5", "TF-13", "TF-14")
@pytest.mark.parametrize(
    "alteration", [properties({f"delta.feature.{GROUPS}": "supported"}), EnableFeature("multitabletransaction-DEV")]
)
def test_the_feature_of_multi_table_transactions_is_added_only_on_request(
    lake: Lake, alteration: SetProperties | EnableFeature
) -> None:
    table = lake.new_table()
    assert not supports(table.snapshot().protocol, GROUPS)
    result = alter_table(table, alteration)
    protocol = result.snapshot.protocol
    assert GROUPS in (protocol.writer_features or ()) and GROUPS not in (protocol.reader_features or ())
    assert not any(GROUPS in key for key in result.snapshot.metadata.configuration)
    assert result.shut_out == (
        f"Clients without the feature {GROUPS} can read the table, and no longer write to it. No other engine is known to "
        "support it.",
    )
    lake.append(table)
    assert alter_table(table, alteration).shut_out == ()
    dropped = alter_table(table, DropFeature(GROUPS))
    assert not supports(dropped.snapshot.protocol, GROUPS) and dropped.shut_out == ()


def test_the_result_names_who_can_no_longer_read_a_table(lake: Lake) -> None:
    result = alter_table(lake.new_table(), EnableFeature("timestampNtz"))
    assert result.shut_out == ("Clients without the feature timestampNtz can no longer read the table or write to it.",)


@pytest.mark.requirements("UP-CPP-1", "UP-TW-7", "TF-14")
def test_a_reader_feature_is_dropped_with_protection_of_older_checkpoints(lake: Lake) -> None:
    """Cleanup deletes all versions below that one or none."""
    lake.allow(MaintenanceKind.METADATA_CLEANUP)
    table = lake.new_table(properties={"delta.checkpointInterval": "2"})
    for _ in range(4):
        lake.append(table)
    result = alter_table(table, DropFeature("deletionVectors"))
    snapshot = result.snapshot
    assert not supports(snapshot.protocol, "deletionVectors")
    assert supports(snapshot.protocol, "checkpointProtection")
    assert snapshot.metadata.configuration["delta.requireCheckpointProtectionBeforeVersion"] == "5"
    assert snapshot.metadata.configuration["delta.enableDeletionVectors"] == "false"
    lake.client.wait_for_background()
    lake.clock.pass_days(31)
    assert plan_clean_log(table).oldest_version in (None, 5)
    for _ in range(3):
        lake.append(table)
    lake.client.wait_for_background()
    lake.clock.pass_days(31)
    plan = plan_clean_log(table)
    assert plan.oldest_version is not None
    assert plan.oldest_version >= 5


@pytest.mark.requirements("TF-14", "UP-TW-7", "CM-1")
@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ("catalogManaged", "a catalog-managed table needs it"),
        ("inCommitTimestamp", "a catalog-managed table needs it"),
        ("v2Checkpoint", "a catalog-managed table needs it"),
        ("appendOnly", "dropping this feature is not supported"),
        ("domainMetadata", "rowTracking need it"),
        ("unheardOf", "does not know it"),
        ("timestampNtz", "the table does not have it"),
        ("columnMapping", "have physical names"),
        ("typeWidening", "files may hold values of the earlier types of id"),
        ("deletionVectors", "1 files have a deletion vector"),
    ],
)
def test_features_that_cannot_be_dropped(lake: Lake, feature: str, message: str) -> None:
    table = lake.new_table(properties={**MAPPED, **TRACKED, "delta.enableTypeWidening": "true"}, partition_columns=())
    alter_table(table, AddColumns([NewColumn("small", "int")]))
    alter_table(table, ChangeColumn(column="small", type="bigint"))
    alter_table(table, DropColumns(["id"]))
    alter_table(table, RenameColumn("small", "id"))
    lake.append(table, deletion_vector=vector(), partition_values={})
    version = table.latest_version()
    with pytest.raises(InvalidArgumentError, match=message) as refused:
        alter_table(table, DropFeature(feature))
    rewritten = feature in ("columnMapping", "typeWidening", "deletionVectors")
    assert refused.value.remedy == (DropTableFeature(feature=feature, table="main.test.t") if rewritten else None)
    assert table.latest_version() == version


@pytest.mark.requirements("TF-14")
def test_the_highest_row_id_keeps_the_feature_of_its_domain(lake: Lake) -> None:
    """If row tracking is added again, no id is given twice."""
    table = lake.new_table(properties=TRACKED)
    lake.append(table)
    alter_table(table, DropFeature("rowTracking"))
    with pytest.raises(InvalidArgumentError, match=r"delta\.rowTracking holds the highest row id"):
        alter_table(table, DropFeature("domainMetadata"))
    assert supports(table.snapshot().protocol, "domainMetadata")


@pytest.mark.requirements("SCHEVO-5")
def test_several_columns_are_changed_in_one_commit(lake: Lake) -> None:
    """In the given order; one that cannot be changed leaves all as they were."""
    table = lake.new_table(properties={"delta.enableTypeWidening": "true"})
    alter_table(table, AddColumns([NewColumn("n", "int"), NewColumn("st", "struct<a: int, b: int>")]))
    done = alter_table(
        table,
        ChangeColumns(
            [
                ChangeColumn(column="n", type="bigint", position=Position()),
                ChangeColumn(column="st.b", position=Position(), comment="second"),
                ChangeColumn(column="id", position=Position()),
            ]
        ),
    )
    assert (done.versions, done.snapshot.schema.names) == ((2,), ("id", "n", "day", "st"))
    (commit,) = table.commit_actions(2, 2)
    info = commit.commit_info
    assert info is not None and info.operation == "CHANGE COLUMNS"
    listed = json.loads((info.operation_parameters or {})["columns"])
    assert [(item["name"], item["type"], item.get("position")) for item in listed] == [
        ("n", "bigint", "FIRST"), ("st.b", "int", "FIRST"), ("id", "bigint", "FIRST"),
    ]  # fmt: skip
    for wrong in (
        [ChangeColumn(column="n", comment="x"), ChangeColumn(column="nothing", comment="y")],
        [ChangeColumn(column="n", comment="x"), ChangeColumn(column="N", comment="y")],
        [ChangeColumn(column="st.a", comment="x"), ChangeColumn(column="st", comment="y")],
        [ChangeColumn(column="n", comment="x"), ChangeColumn(column="id", type="int")],
    ):
        with pytest.raises(InvalidArgumentError):
            alter_table(table, ChangeColumns(wrong))
    assert table.snapshot().version == 2


@pytest.mark.requirements("CHK-3", "CHK-5")
def test_a_constraint_is_dropped_as_a_property_and_not_added(lake: Lake) -> None:
    table = lake.new_table(properties={"delta.constraints.positive": "id > 0", "delta.constraints.known": "id < 9"})
    result = alter_table(table, UnsetProperties(names=["delta.constraints.positive", "delta.constraints.nothing"]))
    kept = {key for key in result.snapshot.metadata.configuration if "constraints" in key}
    assert (len(result.versions), kept) == (1, {"delta.constraints.known"})
    with pytest.raises(InvalidArgumentError, match="Add the constraint"):
        alter_table(table, SetProperties(properties={"delta.constraints.positive": "id > 0"}))


@pytest.mark.requirements("UP-TW-4", "UP-TW-7")
def test_type_widening_of_a_table_without_rows_is_dropped(lake: Lake) -> None:
    table = lake.new_table(properties={"delta.enableTypeWidening": "true"})
    alter_table(table, AddColumns([NewColumn("n", "int")]))
    alter_table(table, ChangeColumn(column="n", type="bigint"))
    snapshot = alter_table(table, DropFeature("typeWidening")).snapshot
    assert "delta.typeChanges" not in snapshot.metadata.schema_string
    assert not supports(snapshot.protocol, "typeWidening")
    assert "delta.enableTypeWidening" not in snapshot.metadata.configuration


@pytest.mark.requirements("TF-14")
def test_column_mapping_that_is_not_used_is_dropped(lake: Lake) -> None:
    table = lake.new_table()
    alter_table(table, EnableFeature("columnMapping"))
    before = table.snapshot()
    after = alter_table(table, DropFeature("columnMapping")).snapshot
    assert after.schema == before.schema
    assert not supports(after.protocol, "columnMapping")


@pytest.mark.requirements("UP-TW-5", "SKIP-1")
def test_files_are_skipped_by_values_of_the_earlier_types(lake: Lake) -> None:
    """Statistics and partition values of old files are those of the type that they were written with."""
    table = lake.new_table(properties={"delta.enableTypeWidening": "true"})
    alter_table(table, EnableFeature("timestampNtz"))
    alter_table(table, AddColumns([NewColumn("e", "date"), NewColumn("n", "smallint")]))
    lake.append(
        table,
        stats='{"numRecords":10,"minValues":{"e":"2026-01-01","n":5},"maxValues":{"e":"2026-01-03","n":7}}',
    )
    for column, wanted in (("day", "timestamp_ntz"), ("e", "timestamp_ntz"), ("n", "decimal(12,2)")):
        alter_table(table, ChangeColumn(column=column, type=wanted))
    snapshot = table.snapshot()

    def kept(column: str, operator: ComparisonOperator, value: object) -> bool:
        found = snapshot.matching_files(Comparison(column=column, operator=operator, value=value))
        return found.num_rows == 1

    equal, less = ComparisonOperator("="), ComparisonOperator("<")
    first = datetime.datetime(2026, 1, 1)
    assert (kept("day", equal, first), kept("day", less, first)) == (True, False)
    assert (kept("e", equal, first), kept("e", less, first)) == (True, False)
    assert (kept("n", equal, Decimal("7.00")), kept("n", less, Decimal("5.00"))) == (True, False)
