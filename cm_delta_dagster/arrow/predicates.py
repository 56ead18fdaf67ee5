"""Evaluation of predicates over Arrow batches, with the semantics of ``protocol.predicates``.

A predicate is compiled once for a schema and evaluates each batch to true, false or null. Compilation refuses a comparison for
which Spark would convert the column or the value in a way that depends on its settings, or that may round, because the result
might differ from Spark's.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.arrow.scalar_values import scalar_values
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.normal_forms import with_fewer_comparisons
from cm_delta_dagster.protocol.predicates.predicates import (
    AlwaysTrue,
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
)
from cm_delta_dagster.protocol.predicates.scalar_expressions import scalar_expression
from cm_delta_dagster.protocol.predicates.scalars import Scalar, can_fail
from cm_delta_dagster.protocol.schema.char_types import COLLATIONS_METADATA, char_width
from cm_delta_dagster.protocol.schema.types import (
    BOOLEAN,
    BYTE,
    DOUBLE,
    FLOAT,
    INTEGER,
    INTEGERS,
    LONG,
    SHORT,
    STRING,
    VOID,
    DataType,
    DecimalType,
    StructField,
    StructType,
    data_type_text,
)
from cm_delta_dagster.protocol.statistics.literals import ARROW_COMPARISONS, moment_literal

Columns = Callable[[str], pa.Array]
"""The values of a top-level column of the batch, by its name in the table."""

_Op = ComparisonOperator
_Evaluate = Callable[[Columns, int], pa.BooleanArray]
_Test = Callable[[pa.Array], pa.BooleanArray]

_FLOATS: frozenset[DataType] = frozenset((FLOAT, DOUBLE))
_EXACT_IN_DOUBLE = 2**53
_EXACT = pa.decimal256(76, 38)
_DIGITS: Mapping[DataType, int] = {BYTE: 3, SHORT: 5, INTEGER: 10, LONG: 20}
"""Digits of the decimal as which Spark compares an integer column."""
_MOST_DIGITS = 38
_LONG_LIST = 8
"""Lists with at least this many values are looked up instead of compared one by one."""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A compiled predicate.

    Attributes:
        columns: top-level columns that it uses.
        answer: true, false or null for each row; SQL keeps the rows for which it is true.
    """

    columns: tuple[str, ...]
    answer: _Evaluate


def row_filter(predicate: Predicate, schema: StructType) -> RowFilter:
    """``predicate`` for rows of ``schema``.

    Raises:
        InvalidArgumentError: it names a column that the schema does not have, or only Spark can evaluate it.
    """
    names = dict.fromkeys(_resolved(column, schema)[0][0] for column in sorted(columns_of(predicate)))
    steps = tuple(_steps(with_fewer_comparisons(predicate), schema))
    return RowFilter(tuple(names), lambda columns, rows: _run(steps, columns, rows))


