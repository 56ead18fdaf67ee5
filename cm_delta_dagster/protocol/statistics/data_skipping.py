"""Data skipping: which files a predicate leaves out (headings "Per-file Statistics", "Partition Value Serialization").

Works on the Arrow table of ``add`` actions and never on single files. Every part of a predicate is
answered for each file with one of three: false (no row of the file satisfies it), true (every row does), or null (only
the rows can tell). What is missing, unreadable or of another type than the column is null, so that it never excludes a
file (SKIP-2).

Schema, predicate and partition columns speak of columns by their logical names; statistics and partition values are
looked up by the physical ones (COLMAP-9). Rows are not read here: what remains of the predicate is applied
by the scan.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.actions.partition_values import partition_value_array
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name
from cm_delta_dagster.protocol.predicates.normal_forms import negations_inwards
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
    conjuncts,
    fold,
    leaves,
    partition_only,
)
from cm_delta_dagster.protocol.schema.types import DataType, DecimalType, PrimitiveType, StructField, StructType
from cm_delta_dagster.protocol.statistics.file_index import FileIndex
from cm_delta_dagster.protocol.statistics.literals import aligned, comparable, literal_of
from cm_delta_dagster.protocol.statistics.stats_json import ColumnPath, ParsedStatistics, parse_statistics

_Op = ComparisonOperator

_FEW = 4
"""Statistics of less than this fraction of the files are parsed alone and not remembered."""

_MAX_LISTED_VALUES = 64
"""Longer IN lists are compared with a file's bounds by their least and greatest value only."""

_TYPE_CHANGES = "delta.typeChanges"

_ORDER_METADATA = ("__COLLATIONS", "__CHAR_VARCHAR_TYPE_STRING")
"""Field metadata of strings that are not compared byte by byte: collations, and blank-padded ``char(n)``."""


