"""Row ids and identity values are not given again, also if another writer has lowered their high-water mark."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import ApprovalRequiredError
from cm_delta_dagster.operations.doctor import doctor, repair_table
from cm_delta_dagster.operations.doctor.findings import Finding, Problem, Repair
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.tables.clone import CloneRequest, clone
from cm_delta_dagster.operations.tables.ratify_hold import approve_hold
from cm_delta_dagster.operations.tables.restore import restore
from cm_delta_dagster.protocol.actions.actions import DomainMetadata, Metadata
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.protocol.features.row_tracking import DOMAIN, high_water_mark, high_water_mark_domain
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType, parse_schema, schema_to_json
from tests.support.actions import add_file
from tests.support.forced_commit import ratify_append
from tests.support.lake import Lake


@pytest.fixture
def table(lake: Lake) -> Table:
    """Two files of ten rows: the high-water mark is 19."""
    table = lake.new_table(properties={"delta.feature.rowTracking": "supported"})
    lake.append(table, "a.parquet")
    lake.append(table, "b.parquet")
    return table


def lower(lake: Lake, table: Table, mark: int = 3) -> None:
    """Another writer appends rows with the ids 20 to 29, and says that 3 is the highest."""
    ratify_append(lake, table, f"lowered-{mark}.parquet", high_water_mark_domain(mark), base_row_id=20)


def first_ids(table: Table) -> dict[str, int]:
    files = table.snapshot().files
    return dict(zip(files["path"].to_pylist(), files["baseRowId"].to_pylist(), strict=True))


def mark_of(table: Table) -> int:
    return high_water_mark(table.snapshot().domains)


def row_id_findings(table: Table) -> list[Finding]:
    return [finding for finding in doctor(table).findings if finding.problem is Problem.ROW_IDS]


def append_to_a_fresh_client(lake: Lake, table: Table) -> None:
    lower(lake, table)
    lake.append(lake.reopened().table("main.test.t"), "new.parquet")


def append_after_a_checkpoint(lake: Lake, table: Table) -> None:
    lower(lake, table)
    checkpoint(table)
    lake.append(lake.reopened().table("main.test.t"), "new.parquet")


def append_that_is_rebased(lake: Lake, table: Table) -> None:
    late = table.start_transaction(table.snapshot(), operation="WRITE")
    late.add_files([add_file("new.parquet", partition_values={"day": "2026-01-01"}, stats='{"numRecords":10}')])
    lower(lake, table)
    assert late.commit().retries == 1


def append_to_a_cached_snapshot(lake: Lake, table: Table) -> None:
    lower(lake, table, mark=3)
    assert mark_of(table) == 3
    lake.append(table, "new.parquet")


def commit_that_was_approved(lake: Lake, table: Table) -> None:
    rule = CommitRule(
        scope="main.test",
        name="r",
        kind=CommitRuleKind.MAX_REMOVED_ROWS,
        arguments={"fraction": 0.4},
        on_violation=OnViolation.APPROVAL,
    )
    lake.catalog.commit_rules.set_commit_rule(rule)
    snapshot = table.snapshot()
    transaction = table.start_transaction(snapshot, operation="DELETE")
    transaction.remove_files(removes_of(snapshot.files, data_change=True))
    lake.put(table, "new.parquet")
    transaction.add_files([add_file("new.parquet", partition_values={"day": "2026-01-01"}, stats='{"numRecords":10}')])
    with pytest.raises(ApprovalRequiredError) as caught:
        transaction.commit()
    lake.catalog.commit_rules.remove_commit_rule(
        "main.test", "r"
    )  # Else it asks about the commit of the other writer too.
    lower(lake, table)
    approve_hold(lake.reopened(), str(caught.value.approval_id))


@pytest.mark.requirements("ROWTRK-2", "ROWTRK-3")
@pytest.mark.parametrize(
    "write",
    [
        append_to_a_fresh_client,
        append_after_a_checkpoint,
        append_that_is_rebased,
        append_to_a_cached_snapshot,
        commit_that_was_approved,
    ],
)
def test_ids_of_live_rows_are_not_given_again(lake: Lake, table: Table, write: Callable[[Lake, Table], None]) -> None:
    """And the commit raises the high-water mark."""
    write(lake, table)
    assert first_ids(table)["new.parquet"] == 30
    assert mark_of(table) == 39


@pytest.mark.requirements("ROWTRK-3", "RESTORE-5")
def test_a_restore_brings_back_ids_above_a_lowered_mark_and_raises_it(lake: Lake, table: Table) -> None:
    before = first_ids(table)
    restore(table, version=0)
    ratify_append(lake, table, "x.parquet", high_water_mark_domain(5), base_row_id=0)
    restore(table, version=2)
    assert first_ids(table) == before and mark_of(table) == 19
    lake.append(table, "new.parquet")
    assert first_ids(table)["new.parquet"] == 20


def test_a_clone_of_a_table_with_a_lowered_mark_goes_on_after_the_ids_of_its_rows(lake: Lake, table: Table) -> None:
    lower(lake, table)
    clone(lake.client, table, identifier="main.test.c", request=CloneRequest())
    copy = lake.client.table("main.test.c")
    assert mark_of(copy) == 29
    lake.append(copy, "new.parquet")
    assert first_ids(copy)["new.parquet"] == 30


def test_doctor_reports_a_mark_below_live_ids_and_files_that_share_ids(lake: Lake, table: Table) -> None:
    assert row_id_findings(table) == []
    lower(lake, table)
    (finding,) = row_id_findings(table)
    assert finding.severity == "warning" and "mark is 3, and live rows have ids up to 29" in finding.message
    lake.append(table, "new.parquet")
    assert row_id_findings(table) == []
    ratify_append(lake, table, "twice.parquet", high_water_mark_domain(49), base_row_id=35)
    (finding,) = row_id_findings(table)
    assert finding.severity == "error" and finding.message.startswith("1 file of version 5 with row ids")


def numbered(mark: int | None, *, physical: str | None = None, name: str = "id") -> Metadata:
    marks = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": False}
    marks |= {} if mark is None else {"delta.identity.highWaterMark": mark}
    marks |= {} if physical is None else {"delta.columnMapping.physicalName": physical}
    return Metadata(id="t", schema_string=schema_to_json(StructType((StructField(name, LONG, True, marks),))))


@pytest.mark.requirements("IDENT-4")
def test_metadata_do_not_set_an_identity_column_back_unless_it_is_defined_again(lake: Lake) -> None:
    table = lake.new_table(partition_columns=(), properties={"delta.feature.identityColumns": "supported"})

    def committed(metadata: Metadata, *, redefined: bool = False) -> object:
        snapshot = table.snapshot()
        operation = "CREATE OR REPLACE TABLE" if redefined else "SET TBLPROPERTIES"
        transaction = table.start_transaction(snapshot, operation=operation)
        transaction.redefines_columns = redefined
        transaction.set_metadata(replace(snapshot.metadata, schema_string=metadata.schema_string))
        transaction.commit()
        (item,) = parse_schema(table.snapshot().metadata.schema_string).fields
        return item.metadata.get("delta.identity.highWaterMark")

    assert [committed(numbered(mark)) for mark in (9, 12, 4, None)] == [9, 12, 12, 12]
    assert committed(numbered(None), redefined=True) is None


@pytest.mark.parametrize(
    "configuration", ["{", '{"rowIdHighWaterMark":"x"}', '{"rowIdHighWaterMark":' + "9" * 30 + "}", "[" * 5000]
)
@pytest.mark.parametrize("is_taken_back", [False, True])
def test_a_damaged_mark_is_replaced_by_the_next_write_or_taken_back(
    lake: Lake, table: Table, configuration: str, is_taken_back: bool
) -> None:
    domain = DomainMetadata(domain=DOMAIN, configuration=configuration)
    version = ratify_append(lake, table, "c.parquet", domain, base_row_id=20)
    (finding,) = row_id_findings(table)
    assert (finding.version, finding.repair) == (version, Repair.TAKE_BACK)
    if is_taken_back:
        assert repair_table(table, take_back=[version]).failed == ()
        assert mark_of(lake.reopened().table("main.test.t")) == 19
    lake.append(lake.reopened().table("main.test.t"), "new.parquet")
    table = lake.reopened().table("main.test.t")
    assert first_ids(table)["new.parquet"] == 30 and mark_of(table) == 39
    assert row_id_findings(table) == []
    restore(table, version=1)
    assert list(first_ids(table)) == ["a.parquet"]


def test_a_mark_that_leaves_no_ids_is_taken_back(lake: Lake, table: Table) -> None:
    version = ratify_append(lake, table, "c.parquet", high_water_mark_domain(2**63 - 1), base_row_id=20)
    (finding,) = row_id_findings(table)
    assert (finding.version, finding.repair) == (version, Repair.TAKE_BACK) and "no row ids" in finding.message
    assert repair_table(table, take_back=[version]).failed == ()
    lake.append(lake.reopened().table("main.test.t"), "new.parquet")
    assert first_ids(lake.reopened().table("main.test.t"))["new.parquet"] == 30
