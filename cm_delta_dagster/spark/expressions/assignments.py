"""Assignments of row changes: ``SET column = value`` and the values of an INSERT, as columns of the table's types.

A value is cast wherever Spark has an ANSI cast: a value that the type cannot hold is an error, never NULL. Structs are matched by
the names of their fields. A nested field is set by rebuilding the struct around it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from cm_delta_dagster.errors import SchemaMismatchError
from cm_delta_dagster.protocol.predicates.assigned_paths import assignment_trees, type_at
from cm_delta_dagster.protocol.schema.evolution import fits
from cm_delta_dagster.protocol.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from cm_delta_dagster.spark.expressions.align import check_assignable, converted
from cm_delta_dagster.spark.expressions.schema import quoted, same_shape, sql_type
from cm_delta_dagster.spark.library import Column, F, SparkSession, pyspark_errors
from cm_delta_dagster.spark.session.query_logs import without_query_logs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assignment:
    """A value for the column at ``path``, spelled as in the schema of the table; ``data_type`` is that of ``value``."""

    path: tuple[str, ...]
    value: Column
    data_type: DataType


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoreRules:
    """How values are stored.

    Attributes:
        session: knows which casts exist.
        fills: fields of structs that a value lacks become NULL; otherwise they are an error.
    """

    session: SparkSession
    fills: bool


def assigned_columns(
    assignments: Iterable[Assignment], schema: StructType, *, alias: str, rules: StoreRules
) -> dict[str, Column]:
    """The new value of each top-level column that an assignment changes.

    Args:
        alias: of the table, to read the fields that stay.
        rules: how values are stored.

    Raises:
        InvalidArgumentError: two assignments to the same column, or to a struct and a field of it.
        SchemaMismatchError: a value whose type cannot be stored in the column.
    """
    trees = assignment_trees((assignment.path, assignment) for assignment in assignments)
    columns: dict[str, Column] = {}
    for name, tree in trees.items():
        field = schema.field(name)
        assert field is not None
        if isinstance(tree, Assignment):
            columns[name] = stored_value(tree.value, tree.data_type, field.type, path=name, rules=rules)
        else:
            old = F.col(f"{quoted(alias)}.{quoted(name)}")
            columns[name] = _value(tree, field.type, old, name, rules=rules)
    return columns


def with_kept_fields(new: Column, offered: DataType, old: Column, present: DataType) -> Column:
    """``new`` of type ``offered``, with the fields of ``old`` of type ``present`` that it lacks.

    A struct that lacks fields is NULL where ``old`` is NULL too. Otherwise it has the fields of both, NULL where a struct is NULL.
    """
    if (
        not isinstance(offered, StructType)
        or not isinstance(present, StructType)
        or not _lacks_fields(offered, present)
    ):
        return new
    fields: list[Column] = []
    for item in present.fields:
        have, kept = offered.field(item.name), old.getField(item.name)
        value = kept if have is None else with_kept_fields(new.getField(have.name), have.type, kept, item.type)
        fields.append(value.alias(item.name))
    return F.when(new.isNotNull() | old.isNotNull(), F.struct(*fields))


def _lacks_fields(offered: StructType, present: StructType) -> bool:
    """Whether ``offered``, or a struct in it that is not in an array or map, lacks a field of ``present``."""
    for item in present.fields:
        have = offered.field(item.name)
        if have is None:
            return True
        if (
            isinstance(have.type, StructType)
            and isinstance(item.type, StructType)
            and _lacks_fields(have.type, item.type)
        ):
            return True
    return False


def check_constants(assignments: Iterable[Assignment], schema: StructType, session: SparkSession) -> None:
    """Evaluate the assigned constants that may not fit their columns, so that they are refused even if they change no row.

    Raises Spark's error for the first one that does not fit.
    """
    for assignment in assignments:
        want = type_at(assignment.path, schema)
        if fits(assignment.data_type, want):
            continue
        value = converted(assignment.value, assignment.data_type, want, ".".join(assignment.path))
        try:
            with without_query_logs():
                rows = session.sql("SELECT 1 FROM VALUES (1)").select(value)
                rows.schema  # noqa: B018 - Spark Connect analyses here.
        except pyspark_errors.AnalysisException:
            continue  # It refers to columns.
        rows.collect()


_Tree: TypeAlias = "Assignment | dict[str, _Tree]"


def _value(tree: _Tree, want: DataType, old: Column, path: str, *, rules: StoreRules) -> Column:
    if isinstance(tree, Assignment):
        return stored_value(tree.value, tree.data_type, want, path=path, rules=rules)
    assert isinstance(want, StructType)
    fields: list[Column] = []
    for item in want.fields:
        value = old.getField(item.name)
        if item.name in tree:
            value = _value(tree[item.name], item.type, value, f"{path}.{item.name}", rules=rules)
        fields.append(value.alias(item.name))
    return F.struct(*fields)


def stored_value(value: Column, have: DataType, want: DataType, *, path: str, rules: StoreRules) -> Column:
    """``value`` of type ``have`` as a value of type ``want``.

    Raises:
        SchemaMismatchError: the type cannot be stored, or structs have other fields.
    """
    if same_shape(have, want):
        return value
    match have, want:
        case StructType(), StructType():
            _check_fields(have, want, path, rules=rules)
            fields = [_field(value, item, have, path, rules=rules).alias(item.name) for item in want.fields]
            return F.when(value.isNotNull(), F.struct(*fields))
        case ArrayType(), ArrayType():
            return F.transform(
                value,
                lambda element: stored_value(
                    element, have.element_type, want.element_type, path=f"{path}.element", rules=rules
                ),
            )
        case MapType(), MapType():
            # Keys first: transform_keys fails on duplicate keys, so that no entry is lost silently.
            keyed = value
            if not same_shape(have.key_type, want.key_type):
                keyed = F.transform_keys(
                    value,
                    lambda key, _: stored_value(key, have.key_type, want.key_type, path=f"{path}.key", rules=rules),
                )
            return F.transform_values(
                keyed,
                lambda _, entry: stored_value(
                    entry, have.value_type, want.value_type, path=f"{path}.value", rules=rules
                ),
            )
    check_assignable(rules.session, have, want, path)
    return converted(value, have, want, path)


def _field(value: Column, item: StructField, have: StructType, path: str, *, rules: StoreRules) -> Column:
    offered = have.field(item.name)
    if offered is None:
        return F.lit(None).cast(sql_type(item.type))
    inner = value.getField(offered.name)
    return stored_value(inner, offered.type, item.type, path=f"{path}.{item.name}", rules=rules)


def _check_fields(have: StructType, want: StructType, path: str, *, rules: StoreRules) -> None:
    extra = [item.name for item in have.fields if want.field(item.name) is None]
    missing = [] if rules.fills else [item.name for item in want.fields if have.field(item.name) is None]
    if extra or missing:
        what = f"has the field {extra[0]!r}, which it lacks" if extra else f"lacks its field {missing[0]!r}"
        raise SchemaMismatchError(
            f"The struct that is assigned to {path!r} {what}. Nothing was written. Assign structs with the fields "
            f"{', '.join(want.names)}, or merge the schema."
        )
