"""Values of columns that the rows of a write lack: defaults and identity values (protocol heading "Default Columns")."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cm_delta_dagster.arrow.schema import arrow_type
from cm_delta_dagster.arrow.write.literal_values import NotLiteralError, literal_value
from cm_delta_dagster.protocol.features.default_columns import default_of
from cm_delta_dagster.protocol.features.identity_columns import IdentityColumn, identity_columns
from cm_delta_dagster.protocol.schema.types import (
    StructField,
    StructType,
)


def default_needs_spark(item: StructField) -> bool:
    """Whether only Spark can evaluate the default of a column, or say what is wrong with it."""
    try:
        _default(item, now_ms=0)
    except NotLiteralError:
        return True
    return False


def _default(item: StructField, *, now_ms: int) -> Any:
    """The value of the default of a column, None for NULL and without one. Raises NotLiteralError."""
    text = default_of(item)
    return None if text is None else literal_value(text, item, now_ms=now_ms)


@dataclass(slots=True, kw_only=True)
class MissingValues:
    """The values of the columns that the rows lack, batch by batch."""

    defaults: Mapping[str, pa.Scalar]
    identities: Mapping[str, IdentityColumn]
    _last: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: StructType, offered: Sequence[str], *, now_ms: int) -> "MissingValues":
        """For rows with the columns ``offered``, whose missing defaults are literals.

        Args:
            now_ms: value of ``current_timestamp()``, in epoch milliseconds.
        """
        names = {name.lower() for name in offered}
        missing = [item for item in schema.fields if item.name.lower() not in names]
        defaults = {
            item.name: pa.scalar(_default(item, now_ms=now_ms), arrow_type(item.type))
            for item in missing
            if default_of(item) is not None
        }
        identities = {
            name: column
            for name, column in identity_columns(schema).items()
            if any(name == item.name for item in missing)
        }
        return cls(defaults=defaults, identities=identities)

    def values(self, name: str, num_rows: int) -> pa.Array | None:
        """The values of the next rows; None for a column that has no other values than NULL, or that the rows have.

        Raises:
            InvalidDataError: an identity column has used all its values.
        """
        if name in self.defaults:
            return pa.repeat(self.defaults[name], num_rows)
        column = self.identities.get(name)
        if column is None:
            return None
        if not num_rows:
            return pa.array([], pa.int64())
        step = column.identity.step
        first = column.next_value if name not in self._last else self._last[name] + step
        last = first + step * (num_rows - 1)
        column.check_value(last)
        self._last[name] = last
        return pa.array(np.arange(num_rows, dtype=np.int64) * step + first)

    @property
    def high_water_marks(self) -> dict[str, int]:
        """The furthest values of the identity columns, if they moved."""
        marks = {name: self.identities[name].further(value) for name, value in self._last.items()}
        return {name: mark for name, mark in marks.items() if mark is not None}
