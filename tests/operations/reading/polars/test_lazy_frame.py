"""polars reads a table with its own conditions: the rows of ``to_arrow``, and no file too many."""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings

from cm_delta_dagster.client.snapshots.path_table import PathTable
from cm_delta_dagster.operations.reading.polars.lazy_frame import scan_polars
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from tests.operations.reading.test_read_dataset import LAST, OnlyFile, ids, with_samples
from tests.support import engine_cases
from tests.support.engine_cases import Condition, conditions, wide_table


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
