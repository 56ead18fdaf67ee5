"""Queries of polars: on ``scan(...).lazy()``, on the bare Parquet files of the same tables, and on pyarrow datasets of both.

    pip install tpchgen-cli
    python -m benchmarks.polars_queries --scale 1 --rounds 5

One process, without Spark. Each round runs every query once each way, in turns, so that all see the same load of the machine. The
first round warms up and is not counted; its answers are compared, and the run fails if they differ. It prints the median wall time
and the minimum CPU time of each way, and their ratios. The bound of the ratio of polars is ``BOUND``.

The tables are ``lineitem`` and ``orders`` of TPC-H, and ``monthly``: the rows of ``lineitem`` in a folder for each month of
``l_shipdate``. A query through the catalog begins with the name of the table: its version is looked up each time.
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
from polars.testing import assert_frame_equal

from benchmarks.duckdb_queries import adopt, generate
from benchmarks.paired_times import QueryTimes, Run, measure_in_turn, print_times
from cm_delta_dagster import Connection, connect

BOUND = 1.3
"""The time of a query of polars through the catalog divided by its time over the bare files."""

Frames = Callable[[str], pl.LazyFrame]
"""The rows of a table, by its name."""
_TABLES = ("lineitem", "orders")
_MONTHLY = "monthly"
_C = pl.col
_REVENUE = _C("l_extendedprice") * (1 - _C("l_discount"))


def _joined(frames: Frames) -> pl.LazyFrame:
    """Query 3 of TPC-H without the customers."""
    day = date(1995, 3, 15)
    lines = frames("lineitem").filter(_C("l_shipdate") > day)
    orders = frames("orders").filter(_C("o_orderdate") < day)
    revenue = lines.join(orders, left_on="l_orderkey", right_on="o_orderkey").group_by("l_orderkey", "o_orderdate")
    return revenue.agg(_REVENUE.sum().alias("revenue")).sort("revenue", "l_orderkey", descending=True).head(10)


QUERIES: Mapping[str, Callable[[Frames], pl.LazyFrame]] = {
    "full aggregate": lambda frames: frames("lineitem").select(
        _C("l_quantity").sum(), _C("l_shipdate").min(), _C("l_receiptdate").max(), _C("l_comment").str.len_bytes().sum()
    ),
    "one column": lambda frames: frames("lineitem").select(_C("l_extendedprice").sum()),
    "count": lambda frames: frames("lineitem").select(pl.len()),
    "selective filter": lambda frames: (
        frames("lineitem")
        .filter(_C("l_shipdate").is_between(date(1994, 1, 1), date(1994, 12, 31)) & (_C("l_quantity") < 24))
        .select((_C("l_extendedprice") * _C("l_discount")).sum())
    ),
    "one key": lambda frames: frames("lineitem").filter(_C("l_orderkey") == 1_000).sort("l_linenumber"),
    "group by": lambda frames: (
        frames("lineitem")
        .filter(_C("l_shipdate") <= date(1998, 9, 2))
        .group_by("l_returnflag", "l_linestatus")
        .agg(_C("l_quantity").sum(), _REVENUE.sum().alias("revenue"), _C("l_discount").mean(), pl.len())
        .sort("l_returnflag", "l_linestatus")
    ),
    "first rows of an order": lambda frames: (
        frames("lineitem").select("l_extendedprice").sort("l_extendedprice", descending=True).head(10)
    ),
    "join": _joined,
    "one partition": lambda frames: (
        frames(_MONTHLY).filter(_C("month") == date(1995, 3, 1)).select(_C("l_extendedprice").sum(), pl.len())
    ),
    "by partition": lambda frames: frames(_MONTHLY).group_by("month").agg(_C("l_extendedprice").sum()).sort("month"),
}


def _scanned(dataset: pds.Dataset, columns: Sequence[str], condition: pc.Expression | None) -> pa.Table:
    return dataset.scanner(columns=list(columns), filter=condition).to_table()


DATASET_QUERIES: Mapping[str, Callable[[pds.Dataset], pa.Table]] = {
    "dataset: one column": lambda dataset: _scanned(dataset, ["l_extendedprice"], None),
    "dataset: selective filter": lambda dataset: _scanned(
        dataset, ["l_extendedprice", "l_discount"], pc.field("l_shipdate") == date(1994, 1, 1)
    ),
}
"""Queries of ``lineitem`` by pyarrow, through ``scan(...).dataset()`` and the dataset of the bare files. They have no bound."""


def prepare(lake: Connection, data: Path, home: Path) -> None:
    """Make tables of copies of the folders of ``data``, and ``home/monthly`` with a copy as another table."""
    adopt(lake, data, home / "tables", _TABLES)
    rows = pl.scan_parquet(data / "lineitem" / "*.parquet").with_columns(month=_C("l_shipdate").dt.truncate("1mo"))
    for (month,), part in rows.collect().group_by("month"):
        folder = home / _MONTHLY / f"month={month}"
        folder.mkdir(parents=True)
        part.drop("month").write_parquet(folder / "0.parquet")
    shutil.copytree(home / _MONTHLY, home / "tables" / _MONTHLY)
    lake.onboarding.adopt(str(home / "tables" / _MONTHLY), f"main.tpch.{_MONTHLY}", partition_by={"month": "date"})


def measure(lake: Connection, data: Path, home: Path, *, rounds: int) -> Mapping[str, QueryTimes]:
    """The times of all queries. Raises AssertionError if two answers differ."""

    def catalog(name: str) -> pl.LazyFrame:
        return lake.table(f"main.tpch.{name}").scan().lazy()

    def bare(name: str) -> pl.LazyFrame:
        if name == _MONTHLY:
            return pl.scan_parquet(home / _MONTHLY, hive_schema={"month": pl.Date})
        return pl.scan_parquet(data / name / "*.parquet")

    runs: dict[str, tuple[Run, Run]] = {}
    for name, query in QUERIES.items():
        runs[name] = (partial(_collected, query, catalog), partial(_collected, query, bare))
    for name, read in DATASET_QUERIES.items():
        runs[name] = (
            lambda read=read: read(lake.table("main.tpch.lineitem").scan().dataset()),
            lambda read=read: read(pds.dataset(str(data / "lineitem"))),
        )
    return measure_in_turn(runs, rounds=rounds, equal=_equal)


def _collected(query: Callable[[Frames], pl.LazyFrame], frames: Frames) -> pl.DataFrame:
    return query(frames).collect()


def _equal(first: Any, second: Any) -> bool:
    """Whether the rows are equal, floats within a rounding: the order in which polars adds them is not fixed."""
    if isinstance(first, pa.Table):
        return bool(first.num_rows == second.num_rows and pc.sum(first[0]) == pc.sum(second[0]))
    try:
        assert_frame_equal(first, second)
    except AssertionError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.polars_queries", description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--files", type=int, default=4, help="files of each of the large tables")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--data", type=Path, help="folder with a folder of Parquet files for each table; generated by default"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        data = options.data or home / "data"
        if options.data is None:
            generate(data, scale=options.scale, files=options.files)
        with connect(f"sqlite:///{home}/catalog.db", warehouse=f"{home}/warehouse") as lake:
            prepare(lake, data, home)
            times = measure(lake, data, home, rounds=options.rounds)
    print_times(times, bound=BOUND)


if __name__ == "__main__":
    main()
