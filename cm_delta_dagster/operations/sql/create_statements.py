"""CREATE TABLE, REPLACE TABLE and CREATE OR REPLACE TABLE: empty, with the rows of a query, or as a clone."""

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from typing import TypeAlias

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.errors import InvalidArgumentError, TableAlreadyExistsError, TableNotFoundError
from cm_delta_dagster.operations.sql.answers import NOTHING, Answer
from cm_delta_dagster.operations.sql.column_definitions import (
    column_definition,
    columns_in_brackets,
    properties,
)
from cm_delta_dagster.operations.sql.insert_statements import QUERY_WORDS
from cm_delta_dagster.operations.sql.names import Name, resolve_for_query
from cm_delta_dagster.operations.sql.queries import PreparedQuery
from cm_delta_dagster.operations.sql.statements import Statement
from cm_delta_dagster.operations.sql.targets import (
    SqlSession,
    identifier_of,
    open_readable,
    open_together,
    source_query,
    time_of,
    time_travel,
)
from cm_delta_dagster.operations.sql.words import Span, Words
from cm_delta_dagster.operations.tables.clone import CloneMode, CloneRequest, CloneResult, open_source
from cm_delta_dagster.operations.tables.create import TableDesign, first_schema
from cm_delta_dagster.operations.tables.create_like import design_like
from cm_delta_dagster.operations.tables.expression_types import check_expressions
from cm_delta_dagster.operations.tables.replace import CreationMode, create_or_replace, replace_table
from cm_delta_dagster.operations.tables.replace_with_clone import clone_or_replace
from cm_delta_dagster.protocol.features.column_specs import Column, schema_of_columns
from cm_delta_dagster.protocol.features.default_columns import has_defaults
from cm_delta_dagster.protocol.features.generated_columns import generated_columns
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.remedies import AdoptOrRegisterTable
from cm_delta_dagster.spark.expressions.schema import schema_of
from cm_delta_dagster.spark.session.session import check_frame

_CLONED = {
    "source_table_size": "bigint",
    "source_num_of_files": "bigint",
    "num_removed_files": "bigint",
    "num_copied_files": "bigint",
    "removed_files_size": "bigint",
    "copied_files_size": "bigint",
}


@dataclass(slots=True, kw_only=True)
class _TableClauses:
    """The clauses of CREATE TABLE."""

    columns: list[Column] = field(default_factory=list)
    partition_columns: list[str] = field(default_factory=list)
    clustering_columns: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    comment: str | None = None
    location: str | None = None
    query: Span | None = None


_ReadClause: TypeAlias = Callable[[Words, _TableClauses], None]


def create(session: SqlSession, statement: Statement) -> Answer:
    """Run a CREATE TABLE, REPLACE TABLE or CREATE OR REPLACE TABLE statement.

    Raises:
        TableAlreadyExistsError: the name is taken, and there is neither IF NOT EXISTS nor OR REPLACE.
        TableNotFoundError: the table to replace does not exist.
        InvalidArgumentError: the statement is malformed, or has a part that is not supported.
        CmDeltaError: as ``create_or_replace`` and ``clone`` of :mod:`cm_delta_dagster.operations.tables`.
    """
    words = Words(statement, after=0)
    mode = next(mode for phrase, mode in _MODES.items() if words.takes(phrase))
    if_missing = words.takes("IF NOT EXISTS")
    if if_missing and mode is not CreationMode.CREATE:
        raise words.refusal("IF NOT EXISTS with REPLACE", "Leave one of them out.")
    name = identifier_of(words.table())
    run = _cloning(words, statement, mode) or _like(words, mode) or _defining(words, statement, mode)
    if if_missing and _exists(session, name):
        return NOTHING
    try:
        return run(session, name)
    except TableAlreadyExistsError:
        if not if_missing:
            raise
        return NOTHING


_MODES: Mapping[str, CreationMode] = {
    "CREATE TABLE": CreationMode.CREATE,
    "CREATE OR REPLACE TABLE": CreationMode.CREATE_OR_REPLACE,
    "REPLACE TABLE": CreationMode.REPLACE,
}


def _exists(session: SqlSession, name: TableIdentifier) -> bool:
    try:
        session.client.registry.load_table(name)
    except TableNotFoundError:
        return False
    return True


# --- columns or a query -----------------------------------------------------------------------------------------------


