"""Queries of Spark SQL over tables of the catalog.

Spark gets the text as it is, with a DataFrame in place of each table of the catalog. pyspark gives such a DataFrame a temporary
view for the time of the analysis (on Spark Connect, a name inside of the plan), so that no view stays in the session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, TypeAlias

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError
from cm_delta_dagster.operations.arguments import epoch_milliseconds
from cm_delta_dagster.operations.reading.change_query import ChangeRange, open_changes
from cm_delta_dagster.operations.reading.consistent_snapshots import ReadableVersion
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.read_changes import read_changes
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.operations.sql.names import Name, resolve_for_query, unknown_name
from cm_delta_dagster.operations.sql.rewriting import (
    Replacement,
    aliases_of,
    column_replacements,
    table_replacement,
    template,
)
from cm_delta_dagster.operations.sql.table_references import (
    ChangesReference,
    References,
    TableReference,
    find_references,
)
from cm_delta_dagster.operations.sql.time_travel import VersionText
from cm_delta_dagster.operations.tables.ratify_hold import held_tables
from cm_delta_dagster.protocol.predicates.sql_lexer import Kind, lexemes, parts_of, plain_string
from cm_delta_dagster.spark.library import DataFrame, F, SparkSession, T, py4j_errors, pyspark_errors
from cm_delta_dagster.spark.session.errors import mapped, spark_errors
from cm_delta_dagster.spark.session.query_logs import without_query_logs
from cm_delta_dagster.spark.session.session import is_connect, network_errors, session_time_zone

StatementArguments: TypeAlias = Mapping[str, Any] | Sequence[Any] | None
"""Values of the parameters of a statement, by name or in order."""

_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")
_POSITION = re.compile(r"; line \d+,? pos \d+;?")
_UNKNOWN_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
_TOO_MANY_PARTS = "REQUIRES_SINGLE_PART_NAMESPACE"
_MAX_SESSION_PARTS = 2
_TIME_TRAVEL = "UNSUPPORTED_FEATURE.TIME_TRAVEL"


def run_query(
    client: DeltaClient,
    text: str,
    *,
    spark: SparkSession,
    args: StatementArguments = None,
    described: Name | None = None,
) -> DataFrame:
    """The rows of a query, or of EXPLAIN of one.

    All tables that are read at their latest version are read at versions that were the latest ones at one moment.

    Args:
        args: values of parameters: a mapping for ``:name``, a sequence for ``?``.
        described: the name of a DESCRIBE, which the catalog does not have and Spark may have.

    Raises:
        TableNotFoundError: a name that neither the catalog nor the session has; the message has similar names.
        InvalidArgumentError: Spark cannot parse or resolve the text; the message has the place.
        VersionNotFoundError: no such version or time.
    """
    query = prepare_query(text, args)
    return query.run(client, resolve_for_query(client, query.names), spark=spark, described=described)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedQuery:
    """A query whose tables are known by name and not read yet."""

    text: str
    args: dict[str, Any] | list[Any] | None
    references: References

    @property
    def names(self) -> tuple[Name, ...]:
        """The names that may be those of tables of the catalog."""
        tables = (table.parts for table in self.references.tables)
        return (*tables, *(parts_of(changes.name) for changes in self.references.changes))

    def reads(self, tables: Mapping[Name, ReadableVersion], location: str) -> bool:
        """Whether the query depends on the latest version of the table at a location."""
        latest = {reference.parts for reference in self.references.tables if reference.version is None}
        latest |= {parts_of(reference.name) for reference in self.references.changes if reference.last is None}
        return any(name in tables and tables[name].table.location == location for name in latest)

    def run(
        self,
        client: DeltaClient,
        tables: Mapping[Name, ReadableVersion],
        *,
        spark: SparkSession,
        described: Name | None = None,
    ) -> DataFrame:
        """The rows.

        Args:
            tables: the tables of :attr:`names` that the catalog has.
            described: as for :func:`run_query`.

        Raises:
            TableNotFoundError, InvalidArgumentError, VersionNotFoundError: as :func:`run_query`.
        """
        others = [] if described is None else [described]
        query = _Query(client=client, spark=spark, text=self.text, args=self.args, others=others)
        return query.run(self.references, tables)


def prepare_query(text: str, args: StatementArguments = None) -> PreparedQuery:
    """Find the tables that a query names. Raises InvalidArgumentError."""
    references = find_references(text, args if isinstance(args, Mapping) else {})
    return PreparedQuery(text=text, args=_plain(args), references=references)


def _plain(args: StatementArguments) -> dict[str, Any] | list[Any] | None:
    if args is None:
        return None
    if isinstance(args, Mapping):
        return dict(args)
    if isinstance(args, str) or not isinstance(args, Sequence):
        raise InvalidArgumentError(
            f"args is of type {type(args).__name__}; give a dict for parameters such as :name, or a list for ?."
        )
    return list(args)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Query:
    client: DeltaClient
    spark: SparkSession
    text: str
    args: dict[str, Any] | list[Any] | None
    frames: dict[str, DataFrame] = field(default_factory=dict)
    fields: dict[tuple[str, VersionText | None], str] = field(default_factory=dict)
    """The field of the location of a table and a version, so that each is read once."""
    others: list[Name] = field(default_factory=list)
    """Names that are not those of tables of the catalog."""

    def run(self, references: References, latest_by_name: Mapping[Name, ReadableVersion]) -> DataFrame:
        tables = [table for table in references.tables if table.parts in latest_by_name]
        for table in references.tables:
            if table.parts not in latest_by_name:
                self.others.append(table.parts)
                if table.version is not None and table.is_shadowed:
                    raise _no_versions(".".join(table.parts))
        names = {table.parts: _identifier(latest_by_name[table.parts]) for table in tables}
        aliases = aliases_of(names, references.columns)
        changed = [
            table_replacement(table, field=self._table(table, latest_by_name[table.parts]), alias=aliases[table.parts])
            for table in tables
        ]
        changed += [self._changes(changes, latest_by_name) for changes in references.changes]
        changed += column_replacements(references.columns, {names[parts]: aliases[parts] for parts in names})
        _check_values(self.args)
        with self._errors():
            if not self.frames:
                frame = self.spark.sql(self.text, args=self.args)
            else:
                frame = self.spark.sql(template(self.text, changed), args=self.args, **self.frames)
            if is_connect(self.spark):
                _ = frame.schema  # Connect analyses a query when its schema or rows are needed.
            return frame

    def _table(self, reference: TableReference, latest: ReadableVersion) -> str:
        key = (latest.table.location, reference.version)
        if key not in self.fields:
            frame = read(
                SnapshotScan(snapshot=self._snapshot(reference.version, latest), store=latest.table.store),
                spark=self.spark,
            )
            self.fields[key] = self._field(frame)
        return self.fields[key]

    def _snapshot(self, version: VersionText | None, latest: ReadableVersion) -> Snapshot:
        if version is None:
            return latest.snapshot()
        if version.hold_id is not None:
            return self._held_snapshot(version.hold_id, latest)
        moment = None if version.timestamp is None else self._time_ms(version.timestamp, latest)
        return latest.table.snapshot(version=version.version, timestamp_ms=moment)

    def _held_snapshot(self, hold_id: str, latest: ReadableVersion) -> Snapshot:
        for table in held_tables(self.client, hold_id).values():
            if table.location == latest.table.location:
                return table.latest
        raise InvalidArgumentError(f"The hold {hold_id} has no commit to {latest.table.identifier}. Nothing was read.")

    def _field(self, frame: DataFrame) -> str:
        name = f"cm_delta_{len(self.frames)}"
        self.frames[name] = frame
        return name

    def _changes(self, reference: ChangesReference, latest_by_name: Mapping[Name, ReadableVersion]) -> Replacement:
        name = parts_of(reference.name)
        latest = latest_by_name.get(name)
        if latest is None:
            raise unknown_name(self.client, name)
        version, moment = self._bound(reference.first, latest)
        end, end_moment = (latest.version, None) if reference.last is None else self._bound(reference.last, latest)
        versions = ChangeRange(
            starting_version=version, starting_timestamp_ms=moment, ending_version=end, ending_timestamp_ms=end_moment
        )
        frame = read_changes(open_changes(latest.table, versions), spark=self.spark)
        return Replacement(start=reference.start, end=reference.end, field=self._field(frame))

    def _bound(self, expression: str, latest: ReadableVersion) -> tuple[int | None, int | None]:
        """A version or a time in epoch milliseconds."""
        all_lexemes = lexemes(expression)
        if len(all_lexemes) == 1 and all_lexemes[0].kind is Kind.STRING:
            return None, self._time_ms(expression, latest)
        frame = self._value(expression)
        kind = frame.schema[0].dataType
        if isinstance(kind, T.IntegralType):
            row = frame.first()
            return (None if row is None else row[0]), None
        if isinstance(kind, T.NumericType):
            raise InvalidArgumentError(
                f"{expression} is of type {kind.simpleString()}. Give a version as a whole number, or a time such as "
                "'2026-01-31 12:00:00'."
            )
        return None, self._time_ms(expression, latest)

    def _time_ms(self, expression: str, latest: ReadableVersion) -> int:
        named = self.args if isinstance(self.args, dict) else None
        return time_ms(expression, spark=self.spark, zone=latest.table.time_zone, args=named)

    def _value(self, expression: str) -> DataFrame:
        return _value(expression, self.spark, self.args if isinstance(self.args, dict) else None)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with without_query_logs():
                yield
        except (pyspark_errors.PySparkException, py4j_errors.Py4JError, *network_errors()) as error:
            raise self._mapped(error) from error

    def _mapped(self, error: Exception) -> CmDeltaError:
        if isinstance(error, pyspark_errors.ParseException):
            return _unparsable(self.text, self._parse_error(error))
        if not isinstance(error, pyspark_errors.AnalysisException):
            return mapped(error, "running the query")
        condition = error.getCondition()
        parameters = error.getMessageParameters() or {}
        long = [name for name in self.others if len(name) > _MAX_SESSION_PARTS]
        if condition == _UNKNOWN_TABLE and "relationName" in parameters:
            return unknown_name(self.client, parts_of(parameters["relationName"]), views=self._views())
        if condition == _TOO_MANY_PARTS and long:
            return unknown_name(self.client, long[0], views=self._views())
        if condition == _TIME_TRAVEL:
            return _no_versions(parameters.get("relationId", "The relation").replace("`", ""))
        # The lines after the first one are a plan. Spark's place is that in the text with other names.
        shown = _POSITION.sub("", str(error).strip().splitlines()[0])
        return InvalidArgumentError(f"Spark does not accept the query: {shown}")

    def _parse_error(self, error: pyspark_errors.ParseException) -> str:
        """Spark's message for the text as the user wrote it, with the place there."""
        try:
            self.spark.sql(self.text)  # It cannot be parsed, so that nothing runs.
        except pyspark_errors.ParseException as own:
            return str(own)
        except pyspark_errors.PySparkException:
            pass
        return str(error)

    def _views(self) -> list[str]:
        try:
            return [view.name for view in self.spark.catalog.listTables()]
        except (pyspark_errors.PySparkException, py4j_errors.Py4JError):
            return []


