"""Paths of columns: ``a``, ``a.b``, ``items.element.x``, ``pairs.value.y``, with backquotes around names that contain a dot."""

import re
from collections.abc import Sequence
from typing import TypeAlias

from cm_delta_dagster.errors import InvalidArgumentError

ColumnPath: TypeAlias = tuple[str, ...]
"""The names of a column, logical or physical, from the top level down. Lists and maps have ``element``, ``key`` and ``value``."""

ColumnName: TypeAlias = str | Sequence[str]
"""A column as text such as ``a.b`` or as the sequence of its names."""

_STEP = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_PLAIN = re.compile(r"\w+")


def column_path(column: ColumnName) -> ColumnPath:
    """The names of a path from the top-level column down.

    Args:
        column: text, in which a dot separates names and backquotes enclose a name that contains one; or the names themselves.

    Raises:
        InvalidArgumentError: a name is empty, or a backquote is not closed.
    """
    if not isinstance(column, str):
        path = tuple(column)
        if not path or not all(isinstance(name, str) and name for name in path):
            raise _invalid(column)
        return path
    names: list[str] = []
    position = 0
    while True:
        step = _STEP.match(column, position)
        if step is None:
            raise _invalid(column)
        names.append(step[2] if step[1] is None else step[1].replace("``", "`"))
        position = step.end()
        if position == len(column):
            return tuple(names)
        if column[position] != ".":
            raise _invalid(column)
        position += 1


def path_text(path: Sequence[str]) -> str:
    """The path as text that :func:`column_path` reads."""
    return ".".join(name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`" for name in path)


def _invalid(column: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{column!r} is not a column. Write a name such as 'a', a path such as 'a.b', 'items.element.x' or 'pairs.value.y', or "
        "the names as a list. Put a name that contains a dot in backquotes."
    )