def _defining(
    words: Words, statement: Statement, mode: CreationMode
) -> Callable[[SqlSession, TableIdentifier], Answer]:
    definition = _TableClauses()
    if words.peek() == "(" and words.peek(1) not in QUERY_WORDS:
        definition.columns += words.listed(lambda: column_definition(words))
    while not words.is_done():
        if words.takes("AS") or words.peek() in QUERY_WORDS:
            definition.query = words.rest("a query")
            break
        _clause(words, definition, _CLAUSES)
    _check(definition)
    if definition.query is None:
        return lambda session, name: _create(session, name, definition, mode)
    query = source_query(statement, definition.query)
    return lambda session, name: _create_as(session, query, name, definition, mode)


def _clause(words: Words, definition: _TableClauses, clauses: Mapping[str, _ReadClause]) -> None:
    for phrase, read in clauses.items():
        if words.takes(phrase):
            read(words, definition)
            return
    for phrase, instead in _REFUSED_CLAUSES.items():
        if words.takes(phrase):
            raise words.refusal(f"{phrase} in CREATE TABLE", instead)
    raise words.fault(f"{', '.join(clauses)}{'' if clauses is _LIKE_CLAUSES else ' or AS and a query'}")


def _using(words: Words, definition: _TableClauses) -> None:
    if words.part().lower() != "delta":
        raise words.refusal("formats other than DELTA", "Write USING DELTA.")


def _partitioned(words: Words, definition: _TableClauses) -> None:
    for column in words.listed(lambda: _partition_column(words)):
        if isinstance(column, Column):
            definition.columns.append(column)
            definition.partition_columns.append(column.name)
        else:
            definition.partition_columns.append(column)


def _partition_column(words: Words) -> str | Column:
    """A name, or a definition of a column that is not listed before."""
    if words.peek(1) == "(":
        raise words.refusal(
            "expressions in PARTITIONED BY",
            "Partition by a generated column: day date GENERATED ALWAYS AS (CAST(at AS DATE)).",
        )
    start = words.at
    name = words.part()
    if words.peek() in (",", ")"):
        return name
    words.at = start
    return column_definition(words)


def _clustered(words: Words, definition: _TableClauses) -> None:
    definition.clustering_columns += [] if words.takes("NONE") else columns_in_brackets(words)


def _with_properties(words: Words, definition: _TableClauses) -> None:
    definition.properties |= properties(words)


def _commented(words: Words, definition: _TableClauses) -> None:
    definition.comment = words.string("the comment as a text in quotes")


def _located(words: Words, definition: _TableClauses) -> None:
    definition.location = words.string("the location as a text in quotes")


_CLAUSES: Mapping[str, _ReadClause] = {
    "USING": _using,
    "PARTITIONED BY": _partitioned,
    "CLUSTER BY": _clustered,
    "TBLPROPERTIES": _with_properties,
    "COMMENT": _commented,
    "LOCATION": _located,
}
"""The clauses after the columns."""
_LIKE_CLAUSES: Mapping[str, _ReadClause] = {"USING": _using, "TBLPROPERTIES": _with_properties}
"""The clauses after LIKE and the name of a table."""
_NO_LOCATION = (
    "Leave the clause out: the catalog chooses a location in the warehouse of the connection. CREATE TABLE with columns or a query "
    "takes a location. A table that is at another location already comes under the catalog by an adoption."
)
_REFUSED_CLAUSES: Mapping[str, str] = {
    "LOCATION": _NO_LOCATION,
    "CLONE": "Write SHALLOW CLONE, whose table reads the files of the source, or DEEP CLONE, which copies them.",
    "OPTIONS": "Write TBLPROPERTIES.",
    "CLUSTERED BY": "Write CLUSTER BY (columns).",
    "STORED AS": "Write USING DELTA.",
    "ROW FORMAT": "Write USING DELTA.",
    "DEFAULT COLLATION": "Leave the clause out.",
}


def _check(definition: _TableClauses) -> None:
    if definition.query is not None and definition.columns:
        raise InvalidArgumentError(
            "CREATE TABLE has columns and a query, which gives the columns. Nothing was created. Leave the columns out, or create "
            "the table first and then insert the rows."
        )
    if definition.query is None and not definition.columns and definition.location is not None:
        raise InvalidArgumentError(
            "CREATE TABLE has a LOCATION, and neither columns nor a query: it creates tables, and does not open one that exists. "
            "Nothing was created."
        ).with_remedy(AdoptOrRegisterTable(location=definition.location))
    if definition.query is None and not definition.columns:
        raise InvalidArgumentError(
            "CREATE TABLE has neither columns nor a query. Nothing was created. Give at least one column."
        )