def keep_mask(
    adds: pa.Table,
    predicate: Predicate,
    *,
    schema: StructType,
    partition_columns: Sequence[str],
    mapping: ColumnMappingMode = ColumnMappingMode.NONE,
    index: FileIndex | None = None,
) -> pa.BooleanArray:
    """One boolean a file: false only if no row of the file can satisfy the predicate (SKIP-1).

    Args:
        adds: live files, in the form of ``file_actions.ADD_SCHEMA``.
        predicate: what the query asks.
        schema: the table's schema.
        partition_columns: the table's partition columns.
        mapping: the table's column mapping.
        index: remembers parsed columns for the next query on the same files.
    """
    index = index or FileIndex()
    parts = conjuncts(negations_inwards(predicate))
    on_partitions = And(tuple(part for part in parts if partition_only(part, partition_columns)))
    on_rows = And(tuple(part for part in parts if not partition_only(part, partition_columns)))
    columns = _Columns(schema=schema, partition_columns=partition_columns, mapping=mapping)
    keep = _Evaluation(adds=adds, columns=columns, index=index).answer(on_partitions).fill_null(True)
    if not on_rows.parts:
        return keep
    wanted = columns.with_statistics(on_rows)
    kept = pc.sum(keep).as_py() or 0
    # Parsing statistics is the dear part: where partition values leave few files, only those have theirs parsed.
    if kept * _FEW >= adds.num_rows or index.has_statistics(adds, wanted):
        statistics = index.statistics(adds, wanted) if wanted else None
        answer = _Evaluation(adds=adds, columns=columns, index=index, statistics=statistics).answer(on_rows)
        return pc.and_(keep, answer.fill_null(True))
    few = adds.filter(keep)
    statistics = parse_statistics(few["stats"], wanted) if wanted else None
    answer = _Evaluation(adds=few, columns=columns, index=FileIndex(), statistics=statistics).answer(on_rows)
    return pc.replace_with_mask(keep, keep, answer.fill_null(True))


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
    evaluation = _Evaluation(adds=adds, columns=columns, index=FileIndex())
    return evaluation.answer(negations_inwards(predicate)).fill_null(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartitionColumn:
    name: str
    type: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class _DataColumn:
    path: ColumnPath
    type: DataType
    was_float: bool


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
        field: StructField | None = None
        for segment in path:
            field = found.field(segment) if isinstance(found, StructType) else None
            if field is None or not is_ordered_by_bytes(field):
                return None
            names.append(physical_name(field, self.mapping))
            found = field.type
        # Writers differ in what they count as a null of a list or a map, and structs have no statistics.
        if not isinstance(found, DecimalType | PrimitiveType):
            return None
        for name in self.partition_columns:
            if len(path) == 1 and name.casefold() == path[0].casefold():
                return _PartitionColumn(name=names[0], type=found)
        return _DataColumn(path=tuple(names), type=found, was_float=field is not None and was_float(field))

    def with_statistics(self, predicate: Predicate) -> Mapping[ColumnPath, DataType]:
        """The data columns of the predicate."""
        found: dict[ColumnPath, DataType] = {}
        for leaf in leaves(predicate):
            resolved = None if isinstance(leaf, AlwaysTrue | Opaque | And | Or | Not) else self.resolve(leaf.column)
            if isinstance(resolved, _DataColumn):
                found[resolved.path] = resolved.type
        return found


def is_ordered_by_bytes(field: StructField) -> bool:
    for key in _ORDER_METADATA:
        # varchar(n) is an ordinary string with a length limit.
        if key in field.metadata and not str(field.metadata[key]).startswith("varchar"):
            return False
    return True


def was_float(field: StructField) -> bool:
    """Whether the type was widened from float to double: statistics of older files are written as floats are."""
    changes = field.metadata.get(_TYPE_CHANGES)
    changes = changes if isinstance(changes, list) else []
    return any(isinstance(change, Mapping) and change.get("fromType") == "float" for change in changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluation:
    """Answers predicates without inner negations for all files of ``adds``; see the module about the three answers."""

    adds: pa.Table
    columns: _Columns
    index: FileIndex
    statistics: ParsedStatistics | None = None
    resolved: dict[str, _Column] = field(default_factory=dict)
    bounds: dict[ColumnPath, "_Bounds"] = field(default_factory=dict)
    values: dict[str, tuple[pa.Array, pa.Array]] = field(default_factory=dict)

    def answer(self, predicate: Predicate) -> pa.BooleanArray:
        # Not before leaves only, where it belongs to the leaf.
        return fold(predicate, self._leaf, self._combined)

    def _combined(self, node: And | Or | Not, answers: Sequence[pa.BooleanArray]) -> pa.BooleanArray:
        match node:
            case And():
                return reduce(pc.and_kleene, answers, self._all(True))
            case Or():
                return reduce(pc.or_kleene, answers, self._all(False))
            case _:
                return self._leaf(node)

    def _leaf(self, leaf: Predicate) -> pa.BooleanArray:
        match leaf:
            case AlwaysTrue():
                return self._all(True)
            case Comparison() | In() | IsNull() | IsNotNull() | StartsWith():
                column = self._resolved(leaf.column)
            case Not(Comparison() | In() | IsNull() | IsNotNull() | StartsWith() as part):
                column = self._resolved(part.column)
            case _:
                return self._all(None)
        if isinstance(column, _PartitionColumn):
            return self._by_partition(column, leaf)
        if isinstance(column, _DataColumn) and self.statistics is not None:
            excluded = self._bounds(column).exclude(leaf)
            return pc.if_else(excluded.fill_null(False), pa.scalar(False), pa.scalar(None, pa.bool_()))
        return self._all(None)

    def _resolved(self, name: str) -> _Column:
        if name not in self.resolved:
            self.resolved[name] = self.columns.resolve(name)
        return self.resolved[name]

    def _bounds(self, column: _DataColumn) -> "_Bounds":
        if column.path not in self.bounds:
            assert self.statistics is not None
            self.bounds[column.path] = _Bounds.of(self.statistics, column)
        return self.bounds[column.path]

    def _all(self, answer: bool | None) -> pa.BooleanArray:
        return pa.repeat(pa.scalar(answer, pa.bool_()), self.adds.num_rows)

    def _by_partition(self, column: _PartitionColumn, leaf: Predicate) -> pa.BooleanArray:
        # Files are many and partition values few: each value is parsed and compared once.
        encoded = self.index.partition_values(self.adds, column.name)
        if column.name not in self.values:
            texts = pa.concat_arrays([encoded.dictionary, pa.nulls(1, pa.string())])
            self.values[column.name] = texts, comparable(partition_value_array(texts, column.type), column.type)
        distinct, values = self.values[column.name]
        answers = _answer_values(values, column.type, leaf)
        if isinstance(column.type, PrimitiveType) and column.type.name == "timestamp":
            # Without a zone the text means the unknown zone of its writer (PART-5).
            zoned = pc.match_substring_regex(distinct, r"(Z|[+-]\d\d:\d\d)$").fill_null(True)
            answers = pc.if_else(zoned, answers, pa.scalar(None, pa.bool_()))
        return answers.take(encoded.indices.fill_null(len(distinct) - 1))


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
    literal = literal_of(value, data_type)
    if literal is None:
        return pa.nulls(len(values), pa.bool_())
    if pa.types.is_floating(values.type):
        return _compare_floats(values, operator, literal.as_py())
    return _COMPARE[operator](*aligned(values, literal)).fill_null(False)


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
        nulls = statistics.null_counts[column.path]
        return _Bounds(
            type=column.type,
            lower=None if lower is None else _loosened(comparable(lower, column.type), column, -1),
            upper=None if upper is None else _loosened(comparable(upper, column.type), column, 1),
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
        literals = [literal_of(value, self.type) for value in present]
        if any(literal is None or literal.as_py() != literal.as_py() for literal in literals):
            return self.has_only_nulls
        ordered = sorted(literal.as_py() for literal in literals if literal is not None)
        below = self._exclude_literal(_Op.GE, _same_kind(ordered[0], literals[0]))
        above = self._exclude_literal(_Op.LE, _same_kind(ordered[-1], literals[0]))
        return pc.or_kleene(self.has_only_nulls, pc.or_kleene(below, above))

    def _exclude_comparison(self, operator: _Op, value: Any) -> pa.BooleanArray:
        literal = literal_of(value, self.type)
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
                return pc.or_kleene(pc.greater(*aligned(self.lower, literal)), pc.less(*aligned(self.upper, literal)))
            case _Op.NE:
                return pc.and_kleene(pc.equal(*aligned(self.lower, literal)), pc.equal(*aligned(self.upper, literal)))
            case _Op.LT:
                return pc.greater_equal(*aligned(self.lower, literal))
            case _Op.LE:
                return pc.greater(*aligned(self.lower, literal))
            case _Op.GT:
                return pc.less_equal(*aligned(self.upper, literal))
            case _:
                return pc.less(*aligned(self.upper, literal))

    def _exclude_prefix(self, prefix: str) -> pa.BooleanArray:
        literal = literal_of(prefix, self.type)
        if literal is None or self.lower is None or self.upper is None or not pa.types.is_string(self.lower.type):
            return self._all(None)
        # A lower bound above the prefix without beginning with it is above everything that begins with it.
        above = pc.and_(pc.greater(self.lower, literal), pc.invert(pc.starts_with(self.lower, prefix)))
        return pc.or_kleene(above, pc.less(self.upper, literal))


def _same_kind(value: Any, like: pa.Scalar | None) -> pa.Scalar:
    return pa.scalar(value) if like is None or pa.types.is_decimal(like.type) else pa.scalar(value, like.type)


def _loosened(bounds: pa.Array, column: _DataColumn, direction: int) -> pa.Array:
    """The bounds moved down (-1) or up (1) as far as writers are known to be off with values of this type."""
    if isinstance(column.type, DecimalType):
        return _loosened_decimals(bounds, direction) if column.type.precision > _EXACT_DIGITS else bounds
    if column.was_float:
        singles = bounds.to_numpy(zero_copy_only=False).astype(np.float32)
        moved = np.nextafter(singles, np.float32(direction * math.inf)).astype(np.float64)
        return pa.array(moved, mask=bounds.is_null().to_numpy(zero_copy_only=False))
    if direction > 0 and isinstance(column.type, PrimitiveType):
        if column.type.name.startswith("timestamp"):
            return _widened(bounds)
        # Older writers end a shortened bound by U+FFFD (after a "?" where they cut a character in two), which is below
        # the characters beyond U+FFFF in the order of UTF-8.
        if column.type.name == "string" and pc.any(pc.ends_with(bounds, "\ufffd")).as_py():
            return pc.replace_substring_regex(bounds, "\\??\ufffd$", "\U0010ffff")
    return bounds


_EXACT_DIGITS = 15
"""Decimals of so many digits survive being written as a double, as some writers do in statistics."""


def _loosened_decimals(bounds: pa.Array, direction: int) -> pa.Array:
    magnitude = pc.abs(bounds.cast(pa.float64()))
    margin = pc.add(pc.multiply(magnitude, 2.0**-50), 10.0**-bounds.type.scale)
    wide = pa.decimal256(70, bounds.type.scale)
    move = pc.add if direction > 0 else pc.subtract
    return move(bounds.cast(wide), margin.cast(wide, safe=False))


def _widened(micros: pa.Array) -> pa.Array:
    """Upper timestamp bounds are cut to milliseconds by their writers, so they may be up to 1 ms too low (SKIP-3)."""
    greatest = 2**63 - 1
    return pc.add(pc.min_element_wise(micros, pa.scalar(greatest - 1000), skip_nulls=False), 1000)
