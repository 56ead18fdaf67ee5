"""Conversion of pyspark Columns to predicates, on Spark classic and Spark Connect.

A Column that has an equivalent SQL text is parsed from that text; the predicate is then used to select files and to detect
conflicts. Any other Column becomes an opaque predicate, which only Spark can evaluate.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo
from functools import reduce
from operator import or_
from typing import Any

from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicates import Opaque, Predicate, leaves, literal_sql, quote_column
from cm_delta_dagster.protocol.predicates.sql_checks import varying_functions
from cm_delta_dagster.protocol.predicates.sql_functions import CLOCK, VARYING
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.predicates.timestamps import DeferredZone
from cm_delta_dagster.protocol.schema.types import TIMESTAMP, TIMESTAMP_NTZ, StructType, walk_types
from cm_delta_dagster.spark.expressions.schema import to_spark
from cm_delta_dagster.spark.library import Column, DataFrame, F, SparkSession, py4j_errors, pyspark, pyspark_errors
from cm_delta_dagster.spark.session.errors import spark_errors
from cm_delta_dagster.spark.session.session import is_connect, session_time_zone

_INFIX = frozenset(("=", "==", "<", "<=", ">", ">=", "<=>", "and", "or", "+", "-", "*", "/", "%"))
_NOT = ("!", "not")
_NOT_OF_ONE_ROW = ("INVALID_WHERE_CONDITION", "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE", "UNSUPPORTED_GENERATOR")
"""Spark's errors for a condition that calls an aggregate function, a window function or a generator."""
_CALL = re.compile(r"\b(\w+)\(")


class _NotTranslatedError(Exception):
    """A part of the Column has no equivalent SQL text."""


def column_predicate(column: Column, schema: StructType) -> Predicate:
    """The predicate equivalent to ``column`` over a table with this schema."""
    try:
        return parse_predicate(_text(column), schema)
    except (_NotTranslatedError, CmDeltaError, py4j_errors.Py4JError, AttributeError, TypeError, RecursionError):
        # The internals of Columns differ between releases of pyspark; Spark itself can always evaluate the Column.
        return Opaque(_description(column), expression=column)


def column_text(column: Column) -> str | None:
    """SQL text that is equivalent to ``column``, which Spark understands; None if there is none."""
    try:
        return _expr_text(column) or _text(column)
    except (_NotTranslatedError, CmDeltaError, py4j_errors.Py4JError, AttributeError, TypeError, RecursionError):
        return None


def check_repeatable_column(column: Column, scope: DataFrame) -> None:
    """Refuse a Column over ``scope`` whose value may differ between two evaluations.

    Raises:
        InvalidArgumentError: the column is not deterministic, or ``scope`` has no such columns.
    """
    varying = _called(_description(column))
    if varying:
        raise InvalidArgumentError(_varies(varying))
    if is_connect(scope.sparkSession):
        return
    if not all(bool(item.deterministic()) for item in _items(_analysed([column], scope))):
        raise InvalidArgumentError(
            f"The expression {_description(column)!r} is not deterministic, and a write evaluates its expressions more than once, "
            "each time with another value. Nothing was written. Compute the values before, e.g. into a column of the source."
        )


def check_row_condition(column: Column, scope: DataFrame, *, where: str = "an expression of a write") -> None:
    """Refuse a condition that is not true or false for each row of ``scope``. Raises as :func:`check_row_values`."""
    _check_rows(lambda: scope.where(column), where)


def check_row_values(columns: Sequence[Column], scope: DataFrame, *, where: str) -> None:
    """Refuse expressions that do not have one value for each row of ``scope``: aggregates, window functions and generators.

    Args:
        where: what the expressions are part of, for messages.

    Raises:
        InvalidArgumentError: an expression is of that kind, or ``scope`` lacks a column of it.
    """
    _check_rows(lambda: scope.where(reduce(or_, [column.isNull() for column in columns])), where)


def _check_rows(filtered: Callable[[], DataFrame], where: str) -> None:
    with spark_errors(f"analysing {where}"):
        try:
            filtered().schema  # noqa: B018 - Spark Connect analyses here.
        except pyspark_errors.AnalysisException as error:
            if not str(error.getCondition()).startswith(_NOT_OF_ONE_ROW):
                raise
            reason = str(error).partition(" SQLSTATE")[0].strip()
            raise InvalidArgumentError(
                "A write evaluates its expressions for each row by itself, so they cannot call aggregate functions, window "
                "functions or functions that return several rows. Nothing was written. Compute the values before, e.g. into a "
                "column of the source. "
                f"({reason})"
            ) from error


