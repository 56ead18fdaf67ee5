"""polars reads a table with its own conditions: the rows of ``to_arrow``, and no file too many."""

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings

from cm_delta_dagster.client.snapshots.path_table import PathTable
from cm_delta_dagster.operations.reading.polars import file_frames, file_resolver
from cm_delta_dagster.operations.reading.polars.batch_source import BatchSource
from cm_delta_dagster.operations.reading.polars.lazy_frame import scan_polars
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan, open_scan
from tests.operations.reading.test_read_dataset import LAST, OnlyFile, ids, with_samples
from tests.support import engine_cases
from tests.support.engine_cases import Condition, conditions, wide_table
from tests.support.foreign import ForeignTable, field
from tests.support.plain_file_cases import CASES, ROWS, numbered


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> PathTable:
    return wide_table(tmp_path_factory.mktemp("wide") / "t")


@pytest.fixture(scope="module")
def memory(table: PathTable) -> pa.Table:
    return read_arrow(open_scan(table))


@pytest.mark.requirements("SKIP-1")
@with_samples
@settings(max_examples=25, deadline=None)
@given(condition=conditions)
def test_polars_finds_the_rows_that_it_finds_in_memory(
    table: PathTable, memory: pa.Table, condition: Condition
) -> None:
    where = engine_cases.to_polars(condition)
    in_memory = pl.from_arrow(memory)
    assert isinstance(in_memory, pl.DataFrame)
    assert ids(scan_polars(open_scan(table)).filter(where).select("i").collect()) == ids(in_memory.filter(where))


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize(
    "where",
    [
        pl.col("i") > 40,
        pl.col("i").is_in([40, 42]),
        pl.col("i").is_between(40, 44, closed="right"),
        pl.col("p").is_null(),
        (pl.col("i") == 42) & (pl.col("s").str.len_chars() >= 0),
    ],
)
def test_polars_opens_only_the_files_that_can_match(tmp_path: Path, where: pl.Expr) -> None:
    frame = scan_polars(open_scan(OnlyFile(tmp_path / "t", LAST).table))
    assert set(ids(frame.filter(where).collect())) <= {40, 42, 43, 44, 46, 47}
    with pytest.raises(Exception, match=r"part-0\.parquet"):
        frame.filter(pl.col("i") + 1 > 40).collect()


def test_a_limit_of_polars_ends_the_read(tmp_path: Path) -> None:
    frame = scan_polars(open_scan(OnlyFile(tmp_path / "t", 0).table, where="i < 8"))
    assert frame.head(3).collect().height == 3
    # The first rows are read, and the condition applies to them.
    assert frame.head(3).filter(pl.col("i") > 1).collect()["i"].to_list() == [2]
    assert frame.select(pl.len()).collect().item() == 8


def rows_of(frame: pl.DataFrame) -> list[str]:
    """The rows as texts, in which NaN equals itself and -0.0 is not 0.0."""
    return sorted(map(repr, frame.to_dicts()))


