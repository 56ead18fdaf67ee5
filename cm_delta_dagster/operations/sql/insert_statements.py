"""INSERT INTO, INSERT OVERWRITE and INSERT INTO ... REPLACE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.sql.answers import NOTHING, Answer
from cm_delta_dagster.operations.sql.default_values import without_default
from cm_delta_dagster.operations.sql.names import Name
from cm_delta_dagster.operations.sql.qualifiers import TableQualifiers
from cm_delta_dagster.operations.sql.statements import Statement
from cm_delta_dagster.operations.sql.targets import PinnedTable, SqlSession, open_together, source_query
from cm_delta_dagster.operations.sql.words import Span, Words
from cm_delta_dagster.operations.writing.write import PartitionOverwrite, append, overwrite
from cm_delta_dagster.protocol.features.computed_columns import computed_columns
from cm_delta_dagster.protocol.features.type_widening import never_widens, widening_in_writes
from cm_delta_dagster.protocol.predicates.sql_lexer import Kind
from cm_delta_dagster.protocol.schema.column_paths import path_text
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.protocol.schema.types import StructField, StructType
from cm_delta_dagster.spark.expressions.schema import from_spark, schema_of, sql_type
from cm_delta_dagster.spark.expressions.store_assignment import by_name, by_position
from cm_delta_dagster.spark.library import DataFrame, F, SparkSession
from cm_delta_dagster.spark.session.errors import spark_errors

QUERY_WORDS = ("SELECT", "WITH", "VALUES", "TABLE", "FROM", "MAP", "REDUCE", "(")
"""Words that begin a query."""
_COMPLETE_WORDS = ("NULL", "TRUE", "FALSE", "END")
"""Words after which an expression is complete, so that brackets do not belong to it."""
_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """What an INSERT says.

    Attributes:
        overwrites: INSERT OVERWRITE.
        partition: the columns of the PARTITION clause, with the text of their value or None.
        columns: the columns that get the values of the query; None for all columns in order.
        where, keys: of REPLACE WHERE and REPLACE USING.
        evolves: WITH SCHEMA EVOLUTION.
    """

    name: Name
    query: Span
    overwrites: bool = False
    partition: Mapping[str, str | None] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    by_name: bool = False
    where: str | None = None
    keys: tuple[str, ...] = ()
    evolves: bool = False

    @property
    def static(self) -> dict[str, str]:
        """The columns of the PARTITION clause that have a value."""
        return {name: value for name, value in self.partition.items() if value is not None}


def insert(session: SqlSession, statement: Statement) -> Answer:
    """Run an INSERT statement: an append, or an overwrite of the table, of partitions, of a condition or of keys.

    Raises:
        InvalidArgumentError: the statement is malformed, or names a column that the table lacks.
        SchemaMismatchError: the query has other columns, or types that cannot be assigned.
        CmDeltaError: as :func:`~cm_delta_dagster.operations.writing.write.append` and ``overwrite``.
    """
    read = read_insert(statement)
    table, tables = open_together(session, read.name, source_query(statement, read.query))
    snapshot = table.pinned
    static = {_column(snapshot, name, partition=True).name: text for name, text in read.static.items()}
    for name in read.partition:
        _column(snapshot, name, partition=True)
    fields = _fields(read, snapshot, static)
    text = read.query.text if read.by_name else without_default(read.query, fields, snapshot.schema)
    changed = Span(text=text, start=read.query.start, lexemes=read.query.lexemes)
    frame = source_query(statement, changed).run(session.client, tables, spark=session.spark)
    frame = _assigned(frame, read, fields, snapshot)
    frame = _with_partition(frame, static, snapshot)
    _write(session.spark, table, frame, read, static)
    return NOTHING


def read_insert(statement: Statement) -> Insert:
    """What the statement says. Raises InvalidArgumentError."""
    words = Words(statement, after=1)
    evolves = words.takes("WITH SCHEMA EVOLUTION")
    verb = words.take("INTO", "OVERWRITE")
    if not verb:
        raise words.fault("INTO or OVERWRITE")
    if words.peek() in ("DIRECTORY", "LOCAL") and words.peek(1) != ".":
        raise words.refusal("INSERT OVERWRITE DIRECTORY", "Write files with the DataFrameWriter of a query.")
    words.take("TABLE")
    name = words.table()
    partition = dict(words.listed(lambda: _partition_value(words))) if words.takes("PARTITION") else {}
    if words.peek() == "IF":
        raise words.refusal("IF NOT EXISTS in an INSERT", "Check the partitions first.")
    named = words.takes("BY NAME")
    columns = None
    if _is_column_list(words):
        columns = tuple(words.listed(words.part))
    where: str | None = None
    keys: tuple[str, ...] = ()
    if verb == "INTO" and words.takes("REPLACE"):
        where, keys = _replaced(words)
        named = words.takes("BY NAME") or named
    return Insert(
        name=name,
        query=words.rest("VALUES, SELECT or another query"),
        overwrites=verb == "OVERWRITE",
        partition=partition,
        columns=columns,
        by_name=named,
        where=where,
        keys=keys,
        evolves=evolves,
    )


def _partition_value(words: Words) -> tuple[str, str | None]:
    name = words.part()
    return name, words.until(",", what="the value of the partition column").text if words.symbol("=") else None


def _replaced(words: Words) -> tuple[str | None, tuple[str, ...]]:
    if words.takes("WHERE"):
        ends = (*(word for word in QUERY_WORDS if word != "("), "BY NAME")
        condition = words.until(*ends, what="the condition of REPLACE WHERE")
        length = _list_at_end(condition)
        if length:
            words.at -= length
            raise _late_list(words)
        return condition.text, ()
    if words.takes("USING"):
        keys = tuple(words.listed(words.part))
        if _is_column_list(words):
            raise _late_list(words)
        return None, keys
    raise words.refusal("this form of REPLACE", "Write REPLACE WHERE condition, or REPLACE USING (columns).")


def _is_column_list(words: Words) -> bool:
    return words.peek() == "(" and (words.peek(1) not in QUERY_WORDS or words.peek(2) in (",", ")"))


def _list_at_end(condition: Span) -> int:
    """How many lexemes at the end are names in brackets after a complete expression; 0 for arguments, IN and the like."""
    lexemes = condition.lexemes
    start = max((at for at, lexeme in enumerate(lexemes) if lexeme.symbol == "("), default=0)
    inner = lexemes[start + 1 : -1]
    is_list = (
        lexemes[-1].symbol == ")" and len(inner) % 2 == 1 and all(lexeme.name is not None for lexeme in inner[::2])
    )
    if start == 0 or not is_list or any(lexeme.symbol != "," for lexeme in inner[1::2]):
        return 0
    before = lexemes[start - 1]
    is_complete = (
        before.kind in (Kind.NUMBER, Kind.STRING) or before.symbol in (")", "]") or before.word in _COMPLETE_WORDS
    )
    return len(lexemes) - start if is_complete else 0


def _late_list(words: Words) -> InvalidArgumentError:
    return words.refusal(
        "a list of columns after REPLACE",
        "Write it before: INSERT INTO name (columns) REPLACE WHERE condition, or REPLACE USING (columns), and then the query.",
    )


def _column(snapshot: Snapshot, name: str, *, partition: bool = False) -> StructField:
    field = snapshot.schema.field(name)
    if field is None:
        raise InvalidArgumentError(
            f"{snapshot.identifier} has no column {name!r}; its columns are {', '.join(snapshot.schema.names)}. Nothing was "
            "written. Correct the name."
        )
    partitions = [column.lower() for column in snapshot.partition_columns]
    if partition and field.name.lower() not in partitions:
        raise InvalidArgumentError(
            f"{name!r} is not a partition column of {snapshot.identifier}, which has "
            f"{', '.join(snapshot.partition_columns) or 'none'}. Nothing was written. Use REPLACE WHERE for a condition on other "
            "columns."
        )
    return field


def _fields(read: Insert, snapshot: Snapshot, static: Mapping[str, str]) -> list[StructField]:
    """The columns of the table that get the values of the query, in order."""
    if read.columns is None:
        return [item for item in snapshot.schema.fields if item.name not in static]
    fields = [_column(snapshot, name) for name in read.columns]
    names = [item.name for item in fields]
    twice = [name for name in names if names.count(name) > 1 or name in static]
    if twice:
        raise InvalidArgumentError(
            f"The column {twice[0]!r} gets two values. Nothing was written. Name each column once."
        )
    return fields


def _assigned(frame: DataFrame, read: Insert, fields: Sequence[StructField], snapshot: Snapshot) -> DataFrame:
    """The rows with the names and types of the table; columns that get no value and that the table does not compute are NULL."""
    widens = widening_in_writes(snapshot.properties) if read.evolves else never_widens
    if read.by_name:
        assigned = by_name(frame, snapshot.schema, evolves=read.evolves, widens=widens)
    else:
        schema_of(frame)
        assigned = by_position(frame, fields, evolves=read.evolves, widens=widens)
    offered = from_spark(assigned.schema)
    computed = computed_columns(snapshot.schema)
    for item in snapshot.schema.fields:
        if item.nullable and item.name not in computed and offered.field(item.name) is None and not _is_void(item):
            assigned = assigned.withColumn(item.name, F.lit(None).cast(sql_type(item.type)))
    return assigned


def _is_void(item: StructField) -> bool:
    return sql_type(item.type) == "void"


def _with_partition(frame: DataFrame, static: Mapping[str, str], snapshot: Snapshot) -> DataFrame:
    """The rows with the values of the PARTITION clause."""
    for name, text in static.items():
        item = snapshot.schema.field(name)
        assert item is not None
        frame = frame.withColumn(name, F.expr(_cast(frame.sparkSession, text, item)))
    return frame


def _cast(spark: SparkSession, text: str, item: StructField) -> str:
    """The value of a partition column as text that has its type."""
    with spark_errors(f"computing the value {text} of the partition column {item.name!r}"):
        row = spark.sql(f"SELECT ({text}) AS value, CAST(({text}) AS STRING) AS shown").first()
        value = None if row is None else row["shown"]
        typed = f"CAST(({text}) AS {sql_type(item.type)})"
        stored = spark.sql(f"SELECT {typed.replace('CAST', 'TRY_CAST', 1)} AS value").first()
    if value is not None and (stored is None or stored["value"] is None):
        raise InvalidArgumentError(
            f"The value {text} cannot be stored in the partition column {item.name!r} of type {sql_type(item.type)}. Nothing was "
            "written. Correct the value."
        )
    return typed


def _write(spark: SparkSession, table: PinnedTable, frame: DataFrame, read: Insert, static: Mapping[str, str]) -> None:
    mode = SchemaMode.MERGE if read.evolves else SchemaMode.STRICT
    if not read.overwrites and read.where is None and not read.keys:
        append(table, frame=frame, schema_mode=mode)
        return
    snapshot = table.pinned
    where = read.where
    if where is not None:
        where = TableQualifiers(table.identifier, None, snapshot.schema).expression(where)
    partitions = PartitionOverwrite.STATIC
    if read.overwrites:
        if len(static) < len(snapshot.partition_columns) and _is_dynamic(spark):
            partitions = PartitionOverwrite.DYNAMIC
        elif static:
            where = _condition(spark, static, snapshot.schema)
    overwrite(table, frame=frame, where=where, partitions=partitions, keys=read.keys, schema_mode=mode)


def _is_dynamic(spark: SparkSession) -> bool:
    return str(spark.conf.get(_OVERWRITE_MODE, "static")).lower() == PartitionOverwrite.DYNAMIC


def _condition(spark: SparkSession, static: Mapping[str, str], schema: StructType) -> str:
    """The partitions of a PARTITION clause as a condition."""
    parts = []
    for name, text in static.items():
        item = schema.field(name)
        assert item is not None
        row = spark.sql(f"SELECT ({text}) IS NULL").first()
        is_null = row is not None and row[0]
        column = path_text((item.name,))
        parts.append(f"{column} IS NULL" if is_null else f"{column} = {_cast(spark, text, item)}")
    return " AND ".join(parts)
