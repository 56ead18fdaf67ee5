"""What the checks of a proposal read of the database, after the row of the table is locked."""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.commit_rules import CommitRule
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.database.prepared import Call, Prepared, has_pipeline, run_in_order
from cm_delta_dagster.catalog.sql.database.schema import ACTIVE_CHECKS, TABLES
from cm_delta_dagster.catalog.sql.feed import entries
from cm_delta_dagster.catalog.sql.rows.active_checks import IS_ACTIVE_FOR_TABLE
from cm_delta_dagster.catalog.sql.rows.errors import unknown_table
from cm_delta_dagster.catalog.sql.rows.locked_heads import LOCKED_HEAD, required_head
from cm_delta_dagster.catalog.sql.rules import rule_rows

_ACTIVE = Prepared(
    sa.select(ACTIVE_CHECKS.c.check_name).where(IS_ACTIVE_FOR_TABLE, TABLES.c.table_id == sa.bindparam("of_table"))
)


class CheckReads:
    """The active checks of a table, the privileges of the caller on it, and its commit rules.

    Each is read by a statement of its own when it is first asked for, unless :func:`statements` have run already.

    Args:
        answers: the rows of each of :func:`statements`, which began after the row of the table was locked.
    """

    def __init__(
        self, connection: sa.Connection, table_id: str, answers: Sequence[Sequence[Any]] | None = None
    ) -> None:
        self._connection = connection
        self._table_id = table_id
        self._answers = answers

    @cached_property
    def active(self) -> frozenset[str]:
        """Names of the active checks."""
        return frozenset(row.check_name for row in self._rows(0))

    @cached_property
    def privileges(self) -> frozenset[Privilege]:
        """The privileges of the caller, with those that they include."""
        return guard.privileges_in(self._rows(1))

    @cached_property
    def rules(self) -> tuple[CommitRule, ...]:
        """The commit rules that apply to the table."""
        return rule_rows.rules_in(self._rows(2))

    def _rows(self, place: int) -> Sequence[Any]:
        if self._answers is not None:
            return self._answers[place]
        statement, parameters = statements(self._connection, self._table_id)[place]
        return statement.rows(self._connection, parameters)


def statements(connection: sa.Connection, table_id: str) -> tuple[Call, Call, Call]:
    """The statements whose rows :class:`CheckReads` takes."""
    return (
        (_ACTIVE, {"of_table": table_id}),
        guard.read_of_privileges(connection, table_id),
        rule_rows.read_of_rules(table_id),
    )


def locked_for_checks(connection: sa.Connection, table_ids: Sequence[str]) -> dict[str, tuple[Any, CheckReads]]:
    """The locked head of each table, with what its checks read; that is read at once if it takes no further round trip.

    The server locks the rows in the order of ``table_ids``, and begins the reads afterwards. Raises TableNotFoundError.
    """
    if not has_pipeline(connection):
        entries.require_counter(entries.COUNTER.rows(connection, {}))
        return {
            table_id: (required_head(connection, table_id), CheckReads(connection, table_id)) for table_id in table_ids
        }
    locks = [(LOCKED_HEAD, {"of_table": table_id}) for table_id in table_ids]
    reads = {table_id: statements(connection, table_id) for table_id in table_ids}
    counter, *others = run_in_order(connection, [(entries.COUNTER, {}), *locks, *chain.from_iterable(reads.values())])
    entries.require_counter(counter)
    answers = iter(others)
    heads = dict(zip(table_ids, islice(answers, len(locks)), strict=True))
    for table_id, rows in heads.items():
        if not rows:
            raise unknown_table(table_id)
    return {
        table_id: (heads[table_id][0], CheckReads(connection, table_id, list(islice(answers, len(calls)))))
        for table_id, calls in reads.items()
    }