def _create(session: SqlSession, name: TableIdentifier, definition: _TableClauses, mode: CreationMode) -> Answer:
    schema = schema_of_columns(definition.columns)
    if has_defaults(schema) or generated_columns(schema):
        check_expressions(schema, lambda: session.spark)
    create_or_replace(session.client, identifier=name, design=_design(definition, schema), mode=mode)
    return NOTHING


def _create_as(
    session: SqlSession, query: PreparedQuery, name: TableIdentifier, definition: _TableClauses, mode: CreationMode
) -> Answer:
    exists = _exists(session, name)
    if exists and mode is CreationMode.CREATE:
        raise TableAlreadyExistsError(f"Table {name} already exists. Nothing was written. Choose another name.")
    target = None
    if exists:
        target, tables = open_together(session, astuple(name), query)
    else:
        tables = resolve_for_query(session.client, query.names)
    frame = check_frame(query.run(session.client, tables, spark=session.spark))
    design = _design(definition, first_schema(schema_of(frame)))
    if target is None:
        create_or_replace(session.client, identifier=name, design=design, frame=frame, mode=mode)
    else:
        replace_table(target, design=design, frame=frame, mode=mode)
    return NOTHING


def _design(definition: _TableClauses, schema: StructType) -> TableDesign:
    return TableDesign(
        schema=schema,
        partition_columns=definition.partition_columns,
        properties=definition.properties,
        description=definition.comment,
        clustering_columns=definition.clustering_columns,
        location=definition.location,
    )


# --- like ------------------------------------------------------------------------------------------------------------


def _like(words: Words, mode: CreationMode) -> Callable[[SqlSession, TableIdentifier], Answer] | None:
    if not words.takes("LIKE"):
        return None
    source = words.table()
    definition = _TableClauses()
    while not words.is_done():
        _clause(words, definition, _LIKE_CLAUSES)

    def run(session: SqlSession, name: TableIdentifier) -> Answer:
        design = design_like(_source(session, source).snapshot(), definition.properties)
        create_or_replace(session.client, identifier=name, design=design, mode=mode)
        return NOTHING

    return run


# --- clone ------------------------------------------------------------------------------------------------------------


def _cloning(
    words: Words, statement: Statement, creation: CreationMode
) -> Callable[[SqlSession, TableIdentifier], Answer] | None:
    mode = words.take("SHALLOW", "DEEP")
    if not mode:
        return None
    words.expect("CLONE")
    source = words.table()
    version = time_travel(words, statement)
    more: dict[str, str] = {}
    if words.takes("TBLPROPERTIES"):
        more = properties(words)
    if words.takes("LOCATION"):
        raise words.refusal("LOCATION in CREATE TABLE", _NO_LOCATION)
    words.done()

    def run(session: SqlSession, name: TableIdentifier) -> Answer:
        table = _source(session, source)
        request = CloneRequest(
            mode=CloneMode(mode.lower()),
            version=None if version is None else version.version,
            timestamp_ms=time_of(session, version, table),
            properties=more,
        )
        result = clone_or_replace(session.client, table, identifier=name, request=request, mode=creation)
        return Answer(columns=_CLONED, rows=(_row(result),))

    return run


def _source(session: SqlSession, name: Name) -> ReadableTable:
    """The table of the catalog, or of the path in ``delta.`path```."""
    if len(name) == 2 and name[0].lower() == "delta":
        return open_source(session.client, name[1])
    if len(name) == 2 and name[0].lower() in ("parquet", "iceberg"):
        raise InvalidArgumentError(
            f"A clone of {name[0]} files is not supported. Nothing was created. Write CREATE TABLE name AS SELECT * FROM "
            f"{name[0]}.`{name[1]}`."
        )
    return open_readable(session, name)


def _row(result: CloneResult) -> tuple[int, ...]:
    copied = (result.num_files, result.num_bytes) if result.mode is CloneMode.DEEP else (0, 0)
    return (result.num_bytes, result.num_files, 0, copied[0], 0, copied[1])
