"""Holds of tables that change while their commits are held: each is rebased exactly as a reader saw it, or conflicts as a whole."""

from collections.abc import Callable

import pytest

from cm_delta_dagster.catalog.holds import HoldState
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CommitConflictError, TableNotFoundError
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_log import clean_log
from cm_delta_dagster.operations.maintenance.clean_staged_commits import clean_staged_commits
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.maintenance.vacuum import vacuum
from cm_delta_dagster.operations.tables.alter import alter_table
from cm_delta_dagster.operations.tables.alterations import AddColumns, NewColumn, SetProperties
from cm_delta_dagster.operations.tables.create import TableDesign
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.purge import plan_purge, purge
from cm_delta_dagster.operations.tables.ratify_hold import held_tables, ratify_hold
from cm_delta_dagster.operations.tables.rename import rename_table
from cm_delta_dagster.operations.tables.replace import create_or_replace
from cm_delta_dagster.operations.tables.restore import restore
from cm_delta_dagster.operations.tables.undrop import undrop_table
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from tests.support.actions import add_file
from tests.support.held_tables import change, filled, held, live, previewed
from tests.support.lake import SCHEMA, Lake

NAME = "main.test.t"
WIDER = StructType((*SCHEMA.fields, StructField("price", PrimitiveType("double"))))


@pytest.fixture
def table(lake: Lake) -> Table:
    return filled(lake, "t")


def _optimize(lake: Lake, table: Table) -> None:
    """Rewrite two files into one, as OPTIMIZE does."""
    snapshot = table.snapshot()
    is_rewritten = [path in ("a.parquet", "b.parquet") for path in snapshot.files["path"].to_pylist()]
    transaction = table.start_transaction(snapshot, operation="OPTIMIZE")
    transaction.remove_files(removes_of(snapshot.files.filter(is_rewritten), data_change=False))
    lake.put(table, "ab.parquet")
    added = add_file("ab.parquet", partition_values={"day": "2026-01-01"}, stats='{"numRecords":2}', data_change=False)
    transaction.add_files([added])
    transaction.commit()


def _overwrite(lake: Lake, table: Table) -> None:
    change(lake, table, "a.parquet", "b.parquet", "c.parquet", adds="x.parquet").commit()


def _replace(schema: StructType) -> Callable[[Lake, Table], object]:
    design = TableDesign(schema=schema, partition_columns=["day"])
    return lambda lake, table: create_or_replace(lake.client, identifier=NAME, design=design)


def _drop_and_undrop(lake: Lake, table: Table) -> None:
    drop_table(lake.client, identifier=NAME)
    undrop_table(lake.client, identifier=NAME)


CHANGES: dict[str, Callable[[Lake, Table], object]] = {
    "restore": lambda lake, table: restore(table, version=2),
    "optimize": _optimize,
    "overwrite": _overwrite,
    "add a column": lambda lake, table: alter_table(table, AddColumns([NewColumn("price", "double")])),
    "set a property": lambda lake, table: alter_table(table, SetProperties(properties={"owner": "ana"})),
    "replace": _replace(SCHEMA),
    "replace with other columns": _replace(WIDER),
    "rename": lambda lake, table: rename_table(lake.client, identifier=NAME, to="main.test.renamed"),
    "drop and undrop": _drop_and_undrop,
}
REBASED: dict[tuple[str, str], set[str]] = {
    ("restore", "append"): {"a.parquet", "b.parquet", "new.parquet"},
    ("restore", "a.parquet"): {"b.parquet"},
    ("optimize", "append"): {"ab.parquet", "c.parquet", "new.parquet"},
    ("optimize", "c.parquet"): {"ab.parquet"},
    ("overwrite", "append"): {"x.parquet", "new.parquet"},
    **{
        (unchanged, write): {"a.parquet", "b.parquet", "c.parquet"} - {write} | added
        for unchanged in ("rename", "drop and undrop")
        for write, added in (("append", {"new.parquet"}), ("a.parquet", set()), ("c.parquet", set()))
    },
}
"""By change and held write, an append or the removal of a file, the files after the ratification. All others conflict."""


