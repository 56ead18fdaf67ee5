"""Commands of ``cm-delta`` that read tables without Spark, and ``cm-delta sql``, which also writes."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import click
import pyarrow as pa

from cm_delta_dagster.cli.catalog import is_served
from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.printer import Form, chosen_form, output, say, show_rows
from cm_delta_dagster.cli.values import Rows
from cm_delta_dagster.operations.arguments import as_predicate
from cm_delta_dagster.operations.reading.history import history as commits_of
from cm_delta_dagster.operations.reading.read_arrow import read_batches
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.sql.descriptions import column_type, comment_of
from cm_delta_dagster.operations.sql.names import readable_table
from cm_delta_dagster.operations.sql.statements import READS, Family, read_statement
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from cm_delta_dagster.protocol.statistics.statistics import num_records


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlEngine:
    """What runs the statements of ``cm-delta sql``.

    Attributes:
        library: the package that must be installed.
        module, function: ``function(client, statement, limit=...)`` of ``module`` returns an Arrow table. It is imported when a
            statement runs, since the command line starts without the library.
        writes: whether it runs statements that write.
    """

    library: str
    module: str
    function: str
    writes: bool = False


ENGINES: Mapping[str, SqlEngine] = {
    "duckdb": SqlEngine(library="duckdb", module="cm_delta_dagster.operations.sql.duckdb_rows", function="duckdb_rows"),
    "spark": SqlEngine(
        library="pyspark", module="cm_delta_dagster.api.command_engines", function="spark_rows", writes=True
    ),
}
"""Engines in order of preference."""


def _engine(name: str | None, family: Family) -> SqlEngine:
    """The engine that was chosen, or the first that is installed and runs statements of this kind."""
    writes = family not in READS
    if writes and name is not None and not ENGINES[name].writes:
        able = ", ".join(known for known, engine in ENGINES.items() if engine.writes)
        raise click.UsageError(f"{name} runs only statements that read. Leave --engine out, or give {able}.")
    usable = {
        known: engine for known, engine in ENGINES.items() if name in (None, known) and (engine.writes or not writes)
    }
    for engine in usable.values():
        if find_spec(engine.library) is not None:
            return engine
    needed = " or ".join(engine.library for engine in usable.values())
    raise click.ClickException(f"No engine for this SQL statement is installed: install {needed}.")


def _limit(default: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option ``--limit``."""
    return click.option(
        "--limit", default=default, show_default=True, type=click.IntRange(min=1), help="How many rows to show."
    )


@click.command()
@click.argument("statement")
@click.option("--engine", type=click.Choice(list(ENGINES)), help="What runs it. Default: the first that is able to.")
@click.option("--warehouse", help="Directory or URI in which CREATE TABLE places tables; a server names its own.")
@_limit(1000)
@output("an array with an object for each row: the columns of the result", with_csv=True)
def sql(
    statement: str,
    engine: str | None,
    warehouse: str | None,
    limit: int,
) -> None:
    """Run the SQL STATEMENT over tables catalog.schema.table, and print its rows.

    A statement that writes, such as INSERT, MERGE or ALTER TABLE, is carried out; Spark runs it.
    """
    with open_client(warehouse) as client:
        family = read_statement(statement).family
        if family is Family.CREATE and warehouse is None and not is_served():
            raise click.UsageError("CREATE TABLE needs --warehouse: the directory or URI of new tables.")
        chosen = _engine(engine, family)
        run = getattr(importlib.import_module(chosen.module), chosen.function)
        table = run(client, statement, limit=limit + 1)
    if table.num_columns or chosen_form() is not Form.TEXT:
        show_rows(rows_of(table), limit=limit)
    else:
        say("Done.")


@click.command()
@click.argument("name")
@click.option("--version", type=click.IntRange(min=0), help="Version to read. Default: the latest.")
@click.option("--where", default=None, help="Condition in SQL, e.g. \"day = DATE '2026-01-01'\".")
@click.option("--column", "columns", multiple=True, help="Column to show; may be repeated. Default: all.")
@_limit(10)
@output("an array with an object for each row: the columns of the table", with_csv=True)
def head(
    name: str,
    version: int | None,
    where: str | None,
    columns: tuple[str, ...],
    limit: int,
) -> None:
    """Print the first rows of the table NAME (catalog.schema.table)."""
    with (
        open_client() as client,
        read_batches(
            open_scan(readable_table(client, name), columns=columns or None, where=where, version=version)
        ) as batches,
    ):
        taken: list[pa.RecordBatch] = []
        for batch in batches:
            taken.append(batch)
            if sum(map(len, taken)) > limit:
                break
        table = pa.Table.from_batches(taken, schema=batches.schema).slice(0, limit + 1)
    show_rows(rows_of(table), limit=limit)


