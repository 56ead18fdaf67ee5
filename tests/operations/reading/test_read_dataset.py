"""DuckDB, polars and pyarrow read a table with their own conditions: the rows of ``to_arrow``, and no file too many."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pytest
from hypothesis import example, given, settings

from cm_delta_dagster.client.snapshots.path_table import PathTable
from cm_delta_dagster.errors import (
    EngineError,
    InvalidArgumentError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.reading.duckdb.connection import to_relation
from cm_delta_dagster.operations.reading.optional_packages import import_engine
from cm_delta_dagster.operations.reading.polars.lazy_frame import scan_polars
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.read_dataset import read_dataset
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from tests.support import engine_cases
from tests.support.engine_cases import FILES, Condition, conditions, wide_table
from tests.support.foreign import ForeignTable, array, field


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> PathTable:
    return wide_table(tmp_path_factory.mktemp("wide") / "t")


@pytest.fixture(scope="module")
def memory(table: PathTable) -> pa.Table:
    return read_arrow(open_scan(table))


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def ids(rows: Any) -> list[int]:
    return sorted(rows["i"].to_pylist() if isinstance(rows, pa.Table) else rows["i"].to_list())


# Comparisons with NaN, -0.0 and null behind a negation are where engines differ.
SAMPLES: tuple[Condition, ...] = (
    ("not", ("compare", "d", ">", 1.5)),
    ("not", ("compare", "f", ">=", 0.0)),
    ("not", ("in", "d", (0.0, 1.5))),
    ("not", ("or", (("compare", "s", "=", "a"), ("null", "t")))),
    ("compare", "d", "=", math.nan),
    ("and", (("odd", "s"), ("compare", "i", ">", 20))),
    ("or", (("odd", "i"), ("compare", "p", "=", 1))),
    ("not", ("field", 20)),
)


def with_samples(test: Callable[..., None]) -> Callable[..., None]:
    for sample in SAMPLES:
        test = example(condition=sample)(test)
    return test


@pytest.mark.requirements("SKIP-1")
@with_samples
@settings(max_examples=25, deadline=None)
@given(condition=conditions)
def test_duckdb_finds_the_rows_that_it_finds_in_memory(
    table: PathTable, memory: pa.Table, condition: Condition
) -> None:
    """With vectors, mapped columns, NaN, nulls, both kinds of timestamps, decimals and nested fields."""
    where = engine_cases.to_duckdb(condition)
    with duckdb.connect() as connection:
        found, expected = (
            connection.from_arrow(rows).filter(where).select("i").to_arrow_table()
            for rows in (read_dataset(open_scan(table)), memory)
        )
    assert ids(found) == ids(expected)


@pytest.mark.requirements("SKIP-1")
@with_samples
@settings(max_examples=25, deadline=None)
@given(condition=conditions)
def test_pyarrow_finds_the_rows_that_it_finds_in_memory(
    table: PathTable, memory: pa.Table, condition: Condition
) -> None:
    where = engine_cases.to_pyarrow(condition)
    assert ids(read_dataset(open_scan(table)).to_table(columns=["i"], filter=where)) == ids(memory.filter(where))


def test_all_engines_return_the_rows_and_types_of_to_arrow(
    table: PathTable, memory: pa.Table, connection: duckdb.DuckDBPyConnection
) -> None:
    dataset = read_dataset(open_scan(table))
    assert dataset.schema.equals(memory.schema, check_metadata=True)
    expected = repr(memory.to_pylist())  # NaN equals itself here.
    assert repr(dataset.to_table().to_pylist()) == expected
    through_duckdb = to_relation(dataset, connection).to_arrow_table()
    assert repr(through_duckdb.cast(memory.schema).to_pylist()) == expected
    assert pl.from_arrow(memory).equals(scan_polars(open_scan(table)).collect())  # type: ignore[union-attr]


class OnlyFile:
    """A table of which all data files but one are gone, so that reading any other file is an error."""

    def __init__(self, root: Path, number: int) -> None:
        self.table = wide_table(root)
        for other in range(FILES):
            if other != number:
                (root / f"part-{other}.parquet").unlink()


LAST = 5
"""The rows 40 to 47, in the partition null; 41 and 45 are deleted."""


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize(
    "where",
    [
        "i > 40",
        "i IN (40, 42)",
        "i BETWEEN 42 AND 44",
        "p IS NULL",
        "i = 42 AND length(s) >= 0",
        "st IS NOT NULL AND 46 <= i",
    ],
)
def test_duckdb_opens_only_the_files_that_can_match(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection, where: str
) -> None:
    relation = to_relation(read_dataset(open_scan(OnlyFile(tmp_path / "t", LAST).table)), connection)
    assert set(ids(relation.filter(where).select("i").to_arrow_table())) <= {40, 42, 43, 44, 46, 47}
    with pytest.raises(Exception, match=r"part-0\.parquet"):
        relation.filter("i % 7 = 1").fetchall()


def test_arguments_are_those_of_to_arrow(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    table = wide_table(tmp_path / "t")
    arguments: dict[str, Any] = {"columns": ["I", "p"], "where": "i > 3 AND p = 0", "version": 2}
    expected = read_arrow(open_scan(table, **arguments))
    assert expected.column_names == ["i", "p"] and expected.num_rows == 4
    assert read_dataset(open_scan(table, **arguments)).to_table().equals(expected)
    assert scan_polars(open_scan(table, **arguments)).collect().to_arrow().to_pylist() == expected.to_pylist()
    relation = to_relation(read_dataset(open_scan(table, **arguments)), connection)
    assert relation.filter("p < 1").fetchall() == [(4, 0), (5, 0), (6, 0), (7, 0)]
    for read in (read_dataset, scan_polars):
        with pytest.raises(InvalidArgumentError, match="only Spark can evaluate"):
            read(open_scan(table, where="upper(s) = 'A'"))
    with pytest.raises(InvalidArgumentError, match="no column 'nosuch'"):
        open_scan(table, columns=["nosuch"])
    with pytest.raises(VersionNotFoundError):
        open_scan(table, version=99)


def test_a_lost_file_is_named_while_the_rows_are_read(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    table = wide_table(tmp_path / "t")
    dataset, frame = read_dataset(open_scan(table)), scan_polars(open_scan(table))
    (tmp_path / "t" / "part-3.parquet").unlink()
    with pytest.raises(ObjectNotFoundError, match=r"part-3\.parquet"):
        dataset.to_table()
    with pytest.raises(Exception, match=r"part-3\.parquet"):
        to_relation(dataset, connection).fetchall()
    with pytest.raises(Exception, match=r"part-3\.parquet"):
        frame.collect()


@pytest.mark.parametrize("name", sorted(name for name in dir(pds.Dataset) if not name.startswith("_")))
def test_every_method_of_a_dataset_works_or_is_refused(table: PathTable, memory: pa.Table, name: str) -> None:
    """pyarrow's own code would read an empty dataset."""
    dataset = read_dataset(open_scan(table))
    works: dict[str, Callable[[], Any]] = {
        "count_rows": lambda: dataset.count_rows(filter=pc.field("i") < 4) == 4,
        "filter": lambda: dataset.filter(pc.field("i") < 6).filter(pc.field("i") > 4).to_table()["i"].to_pylist() == [5],
        "head": lambda: dataset.head(3).num_rows == 3,
        "scanner": lambda: (
            dataset.scanner({"j": pc.field("i") * 2}, pc.field("i") == 2).to_table().to_pylist() == [{"j": 4}]
        ),
        "schema": lambda: dataset.schema == memory.schema,
        "take": lambda: dataset.take(pa.array([0, 2]))["i"].to_pylist() == [0, 2],
        "to_batches": lambda: sum(batch.num_rows for batch in dataset.to_batches(batch_size=7)) == memory.num_rows,
        "to_table": lambda: dataset.to_table(["i"]).num_rows == memory.num_rows,
    }  # fmt: skip
    if name in works:
        assert works[name]()
    else:
        with pytest.raises(InvalidArgumentError, match=r"Use its scanner\(\)"):
            found = getattr(dataset, name)
            found("i")