@pytest.mark.requirements("WAP-1", "WAP-2")
@pytest.mark.parametrize("write", ["append", "a.parquet", "c.parquet"])
@pytest.mark.parametrize("what", CHANGES)
def test_a_hold_is_rebased_on_a_change_of_its_table_or_conflicts_with_it(
    lake: Lake, table: Table, what: str, write: str
) -> None:
    transaction = change(lake, table, adds="new.parquet") if write == "append" else change(lake, table, write)
    hold = held(lake, (table, transaction))
    CHANGES[what](lake, table)
    changed = lake.reopened().open(lake.client.registry.load_table_by_id(table.table_id))
    version, files = changed.snapshot().version, live(changed)
    expected = REBASED.get((what, write))
    if expected is not None:
        name = str(changed.identifier)
        assert previewed(lake, hold) == {name: expected}
        assert ratify_hold(lake.reopened(), hold.hold_id).version == version + 1 and live(changed) == expected
        return
    with pytest.raises(CommitConflictError, match=f"conflicts with version {version}"):
        held_tables(lake.reopened(), hold.hold_id)
    assert lake.catalog.holds.holds() == (hold,), "reading it closes nothing"
    with pytest.raises(CommitConflictError, match=f"conflicts with version {version}"):
        ratify_hold(lake.reopened(), hold.hold_id)
    (closed,) = lake.catalog.holds.holds(with_closed=True)
    assert closed.state is HoldState.CONFLICTING
    assert (changed.snapshot().version, live(changed)) == (version, files)


@pytest.mark.requirements("WAP-2")
def test_a_hold_of_a_dropped_table_does_not_become_one_of_the_table_that_takes_its_name(
    lake: Lake, table: Table
) -> None:
    hold = held(lake, (table, change(lake, table, adds="new.parquet")))
    drop_table(lake.client, identifier=NAME)
    other = filled(lake, "t")
    for refused in (held_tables, ratify_hold):
        with pytest.raises(TableNotFoundError):
            refused(lake.reopened(), hold.hold_id)
    assert other.snapshot().version == 3 and live(other) == {"a.parquet", "b.parquet", "c.parquet"}
    assert lake.catalog.holds.discard_hold(hold.hold_id, reason="the table is gone").state is HoldState.DISCARDED


@pytest.mark.requirements("WAP-2")
def test_a_hold_of_a_purged_table_can_only_be_discarded(lake: Lake, table: Table) -> None:
    hold = held(lake, (table, change(lake, table, adds="new.parquet")))
    drop_table(lake.client, identifier=NAME)
    lake.allow(MaintenanceKind.TABLE_PURGE)
    purge(lake.client, plan_purge(lake.client, retention_ms=0))
    assert lake.files(table) == set()
    for refused in (held_tables, ratify_hold):
        with pytest.raises(TableNotFoundError):
            refused(lake.reopened(), hold.hold_id)
    assert lake.catalog.holds.discard_hold(hold.hold_id, reason="the table is gone").state is HoldState.DISCARDED
    assert lake.files(table) == set()


@pytest.mark.requirements("WAP-1")
def test_a_hold_is_ratified_after_everything_else_of_its_version_was_cleaned(lake: Lake, table: Table) -> None:
    """Also a removal, which needs the file that it removes, and the statistics of the version that it was made on."""
    for kind in (MaintenanceKind.DATA_CLEANUP, MaintenanceKind.METADATA_CLEANUP):
        lake.allow(kind)
    hold = held(lake, (table, change(lake, table, "c.parquet", adds="new.parquet")), duration_ms=100 * 86_400_000)
    change(lake, table, "a.parquet", adds="d.parquet").commit()
    publish(table)
    checkpoint(table)
    lake.clock.pass_days(60)
    lake.append(table, "e.parquet")
    publish(table)
    vacuum(table, retention_ms=0, force=True)
    clean_log(table)
    clean_staged_commits(table, safety_age_ms=0)
    expected = {"b.parquet", "d.parquet", "e.parquet", "new.parquet"}
    assert previewed(lake, hold) == {NAME: expected}
    assert ratify_hold(lake.reopened(), hold.hold_id).version == 6 and live(table) == expected
    assert expected <= lake.data_files(table)
    lake.clock.pass_days(60)
    vacuum(table, retention_ms=0, force=True)
    assert lake.data_files(table) == expected
