"""Parts of lists of names: the rows after a name, in the order of code points, which does not depend on the database's collation.

The database reads only the rows of the part, if an index has this order: on SQLite each index has it, on PostgreSQL those whose
columns have the collation "C".
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.rows.names import LARGEST
from cm_delta_dagster.errors import InvalidArgumentError

NameColumns = Sequence[sa.ColumnElement[str]]


def part_of(
    connection: sa.Connection,
    rows: "sa.Select[Any]",
    columns: NameColumns,
    *,
    parents: Sequence[str] = (),
    after: Sequence[str] | None,
    limit: int | None,
) -> "sa.Select[Any]":
    """The rows in the order of the names in ``columns``.

    Args:
        parents: the values that the first columns have.
        after: the parts of the name after which the rows begin; None for all rows.
        limit: the greatest number of rows; None for all.

    Raises:
        InvalidArgumentError: the limit is not positive.
    """
    check_limit(limit)
    ordered = in_order(connection, columns)
    part = rows.where(*(column == name for column, name in zip(ordered, parents, strict=False)))
    if after is not None:
        part = part.where(_is_after(ordered, parents=tuple(parents), after=tuple(after)))
    return part.order_by(*ordered).limit(None if limit is None else sa.literal(limit, sa.BigInteger))


def check_limit(limit: int | None) -> None:
    """Raises InvalidArgumentError unless the limit of a list is positive, or None."""
    if limit is not None and not 0 < limit <= LARGEST:
        raise InvalidArgumentError(f"{limit!r} cannot be the limit of a list: give a positive number, or none for all.")


def _is_after(ordered: NameColumns, *, parents: tuple[str, ...], after: tuple[str, ...]) -> "sa.ColumnElement[bool]":
    """Whether a name below ``parents`` follows the name. SQLite compares with an index only columns that are not in ``parents``."""
    depth = len(parents)
    if after[:depth] != parents:
        return sa.true() if after[:depth] < parents else sa.false()
    if depth == len(ordered):
        return sa.false()
    bounds = [sa.bindparam(None, name, type_=sa.Text) for name in after[depth:]]
    return sa.tuple_(*ordered[depth:]) > sa.tuple_(*bounds)


def in_order(connection: sa.Connection, columns: NameColumns) -> NameColumns:
    """The columns as they are to be compared and sorted."""
    if connection.dialect.name == "sqlite":
        return columns
    return [sa.collate(column, "C") for column in columns]
