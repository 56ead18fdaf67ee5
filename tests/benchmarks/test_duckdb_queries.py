"""The queries of TPC-H on tables of a few rows: all run, and both ways give the same answers. The times are not asserted."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.duckdb_queries import adopt, measure
from benchmarks.tpch_queries import QUERIES, TABLES
from cm_delta_dagster import connect

_MONEY = pa.decimal128(15, 2)
_COLUMNS = {
    "region": "r_regionkey r_name r_comment",
    "nation": "n_nationkey n_name n_regionkey n_comment",
    "supplier": "s_suppkey s_name s_address s_nationkey s_phone s_acctbal s_comment",
    "customer": "c_custkey c_name c_address c_nationkey c_phone c_acctbal c_mktsegment c_comment",
    "part": "p_partkey p_name p_mfgr p_brand p_type p_size p_container p_retailprice p_comment",
    "partsupp": "ps_partkey ps_suppkey ps_availqty ps_supplycost ps_comment",
    "orders": "o_orderkey o_custkey o_orderstatus o_totalprice o_orderdate o_orderpriority o_clerk o_shippriority o_comment",
    "lineitem": "l_orderkey l_partkey l_suppkey l_linenumber l_quantity l_extendedprice l_discount l_tax l_returnflag "
    "l_linestatus l_shipdate l_commitdate l_receiptdate l_shipinstruct l_shipmode l_comment",
}  # fmt: skip
_TEXTS = {"r_name": "ASIA", "n_name": "FRANCE", "c_phone": "13-555", "c_mktsegment": "BUILDING", "p_brand": "Brand#12",
          "l_shipmode": "MAIL", "l_returnflag": "R", "o_orderstatus": "F", "p_type": "PROMO BRASS"}  # fmt: skip
_NUMBERS = ("key", "size", "qty", "linenumber", "priority")
_AMOUNTS = ("acctbal", "price", "cost", "quantity", "discount", "tax")


def _column(name: str, rows: int) -> pa.Array:
    if name.endswith(_AMOUNTS):
        return pa.array([Decimal(row % 30) for row in range(rows)], _MONEY)
    if name.endswith("date"):
        return pa.array([date(1994 + row % 3, 1 + row % 12, 1) for row in range(rows)])
    if name.endswith(_NUMBERS) and name != "o_orderpriority":
        return pa.array([row % 5 for row in range(rows)], pa.int64())
    return pa.array([_TEXTS.get(name, f"{name} {row % 3}") for row in range(rows)])


def test_all_queries_give_the_answers_of_duckdb_over_the_files(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in TABLES:
        (data / name).mkdir(parents=True)
        for number in range(2):
            content = {column: _column(column, 40) for column in _COLUMNS[name].split()}
            pq.write_table(pa.table(content), data / name / f"{name}.{number}.parquet")
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse")) as lake:
        adopt(lake, data, tmp_path / "tables")
        times = measure(lake, data, rounds=1, numbers=list(QUERIES))
    assert sorted(times) == list(range(1, 23))
    assert all(len(of_query.catalog.wall) == len(of_query.bare.cpu) == 1 for of_query in times.values())