def are_repeatable(columns: Sequence[Column], scope: DataFrame) -> list[bool]:
    """Whether each Column over ``scope`` has the same value in each evaluation."""
    known = [not _called(_description(column)) for column in columns]
    if is_connect(scope.sparkSession):
        return known
    named = [column.alias(f"v{number}") for number, column in enumerate(columns)]
    deterministic = [bool(item.deterministic()) for item in _items(_analysed(named, scope))]
    return [left and right for left, right in zip(known, deterministic, strict=True)]


def _analysed(columns: Sequence[Column], scope: DataFrame) -> Any:
    """The JVM's expressions of a projection. Raises InvalidArgumentError if ``scope`` has no such columns."""
    with spark_errors("analysing an expression of a write"):
        frame: Any = scope.select(*columns)
        return frame._jdf.queryExecution().analyzed().expressions()


def check_repeatable_text(text: str, names: frozenset[str]) -> None:
    """Refuse SQL text that calls a function whose value differs from one evaluation to the next.

    Args:
        names: lower-cased names of columns.

    Raises:
        InvalidArgumentError: names the functions.
    """
    varying = varying_functions(text, names)
    if varying:
        raise InvalidArgumentError(_varies(varying))


def _varies(functions: Sequence[str]) -> str:
    calls = ", ".join(f"{name}()" for name in functions)
    return (
        f"The condition calls {calls}, and a write evaluates its condition more than once, each time with another "
        "value. Nothing was written. Compute the value before the call and write it as a literal, or store it in a "
        "column of the table."
    )


def check_repeatable(predicate: Predicate, schema: StructType, session: SparkSession) -> None:
    """Refuse a condition whose value may differ between two evaluations, because a write evaluates it more than once.

    Raises:
        InvalidArgumentError: the condition is not deterministic; the message names the function if it is known.
    """
    names = frozenset(name.lower() for name in schema.names)
    for leaf in leaves(predicate):
        if not isinstance(leaf, Opaque):
            continue
        varying = varying_functions(leaf.sql, names) if leaf.expression is None else _called(leaf.sql)
        if varying:
            raise InvalidArgumentError(_varies(varying))
        if not is_connect(session) and (leaf.expression is not None or leaf.columns is None):
            _check_deterministic(leaf, schema, session)


def check_time_zone(
    predicate: Predicate | None, schema: StructType, *, zone: tzinfo | None, session: SparkSession
) -> None:
    """Refuse a condition of which Spark would evaluate a part in another time zone than ``zone``.

    Spark takes the session's time zone for times without one, and for functions such as ``hour``.

    Args:
        zone: time zone of times in the condition that state none; None for that of the session.

    Raises:
        InvalidArgumentError: a part that only Spark can evaluate may depend on the zone, and the session has another one.
    """
    if predicate is None or zone is None or isinstance(zone, DeferredZone):
        return
    part = next((leaf for leaf in leaves(predicate) if isinstance(leaf, Opaque) and _may_need_zone(leaf, schema)), None)
    if part is None or str(zone) == str(own := session_time_zone(session)):
        return
    raise InvalidArgumentError(
        f"Only Spark can evaluate the part {part.sql.strip()!r} of the condition, and it would take times without a time zone in "
        f"the session's zone {own}, not in {zone}, the zone of the call. Nothing was read or written. Set "
        f"spark.sql.session.timeZone to {zone}, or compare the column itself with a literal that states its zone."
    )


def _may_need_zone(leaf: Opaque, schema: StructType) -> bool:
    columns = leaf.columns
    mentioned = [item for item in schema.fields if columns is None or {item.name, quote_column((item.name,))} & columns]
    return any(kind in (TIMESTAMP, TIMESTAMP_NTZ) for item in mentioned for kind in walk_types(item.type))


def _called(description: str) -> list[str]:
    names = (match[1] for match in _CALL.finditer(description))
    return list(dict.fromkeys(name for name in names if name.lower() in VARYING | CLOCK))