_Combination = Callable[[pa.BooleanArray, pa.BooleanArray], pa.BooleanArray]


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of a predicate in postfix form: push the result of a leaf, or combine or negate the last results."""

    leaf: _Evaluate | None = None
    combine: _Combination | None = None


def _steps(predicate: Predicate, schema: StructType) -> Iterator[_Step]:
    """The steps that evaluate the predicate. Not recursive, because predicates may have ten thousand levels."""
    pending: list[Predicate | _Step] = [predicate]
    while pending:
        node = pending.pop()
        match node:
            case _Step():
                yield node
            case And(parts) | Or(parts) if parts:
                step = _Step(combine=pc.and_kleene if isinstance(node, And) else pc.or_kleene)
                # The first part, then each other part followed by its combination, to keep few results at a time.
                for part in reversed(parts[1:]):
                    pending += (step, part)
                pending.append(parts[0])
            case Not(part):
                pending += (_Step(), part)
            case _:
                yield _Step(leaf=_compiled(node, schema))


def _run(steps: Sequence[_Step], columns: Columns, rows: int) -> pa.BooleanArray:
    answers: list[pa.BooleanArray] = []
    for step in steps:
        if step.leaf is not None:
            answers.append(step.leaf(columns, rows))
        elif step.combine is not None:
            right = answers.pop()
            answers[-1] = step.combine(answers[-1], right)
        else:
            answers[-1] = pc.invert(answers[-1])
    return answers[0]


def _compiled(leaf: Predicate, schema: StructType) -> _Evaluate:
    match leaf:
        case AlwaysTrue() | And():
            return lambda columns, rows: _all(True, rows)
        case Or():
            return lambda columns, rows: _all(False, rows)
        case Comparison() | In() | IsNull() | IsNotNull() | StartsWith():
            path, data_type = _resolved(leaf.column, schema)
            item = schema.field(path[0]) if len(path) == 1 else None
            test = _test(leaf, data_type, char_width(item) if item is not None else 0)
            return lambda columns, rows: test(_values(columns, path))
        case Opaque() if (scalar := _scalar_condition(leaf, schema)) is not None:
            return lambda columns, rows: scalar_values(scalar, columns, rows)
    sql = leaf.sql if isinstance(leaf, Opaque) else repr(leaf)
    if isinstance(leaf, Opaque) and leaf.needs_zone:
        raise InvalidArgumentError(
            f"The condition {sql!r} has a time without a time zone, and no Spark session runs whose time zone applies. Write the "
            "zone, as in TIMESTAMP '2026-01-31 12:00:00Z', or give the read or the connection a time zone."
        )
    if isinstance(leaf, Opaque) and leaf.disputed_zone is not None:
        raise InvalidArgumentError(
            f"The condition {sql!r} has a time before 1970 without a time zone, and the rules of {leaf.disputed_zone} at that time "
            "are not the same in Spark, Python and the operating system. Write the offset, as in TIMESTAMP '1930-01-31 "
            "12:00:00+00:20', or read through Spark."
        )
    if isinstance(leaf, Opaque) and leaf.invalid_time is not None:
        raise InvalidArgumentError(
            f"The condition {sql!r} compares with {leaf.invalid_time!r}, which is not a date or time of the calendar. Correct it."
        )
    raise InvalidArgumentError(
        f"The condition {sql!r} is SQL that only Spark can evaluate. Read through Spark, or use comparisons, IN, IS "
        "NULL, LIKE, AND, OR and NOT of columns, values and functions such as length, substring, year and coalesce."
    )


def _scalar_condition(leaf: Opaque, schema: StructType) -> Scalar | None:
    """The condition as an expression; None if its value is not certain, or can be an error that Spark may not raise.

    Text of :func:`raw_sql` may call functions of the session that have the names of built-in ones.
    """
    is_raw = leaf.columns is None or leaf.expression is not None
    if is_raw or leaf.needs_zone or leaf.disputed_zone is not None or leaf.invalid_time is not None:
        return None
    scalar = scalar_expression(leaf.sql, schema)
    return None if scalar is None or scalar.type != BOOLEAN or can_fail(scalar) else scalar


def _all(answer: bool | None, rows: int) -> pa.BooleanArray:
    return pa.repeat(pa.scalar(answer, pa.bool_()), rows)


def _resolved(column: str, schema: StructType) -> tuple[tuple[str, ...], DataType]:
    """The path of the column, spelled as in the schema, and its type."""
    data_type: DataType = schema
    path: list[str] = []
    for segment in column_path(column):
        item: StructField | None = data_type.field(segment) if isinstance(data_type, StructType) else None
        if item is None:
            raise InvalidArgumentError(
                f"The condition names column {column!r}, which the table does not have; its columns are "
                f"{', '.join(schema.names)}."
            )
        if COLLATIONS_METADATA in item.metadata:
            raise InvalidArgumentError(
                f"The condition compares column {column!r}, which has a collation, and only Spark can apply it. Read through Spark."
            )
        path.append(item.name)
        data_type = item.type
    return tuple(path), data_type


def _values(columns: Columns, path: tuple[str, ...]) -> pa.Array:
    array = columns(path[0])
    for name in path[1:]:
        array = pc.struct_field(array, [array.type.get_field_index(name)])
    return array


def _test(leaf: Predicate, data_type: DataType, width: int) -> _Test:
    """``width`` is that of a ``char(n)`` column, 0 of any other."""
    match leaf:
        case IsNull():
            return lambda array: array.is_null()
        case IsNotNull():
            return lambda array: array.is_valid()
        case StartsWith(prefix=prefix) if data_type == STRING:
            return lambda array: pc.starts_with(array, prefix)
        case In(values=values) if not _listed_exactly(values, data_type):
            raise _cannot(leaf, data_type)
        case In(values=values) if not width and (membership := _membership(values, data_type)) is not None:
            return membership
        case In(column, values):
            tests = [_test(Comparison(column, _Op.EQ, value), data_type, width) for value in values]
            return lambda array: reduce(pc.or_kleene, (test(array) for test in tests), _all(False, len(array)))
        case Comparison(value=str(text)) if width:
            # SQL compares a char(n) as if both texts ended in the same number of blanks.
            length = max(width, len(text))
            padded = _comparison(replace(leaf, value=text.ljust(length)), data_type)
            return lambda array: padded(pc.utf8_rpad(array, length))
        case Comparison():
            return _comparison(leaf, data_type)
    raise _cannot(leaf, data_type)


def _membership(values: Sequence[Any], data_type: DataType) -> _Test | None:
    """A lookup in all values, if it gives the same result as comparing them one by one; else None."""
    present = [value for value in values if value is not None]
    if len(present) < _LONG_LIST:
        return None
    literals = [_listed_literal(value, data_type) for value in present]
    known = [literal for literal in literals if literal is not None]
    if len(known) < len(literals):
        return None
    listed = pa.array([literal.as_py() for literal in known], known[0].type)
    has_null = len(present) < len(values)

    def test(array: pa.Array) -> pa.BooleanArray:
        if listed.type == pa.int64():
            array = array.cast(pa.int64()) if data_type in INTEGERS else array.view(pa.int64())
        is_member = pc.is_in(array, value_set=listed)
        unknown = pc.or_(pc.invert(is_member), array.is_null()) if has_null else array.is_null()
        return pc.if_else(unknown, pa.scalar(None, pa.bool_()), is_member)

    return test


def _listed_literal(value: Any, data_type: DataType) -> pa.Scalar | None:
    if data_type not in INTEGERS:
        return _literal(value, data_type)
    fits = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return pa.scalar(value, pa.int64()) if fits else None


def _cannot(leaf: Predicate, data_type: DataType) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The condition {leaf} on a column of type {data_type_text(data_type)} cannot be evaluated without Spark, because the "
        "answer would depend on how Spark converts one of the two. Give a value of the column's own type, or read through Spark."
    )


def _comparison(leaf: Comparison, data_type: DataType) -> _Test:
    if leaf.operator is _Op.NULL_SAFE_EQ:
        if leaf.value is None:
            return lambda array: array.is_null()
        equal = _comparison(Comparison(leaf.column, _Op.EQ, leaf.value), data_type)
        return lambda array: equal(array).fill_null(False)
    if leaf.value is None or data_type == VOID:
        return lambda array: _all(None, len(array))
    operation = ARROW_COMPARISONS[leaf.operator]
    if data_type in _FLOATS or (isinstance(leaf.value, float) and data_type in INTEGERS):
        return _float_comparison(leaf, data_type)
    if isinstance(data_type, DecimalType) or data_type in INTEGERS:
        return _number_comparison(leaf, data_type)
    literal = _literal(leaf.value, data_type)
    if literal is None:
        raise _cannot(leaf, data_type)
    if literal.type == pa.int64():
        return lambda array: operation(array.view(pa.int64()), literal)
    return lambda array: operation(array, literal)


def _number_comparison(leaf: Comparison, data_type: DataType) -> _Test:
    value, operation = leaf.value, ARROW_COMPARISONS[leaf.operator]
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _cannot(leaf, data_type)
    if isinstance(value, int) and not isinstance(data_type, DecimalType) and -(2**63) <= value < 2**63:
        literal = pa.scalar(value, pa.int64())
        return lambda array: operation(array.cast(pa.int64()), literal)
    if not _has_exact_type([value], data_type):
        raise _cannot(leaf, data_type)
    try:
        exact = pa.scalar(Decimal(value), _EXACT)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise _cannot(leaf, data_type) from error
    return lambda array: operation(_as_exact(array), exact)


def _listed_exactly(values: Sequence[Any], data_type: DataType) -> bool:
    """Whether comparing with the values one by one gives the answer of Spark, which converts a list to one type."""
    if data_type not in INTEGERS and not isinstance(data_type, DecimalType):
        return True
    floats = [value for value in values if isinstance(value, float)]
    exact = [value for value in values if isinstance(value, int | Decimal)]
    if data_type in INTEGERS and floats:
        return not exact
    # In a list, an integer has the digits of its type, not only those of its value.
    least = _DIGITS[LONG] if any(isinstance(value, int) for value in exact) else 0
    return _has_exact_type(exact, data_type, least_whole=least)


def _has_exact_type(values: Sequence[int | Decimal], data_type: DataType, *, least_whole: int = 0) -> bool:
    """Whether a decimal of Spark can hold the values of the column and ``values``; if none can, Spark rounds to compare them.

    Args:
        least_whole: digits before the point that the type has at least.
    """
    scale = data_type.scale if isinstance(data_type, DecimalType) else 0
    whole = data_type.precision - scale if isinstance(data_type, DecimalType) else _DIGITS[data_type]
    whole = max(whole, least_whole)
    for value in map(Decimal, values):
        if value and value.is_finite():
            _, digits, exponent = value.as_tuple()
            assert isinstance(exponent, int)  # It is finite.
            zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
            scale, whole = max(scale, -exponent - zeros), max(whole, value.adjusted() + 1)
    return whole + scale <= _MOST_DIGITS


def _as_exact(array: pa.Array) -> pa.Array:
    wide = array if pa.types.is_decimal(array.type) else array.cast(pa.int64()).cast(pa.decimal128(38, 0))
    return wide.cast(_EXACT)


def _float_comparison(leaf: Comparison, data_type: DataType) -> _Test:
    """Spark's order, in which NaN equals NaN and is greater than every number."""
    value = leaf.value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _cannot(leaf, data_type)
    if isinstance(value, int) and abs(value) > (2**24 if data_type == FLOAT else _EXACT_IN_DOUBLE):
        raise _cannot(leaf, data_type)
    number, operator = float(value), leaf.operator
    literal = pa.scalar(number, pa.float64())

    def compare(array: pa.Array) -> pa.BooleanArray:
        # Spark compares an integer column with a double as doubles, rounded where it must be.
        values = array.cast(pa.float64(), safe=False)
        is_nan = pc.is_nan(values)
        if not math.isnan(number):
            answer = ARROW_COMPARISONS[operator](values, literal)
            return pc.or_(answer, is_nan) if operator in (_Op.GT, _Op.GE) else answer
        if operator in (_Op.EQ, _Op.GE):
            return is_nan
        if operator in (_Op.NE, _Op.LT):
            return pc.invert(is_nan)
        answer = _all(operator is _Op.LE, len(values))
        return pc.if_else(values.is_valid(), answer, pa.scalar(None, pa.bool_()))

    return compare


def _literal(value: Any, data_type: DataType) -> pa.Scalar | None:
    """The value as a scalar of the column's type; timestamps as int64 microseconds. None for a value of another type."""
    match getattr(data_type, "name", ""):
        case "string" if isinstance(value, str):
            return pa.scalar(value, pa.string())
        case "binary" if isinstance(value, bytes):
            return pa.scalar(value, pa.binary())
        case "boolean" if isinstance(value, bool):
            return pa.scalar(value)
        case "date" if isinstance(value, date) and not isinstance(value, datetime):
            return pa.scalar(value, pa.date32())
        case "date" if isinstance(value, str):
            return _date_literal(value)
        case "timestamp" if isinstance(value, datetime) and value.tzinfo is not None:
            return moment_literal(value)
        case "timestamp_ntz" if isinstance(value, datetime) and value.tzinfo is None:
            return moment_literal(value)
    return None


def _date_literal(text: str) -> pa.Scalar | None:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return pa.scalar(day, pa.date32()) if day.isoformat() == text else None
