"""Values of generated columns over batches of Arrow (protocol heading "Generated Columns")."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.arrow.scalar_values import is_certain_zone, scalar_values
from cm_delta_dagster.arrow.schema import arrow_type
from cm_delta_dagster.arrow.write.row_rules import BatchColumns, row_text
from cm_delta_dagster.errors import InvalidDataError
from cm_delta_dagster.protocol.features.expressions import known_columns
from cm_delta_dagster.protocol.features.generated_columns import generated_columns
from cm_delta_dagster.protocol.features.row_messages import failed_text, generated_text
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.scalar_expressions import scalar_expression
from cm_delta_dagster.protocol.predicates.scalars import Scalar
from cm_delta_dagster.protocol.predicates.timestamps import DeferredZone
from cm_delta_dagster.protocol.schema.char_types import char_width
from cm_delta_dagster.protocol.schema.types import (
    INTEGERS,
    ArrayType,
    MapType,
    StructType,
)

AsRead = Callable[[pa.Array], pa.Array]
"""Values of a column as readers of the table will see them."""


def generated_needs_spark(layout: TableLayout) -> str | None:
    """Which generated column only Spark can compute, for a message; None if Arrow can compute all."""
    for name, text in generated_columns(layout.schema).items():
        if _scalar(name, text, layout) is None:
            return f"only Spark evaluates the generated column {name!r} ({text})"
    return None


def _scalar(name: str, text: str, layout: TableLayout) -> Scalar | None:
    scalar = scalar_expression(text, layout.schema, zone=certain_zone(layout))
    item = layout.schema.field(name)
    if scalar is None or item is None or isinstance(item.type, StructType | ArrayType | MapType):
        return None
    if char_width(item):  # Spark compares these columns with blanks, and the expression without.
        return None
    is_wider = scalar.type in INTEGERS and item.type in INTEGERS[INTEGERS.index(scalar.type) :]
    return scalar if scalar.type == item.type or is_wider else None


def certain_zone(layout: TableLayout) -> tzinfo | None:
    """The time zone in which dates are taken of timestamps; None if Arrow may convert to it differently than Spark."""
    zone = layout.time_zone.zone if isinstance(layout.time_zone, DeferredZone) else layout.time_zone or UTC
    return zone if is_certain_zone(zone) else None


@dataclass(frozen=True, slots=True)
class GeneratedValues:
    """The generated columns of the rows of a write: those that the rows lack, and those whose values are checked."""

    missing: Sequence["_Generated"]
    offered: Sequence["_Generated"]

    @classmethod
    def of(cls, layout: TableLayout, offered: Sequence[str], as_read: Mapping[str, AsRead]) -> "GeneratedValues":
        """For rows with the columns ``offered``.

        Args:
            layout: of the table after the write, of which :func:`generated_needs_spark` says nothing.
            as_read: by name of a column of the table.
        """
        names = {name.lower() for name in offered}
        columns = list(_columns(layout, as_read))
        return cls(
            missing=[column for column in columns if column.name.lower() not in names],
            offered=[column for column in columns if column.name.lower() in names],
        )

    def completed(self, columns: BatchColumns, num_rows: int) -> BatchColumns:
        """The columns of a batch with the generated ones that the rows lack, after all others have their values.

        Raises:
            InvalidDataError: the value of a row cannot be computed, e.g. because a number is too large.
        """
        if not self.missing:
            return columns
        return {**columns, **{column.name: column.values(columns, num_rows) for column in self.missing}}


def _columns(layout: TableLayout, as_read: Mapping[str, AsRead]) -> Iterator["_Generated"]:
    for name, text in generated_columns(layout.schema).items():
        scalar = _scalar(name, text, layout)
        item = layout.schema.field(name)
        assert scalar is not None and item is not None, "only Spark evaluates it"
        yield _Generated(name, text, scalar, arrow_type(item.type), as_read[name], layout.schema)


@dataclass(frozen=True, slots=True)
class _Generated:
    """A generated column, and the rule that its values are those of its expression, where NULL equals NULL."""

    name: str
    text: str
    scalar: Scalar
    type: pa.DataType
    as_read: AsRead
    schema: StructType

    def values(self, columns: BatchColumns, num_rows: int) -> pa.Array:
        """The values of the expression."""
        try:
            values = scalar_values(self.scalar, columns.__getitem__, num_rows)
        except pa.ArrowInvalid as error:
            raise InvalidDataError(
                failed_text(f"the generated column {self.name!r} ({self.text})", str(error))
            ) from error
        return self.as_read(values.cast(self.type))

    def check(self, columns: BatchColumns, num_rows: int) -> None:
        computed, offered = self.values(columns, num_rows), columns[self.name]
        is_same = pc.equal(computed, offered).fill_null(False)
        for is_special in (pc.is_null, pc.is_nan) if pa.types.is_floating(self.type) else (pc.is_null,):
            both = pc.and_(is_special(computed), is_special(offered)).fill_null(False)
            is_same = pc.or_(is_same, both)
        row = pc.index(is_same, pa.scalar(False)).as_py()
        if row >= 0:
            shown = ((self.name,), *known_columns(self.text, self.schema))
            raise InvalidDataError(generated_text(self.name, self.text) + row_text(columns, row, shown, self.schema))