def _check_deterministic(leaf: Opaque, schema: StructType, session: SparkSession) -> None:
    """Check by Spark's analysis, which also covers user-defined functions."""
    column = F.expr(leaf.sql) if leaf.expression is None else leaf.expression
    with spark_errors("analysing the condition of a write"):
        frame: Any = session.createDataFrame([], to_spark(schema)).where(column)
        plan = frame._jdf.queryExecution().analyzed()
    try:
        deterministic = bool(plan.condition().deterministic())
    except py4j_errors.Py4JError:
        return  # The plan has another form, e.g. because of a subquery in the condition.
    if not deterministic:
        raise InvalidArgumentError(
            f"The condition {leaf.sql.strip()!r} is not deterministic, and a write evaluates its condition more than once, each "
            "time with another value. Nothing was written. Compute the values before, e.g. into a column of the table."
        )


def _description(column: Column) -> str:
    """Text of a Column for messages and the history of the table."""
    try:
        return str(_to_expression(_classic_node(column)).sql())
    except (py4j_errors.Py4JError, AttributeError, TypeError):
        return " ".join(str(column).split())


def _expr_text(column: Any) -> str | None:
    """The text of ``F.expr(text)``; None for another Column."""
    if type(column).__module__.startswith("pyspark.sql.connect"):
        return str(column._expr._expr) if type(column._expr).__name__ == "SQLExpression" else None
    node = _classic_node(column)
    return str(node.expression()) if str(node.getClass().getSimpleName()) == "SqlExpression" else None


def _text(column: Column) -> str:
    if type(column).__module__.startswith("pyspark.sql.connect"):
        expression: Any = column._expr
        return _connect_text(expression)
    return _classic_text(_classic_node(column))


def _classic_node(column: Any) -> Any:
    """The JVM's tree of a Column. Raises AttributeError or TypeError on Spark Connect, which has none."""
    return column._jc.node()


def _classic_text(node: Any) -> str:
    """The text of a node of Spark's own tree of a Column (``org.apache.spark.sql.internal.ColumnNode``)."""
    match str(node.getClass().getSimpleName()):
        case "UnresolvedAttribute":
            return quote_column(tuple(_items(node.nameParts())))
        case "Literal":
            return str(_to_expression(node).sql())
        case "UnresolvedFunction" if not node.isDistinct() and not node.isUserDefinedFunction():
            return _call_text(str(node.functionName()), [_classic_text(item) for item in _items(node.arguments())])
        case _:
            raise _NotTranslatedError


def _to_expression(node: Any) -> Any:
    jvm: Any = pyspark.SparkContext._jvm
    return (
        getattr(jvm.org.apache.spark.sql.classic, "ColumnNodeToExpressionConverter$").__getattr__("MODULE$").apply(node)
    )


def _items(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(position) for position in range(sequence.size()))


def _connect_text(expression: Any) -> str:
    """The text of an expression of Spark Connect's Python client."""
    match type(expression).__name__:
        case "ColumnReference":
            return str(expression._unparsed_identifier)
        case "LiteralExpression":
            return literal_sql(_connect_value(expression))
        case "UnresolvedFunction" if not expression._is_distinct:
            return _call_text(str(expression._name), [_connect_text(item) for item in expression._args])
        case _:
            raise _NotTranslatedError


def _connect_value(expression: Any) -> Any:
    """The value of a literal whose Python form is its value; dates and times are stored as numbers, so they are not translated."""
    kind = type(expression._dataType).__name__
    if kind not in (
        "NullType",
        "BooleanType",
        "IntegerType",
        "LongType",
        "DoubleType",
        "DecimalType",
        "StringType",
        "BinaryType",
    ):
        raise _NotTranslatedError
    return expression._value


def _call_text(name: str, arguments: Sequence[str]) -> str:
    match name, arguments:
        case _, [left, right] if name in _INFIX:
            return f"({left} {name} {right})"
        case _, [only] if name in _NOT:
            return f"(NOT {only})"
        case "isNull" | "isnull", [only]:
            return f"({only} IS NULL)"
        case "isNotNull" | "isnotnull", [only]:
            return f"({only} IS NOT NULL)"
        case "in", [value, *listed] if listed:
            return f"({value} IN ({', '.join(listed)}))"
        case "startsWith" | "startswith", [value, prefix]:
            return f"startswith({value}, {prefix})"
        case "like", [value, pattern]:
            return f"({value} LIKE {pattern})"
    if not name.isidentifier():
        raise _NotTranslatedError
    return f"{name}({', '.join(arguments)})"
