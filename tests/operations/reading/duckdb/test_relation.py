"""DuckDB's own Parquet reader and the dataset of Arrow return the same rows and types, for every kind of file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import assume, given, settings

from cm_delta_dagster.arrow.plain_files import plain_columns, plain_files
from cm_delta_dagster.client.snapshots.path_table import PathTable
from cm_delta_dagster.errors import ObjectNotFoundError
from cm_delta_dagster.operations.reading.duckdb import relation as module
from cm_delta_dagster.operations.reading.duckdb.connection import to_relation
from cm_delta_dagster.operations.reading.duckdb.names import quoted_name
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.read_dataset import read_dataset
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from tests.operations.reading.test_read_dataset import with_samples
from tests.support import engine_cases
from tests.support.engine_cases import Condition, conditions, wide_table
from tests.support.foreign import ForeignTable, field
from tests.support.plain_file_cases import CASES, ROWS, numbered, partitioned, primitives


def rows_of(relation: Any) -> list[str]:
    """The rows as texts, in which NaN equals itself and -0.0 is not 0.0."""
    return sorted(map(repr, relation.to_arrow_table().to_pylist()))


def native_files(table: PathTable) -> int:
    snapshot = table.snapshot()
    columns = plain_columns(snapshot.layout, snapshot.schema.names)
    if columns is None:
        return 0
    plain = plain_files(table.store, snapshot.layout, snapshot.files, columns)
    return sum(1 for file in plain if module.is_plain_path(file.path))


@pytest.fixture(params=["UTC", "Asia/Kathmandu"])
def connection(request: pytest.FixtureRequest) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(f"SET TimeZone = '{request.param}'")
        yield connection


@pytest.mark.parametrize("case_name", CASES)
def test_both_paths_return_the_same_rows_and_types(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection, case_name: str
) -> None:
    case = CASES[case_name]
    table = case.build(tmp_path / "t").open()
    assert native_files(table) == case.native
    scan = open_scan(table)
    native, arrow = to_relation(scan, connection), to_relation(read_dataset(scan), connection)
    assert native.columns == arrow.columns == list(scan.snapshot.schema.names)
    assert native.types == arrow.types
    assert rows_of(native) == rows_of(arrow)
    whole = connection.from_arrow(read_arrow(scan))
    for condition in case.conditions:
        expected = rows_of(whole.filter(condition))
        assert rows_of(native.filter(condition)) == expected == rows_of(arrow.filter(condition)), condition
    assert native.count("*").fetchall() == whole.count("*").fetchall()
    for name in (quoted_name(native.columns[0]), quoted_name(native.columns[-1])):
        bounds = f"min({name})::VARCHAR, max({name})::VARCHAR, count({name})"
        assert native.aggregate(bounds).fetchall() == whole.aggregate(bounds).fetchall()


FLAT = ["i", "f", "d", "c", "s", "t", "n", "y", "b", "p"]
"""The columns of the wide table that DuckDB reads itself, from the files without deleted rows."""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> PathTable:
    return wide_table(tmp_path_factory.mktemp("wide") / "t")


def is_flat(condition: Condition) -> bool:
    return "'field'" not in repr(condition)


@pytest.mark.requirements("SKIP-1")
@with_samples
@settings(max_examples=25, deadline=None)
@given(condition=conditions)
def test_conditions_on_files_read_by_duckdb_keep_the_rows_of_memory(wide: PathTable, condition: Condition) -> None:
    """Some files have deleted rows; DuckDB skips rows by the statistics in the others."""
    assume(is_flat(condition))
    where = engine_cases.to_duckdb(condition)
    scan = open_scan(wide, columns=FLAT)
    with duckdb.connect() as connection:
        native = to_relation(scan, connection)
        assert "PARQUET" in native.explain().upper() and "ARROW" in native.explain().upper()
        rows, expected = (
            relation.filter(where).select("i").order("i").fetchall()
            for relation in (native, connection.from_arrow(read_arrow(scan)))
        )
    assert rows == expected


def test_a_scan_of_some_columns_has_their_order_and_types(
    wide: PathTable, connection: duckdb.DuckDBPyConnection
) -> None:
    for columns in (["p"], ["s", "i"], ["p", "d", "i"]):
        scan = open_scan(wide, columns=columns)
        native, arrow = to_relation(scan, connection), to_relation(read_dataset(scan), connection)
        assert native.columns == columns and native.types == arrow.types
        assert rows_of(native) == rows_of(arrow)


def test_a_condition_of_the_scan_is_applied_in_its_own_words(
    wide: PathTable, connection: duckdb.DuckDBPyConnection
) -> None:
    relation = to_relation(open_scan(wide, columns=["i"], where="d >= 3 OR s <=> NULL"), connection)
    expected = read_arrow(open_scan(wide, columns=["i"], where="d >= 3 OR s <=> NULL"))
    assert rows_of(relation) == sorted(map(repr, expected.to_pylist()))


def test_without_access_to_files_the_rows_come_through_arrow(tmp_path: Path) -> None:
    table = primitives(tmp_path / "t").open()
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        assert to_relation(open_scan(table), connection).count("*").fetchall() == [(25,)]


def test_a_table_of_many_files_is_a_dataset_because_conditions_may_follow(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LATE_FILES", 4)
    relation = to_relation(open_scan(primitives(tmp_path / "t").open()), connection)
    assert "PARQUET" not in relation.explain().upper()


@pytest.mark.parametrize("searched", [1, 2])
def test_partition_values_of_many_files_come_in_several_parts(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, searched: int
) -> None:
    """Each part has a list of values or one value."""
    monkeypatch.setattr(module, "_SEARCHED_FILES", searched)
    scan = open_scan(partitioned(tmp_path / "t").open())
    native, arrow = to_relation(scan, connection), to_relation(read_dataset(scan), connection)
    assert native.types == arrow.types
    for condition in ("true", "p_int = 3", "p_int IS NULL", "p_string LIKE 'a/b%' AND id > 2"):
        assert rows_of(native.filter(condition)) == rows_of(arrow.filter(condition))


def test_a_column_with_the_name_of_the_files_is_read(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    table = ForeignTable(tmp_path / "t", field("id", "long"), field("__CM_DELTA_FILE", "string"))
    table.add("a.parquet", numbered({"__CM_DELTA_FILE": ["x"] * ROWS}))
    relation = to_relation(open_scan(table.open()), connection).filter("__cm_delta_file = 'x'")
    assert relation.count("*").fetchall() == [(ROWS,)]


def test_an_older_duckdb_reads_through_arrow(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb, "__version__", "1.5.5")
    relation = to_relation(open_scan(primitives(tmp_path / "t").open()), connection)
    assert "PARQUET" not in relation.explain().upper() and len(rows_of(relation)) == 5 * ROWS


def test_a_relation_is_read_after_its_connection_ran_other_statements(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection
) -> None:
    table = partitioned(tmp_path / "t").open()
    relation = to_relation(open_scan(table), connection)
    other = to_relation(open_scan(table, columns=["id"]), connection)
    connection.execute("CREATE TABLE t AS SELECT 1 AS id").fetchall()
    assert other.count("*").fetchall() == relation.filter("id >= 0").count("*").fetchall() == [(15,)]
    joined = relation.set_alias("a").join(other.set_alias("b"), "a.id = b.id").count("*")
    assert joined.fetchall() == [(15,)]


def test_a_file_that_is_lost_or_damaged_is_named(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    table = primitives(tmp_path / "t").open()
    (tmp_path / "t" / "1.parquet").unlink()
    with pytest.raises(Exception, match=r"1\.parquet is gone"):
        to_relation(open_scan(table), connection).fetchall()
    (tmp_path / "t" / "1.parquet").write_bytes(b"PAR1")
    with pytest.raises(Exception, match=r"1\.parquet cannot be read"):
        to_relation(open_scan(table), connection).fetchall()


def test_a_file_with_other_than_the_recorded_rows_is_left_to_the_check_of_arrow(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection
) -> None:
    table = ForeignTable(tmp_path / "t", field("id", "long"))
    table.add("a.parquet", numbered({}), stats={"numRecords": ROWS + 1})
    assert native_files(table.open()) == 0
    with pytest.raises(Exception, match=r"a\.parquet"):
        to_relation(open_scan(table.open()), connection).fetchall()


def test_an_error_about_other_files_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "there.parquet").touch()
    module.raise_missing_file(OSError(f'Cannot open "{tmp_path}/there.parquet" or "{tmp_path}/other.csv"'))
    with pytest.raises(ObjectNotFoundError, match=r"gone\.parquet"):
        module.raise_missing_file(OSError(f'No files match "{tmp_path}/gone.parquet"'))
