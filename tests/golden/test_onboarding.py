"""Golden tables of other writers are adopted, read back equal, committed to, released, and read equal by path and by deltalake."""

import shutil
from collections import Counter
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.errors import (
    CmDeltaError,
    CorruptLogError,
    IllegalCommitError,
    ProtocolError,
    UnsupportedFeatureError,
)
from cm_delta_dagster.operations.onboarding.adopt import adopt
from cm_delta_dagster.operations.onboarding.release import release
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.protocol.actions.actions import SetTransaction
from cm_delta_dagster.storage.stores import Stores

PARTS = 4


def _rows_by_deltalake(location: Path) -> pa.Table | None:
    """The rows as deltalake reads them; None if it cannot read the table."""
    try:
        return deltalake.DeltaTable(str(location)).to_pyarrow_table()
    except (Exception, pa.ArrowException):
        return None


def _same(first: pa.Table, second: pa.Table) -> bool:
    """Whether the tables are equal; NaN equals NaN."""
    return first.schema == second.schema and repr(first.to_pydict()) == repr(second.to_pydict())


def _unordered(table: pa.Table) -> list[str]:
    """The rows in an order of their own; deltalake returns files in any order."""
    return sorted(map(repr, table.to_pylist()))


def _move_in_and_out(client: DeltaClient, location: Path, name: str, expected: pa.Table) -> str:
    """What became of the table."""
    by_deltalake = _rows_by_deltalake(location)
    try:
        table = adopt(client, location=str(location), identifier=name)
    except (UnsupportedFeatureError, CorruptLogError, IllegalCommitError) as error:
        return type(error).__name__
    assert _same(read_arrow(open_scan(table)), expected), f"{location} was adopted"
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.set_transaction(SetTransaction(app_id="test", version=1))
    transaction.commit()
    release(client, identifier=name)
    by_path = read_arrow(open_scan(open_path_table(client.stores, str(location))))
    assert _same(by_path, expected), f"{location} was released"
    if by_deltalake is None:
        return "moved"
    again = _rows_by_deltalake(location)
    if again is None:
        return "moved, unreadable by deltalake"
    assert _unordered(again) == _unordered(by_deltalake), f"deltalake reads other rows of {location}"
    return "moved, read by deltalake"


@pytest.mark.requirements("CM-2", "CM-8", "TF-11", "ICT-6", "ICT-9")
@pytest.mark.slow
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.exhaustive) for part in range(1, PARTS))])
def test_golden_tables_move_in_and_out_without_a_changed_row(part: int, golden_root: Path, tmp_path: Path) -> None:
    found = Counter[str]()
    catalog = SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse")
    client = DeltaClient(catalog, stores=Stores())
    try:
        for number, log in enumerate(sorted(golden_root.rglob("_delta_log"))[part::PARTS]):
            try:
                expected = read_arrow(open_scan(open_path_table(client.stores, str(log.parent))))
            except (CmDeltaError, ProtocolError, OSError, NotImplementedError):
                found["unreadable"] += 1
                continue
            copy = tmp_path / "tables" / f"t{number}"
            shutil.copytree(log.parent, copy, symlinks=True)
            found[_move_in_and_out(client, copy, f"main.golden.t{number}", expected)] += 1
            shutil.rmtree(copy)
    finally:
        client.close()
    print(dict(found))
    assert found["moved, read by deltalake"] > 10
