"""Predicates as Spark columns. Room: spark. The SQL text itself is made by
:mod:`cm_delta_dagster.protocol.predicates`."""

from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates import (
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
    conjuncts,
    quote_column,
    to_sql,
)
from cm_delta_dagster.protocol.schema import DOUBLE, FLOAT, DataType, StructType, walk_types
from cm_delta_dagster.spark.columns import char_width, stored_path
from cm_delta_dagster.spark.schema import sql_type

_Op = ComparisonOperator


def to_column(predicate: Predicate, schema: StructType) -> Column:
    """The predicate as a boolean column, NULL where SQL says NULL.

    Raises:
        InvalidArgumentError: a column that ``schema`` does not have.
    """
    for column in sorted(columns_of(predicate)):
        if schema.field(column_path(column)[0]) is None:
            names = ", ".join(schema.names)
            raise InvalidArgumentError(
                f"The condition names column {column!r}, which the table does not have; its columns are {names}."
            )
    return F.expr(to_sql(_kept_from_files(predicate, schema)))


def holds(predicate: Predicate, schema: StructType) -> Column:
    """True where the predicate is true, false where it is false or NULL."""
    return F.coalesce(to_column(predicate, schema), F.lit(False))


def on_stored_columns(
    predicate: Predicate, schema: StructType, stored: StructType, *, only: frozenset[str]
) -> Column | None:
    """The parts of the predicate that can be asked of the columns as files hold them; None if there is none.

    Args:
        schema: the table's data columns.
        stored: what is stored for each of them.
        only: lower-cased top-level columns; parts that mention none of them are left out.
    """
    found = []
    for part in conjuncts(predicate):
        if any(column_path(column)[0].lower() in only for column in columns_of(part)):
            translated = _translated(part, schema, stored)
            if translated is not None:
                found.append(translated)
    return F.expr(to_sql(_kept_from_files(And(tuple(found)), stored))) if found else None


def _kept_from_files(predicate: Predicate, schema: StructType, *, negated: bool = False) -> Predicate:
    """The same predicate, in a form whose dangerous parts Spark does not hand to its Parquet reader.

    That reader takes the bounds and dictionaries of files at their word, in which NaN, the greatest number, may be missing,
    and -0.0 and 0.0, which are equal, are two.
    """
    match predicate:
        case And(parts) | Or(parts):
            return type(predicate)(tuple(_kept_from_files(part, schema, negated=negated) for part in parts))
        case Not(part):
            return Not(_kept_from_files(part, schema, negated=True))
        case Comparison(column=column) | In(column=column):
            floating = _floating_type(column, schema)
            if floating is None or not (negated or _is_dangerous(predicate)):
                return predicate
            name = quote_column(column_path(column))
            unchanged = f"nanvl({name}, CAST('NaN' AS {sql_type(floating)}))"
            return Opaque(unchanged + to_sql(predicate).removeprefix(name), frozenset((column,)))
        case Opaque(sql=sql, columns=columns) if _mentions_floats(columns, schema):
            return Opaque(f"nanvl(CAST(({sql}) AS DOUBLE), 0D) = 1D", columns)
        case _:
            return predicate


def _floating_type(column: str, schema: StructType) -> DataType | None:
    found: DataType = schema
    for segment in column_path(column):
        item = found.field(segment) if isinstance(found, StructType) else None
        if item is None:
            return None
        found = item.type
    return found if found in (FLOAT, DOUBLE) else None


def _mentions_floats(columns: frozenset[str] | None, schema: StructType) -> bool:
    """Whether a text over these columns, all of the table for None, may compare floating point numbers."""
    top = None if columns is None else {column_path(column)[0].lower() for column in columns}
    kinds = (item.type for item in schema.fields if top is None or item.name.lower() in top)
    return any(found in (FLOAT, DOUBLE) for kind in kinds for found in walk_types(kind))


def _is_dangerous(leaf: Comparison | In) -> bool:
    if isinstance(leaf, Comparison) and leaf.operator in (_Op.GT, _Op.GE, _Op.NE):
        return True
    values = leaf.values if isinstance(leaf, In) else (leaf.value,)
    return any(value is not None and (value == 0 or value != value) for value in values)


def _translated(predicate: Predicate, schema: StructType, stored: StructType) -> Predicate | None:
    match predicate:
        case Comparison() | In() | IsNull() | IsNotNull() | StartsWith():
            path = column_path(predicate.column)
            item = schema.field(path[0])
            inside = stored_path(path, schema, stored)
            # Files may hold a char(n) without its blanks, which the condition speaks of.
            if item is None or inside is None or char_width(item):
                return None
            return replace(predicate, column=quote_column(inside))
        case And(parts) | Or(parts):
            translated = [_translated(part, schema, stored) for part in parts]
            known = [part for part in translated if part is not None]
            return type(predicate)(tuple(known)) if len(known) == len(parts) else None
        case Not(part):
            inner = _translated(part, schema, stored)
            return None if inner is None else Not(inner)
        case _:
            return None
