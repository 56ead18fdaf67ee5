"""Data skipping: which files a predicate leaves out (headings "Per-file Statistics", "Partition Value Serialization").

Room: protocol. Works on the Arrow table of ``add`` actions and never on single files. Every part of a predicate is
answered for each file with one of three: false (no row of the file satisfies it), true (every row does), or null (only
the rows can tell). What is missing, unreadable or of another type than the column is null, so that it never excludes a
file (SKIP-2).

Schema, predicate and partition columns speak of columns by their logical names; statistics and partition values are
looked up by the physical ones (COLMAP-9). Rows are not read here: what remains of the predicate is applied
by the scan.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.column_mapping import ColumnMappingMode, physical_name
from cm_delta_dagster.protocol.file_actions import partition_column
from cm_delta_dagster.protocol.parsed_statistics import ColumnPath, ParsedStatistics, parse_statistics
from cm_delta_dagster.protocol.partition_values import partition_value_array
from cm_delta_dagster.protocol.predicates import (
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
    conjuncts,
    partition_only,
)
from cm_delta_dagster.protocol.schema import DataType, DecimalType, PrimitiveType, StructField, StructType

_Op = ComparisonOperator

_NEVER = Or(())

_NEGATED = {_Op.EQ: _Op.NE, _Op.NE: _Op.EQ, _Op.LT: _Op.GE, _Op.GE: _Op.LT, _Op.GT: _Op.LE, _Op.LE: _Op.GT}

_MAX_LISTED_VALUES = 64
"""Longer IN lists are compared with a file's bounds by their least and greatest value only."""

_ORDER_METADATA = ("__COLLATIONS", "__CHAR_VARCHAR_TYPE_STRING")
"""Field metadata of strings that are not compared byte by byte: collations, and blank-padded ``char(n)``."""


def keep_mask(
    adds: pa.Table,
    predicate: Predicate,
    *,
    schema: StructType,
    partition_columns: Sequence[str],
    mapping: ColumnMappingMode = ColumnMappingMode.NONE,
) -> pa.BooleanArray:
    """One boolean a file: false only if no row of the file can satisfy the predicate (SKIP-1).

    Args:
        adds: live files, in the form of ``file_actions.ADD_SCHEMA``.
        predicate: what the query asks.
        schema: the table's schema.
        partition_columns: the table's partition columns.
        mapping: the table's column mapping.
    """
    parts = conjuncts(_negations_inwards(predicate))
    on_partitions = And(tuple(part for part in parts if partition_only(part, partition_columns)))
    on_rows = And(tuple(part for part in parts if not partition_only(part, partition_columns)))
    columns = _Columns(schema=schema, partition_columns=partition_columns, mapping=mapping)
    keep = _Evaluation(adds=adds, columns=columns, statistics=None).answer(on_partitions).fill_null(True)
    wanted = columns.with_statistics(on_rows)
    if not on_rows.parts:
        return keep
    # Parsing statistics is the dear part, so only files that their partition values keep have theirs parsed.
    kept = adds if keep.false_count == 0 else adds.filter(keep)
    statistics = parse_statistics(kept["stats"], wanted) if wanted else None
    answer = _Evaluation(adds=kept, columns=columns, statistics=statistics).answer(on_rows).fill_null(True)
    return answer if kept is adds else pc.replace_with_mask(keep, keep, answer)


def partition_matches_exactly(
    adds: pa.Table,
    predicate: Predicate,
    *,
    schema: StructType,
    partition_columns: Sequence[str],
    mapping: ColumnMappingMode = ColumnMappingMode.NONE,
) -> pa.BooleanArray:
    """One boolean a file: true only if partition values alone prove that every row satisfies the predicate."""
    columns = _Columns(schema=schema, partition_columns=partition_columns, mapping=mapping)
    evaluation = _Evaluation(adds=adds, columns=columns, statistics=None)
    return evaluation.answer(_negations_inwards(predicate)).fill_null(False)


def _negations_inwards(predicate: Predicate) -> Predicate:
    """An equivalent predicate (true for the same rows) in which NOT stands only before leaves that have no opposite."""
    match predicate:
        case And(parts):
            return And(tuple(_negations_inwards(part) for part in parts))
        case Or(parts):
            return Or(tuple(_negations_inwards(part) for part in parts))
        case Not(part):
            return _negated(part)
        case _:
            return predicate