def test_what_goes_around_the_scanner_is_an_error(table: PathTable) -> None:
    dataset = read_dataset(open_scan(table))
    with pytest.raises(FileNotFoundError, match="A dataset of a Delta table has no files"):
        pds.UnionDataset(dataset.schema, [dataset]).to_table()
    with pytest.raises(TypeError, match="cannot be pickled"):
        dataset.__reduce__()


def test_a_large_table_is_read_in_batches(tmp_path: Path) -> None:
    """Bounded memory: an engine that aggregates never holds the table."""
    table = ForeignTable(tmp_path / "t", field("i", "long"), field("s", "string"))
    content = pa.table({"i": range(50_000), "s": ["x" * 200] * 50_000})
    for number in range(16):
        table.add(f"{number}.parquet", content)
    opened = table.open()
    before = pa.total_allocated_bytes()
    peak, rows = 0, 0
    for batch in read_dataset(open_scan(opened)).scanner(["s"]).to_reader():
        peak, rows = max(peak, pa.total_allocated_bytes() - before), rows + batch.num_rows
        del batch
    assert rows == 800_000
    assert peak < 16 * content.nbytes / 2
    assert (
        scan_polars(open_scan(opened)).select(pl.col("s").str.len_bytes().sum()).collect(engine="streaming").item()
        == 160_000_000
    )


def test_types_without_an_equal_are_those_of_to_arrow_or_refused_by_name(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection
) -> None:
    """Intervals, variants and void."""
    variant = pa.struct(
        [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
    )
    table = ForeignTable(
        tmp_path / "t", field("id", "long"), field("m", "interval year to month"), field("d", "interval day to second"),
        field("v", "variant"), field("w", "void"), field("ws", array("void")), features=["variantType"],
    )  # fmt: skip
    rows = {"id": [1], "m": pa.array([14], pa.int32()), "d": pa.array([90_000_000], pa.int64()),
            "v": pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x0c\x05"}], variant)}  # fmt: skip
    table.add("a.parquet", pa.table(rows))
    opened = table.open()
    relation = to_relation(read_dataset(open_scan(opened)), connection)
    shown = relation.select("id, m::VARCHAR, d::VARCHAR, v.value, w, ws").fetchall()
    assert shown == [(1, "1 year 2 months", "00:01:30", b"\x0c\x05", None, None)]
    with pytest.raises(UnsupportedFeatureError, match=r"Column 'm' has an interval of years and months"):
        scan_polars(open_scan(opened))
    others = scan_polars(open_scan(opened, columns=["id", "d", "v", "w", "ws"])).collect()
    assert others["d"][0].total_seconds() == 90 and others["v"][0]["value"] == b"\x0c\x05" and others["w"][0] is None


def test_a_package_that_is_missing_is_an_error_that_says_how_to_install_it() -> None:
    with pytest.raises(EngineError, match=r"nosuchengine.*pip install '<path of the clone>\[nosuchengine\]'"):
        import_engine("nosuchengine")
