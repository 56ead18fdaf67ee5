"""Former names of renamed columns (protocol heading "Column Mapping"), so that a write that merges schemas does not add them again.

The metadata of a field has its former names, oldest first. A column that another client renamed has none; its physical name is its
first name, if the table got column mapping when it had columns already. A name that a column has taken since is not a former name.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from cm_delta_dagster.protocol.schema.types import StructField, StructType

FORMER_NAMES = "cm_delta.formerNames"
"""Key in the metadata of a field that was renamed: a list of names."""
PHYSICAL_NAME = "delta.columnMapping.physicalName"

_GENERATED = re.compile(r"col-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Physical names of columns that were added to a table with column mapping."""


def former_names(item: StructField) -> tuple[str, ...]:
    """The names that a column had, oldest first, without its present one."""
    recorded = item.metadata.get(FORMER_NAMES)
    if recorded is None:
        stored = item.metadata.get(PHYSICAL_NAME)
        recorded = [] if not isinstance(stored, str) or _GENERATED.fullmatch(stored) else [stored]
    names = recorded if isinstance(recorded, list | tuple) else ()
    return tuple(name for name in names if isinstance(name, str) and name.lower() != item.name.lower())


def renamed_since(fields: Sequence[StructField], name: str) -> StructField | None:
    """The field that had the name ``name``, ignoring case, before it was renamed; None if there is none."""
    return next((item for item in fields if name.lower() in map(str.lower, former_names(item))), None)


def with_new_name(item: StructField, name: str) -> StructField:
    """``item`` renamed to ``name``, with its present name among the former ones."""
    names = [former for former in (*former_names(item), item.name) if former.lower() != name.lower()]
    return replace(item, name=name, metadata={**item.metadata, FORMER_NAMES: names})


def with_name_taken(struct: StructType, name: str) -> StructType:
    """``struct`` in which ``name`` is no former name of a field, because a field takes it."""
    return StructType(tuple(_without(item, name) for item in struct.fields))


def _without(item: StructField, name: str) -> StructField:
    names = former_names(item)
    kept = [former for former in names if former.lower() != name.lower()]
    return item if len(kept) == len(names) else replace(item, metadata={**item.metadata, FORMER_NAMES: kept})