@click.command()
@click.argument("name")
@click.option("--version", type=click.IntRange(min=0), help="Version to show. Default: the latest.")
@output("an array with an object for each column: column, type, nullable, partition, comment", with_csv=True)
def schema(name: str, version: int | None) -> None:
    """Print the columns of the table NAME (catalog.schema.table)."""
    with open_client() as client:
        snapshot = readable_table(client, name).snapshot(version=version)
    partitions = {name.lower() for name in snapshot.partition_columns}
    rows = tuple(
        (item.name, column_type(item), item.nullable, item.name.lower() in partitions, comment_of(item))
        for item in snapshot.schema.fields
    )
    columns = ("column", "type", "nullable", "partition", "comment")
    show_rows(Rows(columns=columns, rows=rows), limit=len(rows))


@click.command()
@click.argument("name")
@click.option("--version", type=click.IntRange(min=0), help="Version to show. Default: the latest.")
@click.option("--where", default=None, help="Only files that may hold a row that satisfies this SQL condition.")
@_limit(1000)
@output("an array with an object for each file: path, partition, bytes, rows, deleted_rows, modified", with_csv=True)
def files(name: str, version: int | None, where: str | None, limit: int) -> None:
    """Print the data files of the table NAME (catalog.schema.table) with sizes and row counts."""
    with open_client() as client:
        snapshot = readable_table(client, name).snapshot(version=version)
        adds = snapshot.matching_files(as_predicate(where, snapshot.schema, zone=snapshot.time_zone))
    adds = adds.slice(0, limit + 1)
    deleted = [None if vector is None else vector["cardinality"] for vector in adds["deletionVector"].to_pylist()]
    columns: dict[str, list[Any]] = {
        "path": adds["path"].to_pylist(),
        "partition": [dict(values or ()) for values in adds["partitionValues"].to_pylist()],
        "bytes": adds["size"].to_pylist(),
        "rows": num_records(adds["stats"]).to_pylist(),
        "deleted_rows": deleted,
        "modified": [_time(moment) for moment in adds["modificationTime"].to_pylist()],
    }
    rows = tuple(zip(*columns.values(), strict=True))
    show_rows(Rows(columns=tuple(columns), rows=rows), limit=limit)


@click.command()
@click.argument("name")
@_limit(20)
@output(
    "an array with an object for each commit: version, timestamp, operation, parameters, metrics, engine", with_csv=True
)
def history(name: str, limit: int) -> None:
    """Print the commits of the table NAME (catalog.schema.table) from its log, newest first, with what they did."""
    with open_client() as client:
        entries = commits_of(readable_table(client, name), limit=limit + 1)
    rows = []
    for entry in entries:
        info = entry.commit_info
        rest: tuple[Any, ...] = (None,) * 4
        if info is not None:
            rest = (
                info.operation,
                dict(info.operation_parameters),
                dict(info.operation_metrics or {}),
                info.engine_info,
            )
        rows.append((entry.version, _time(entry.timestamp_ms), *rest))
    columns = ("version", "timestamp", "operation", "parameters", "metrics", "engine")
    show_rows(Rows(columns=columns, rows=tuple(rows)), limit=limit)


def _time(epoch_ms: int) -> str:
    text = utc_text(epoch_ms)
    return f"{text[:-1]}+00:00" if text.endswith("Z") else text


def rows_of(table: pa.Table) -> Rows:
    """The rows of an Arrow table, whose column names may repeat."""
    columns = [_values(column) for column in table.columns]
    return Rows(columns=tuple(table.column_names), rows=tuple(zip(*columns, strict=True)))


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; maps as dicts."""
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):  # Python has no dates and times before the year 1 and after 9999.
        values = column.cast(_with_times_as_text(column.type)).to_pylist()
    if pa.types.is_map(column.type):
        return [None if value is None else dict(value) for value in values]
    return values


def _with_times_as_text(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_map(kind):
        return pa.map_(_with_times_as_text(kind.key_type), _with_times_as_text(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_with_times_as_text(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([item.with_type(_with_times_as_text(item.type)) for item in kind])
    return kind
