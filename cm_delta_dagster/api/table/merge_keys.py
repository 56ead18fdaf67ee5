"""What a merge is given as ``on``: a condition, or the names of key columns."""

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.writing.row_change import Expression
from cm_delta_dagster.remedies import MergeOnCondition
from cm_delta_dagster.spark.library import is_column

_LITERALS = frozenset({"true", "false", "null"})
"""Words that are conditions by themselves. A key column of such a name is given in a list."""


def is_key(text: str) -> bool:
    """Whether a text names a key column; any other is a condition."""
    return text.isidentifier() and text.lower() not in _LITERALS


def merge_condition(on: object, *, source_alias: str, target_alias: str) -> Expression:
    """The condition of a merge, from a condition or key columns. Raises InvalidArgumentError for anything else."""
    if is_column(on) or (isinstance(on, str) and not is_key(on)):
        return on
    keys = (on,) if isinstance(on, str) else on
    if not isinstance(keys, list | tuple) or not keys or not all(isinstance(key, str) for key in keys):
        raise InvalidArgumentError(
            f"A merge takes a condition, as SQL text or Column, or the names of key columns; {on!r} was given."
        )
    target, source = _quoted(target_alias), _quoted(source_alias)
    return " AND ".join(f"{target}.{_quoted(key)} = {source}.{_quoted(key)}" for key in keys)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def key_columns(on: object) -> tuple[str, ...]:
    """The key columns of an upsert. Raises InvalidArgumentError for a Column."""
    if is_column(on):
        raise InvalidArgumentError("An upsert takes the names of key columns, and no condition.").with_remedy(
            MergeOnCondition()
        )
    return (on,) if isinstance(on, str) else tuple(on)  # type: ignore[arg-type]  # The operation checks the names.
