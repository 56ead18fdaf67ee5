"""Predicates as Spark columns. :mod:`cm_delta_dagster.protocol.predicates.predicates` builds the SQL text."""

from dataclasses import replace
from functools import reduce
from operator import and_

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicates import (
    And,
    Comparison,
    ComparisonOperator,
    In,
    IsNotNull,
    IsNull,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
    column_path,
    columns_of,
    conjunction,
    conjuncts,
    fold,
    leaves,
    parts_of,
    quote_column,
    to_sql,
    with_parts,
)
from cm_delta_dagster.protocol.schema.char_types import char_widths
from cm_delta_dagster.protocol.schema.types import DOUBLE, FLOAT, DataType, StructType, walk_types
from cm_delta_dagster.spark.expressions.columns import stored_path
from cm_delta_dagster.spark.expressions.large_predicates import spark_sql
from cm_delta_dagster.spark.expressions.schema import sql_type
from cm_delta_dagster.spark.library import Column, F

_Op = ComparisonOperator


def to_column(predicate: Predicate, schema: StructType) -> Column:
    """The predicate as a boolean column, NULL where SQL gives NULL.

    Raises:
        InvalidArgumentError: a column that ``schema`` does not have.
    """
    for column in sorted(columns_of(predicate)):
        if schema.field(column_path(column)[0]) is None:
            names = ", ".join(schema.names)
            raise InvalidArgumentError(
                f"The condition names column {column!r}, which the table does not have; its columns are {names}."
            )
    parts = conjuncts(predicate)
    columns: list[Column] = [
        part.expression for part in parts if isinstance(part, Opaque) and part.expression is not None
    ]
    texts = [part for part in parts if not (isinstance(part, Opaque) and part.expression is not None)]
    if texts or not columns:
        columns.insert(0, F.expr(spark_sql(_not_pushed_down(conjunction(texts), schema))))
    return reduce(and_, columns)


def holds(predicate: Predicate, schema: StructType) -> Column:
    """True where the predicate is true, false where it is false or NULL."""
    return F.coalesce(to_column(predicate, schema), F.lit(False))


def on_stored_columns(
    predicate: Predicate, schema: StructType, stored: StructType, *, only: frozenset[str]
) -> Column | None:
    """A Spark condition with the parts of ``predicate`` that can be evaluated on the columns of files; None if there are none.

    Args:
        schema: the table's data columns.
        stored: the columns as they are stored in files.
        only: lower-cased top-level columns; parts that mention none of them are left out.
    """
    translated_parts = []
    for part in conjuncts(predicate):
        if any(column_path(column)[0].lower() in only for column in columns_of(part)):
            translated = _translated(part, schema, stored)
            if translated is not None:
                translated_parts.append(translated)
    return F.expr(spark_sql(_not_pushed_down(And(tuple(translated_parts)), stored))) if translated_parts else None


def _not_pushed_down(predicate: Predicate, schema: StructType) -> Predicate:
    """The same predicate, in a form whose unsafe parts Spark does not push down to its Parquet reader.

    That reader trusts the bounds and dictionaries in files. They may omit NaN, which Spark sorts above every other number,
    and they distinguish -0.0 from 0.0, which are equal.
    """
    # Inside a NOT every comparison of floating point numbers is unsafe.
    pending: list[tuple[Predicate, bool, bool]] = [(predicate, False, False)]
    values: list[Predicate] = []
    while pending:
        node, negated, has_values = pending.pop()
        if not isinstance(node, And | Or | Not):
            values.append(_leaf_not_pushed_down(node, schema, negated=negated))
        elif has_values:
            start = len(values) - len(parts_of(node))
            values[start:] = [with_parts(node, values[start:])]
        else:
            pending.append((node, negated, True))
            inside = negated or isinstance(node, Not)
            pending.extend((part, inside, False) for part in reversed(parts_of(node)))
    return values[0]


def _leaf_not_pushed_down(leaf: Predicate, schema: StructType, *, negated: bool) -> Predicate:
    match leaf:
        case Comparison(column=column) | In(column=column):
            floating = _floating_type(column, schema)
            if floating is None or not (negated or _is_unsafe(leaf)):
                return leaf
            name = quote_column(column_path(column))
            unchanged = f"nanvl({name}, CAST('NaN' AS {sql_type(floating)}))"
            return Opaque(unchanged + to_sql(leaf).removeprefix(name), frozenset((column,)))
        case Opaque(sql=sql, columns=columns) if _mentions_floats(columns, schema):
            return Opaque(f"nanvl(CAST(({sql}) AS DOUBLE), 0D) = 1D", columns)
        case _:
            return leaf


def _floating_type(column: str, schema: StructType) -> DataType | None:
    data_type: DataType = schema
    for segment in column_path(column):
        item = data_type.field(segment) if isinstance(data_type, StructType) else None
        if item is None:
            return None
        data_type = item.type
    return data_type if data_type in (FLOAT, DOUBLE) else None


def _mentions_floats(columns: frozenset[str] | None, schema: StructType) -> bool:
    """Whether a text over these columns, all of the table for None, may compare floating point numbers."""
    top = None if columns is None else {column_path(column)[0].lower() for column in columns}
    kinds = (item.type for item in schema.fields if top is None or item.name.lower() in top)
    return any(inner in (FLOAT, DOUBLE) for kind in kinds for inner in walk_types(kind))


def _is_unsafe(leaf: Comparison | In) -> bool:
    if isinstance(leaf, Comparison) and leaf.operator in (_Op.GT, _Op.GE, _Op.NE):
        return True
    values = leaf.values if isinstance(leaf, In) else (leaf.value,)
    return any(value is not None and (value == 0 or value != value) for value in values)


def _translated(predicate: Predicate, schema: StructType, stored: StructType) -> Predicate | None:
    translated: dict[int, Predicate] = {}
    for leaf in leaves(predicate):
        translated_leaf = _translated_leaf(leaf, schema, stored)
        if translated_leaf is None:
            return None
        translated[id(leaf)] = translated_leaf
    return fold(predicate, lambda leaf: translated[id(leaf)], with_parts)


def _translated_leaf(leaf: Predicate, schema: StructType, stored: StructType) -> Predicate | None:
    if not isinstance(leaf, Comparison | In | IsNull | IsNotNull | StartsWith):
        return None
    path = column_path(leaf.column)
    item = schema.field(path[0])
    inside = stored_path(path, schema, stored)
    # Files may store a char(n) without its blanks, but the condition is on the padded value.
    if item is None or inside is None or char_widths(item) is not None:
        return None
    return replace(leaf, column=quote_column(inside))
