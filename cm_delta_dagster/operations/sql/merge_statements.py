"""MERGE INTO."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.sql.answers import Answer
from cm_delta_dagster.operations.sql.names import Name
from cm_delta_dagster.operations.sql.qualifiers import with_aliases
from cm_delta_dagster.operations.sql.row_statements import counted, read_assignments, unique_values
from cm_delta_dagster.operations.sql.statements import Statement
from cm_delta_dagster.operations.sql.subqueries import ScalarQueries, refuse_queries
from cm_delta_dagster.operations.sql.targets import PinnedTable, SqlSession, open_together, source_query, time_travel
from cm_delta_dagster.operations.sql.words import Span, Words
from cm_delta_dagster.operations.writing.merge_rows import merge_rows
from cm_delta_dagster.operations.writing.row_change import RowChange, RowClause
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind
from cm_delta_dagster.protocol.schema.column_paths import path_text

_COUNTS = {
    "num_affected_rows": ("numTargetRowsUpdated", "numTargetRowsDeleted", "numTargetRowsInserted"),
    "num_updated_rows": ("numTargetRowsUpdated",),
    "num_deleted_rows": ("numTargetRowsDeleted",),
    "num_inserted_rows": ("numTargetRowsInserted",),
}
"""The columns of the answer, and the metrics that each adds up."""
_BEFORE_SOURCE = "SELECT * FROM "
_NO_ALIAS = "_cm_delta_source"
"""The alias of a source query for which the statement has none; its columns are named without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _MergeSource:
    """The source: the text of the relation with its alias. ``name`` is that of a table without an alias."""

    relation: Span
    alias: str
    name: Name = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _MergeClause:
    """A clause as written; ``values`` None for ``*``."""

    kind: ClauseKind
    action: ClauseAction
    condition: str | None
    values: list[tuple[tuple[str, ...], str]] | None


def merge(session: SqlSession, statement: Statement) -> Answer:
    """Run a MERGE statement.

    Raises:
        InvalidArgumentError: the statement is malformed.
        CmDeltaError: as :func:`~cm_delta_dagster.operations.writing.merge_rows.merge_rows`.
    """
    words = Words(statement, after=1)
    evolves = words.takes("WITH SCHEMA EVOLUTION")
    words.expect("INTO")
    name = words.table()
    alias = words.alias("USING")
    words.expect("USING")
    source = _source(words, statement)
    words.expect("ON")
    on = words.until("WHEN", what="the condition").text
    clauses = []
    while not words.is_done():
        clauses.append(_clause(words))
    refuse_queries(on, what="The condition of MERGE")
    for clause in clauses:
        refuse_queries(clause.condition, what="The condition of a clause of MERGE")
    query = source_query(statement, source.relation, before=_BEFORE_SOURCE)
    queries = ScalarQueries.of([text for clause in clauses for _, text in clause.values or ()])
    table, tables = open_together(session, name, *filter(None, (query, queries.query)))
    clauses = _with_values(clauses, iter(queries.values(session, tables)))
    frame = query.run(session.client, tables, spark=session.spark)
    names = _QualifiedNames(table, alias, source)
    change = RowChange(
        clauses=tuple(names.clause(clause) for clause in clauses),
        source=frame,
        on=names.expression(on),
        target_alias=names.target,
        source_alias=source.alias,
        evolves=evolves,
    )
    result = merge_rows(table, change=change)
    row = tuple(sum(counted(result, metric) for metric in metrics) for metrics in _COUNTS.values())
    return Answer(columns=dict.fromkeys(_COUNTS, "bigint"), rows=(row,))


def _with_values(clauses: Sequence[_MergeClause], texts: Iterator[str]) -> list[_MergeClause]:
    """The clauses with ``texts`` as their values, in order."""
    return [
        clause if clause.values is None else replace(clause, values=[(name, next(texts)) for name, _ in clause.values])
        for clause in clauses
    ]


def _source(words: Words, statement: Statement) -> _MergeSource:
    first = words.at
    relation = words.until("ON", what="the source")
    after, words.at = words.at, first
    name: Name = ()
    if words.symbol("("):
        words.until(what="a query")
        words.bracket(")")
    else:
        name = words.table()
        if words.symbol("("):  # A function that returns rows.
            name = ()
            words.until(what="the arguments")
            words.bracket(")")
        time_travel(words, statement)
    alias = words.alias("ON")
    words.at = after
    return _MergeSource(relation=relation, alias=alias or (name[-1] if name else _NO_ALIAS), name=() if alias else name)