def time_ms(expression: str, *, spark: SparkSession, zone: tzinfo | None, args: Mapping[str, Any] | None = None) -> int:
    """The time that an SQL expression gives, in epoch milliseconds.

    Args:
        zone: of times as text that name no time zone; None for that of the session.
        args: values of named parameters.

    Raises:
        InvalidArgumentError: Spark cannot compute the expression, or it is NULL.
    """
    all_lexemes = lexemes(expression)
    if len(all_lexemes) == 1 and all_lexemes[0].kind is Kind.STRING:
        return epoch_milliseconds(plain_string(all_lexemes[0]), zone=lambda: zone or session_time_zone(spark))
    with spark_errors(f"computing the time {expression}"):
        row = _value(expression, spark, args).select(F.expr("unix_millis(CAST(value AS TIMESTAMP))")).first()
    if row is None or row[0] is None:
        raise InvalidArgumentError(f"The time {expression} is NULL. Give a time such as '2026-01-31 12:00:00'.")
    return int(row[0])


def _value(expression: str, spark: SparkSession, args: Mapping[str, Any] | None) -> DataFrame:
    with spark_errors(f"computing {expression}"):
        return spark.sql(f"SELECT ({expression}) AS value", args=None if args is None else dict(args))


def _check_values(args: StatementArguments) -> None:
    """Raises InvalidArgumentError for a value that Spark has no literal for."""
    named = args.items() if isinstance(args, Mapping) else enumerate(args or (), 1)
    for name, value in named:
        try:
            F.lit(value)
        except Exception as error:  # Depends on the type: of pyspark, of Java's gateway, or of Python.
            raise InvalidArgumentError(
                f"The value of the parameter {name} is of type {type(value).__name__}, for which Spark has no literal. Give "
                "a text, a number, a Boolean, a date, a datetime, bytes, None, or a list or dict of these."
            ) from error


def _identifier(latest: ReadableVersion) -> tuple[str, str, str]:
    name = latest.identifier
    return name.catalog, name.schema, name.table


def _no_versions(name: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{name} has no versions: only tables of the catalog can be read AS OF a version or a time, not views and common table "
        "expressions. Put the clause after the name of the table inside of the view's query."
    )


def _unparsable(text: str, message: str) -> InvalidArgumentError:
    shown = " ".join(message.split("== SQL ==")[0].split())
    place = _PLACE.search(shown)
    if place is None:
        return InvalidArgumentError(f"Spark cannot parse the SQL text: {shown}")
    line, column = int(place[1]), int(place[2]) + 1
    lines = text.splitlines() or [text]
    written = lines[min(line, len(lines)) - 1].strip()
    shown = shown[: place.start()].strip()
    return InvalidArgumentError(
        f"Spark cannot parse the SQL text at line {line}, column {column}: {shown} The line is: {written}"
    )
