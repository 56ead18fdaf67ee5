"""Commands of ``cm-delta`` that read tables without Spark, and ``cm-delta sql``, which also writes."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import click
import pyarrow as pa

from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.output import say
from cm_delta_dagster.cli.rows import Rows, echo_rows, limit_option, output_options
from cm_delta_dagster.operations.arguments import as_predicate
from cm_delta_dagster.operations.reading.history import history as commits_of
from cm_delta_dagster.operations.reading.read_arrow import read_batches
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


@click.command()
@click.argument("statement")
@click.option("--engine", type=click.Choice(list(ENGINES)), help="What runs it. Default: the first that is able to.")
@click.option("--warehouse", help="Directory or URI in which CREATE TABLE places tables.")
@limit_option(1000)
@output_options
@click.pass_context
def sql(
    context: click.Context,
    /,
    statement: str,
    engine: str | None,
    warehouse: str | None,
    limit: int,
    **output: bool,
) -> None:
    """Run the SQL STATEMENT over tables catalog.schema.table, and print its rows.

    A statement that writes, such as INSERT, MERGE or ALTER TABLE, is carried out; Spark runs it.
    """
    with open_client(context, warehouse) as client:
        family = read_statement(statement).family
        if family is Family.CREATE and warehouse is None:
            raise click.UsageError("CREATE TABLE needs --warehouse: the directory or URI of new tables.")
        chosen = _engine(engine, family)
        run = getattr(importlib.import_module(chosen.module), chosen.function)
        table = run(client, statement, limit=limit + 1)
    if table.num_columns or any(output.values()):
        echo_rows(Rows.of_arrow(table), limit=limit, **output)
    else:
        say("Done.")


@click.command()
@click.argument("name")
@click.option("--version", type=click.IntRange(min=0), help="Version to read. Default: the latest.")
@click.option("--where", default=None, help="Condition in SQL, e.g. \"day = DATE '2026-01-01'\".")
@click.option("--column", "columns", multiple=True, help="Column to show; may be repeated. Default: all.")
@limit_option(10)
@output_options
@click.pass_context
def head(
    context: click.Context,
    /,
    name: str,
    version: int | None,
    where: str | None,
    columns: tuple[str, ...],
    limit: int,
    **output: bool,
) -> None:
    """Print the first rows of the table NAME (catalog.schema.table)."""
    with (
        open_client(context) as client,
        read_batches(readable_table(client, name), columns=columns or None, where=where, version=version) as batches,
    ):
        taken: list[pa.RecordBatch] = []
        for batch in batches:
            taken.append(batch)
            if sum(one.num_rows for one in taken) > limit:
                break
        table = pa.Table.from_batches(taken, schema=batches.schema).slice(0, limit + 1)
    echo_rows(Rows.of_arrow(table), limit=limit, **output)


@click.command()
@click.argument("name")
@click.option("--version", type=click.IntRange(min=0), help="Version to show. Default: the latest.")
@output_options
@click.pass_context
def schema(context: click.Context, /, name: str, version: int | None, **output: bool) -> None:
    """Print the columns of the table NAME (catalog.schema.table)."""
    with open_client(context) as client:
        snapshot = readable_table(client, name).snapshot(version=version)
    partitions = {name.lower() for name in snapshot.partition_columns}
    rows = tuple(
        (item.name, column_type(item), item.nullable, item.name.lower() in partitions, comment_of(item))
        for item in snapshot.schema.fields
    )
    found = Rows(columns=("column", "type", "nullable", "partition", "comment"), rows=rows)
    echo_rows(found, limit=max(1, len(rows)), **output)


@click.command()
@click.argument("name")
@click.option("--version", type=click.IntRange(min=0), help="Version to show. Default: the latest.")
@click.option("--where", default=None, help="Only files that may hold a row that satisfies this SQL condition.")
@limit_option(1000)
@output_options
@click.pass_context
def files(
    context: click.Context, /, name: str, version: int | None, where: str | None, limit: int, **output: bool
) -> None:
    """Print the data files of the table NAME (catalog.schema.table) with sizes and row counts."""
    with open_client(context) as client:
        snapshot = readable_table(client, name).snapshot(version=version)
        found = snapshot.matching_files(as_predicate(where, snapshot.schema, zone=snapshot.time_zone))
    found = found.slice(0, limit + 1)
    deleted = [None if vector is None else vector["cardinality"] for vector in found["deletionVector"].to_pylist()]
    columns: dict[str, list[Any]] = {
        "path": found["path"].to_pylist(),
        "partition": [dict(values or ()) for values in found["partitionValues"].to_pylist()],
        "bytes": found["size"].to_pylist(),
        "rows": num_records(found["stats"]).to_pylist(),
        "deleted_rows": deleted,
        "modified": [_time(moment) for moment in found["modificationTime"].to_pylist()],
    }
    rows = tuple(zip(*columns.values(), strict=True))
    echo_rows(Rows(columns=tuple(columns), rows=rows), limit=limit, **output)


@click.command()
@click.argument("name")
@limit_option(20)
@output_options
@click.pass_context
def history(context: click.Context, /, name: str, limit: int, **output: bool) -> None:
    """Print the commits of the table NAME (catalog.schema.table) from its log, newest first, with what they did."""
    with open_client(context) as client:
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
    echo_rows(Rows(columns=columns, rows=tuple(rows)), limit=limit, **output)


def _time(epoch_ms: int) -> str:
    text = utc_text(epoch_ms)
    return f"{text[:-1]}+00:00" if text.endswith("Z") else text
