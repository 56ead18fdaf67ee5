"""A fault at any call of store or catalog while rows of Arrow are written: threads write several files at the same time."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError, CommitStateUnknownError
from cm_delta_dagster.operations.maintenance.optimize import optimize
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.tables.alter_with_rewrite import alter_with_rewrite
from cm_delta_dagster.operations.tables.alterations import SetProperties
from cm_delta_dagster.operations.tables.create import first_schema
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.engine_choice import no_session
from cm_delta_dagster.operations.writing.merge import merge
from cm_delta_dagster.operations.writing.merge_rows import merge_rows
from cm_delta_dagster.operations.writing.row_change import RowChange, RowClause
from cm_delta_dagster.operations.writing.update import update
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind
from cm_delta_dagster.protocol.features.enablement import COLUMN_MAPPING_MODE
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema
from tests.faults.nth_call import Fault, Plan, World
from tests.support.creation import create_table

TABLE = "main.s.t"
START = pa.table({"p": [1, 2, 3, 4], "v": ["a", "b", "c", "d"]})
NEW = pa.table({"p": [2, 3, 4, 5], "v": ["B", "C", "D", "E"]})
_MOST_CALLS = 200


def _append(table: Table) -> None:
    append(table, frame=NEW)


def _overwrite(table: Table) -> None:
    overwrite(table, frame=NEW, partitions="dynamic")


def _replace_slice(table: Table) -> None:
    overwrite(table, frame=NEW, where="p > 1")


def _delete(table: Table) -> None:
    delete(table, where="v = 'b' OR v = 'c'")


def _update(table: Table) -> None:
    update(table, assignments={"v": "concat(v, '!')"}, where="v > 'b'")


def _upsert(table: Table) -> None:
    merge(table, frame=NEW, keys=["p"])


def _merge_by_clauses(table: Table) -> None:
    clauses = (
        RowClause(kind=ClauseKind.MATCHED, action=ClauseAction.DELETE, condition="target.v = 'c'"),
        RowClause(kind=ClauseKind.MATCHED, action=ClauseAction.UPDATE, assignments={"v": "concat(target.v, source.v)"}),
        RowClause(kind=ClauseKind.NOT_MATCHED, action=ClauseAction.INSERT, assignments=None),
    )
    merge_rows(table, change=RowChange(clauses=clauses, source=NEW, on="target.p = source.p"))


def _replace_keys(table: Table) -> None:
    overwrite(table, frame=NEW, keys=["p"])


def _order(table: Table) -> None:
    optimize(table, z_order_by="v")


def _remove_mapping(table: Table) -> None:
    alter_with_rewrite(table, SetProperties(properties={COLUMN_MAPPING_MODE: "none"}), spark=no_session)


ROWS = set(zip(START["p"].to_pylist(), START["v"].to_pylist(), strict=True))
REPLACED = {(1, "a"), *zip(NEW["p"].to_pylist(), NEW["v"].to_pylist(), strict=True)}
WRITES: dict[str, tuple[Callable[[Table], None], set[tuple[int, str]]]] = {
    "append": (_append, REPLACED | {(2, "b"), (3, "c"), (4, "d")}),
    "overwrite of partitions": (_overwrite, REPLACED),
    "overwrite of a slice": (_replace_slice, REPLACED),
    "overwrite of keys": (_replace_keys, REPLACED),
    "upsert": (_upsert, REPLACED),
    "merge by clauses": (_merge_by_clauses, {(1, "a"), (2, "bB"), (4, "dD"), (5, "E")}),
    "delete": (_delete, {(1, "a"), (4, "d")}),
    "update": (_update, {(1, "a"), (2, "b"), (3, "c!"), (4, "d!")}),
    "optimize by z-order": (_order, ROWS),
    "removal of column mapping": (_remove_mapping, ROWS),
}
RARELY = {*product(["removal of column mapping"], Fault), ("optimize by z-order", Fault.LOSES_THE_ANSWER)}
"""Their calls are those of the optimization with the other fault."""


def _rows(table: Table) -> set[tuple[int, str]]:
    rows = [(row["p"], row["v"]) for row in read_arrow(open_scan(table)).to_pylist()]
    assert len(rows) == len(set(rows))
    return set(rows)


def _data_files(table: Table) -> set[str]:
    return {status.location for status in table.store.list_recursive(table.location) if ".parquet" in status.location}


@pytest.mark.requirements("CM-C15", "CM-W4", "CM-W5")
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        pytest.param(name, fault, marks=[pytest.mark.exhaustive] if (name, fault) in RARELY else [])
        for name, fault in product(WRITES, Fault)
    ],
)
def test_after_a_fault_at_any_call_of_a_write_the_rows_are_right(tmp_path: Path, name: str, fault: Fault) -> None:
    write, expected = WRITES[name]
    base = World(tmp_path / "base")
    with base.client() as client:
        rule = MaintenanceRule(scope="main", kind=MaintenanceKind.DATA_REORGANIZATION, allowed=True)
        client.catalog.maintenance_policies.set_maintenance_rule(rule)
        table = create_table(
            client,
            identifier=TABLE,
            schema=first_schema(from_arrow_schema(START.schema)),
            partition_columns=["p"],
            properties={COLUMN_MAPPING_MODE: "name"} if write is _remove_mapping else {},
        )
        append(table, frame=START)
        before, files = _rows(table), _data_files(table)
    for at in range(1, _MOST_CALLS):
        world, plan = base.copy(tmp_path / str(at)), Plan(at=at, fault=fault)
        error: CmDeltaError | None = None
        with world.client(plan) as client:
            try:
                write(client.table(TABLE))
            except CmDeltaError as raised:
                error = raised
        where = f"call {at}, {plan.hit}: {type(error).__name__}: {error}"
        with world.client() as client:
            table = client.table(TABLE)
            rows = _rows(table)
            assert rows in (before, expected), where
            if error is None:
                assert rows == expected, where
            elif not isinstance(error, CommitStateUnknownError):
                assert rows == before and _data_files(table) == files, where
            world.pass_days(1)  # A lease that could not be returned ends.
            if rows == before:
                write(table)
            assert _rows(table) == expected, where
        if plan.hit is None:
            assert error is None and at > 10, where
            return
    pytest.fail("the write makes more calls than expected")
