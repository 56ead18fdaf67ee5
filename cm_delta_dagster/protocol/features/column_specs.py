"""Columns as a user defines them when a table is created: type, nullability, comment, default, generation expression, identity."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.partition_values import is_partition_type
from cm_delta_dagster.protocol.features.default_columns import check_defaults
from cm_delta_dagster.protocol.features.generated_columns import check_generated_columns
from cm_delta_dagster.protocol.features.identity_columns import Identity, check_identity_columns, identity_metadata
from cm_delta_dagster.protocol.schema.evolution import CURRENT_DEFAULT, GENERATION_EXPRESSION
from cm_delta_dagster.protocol.schema.type_text import parse_column_type
from cm_delta_dagster.protocol.schema.types import DataType, StructField, StructType, data_type_text


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a new table.

    Attributes:
        name: of the column.
        type: as SQL text, e.g. ``bigint``, ``varchar(20)`` or ``struct<a: int>``, or a type of this package.
        nullable: whether the column may hold NULL.
        comment: for users of the table.
        default: SQL expression of the value of rows that give none, e.g. ``'new'`` with its quotes, or ``current_date()``.
        generated: SQL expression over other columns that computes the value, e.g. ``CAST(at AS DATE)``.
        identity: the table numbers the rows; the type must be ``bigint``.
    """

    name: str
    type: "str | DataType"
    nullable: bool = field(default=True, kw_only=True)
    comment: str | None = field(default=None, kw_only=True)
    default: str | None = field(default=None, kw_only=True)
    generated: str | None = field(default=None, kw_only=True)
    identity: Identity | None = field(default=None, kw_only=True)

    def as_field(self) -> StructField:
        """The column as a field of a schema.

        Raises:
            InvalidArgumentError: the type is not a type of a Delta table, or the identity is not valid.
        """
        metadata: dict[str, Any] = {}
        data_type = self.type
        if isinstance(data_type, str):
            parsed = parse_column_type(data_type)
            metadata |= parsed.metadata
            data_type = parsed.type
        if self.comment is not None:
            metadata["comment"] = self.comment
        if self.default is not None:
            metadata[CURRENT_DEFAULT] = self.default
        if self.generated is not None:
            metadata[GENERATION_EXPRESSION] = self.generated
        if self.identity is not None:
            metadata |= identity_metadata(self.identity)
        return StructField(self.name, data_type, self.nullable, metadata)


def schema_of_columns(columns: Sequence[Column]) -> StructType:
    """The schema of these columns.

    Raises:
        InvalidArgumentError: a value is not a Column, or one of :meth:`Column.as_field`.
    """
    others = [item for item in columns if not isinstance(item, Column)]
    if others:
        raise InvalidArgumentError(f"{others[0]!r} is not a Column; give a list of Column(name, type) values.")
    return StructType(tuple(item.as_field() for item in columns))


def check_column_specs(schema: StructType, partition_columns: tuple[str, ...]) -> None:
    """Refuse defaults, generation expressions and identity columns that are not valid. Spark checks the types of expressions.

    Raises:
        InvalidArgumentError: names the column.
    """
    check_defaults(schema)
    check_generated_columns(schema)
    check_identity_columns(schema, partition_columns)


def check_partition_columns(schema: StructType, partition_columns: Sequence[str]) -> tuple[str, ...]:
    """Return the partition columns as the schema spells them.

    Raises:
        InvalidArgumentError: a column is missing from the schema, named twice, or of a nested type; or every column is a
            partition column.
    """
    fields = []
    for column in partition_columns:
        field = schema.field(column)
        if field is None:
            raise InvalidArgumentError(
                f"Partition column {column!r} is not in the schema, whose columns are {', '.join(schema.names)}. "
                "Partition by top-level columns of the table."
            )
        if not is_partition_type(field.type):
            raise InvalidArgumentError(
                f"Partition column {field.name!r} is of type {data_type_text(field.type)}, which partition values cannot "
                "have. Partition by a column of a simple type."
            )
        if field.name.startswith("."):
            raise InvalidArgumentError(
                f"Partition column {field.name!r} would create directories that readers treat as hidden. Rename it."
            )
        fields.append(field.name)
    if len(set(fields)) != len(fields):
        raise InvalidArgumentError(f"A partition column is named twice in {list(partition_columns)}; name each once.")
    if fields and len(fields) == len(schema.names):
        raise InvalidArgumentError(
            "Every column is a partition column, and a data file would have no columns. Keep at least one other column."
        )
    return tuple(fields)
