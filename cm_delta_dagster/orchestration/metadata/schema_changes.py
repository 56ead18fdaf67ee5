"""Compare the columns of a table with others: those that are declared, or those before a write."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from cm_delta_dagster.protocol.schema.types import StructType, data_type_text

SCHEMA_CHANGES = "cm_delta/schema_changes"
"""The table of :func:`change_table` in the metadata of an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownColumn:
    """One column. ``nullable`` is None if nothing is declared about it."""

    name: str
    type: str
    nullable: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChange:
    """The difference of one column. ``is_breaking``: readers or writers that use the expected schema can fail."""

    column: str
    change: str
    before: str
    after: str
    is_breaking: bool


def columns_of(schema: StructType) -> tuple[KnownColumn, ...]:
    """The columns of a table."""
    return tuple(
        KnownColumn(name=field.name, type=data_type_text(field.type), nullable=field.nullable)
        for field in schema.fields
    )


def declared_columns(schema: dg.TableSchema) -> tuple[KnownColumn, ...]:
    """The columns of the metadata ``dagster/column_schema``. Nullability is declared if a column says NOT NULL."""
    return tuple(
        KnownColumn(name=column.name, type=column.type, nullable=None if column.constraints.nullable else False)
        for column in schema.columns
    )


def changes(expected: Sequence[KnownColumn], present: Sequence[KnownColumn]) -> tuple[ColumnChange, ...]:
    """What differs, in the order of the expected columns, new columns last. Names are compared without regard to case."""
    before = {column.name.lower(): column for column in expected}
    after = {column.name.lower(): column for column in present}
    differences: list[ColumnChange] = []
    for key, column in before.items():
        now = after.get(key)
        if now is None:
            differences.append(_change(column.name, "dropped", _text(column), "", is_breaking=True))
        elif now.type.lower() != column.type.lower():
            differences.append(_change(now.name, "type changed", column.type, now.type, is_breaking=True))
        elif column.nullable is not None and column.nullable != now.nullable:
            differences.append(_change(now.name, "nullability changed", _text(column), _text(now), is_breaking=True))
    for key, column in after.items():
        if key not in before:
            is_breaking = column.nullable is False
            differences.append(_change(column.name, "added", "", _text(column), is_breaking=is_breaking))
    return tuple(differences)


def change_table(differences: Iterable[ColumnChange]) -> dg.TableMetadataValue:
    """The differences as a table for the UI."""
    names = ("column", "change", "before", "after")
    return dg.MetadataValue.table(
        records=[dg.TableRecord({name: getattr(difference, name) for name in names}) for difference in differences],
        schema=dg.TableSchema(columns=[dg.TableColumn(name, "string") for name in names]),
    )


def encoded(columns: Iterable[KnownColumn]) -> list[Mapping[str, object]]:
    """The columns as JSON."""
    return [{"name": column.name, "type": column.type, "nullable": column.nullable} for column in columns]


def decoded(value: object) -> tuple[KnownColumn, ...] | None:
    """The columns that :func:`encoded` returned; None if ``value`` is something else."""
    items = json.loads(value) if isinstance(value, str) else value
    if not isinstance(items, Sequence):
        return None
    return tuple(KnownColumn(name=column["name"], type=column["type"], nullable=column["nullable"]) for column in items)


def _change(column: str, change: str, before: str, after: str, *, is_breaking: bool) -> ColumnChange:
    return ColumnChange(column=column, change=change, before=before, after=after, is_breaking=is_breaking)


def _text(column: KnownColumn) -> str:
    return column.type + (" NOT NULL" if column.nullable is False else "")