def _clause(words: Words) -> _MergeClause:
    kind = _kind(words)
    condition = words.until("THEN", what="the condition").text if words.takes("AND") else None
    words.expect("THEN")
    if words.takes("DELETE"):
        return _MergeClause(kind=kind, action=ClauseAction.DELETE, condition=condition, values=[])
    if words.takes("UPDATE"):
        words.expect("SET")
        values = None if words.symbol("*") else read_assignments(words, "WHEN")
        return _MergeClause(kind=kind, action=ClauseAction.UPDATE, condition=condition, values=values)
    words.expect("INSERT")
    inserted = None if words.symbol("*") else _inserted(words, kind)
    return _MergeClause(kind=kind, action=ClauseAction.INSERT, condition=condition, values=inserted)


def _kind(words: Words) -> ClauseKind:
    words.expect("WHEN")
    if words.takes("MATCHED"):
        return ClauseKind.MATCHED
    words.expect("NOT MATCHED")
    if words.takes("BY SOURCE"):
        return ClauseKind.NOT_MATCHED_BY_SOURCE
    words.takes("BY TARGET")
    return ClauseKind.NOT_MATCHED


def _inserted(words: Words, kind: ClauseKind) -> list[tuple[tuple[str, ...], str]]:
    columns = words.listed(words.name)
    words.expect("VALUES")
    values = words.listed(lambda: words.until(",", what="a value").text)
    if len(columns) != len(values):
        raise InvalidArgumentError(
            f"The INSERT of a clause {_SHOWN[kind]} names {len(columns)} columns ({', '.join(map(path_text, columns))}), and "
            f"VALUES has {len(values)} values. Nothing was written. Give one value for each column."
        )
    return list(zip(columns, values, strict=True))


class _QualifiedNames:
    """Names of columns in the conditions and values of the statement, with the aliases of target and source."""

    def __init__(self, table: PinnedTable, alias: str | None, source: _MergeSource) -> None:
        own = table.identifier
        self.target = alias or own.table
        self._aliases: dict[tuple[str, str, str], str] = {}
        if len(source.name) == 3:
            catalog, schema, name = source.name
            self._aliases[(catalog, schema, name)] = source.alias
        if alias is None:
            self._aliases[(own.catalog, own.schema, own.table)] = self.target
        self._own = tuple(part.lower() for part in (own.catalog, own.schema, own.table))

    def expression(self, text: str) -> str:
        return with_aliases(text, self._aliases)

    def clause(self, clause: _MergeClause) -> RowClause:
        values: Mapping[str, str] | None = None
        if clause.values is not None:
            values = unique_values([(self._column(parts), self.expression(text)) for parts, text in clause.values])
        condition = None if clause.condition is None else self.expression(clause.condition)
        allowed = _ALLOWED[clause.kind]
        if clause.action not in allowed:
            raise InvalidArgumentError(
                f"A clause {_SHOWN[clause.kind]} cannot {clause.action.value.upper()}. Nothing was written. It can "
                f"{' or '.join(action.value.upper() for action in allowed)}."
            )
        return RowClause(kind=clause.kind, action=clause.action, condition=condition, assignments=values)

    def _column(self, parts: tuple[str, ...]) -> str:
        """A column of the target without ``catalog.schema.table`` or ``schema.table`` before it."""
        lowered = tuple(part.lower() for part in parts)
        for length in (3, 2):
            if len(parts) > length and lowered[:length] == self._own[-length:]:
                return path_text(parts[length:])
        return path_text(parts)


_SHOWN = {
    ClauseKind.MATCHED: "WHEN MATCHED",
    ClauseKind.NOT_MATCHED: "WHEN NOT MATCHED",
    ClauseKind.NOT_MATCHED_BY_SOURCE: "WHEN NOT MATCHED BY SOURCE",
}
_ALLOWED = {
    ClauseKind.MATCHED: (ClauseAction.UPDATE, ClauseAction.DELETE),
    ClauseKind.NOT_MATCHED: (ClauseAction.INSERT,),
    ClauseKind.NOT_MATCHED_BY_SOURCE: (ClauseAction.UPDATE, ClauseAction.DELETE),
}