def frame_of(rows: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def read_natively(frame: pl.LazyFrame) -> int:
    """The number of files that polars reads itself."""
    scans = re.findall(r"Parquet SCAN \[(.*)\]", frame.explain())
    others = [int(number) - 1 for scan in scans for number in re.findall(r", \.\.\. (\d+) other source", scan)]
    return sum(scan.count(".parquet, ") + 1 for scan in scans) + sum(others)


def through_arrow(scan: SnapshotScan) -> pl.LazyFrame:
    empty = frame_of(read_arrow(replace(scan, where="false")))
    return BatchSource(polars=pl, scan=scan, dtypes=empty.schema).lazy()


@pytest.fixture
def with_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are selected when polars plans a query, also where they are few."""
    monkeypatch.setattr(file_resolver, "_FEW_FILES", 0)


@pytest.mark.usefixtures("with_resolver")
@pytest.mark.parametrize("case_name", [name for name in CASES if name != "special paths"])
def test_both_paths_return_the_same_rows_and_types(tmp_path: Path, case_name: str) -> None:
    case = CASES[case_name]
    scan = open_scan(case.build(tmp_path / "t").open())
    native, arrow, whole = scan_polars(scan), through_arrow(scan), frame_of(read_arrow(scan))
    assert read_natively(native) == case.native
    assert native.collect().schema == arrow.collect().schema == whole.schema == native.collect_schema()
    assert rows_of(native.collect()) == rows_of(whole) == rows_of(arrow.collect(engine="streaming"))
    assert rows_of(native.collect(engine="streaming")) == rows_of(whole)
    for condition in case.expressions:
        expected = rows_of(whole.filter(condition))
        assert rows_of(native.filter(condition).collect()) == expected == rows_of(arrow.filter(condition).collect()), (
            condition
        )
    assert native.select(pl.len()).collect().item() == whole.height
    for name in whole.columns:
        is_null = pl.col(name).is_null()
        assert rows_of(native.select(name).collect()) == rows_of(whole.select(name))
        assert native.filter(is_null).select(pl.len()).collect().item() == whole.filter(is_null).height
    assert native.head(7).collect().height == min(7, whole.height)
    for frame in (native, arrow):
        # No column is read.
        assert frame.with_row_index("row").select("row").collect()["row"].to_list() == list(range(whole.height))


@pytest.mark.parametrize("case_name", ["primitives", "floats", "nested", "empty files"])
def test_few_files_that_polars_reads_itself_are_not_selected(tmp_path: Path, case_name: str) -> None:
    case = CASES[case_name]
    scan = open_scan(case.build(tmp_path / "t").open())
    native, whole = scan_polars(scan), frame_of(read_arrow(scan))
    assert read_natively(native) == case.native and "RESOLVER" not in native.explain()
    assert rows_of(native.collect()) == rows_of(whole) and native.collect().schema == whole.schema
    for condition in case.expressions:
        assert rows_of(native.filter(condition).collect()) == rows_of(whole.filter(condition)), condition
    assert native.select(pl.len()).collect().item() == whole.height


def test_polars_reads_files_with_special_characters_in_their_paths(tmp_path: Path) -> None:
    """Also with a value that it looks up by the path."""
    table = ForeignTable(tmp_path / "t", field("id", "long"), field("p", "integer"), partitions=["p"])
    for number, name in enumerate(("a b%20,c=+@.parquet", "x*.parquet", "x[1].parquet", "q'.parquet", "w?.parquet")):
        table.add(name, numbered({}, number * ROWS), values={"p": str(number)})
    scan = open_scan(table.open())
    assert read_natively(scan_polars(scan)) == 5
    assert rows_of(scan_polars(scan).collect()) == rows_of(frame_of(read_arrow(scan)))


@pytest.mark.parametrize("most", [0, 2])
def test_partition_values_are_looked_up_where_they_are_too_many_for_constants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(file_frames, "_MOST_FRAMES", most)
    scan = open_scan(CASES["partitioned"].build(tmp_path / "t").open())
    whole, native = frame_of(read_arrow(scan)), scan_polars(scan)
    assert "JOIN" in native.explain() and rows_of(native.collect()) == rows_of(whole)
    assert native.collect().schema == whole.schema
    for condition in CASES["partitioned"].expressions:
        assert rows_of(native.filter(condition).collect()) == rows_of(whole.filter(condition)), condition


@pytest.mark.requirements("SKIP-1")
def test_a_condition_on_partition_columns_alone_selects_the_files_by_polars(tmp_path: Path) -> None:
    """Of which nothing follows for this package: arithmetic, and two columns."""
    scan = open_scan(CASES["partitioned"].build(tmp_path / "t").open())
    for condition, files in ((pl.col("p_int") % 2 == 1, 2), ((pl.col("p_short") + 1 == pl.col("p_int")), 1)):
        frame = scan_polars(scan).filter(condition)
        assert read_natively(frame.select("id")) == files
        assert frame.select("id").collect().height == files * ROWS
    refused = scan_polars(scan).filter(pl.col("p_string").str.to_integer(strict=True) == 1)
    with pytest.raises(pl.exceptions.PolarsError):
        refused.collect()


def test_the_rows_of_one_frame_are_those_of_each_condition(tmp_path: Path) -> None:
    """polars keeps what it resolved; it is that of the same condition."""
    frame = scan_polars(open_scan(CASES["vectors"].build(tmp_path / "t").open()))
    for number in (0, 7, 12, 0):
        assert frame.filter(pl.col("id") == number).select("id").collect()["id"].to_list() == [number]
    joined = frame.filter(pl.col("id") < 4).join(frame.filter(pl.col("p").is_null()), on="v", how="anti")
    assert joined.collect()["id"].to_list() == [0, 1, 2, 3]
    assert frame.join(frame, on="id").collect().height == 18


@pytest.mark.usefixtures("with_resolver")
def test_a_limit_opens_only_the_first_files(tmp_path: Path) -> None:
    table = ForeignTable(tmp_path / "t", field("id", "long"))
    for number in range(4):
        table.add(f"{number}.parquet", numbered({}, number * ROWS), stats={"numRecords": ROWS})
    frame = scan_polars(open_scan(table.open())).head(ROWS + 1)
    assert read_natively(frame) == 2
    assert frame.filter(pl.col("id") > 4).collect()["id"].to_list() == [5]


def test_without_such_a_resolver_the_rows_come_through_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = open_scan(CASES["primitives"].build(tmp_path / "t").open())
    assert read_natively(scan_polars(replace(scan, where="id > 3"))) == 0
    monkeypatch.setattr(file_resolver, "_ARGUMENTS", {"self", "projection"})
    assert read_natively(scan_polars(scan)) == 0
    assert scan_polars(scan).collect().height == 5 * ROWS


@pytest.mark.usefixtures("with_resolver")
def test_a_file_that_was_lost_is_named(tmp_path: Path) -> None:
    """By this package if polars plans the read after that, else by polars."""
    frame = scan_polars(open_scan(CASES["primitives"].build(tmp_path / "t").open()))
    assert frame.collect().height == 5 * ROWS
    (tmp_path / "t" / "1.parquet").unlink()
    with pytest.raises(Exception, match=r"1\.parquet is gone"):
        frame.select("id").collect()
    with pytest.raises(Exception, match=r"1\.parquet"):
        frame.collect()
