"""The queries of polars on tables of a few rows: all run, and both ways give the same answers. The times are not asserted."""

from datetime import date, timedelta
from pathlib import Path

import polars as pl

from benchmarks.polars_queries import DATASET_QUERIES, QUERIES, measure, prepare
from cm_delta_dagster import connect


def test_all_queries_give_the_answers_of_polars_over_the_files(tmp_path: Path) -> None:
    data = tmp_path / "data"
    days = [date(1994, 1, 1) + timedelta(days=11 * row) for row in range(80)]
    lines = pl.DataFrame(
        {
            "l_orderkey": [1_000 + row % 20 for row in range(80)],
            "l_linenumber": range(80),
            "l_quantity": [row % 30 for row in range(80)],
            "l_extendedprice": [100.0 + row for row in range(80)],
            "l_discount": [0.01 * (row % 7) for row in range(80)],
            "l_returnflag": ["A", "R"] * 40,
            "l_linestatus": ["F"] * 80,
            "l_shipdate": days,
            "l_receiptdate": days,
            "l_comment": [f"line {row}" for row in range(80)],
        }
    )
    orders = pl.DataFrame({"o_orderkey": range(1_000, 1_020), "o_orderdate": [date(1995, 1, 1)] * 20})
    for name, rows in (("lineitem", lines), ("orders", orders)):
        (data / name).mkdir(parents=True)
        rows.write_parquet(data / name / "0.parquet")
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse")) as lake:
        prepare(lake, data, tmp_path)
        times = measure(lake, data, tmp_path, rounds=1)
    assert list(times) == [*QUERIES, *DATASET_QUERIES]
    assert all(len(of_query.catalog.wall) == len(of_query.bare.cpu) == 1 for of_query in times.values())