def _negated(predicate: Predicate) -> Predicate:
    match predicate:
        case And(parts):
            return Or(tuple(_negated(part) for part in parts))
        case Or(parts):
            return And(tuple(_negated(part) for part in parts))
        case Not(part):
            return _negations_inwards(part)
        case AlwaysTrue():
            return _NEVER
        case IsNull(column):
            return IsNotNull(column)
        case IsNotNull(column):
            return IsNull(column)
        case Comparison(column, operator, value) if operator in _NEGATED:
            return Comparison(column, _NEGATED[operator], value)
        case In(column, values):
            return And(tuple(Comparison(column, _Op.NE, value) for value in values))
        case _:
            return Not(predicate)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartitionColumn:
    name: str
    type: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class _DataColumn:
    path: ColumnPath
    type: DataType


_Column: TypeAlias = _PartitionColumn | _DataColumn | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Finds what the columns of a predicate are; None for one that nothing can be concluded about."""

    schema: StructType
    partition_columns: Sequence[str]
    mapping: ColumnMappingMode

    def resolve(self, column: str) -> _Column:
        path = column_path(column)
        names: list[str] = []
        found: DataType = self.schema
        for segment in path:
            field = found.field(segment) if isinstance(found, StructType) else None
            if field is None or not _is_ordered_by_bytes(field):
                return None
            names.append(physical_name(field, self.mapping))
            found = field.type
        if isinstance(found, StructType):
            return None
        for name in self.partition_columns:
            if len(path) == 1 and name.casefold() == path[0].casefold():
                return _PartitionColumn(name=names[0], type=found)
        return _DataColumn(path=tuple(names), type=found)

    def with_statistics(self, predicate: Predicate) -> Mapping[ColumnPath, DataType]:
        """The data columns of the predicate."""
        found: dict[ColumnPath, DataType] = {}
        for column in _leaf_columns(predicate):
            resolved = self.resolve(column)
            if isinstance(resolved, _DataColumn):
                found[resolved.path] = resolved.type
        return found


def _is_ordered_by_bytes(field: StructField) -> bool:
    for key in _ORDER_METADATA:
        # varchar(n) is an ordinary string with a length limit.
        if key in field.metadata and not str(field.metadata[key]).startswith("varchar"):
            return False
    return True


def _leaf_columns(predicate: Predicate) -> list[str]:
    match predicate:
        case And(parts) | Or(parts):
            return [column for part in parts for column in _leaf_columns(part)]
        case Not(part):
            return _leaf_columns(part)
        case AlwaysTrue() | Opaque():
            return []
        case _:
            return [predicate.column]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluation:
    """Answers predicates without inner negations for all files of ``adds``; see the module about the three answers."""

    adds: pa.Table
    columns: _Columns
    statistics: ParsedStatistics | None

    def answer(self, predicate: Predicate) -> pa.BooleanArray:
        match predicate:
            case And(parts):
                return reduce(pc.and_kleene, map(self.answer, parts), self._all(True))
            case Or(parts):
                return reduce(pc.or_kleene, map(self.answer, parts), self._all(False))
            case AlwaysTrue():
                return self._all(True)
            case Opaque() | Not(Opaque()):
                return self._all(None)
            case Not(part):
                column = self.columns.resolve(part.column)  # type: ignore[union-attr]
            case _:
                column = self.columns.resolve(predicate.column)
        if isinstance(column, _PartitionColumn):
            return self._by_partition(column, predicate)
        if isinstance(column, _DataColumn) and self.statistics is not None:
            excluded = _Bounds.of(self.statistics, column).exclude(predicate)
            return pc.if_else(excluded.fill_null(False), pa.scalar(False), pa.scalar(None, pa.bool_()))
        return self._all(None)

    def _all(self, answer: bool | None) -> pa.BooleanArray:
        return pa.repeat(pa.scalar(answer, pa.bool_()), self.adds.num_rows)

    def _by_partition(self, column: _PartitionColumn, leaf: Predicate) -> pa.BooleanArray:
        texts = partition_column(self.adds, column.name)
        if isinstance(texts, pa.ChunkedArray):
            texts = texts.combine_chunks()
        # Files are many and partition values few: each value is parsed and compared once.
        encoded = pc.dictionary_encode(texts, null_encoding="encode")
        distinct = encoded.dictionary
        values = _comparable(partition_value_array(distinct, column.type), column.type)
        answers = _answer_values(values, column.type, leaf)
        if isinstance(column.type, PrimitiveType) and column.type.name == "timestamp":
            # Without a zone the text means the unknown zone of its writer (PART-5).
            zoned = pc.match_substring_regex(distinct, r"(Z|[+-]\d\d:\d\d)$").fill_null(True)
            answers = pc.if_else(zoned, answers, pa.scalar(None, pa.bool_()))
        return answers.take(encoded.indices)


def _answer_values(values: pa.Array, data_type: DataType, leaf: Predicate) -> pa.BooleanArray:
    """The leaf's exact answer for each value: true or false (SQL's NULL counts as false), null if it cannot be
    compared.
    """
    match leaf:
        case IsNull() | Comparison(operator=_Op.NULL_SAFE_EQ, value=None):
            return values.is_null(nan_is_null=False)
        case IsNotNull() | Not(Comparison(operator=_Op.NULL_SAFE_EQ, value=None)):
            return values.is_valid()
        case In(values=listed):
            equalities = [_compare_values(values, data_type, _Op.EQ, value) for value in listed if value is not None]
            return reduce(pc.or_kleene, equalities, pa.repeat(pa.scalar(False), len(values)))
        case Comparison(operator=_Op.NULL_SAFE_EQ, value=value):
            return _compare_values(values, data_type, _Op.EQ, value)
        case Not(Comparison(operator=_Op.NULL_SAFE_EQ, value=value)):
            return pc.invert(_compare_values(values, data_type, _Op.EQ, value))
        case Comparison(operator=operator, value=value):
            return _compare_values(values, data_type, operator, value)
        case StartsWith(prefix=prefix) if pa.types.is_string(values.type):
            return pc.starts_with(values, prefix).fill_null(False)
        case Not(StartsWith(prefix=prefix)) if pa.types.is_string(values.type):
            return pc.invert(pc.starts_with(values, prefix)).fill_null(False)
        case _:
            return pa.nulls(len(values), pa.bool_())


_COMPARE = {
    _Op.EQ: pc.equal,
    _Op.NE: pc.not_equal,
    _Op.LT: pc.less,
    _Op.LE: pc.less_equal,
    _Op.GT: pc.greater,
    _Op.GE: pc.greater_equal,
}


def _compare_values(values: pa.Array, data_type: DataType, operator: _Op, value: Any) -> pa.BooleanArray:
    if value is None:
        return pa.repeat(pa.scalar(False), len(values))
    literal = _literal(value, data_type)
    if literal is None:
        return pa.nulls(len(values), pa.bool_())
    if pa.types.is_floating(values.type):
        return _compare_floats(values, operator, literal.as_py())
    return _COMPARE[operator](*_aligned(values, literal)).fill_null(False)


def _compare_floats(values: pa.Array, operator: _Op, literal: float) -> pa.BooleanArray:
    """Spark's order, in which NaN equals NaN and is greater than every number."""
    is_nan = pc.is_nan(values)
    if math.isnan(literal):
        answers = {_Op.EQ: is_nan, _Op.GE: is_nan, _Op.NE: pc.invert(is_nan), _Op.LT: pc.invert(is_nan)}
        by_default = values.is_valid() if operator is _Op.LE else pa.repeat(pa.scalar(False), len(values))
        return answers.get(operator, by_default).fill_null(False)
    answer = _COMPARE[operator](values, pa.scalar(literal, pa.float64()))
    if operator in (_Op.GT, _Op.GE):
        answer = pc.or_(answer, is_nan)
    return answer.fill_null(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """Bounds and null counts of one data column; the bounds need not occur in the files (SKIP-4)."""

    type: DataType
    lower: pa.Array | None
    upper: pa.Array | None
    has_no_null: pa.BooleanArray
    has_only_nulls: pa.BooleanArray

    @staticmethod
    def of(statistics: ParsedStatistics, column: _DataColumn) -> "_Bounds":
        lower = statistics.minimums.get(column.path)
        upper = statistics.maximums.get(column.path)
        if upper is not None and isinstance(column.type, PrimitiveType) and column.type.name.startswith("timestamp"):
            upper = _widened(upper)
        nulls = statistics.null_counts[column.path]
        return _Bounds(
            type=column.type,
            lower=None if lower is None else _comparable(lower, column.type),
            upper=None if upper is None else _comparable(upper, column.type),
            # Both hold for wide bounds as well as for tight ones (STATS-3).
            has_no_null=pc.equal(nulls, 0),
            has_only_nulls=pc.equal(nulls, statistics.num_records),
        )

    def exclude(self, leaf: Predicate) -> pa.BooleanArray:
        """Files in which no row satisfies the leaf; null where that is unknown."""
        match leaf:
            case IsNull() | Comparison(operator=_Op.NULL_SAFE_EQ, value=None):
                return self.has_no_null
            case IsNotNull() | Not(Comparison(operator=_Op.NULL_SAFE_EQ, value=None)):
                return self.has_only_nulls
            case Comparison(value=None):
                return self._all(True)
            case In(values=values):
                return self._exclude_listed(values)
            case Comparison(operator=_Op.NULL_SAFE_EQ, value=value):
                return pc.or_kleene(self.has_only_nulls, self._exclude_comparison(_Op.EQ, value))
            case Comparison(operator=operator, value=value):
                return pc.or_kleene(self.has_only_nulls, self._exclude_comparison(operator, value))
            case StartsWith(prefix=prefix):
                return pc.or_kleene(self.has_only_nulls, self._exclude_prefix(prefix))
            case Not(StartsWith()):
                return self.has_only_nulls
            case _:
                return self._all(None)

    def _all(self, answer: bool | None) -> pa.BooleanArray:
        return pa.repeat(pa.scalar(answer, pa.bool_()), len(self.has_no_null))

    def _exclude_listed(self, values: Sequence[Any]) -> pa.BooleanArray:
        present = [value for value in values if value is not None]
        if len(present) <= _MAX_LISTED_VALUES:
            each = (self._exclude_comparison(_Op.EQ, value) for value in present)
            return pc.or_kleene(self.has_only_nulls, reduce(pc.and_kleene, each, self._all(True)))
        literals = [_literal(value, self.type) for value in present]
        if any(literal is None or literal.as_py() != literal.as_py() for literal in literals):
            return self.has_only_nulls
        ordered = sorted(literal.as_py() for literal in literals if literal is not None)
        below = self._exclude_literal(_Op.GE, _same_kind(ordered[0], literals[0]))
        above = self._exclude_literal(_Op.LE, _same_kind(ordered[-1], literals[0]))
        return pc.or_kleene(self.has_only_nulls, pc.or_kleene(below, above))

    def _exclude_comparison(self, operator: _Op, value: Any) -> pa.BooleanArray:
        literal = _literal(value, self.type)
        return self._all(None) if literal is None else self._exclude_literal(operator, literal)

    def _exclude_literal(self, operator: _Op, literal: pa.Scalar) -> pa.BooleanArray:
        if self.lower is None or self.upper is None:
            return self._all(None)
        if not pa.types.is_floating(self.lower.type):
            return self._exclude_ordered(operator, literal)
        # NaN is greater than every number but is missing from the bounds of some writers. So an upper bound excludes
        # nothing that NaN would satisfy, and a NaN in the query is left to the rows.
        if operator in (_Op.GT, _Op.GE, _Op.NE) or math.isnan(literal.as_py()):
            return self._all(None)
        return self._exclude_ordered(operator, literal)

    def _exclude_ordered(self, operator: _Op, literal: pa.Scalar) -> pa.BooleanArray:
        match operator:
            case _Op.EQ:
                return pc.or_kleene(pc.greater(*_aligned(self.lower, literal)), pc.less(*_aligned(self.upper, literal)))
            case _Op.NE:
                return pc.and_kleene(pc.equal(*_aligned(self.lower, literal)), pc.equal(*_aligned(self.upper, literal)))
            case _Op.LT:
                return pc.greater_equal(*_aligned(self.lower, literal))
            case _Op.LE:
                return pc.greater(*_aligned(self.lower, literal))
            case _Op.GT:
                return pc.less_equal(*_aligned(self.upper, literal))
            case _:
                return pc.less(*_aligned(self.upper, literal))

    def _exclude_prefix(self, prefix: str) -> pa.BooleanArray:
        literal = _literal(prefix, self.type)
        if literal is None or self.lower is None or self.upper is None or not pa.types.is_string(self.lower.type):
            return self._all(None)
        # A lower bound above the prefix without beginning with it is above everything that begins with it.
        above = pc.and_(pc.greater(self.lower, literal), pc.invert(pc.starts_with(self.lower, prefix)))
        return pc.or_kleene(above, pc.less(self.upper, literal))


def _same_kind(value: Any, like: pa.Scalar | None) -> pa.Scalar:
    return pa.scalar(value) if like is None or pa.types.is_decimal(like.type) else pa.scalar(value, like.type)


def _widened(micros: pa.Array) -> pa.Array:
    """Upper timestamp bounds are cut to milliseconds by their writers, so they may be up to 1 ms too low (SKIP-3)."""
    greatest = 2**63 - 1
    return pc.add(pc.min_element_wise(micros, pa.scalar(greatest - 1000), skip_nulls=False), 1000)


def _comparable(values: pa.Array, data_type: DataType) -> pa.Array:
    """Values in the form of literals: int64, float64, timestamps as int64 microseconds; others as they are."""
    if not isinstance(data_type, PrimitiveType):
        return values
    match data_type.name:
        case "byte" | "short" | "integer" | "long" | "timestamp" | "timestamp_ntz":
            return values.cast(pa.int64())
        case "float" | "double":
            return values.cast(pa.float64())
        case _:
            return values


def _aligned(values: pa.Array, literal: pa.Scalar) -> tuple[pa.Array, pa.Scalar]:
    """Both as decimals of one scale, wide enough for every pair; other types are alike already."""
    if not pa.types.is_decimal(values.type):
        return values, literal
    kind = pa.decimal256(76, max(values.type.scale, literal.type.scale))
    return values.cast(kind), literal.cast(kind)


_EPOCH = datetime(1970, 1, 1)


def _literal(value: Any, data_type: DataType) -> pa.Scalar | None:
    """The value as a scalar of the column's kind; None if Spark would compare the two in another way."""
    if isinstance(data_type, DecimalType):
        return _decimal_literal(value)
    if not isinstance(data_type, PrimitiveType):
        return None
    match data_type.name:
        case "byte" | "short" | "integer" | "long":
            return _integer_literal(value)
        case "float" | "double":
            return _float_literal(value, exact_up_to=2**24 if data_type.name == "float" else 2**53)
        case "string":
            return _string_literal(value)
        case "date":
            is_date = isinstance(value, date) and not isinstance(value, datetime)
            return pa.scalar(value, pa.date32()) if is_date else None
        case "timestamp":
            return _moment_literal(value) if isinstance(value, datetime) and value.tzinfo is not None else None
        case "timestamp_ntz":
            return _moment_literal(value) if isinstance(value, datetime) and value.tzinfo is None else None
        case "boolean":
            return pa.scalar(value) if isinstance(value, bool) else None
        case "binary":
            return pa.scalar(value, pa.binary()) if isinstance(value, bytes) else None
        case _:
            return None


def _integer_literal(value: Any) -> pa.Scalar | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    if isinstance(value, Decimal) and not value.is_finite():
        return None
    if not -(2**63) <= value < 2**63 or value != int(value):
        return None
    return pa.scalar(int(value), pa.int64())


def _float_literal(value: Any, *, exact_up_to: int) -> pa.Scalar | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if isinstance(value, int) and abs(value) > exact_up_to:
        return None
    return pa.scalar(float(value), pa.float64())


def _decimal_literal(value: Any) -> pa.Scalar | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    exact = Decimal(value)
    if not exact.is_finite():
        return None
    _, digits, exponent = exact.as_tuple()
    scale = max(0, -int(exponent))
    if scale > 38 or len(digits) + max(0, int(exponent)) > 38:
        return None
    return pa.scalar(exact, pa.decimal128(38, scale))


def _string_literal(value: Any) -> pa.Scalar | None:
    if not isinstance(value, str):
        return None
    try:
        return pa.scalar(value, pa.string())
    except UnicodeEncodeError:
        return None


def _moment_literal(value: datetime) -> pa.Scalar:
    moment = value.replace(tzinfo=None) - (value.utcoffset() or timedelta(0))
    return pa.scalar((moment - _EPOCH) // timedelta(microseconds=1), pa.int64())
