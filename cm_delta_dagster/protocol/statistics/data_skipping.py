"""Data skipping: the files that a predicate excludes (protocol headings "Per-file Statistics", "Partition Value Serialization").

Evaluates a predicate on the Arrow table of ``add`` actions. The answer for a file is false (no row of the file satisfies the
predicate), true (every row does) or null (unknown without reading rows). Statistics that are missing, invalid or of another
type than the column give null and never exclude a file.

Schema, predicate and partition columns use logical column names; statistics and partition values are looked up by physical
names. The scan applies the predicate to the rows of the remaining files.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.actions.partition_values import partition_value_array, states_zone
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name
from cm_delta_dagster.protocol.features.generated_filters import with_generated_filters
from cm_delta_dagster.protocol.features.type_widening import TYPE_CHANGES
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
    quote_column,
)
from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA, COLLATIONS_METADATA, char_width
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import (
    TIMESTAMP,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
)
from cm_delta_dagster.protocol.statistics.file_bounds import DataColumn, FileBounds
from cm_delta_dagster.protocol.statistics.file_index import FileIndex
from cm_delta_dagster.protocol.statistics.literals import ARROW_COMPARISONS, aligned, comparable, literal_of
from cm_delta_dagster.protocol.statistics.stats_json import ParsedStatistics, parse_statistics

_Op = ComparisonOperator

_SUBSET_DIVISOR = 4
"""If fewer than one in this many files remain, only their statistics are parsed, and the result is not cached."""

_ORDER_METADATA = (COLLATIONS_METADATA, CHAR_METADATA)
"""Field metadata of strings that are not compared bytewise: collations and blank-padded ``char(n)``."""


def keep_mask(
    adds: pa.Table,
    predicate: Predicate,
    *,
    schema: StructType,
    partition_columns: Sequence[str],
    mapping: ColumnMappingMode = ColumnMappingMode.NONE,
    index: FileIndex | None = None,
    zone: tzinfo | None = None,
) -> pa.BooleanArray:
    """One boolean per file: false only if no row of the file can satisfy the predicate.

    Args:
        adds: live files, columns of ``file_columns.ADD_SCHEMA``.
        predicate: the condition of the query.
        schema: the table schema.
        partition_columns: names of the partition columns.
        mapping: column mapping mode of the table.
        index: cache of parsed columns for further queries on the same files.
        zone: time zone of ``timestamp`` partition values that state none; None if it is unknown, so that they exclude no file.
    """
    index = index or FileIndex()
    parts = conjuncts(with_generated_filters(negations_inwards(predicate), schema))
    on_partitions = And(tuple(part for part in parts if partition_only(part, partition_columns)))
    on_rows = And(tuple(part for part in parts if not partition_only(part, partition_columns)))
    columns = _Columns(schema=schema, partition_columns=partition_columns, mapping=mapping, zone=zone)
    keep = _Evaluation(adds=adds, columns=columns, index=index).answer(on_partitions).fill_null(True)
    if not on_rows.parts:
        return keep
    columns_read = columns.with_statistics(on_rows)
    kept = pc.sum(keep).as_py() or 0
    # Parsing statistics is expensive: if partition values leave few files, only the statistics of these are parsed.
    if kept * _SUBSET_DIVISOR >= adds.num_rows or index.has_statistics(adds, columns_read):
        statistics = index.statistics(adds, columns_read) if columns_read else None
        answer = _Evaluation(adds=adds, columns=columns, index=index, statistics=statistics).answer(on_rows)
        return pc.and_(keep, answer.fill_null(True))
    few = adds.filter(keep)
    statistics = parse_statistics(few["stats"], columns_read) if columns_read else None
    answer = _Evaluation(adds=few, columns=columns, index=FileIndex(), statistics=statistics).answer(on_rows)
    return pc.replace_with_mask(keep, keep, answer.fill_null(True))


def partition_matches_exactly(
    adds: pa.Table,
    predicate: Predicate,
    *,
    schema: StructType,
    partition_columns: Sequence[str],
    mapping: ColumnMappingMode = ColumnMappingMode.NONE,
    zone: tzinfo | None = None,
) -> pa.BooleanArray:
    """One boolean per file: true only if partition values prove that every row satisfies the predicate.

    Args as for :func:`keep_mask`.
    """
    columns = _Columns(schema=schema, partition_columns=partition_columns, mapping=mapping, zone=zone)
    evaluation = _Evaluation(adds=adds, columns=columns, index=FileIndex())
    return evaluation.answer(negations_inwards(predicate)).fill_null(False)


def data_columns(
    paths: Sequence[ColumnPath],
    *,
    schema: StructType,
    partition_columns: Sequence[str],
    mapping: ColumnMappingMode = ColumnMappingMode.NONE,
) -> Mapping[ColumnPath, DataColumn]:
    """The columns at these logical paths whose statistics can exclude files; without partition columns."""
    columns = _Columns(schema=schema, partition_columns=partition_columns, mapping=mapping)
    resolved = {path: columns.resolve(quote_column(path)) for path in paths}
    return {path: column for path, column in resolved.items() if isinstance(column, DataColumn)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartitionColumn:
    """``width`` is that of a ``char(n)`` column, 0 of any other."""

    name: str
    type: DataType
    width: int = 0


_ResolvedColumn: TypeAlias = _PartitionColumn | DataColumn | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Resolves the columns of a predicate; None for a column that cannot be used for data skipping."""

    schema: StructType
    partition_columns: Sequence[str]
    mapping: ColumnMappingMode
    zone: tzinfo | None = None

    def resolve(self, column: str) -> _ResolvedColumn:
        path = column_path(column)
        names: list[str] = []
        data_type: DataType = self.schema
        field: StructField | None = None
        for segment in path:
            field = data_type.field(segment) if isinstance(data_type, StructType) else None
            if field is None or not self._is_comparable(field, path):
                return None
            names.append(physical_name(field, self.mapping))
            data_type = field.type
        # Writers count nulls of lists and maps differently, and structs have no statistics.
        if not isinstance(data_type, DecimalType | PrimitiveType):
            return None
        if field is not None and self._is_partition(path):
            return _PartitionColumn(name=names[0], type=data_type, width=char_width(field))
        return DataColumn(path=tuple(names), type=data_type, was_float=field is not None and was_float(field))

    def _is_partition(self, path: Sequence[str]) -> bool:
        return len(path) == 1 and path[0].casefold() in {name.casefold() for name in self.partition_columns}

    def _is_comparable(self, field: StructField, path: Sequence[str]) -> bool:
        """Whether values are compared bytewise, or as those of a ``char(n)``, of which statistics may lack the blanks."""
        is_char = COLLATIONS_METADATA not in field.metadata and char_width(field) > 0
        return is_ordered_by_bytes(field) or (is_char and self._is_partition(path))

    def with_statistics(self, predicate: Predicate) -> Mapping[ColumnPath, DataType]:
        """The data columns of the predicate."""
        types: dict[ColumnPath, DataType] = {}
        for leaf in leaves(predicate):
            resolved = None if isinstance(leaf, AlwaysTrue | Opaque | And | Or | Not) else self.resolve(leaf.column)
            if isinstance(resolved, DataColumn):
                types[resolved.path] = resolved.type
        return types


def is_ordered_by_bytes(field: StructField) -> bool:
    """Whether the column has the default order, in which strings are compared bytewise."""
    for key in _ORDER_METADATA:
        # varchar(n) is an ordinary string with a length limit.
        if key in field.metadata and not str(field.metadata[key]).startswith("varchar"):
            return False
    return True


def was_float(field: StructField) -> bool:
    """Whether the type was widened from float to double; the statistics of older files are then floats."""
    changes = field.metadata.get(TYPE_CHANGES)
    changes = changes if isinstance(changes, list) else []
    return any(isinstance(change, Mapping) and change.get("fromType") == "float" for change in changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluation:
    """Evaluates predicates for all files of ``adds``. Negations occur only directly above leaves."""

    adds: pa.Table
    columns: _Columns
    index: FileIndex
    statistics: ParsedStatistics | None = None
    resolved: dict[str, _ResolvedColumn] = field(default_factory=dict)
    bounds: dict[ColumnPath, "FileBounds"] = field(default_factory=dict)
    values: dict[str, tuple[pa.Array, pa.Array]] = field(default_factory=dict)

    def answer(self, predicate: Predicate) -> pa.BooleanArray:
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
        if isinstance(column, DataColumn) and self.statistics is not None:
            excluded = self._bounds(column).exclude(leaf)
            return pc.if_else(excluded.fill_null(False), pa.scalar(False), pa.scalar(None, pa.bool_()))
        return self._all(None)

    def _resolved(self, name: str) -> _ResolvedColumn:
        if name not in self.resolved:
            self.resolved[name] = self.columns.resolve(name)
        return self.resolved[name]

    def _bounds(self, column: DataColumn) -> "FileBounds":
        if column.path not in self.bounds:
            assert self.statistics is not None
            self.bounds[column.path] = FileBounds.of(self.statistics, column)
        return self.bounds[column.path]

    def _all(self, answer: bool | None) -> pa.BooleanArray:
        return pa.repeat(pa.scalar(answer, pa.bool_()), self.adds.num_rows)

    def _by_partition(self, column: _PartitionColumn, leaf: Predicate) -> pa.BooleanArray:
        # Many files share few partition values, so each distinct value is parsed and compared once.
        encoded = self.index.partition_values(self.adds, column.name)
        if column.name not in self.values:
            texts = pa.concat_arrays([encoded.dictionary, pa.nulls(1, pa.string())])
            parsed = partition_value_array(texts, column.type, zone=self.columns.zone or UTC)
            self.values[column.name] = texts, comparable(parsed, column.type)
        distinct, values = self.values[column.name]
        if column.width:
            values, leaf = _with_blanks(values, leaf, column.width)
        answers = _answer_values(values, column.type, leaf)
        if column.type == TIMESTAMP and self.columns.zone is None:
            # A text without a zone is in the time zone of the writer, which is not known.
            answers = pc.if_else(states_zone(distinct), answers, pa.scalar(None, pa.bool_()))
        return answers.take(encoded.indices.fill_null(len(distinct) - 1))


def _with_blanks(values: pa.Array, leaf: Predicate, width: int) -> tuple[pa.Array, Predicate]:
    """Values of a ``char(n)`` column and a test of them: SQL compares as if both texts ended in the same number of blanks."""
    test = leaf.part if isinstance(leaf, Not) else leaf
    match test:
        case Comparison(value=str(text)):
            width = max(width, len(text))
            test = replace(test, value=text.ljust(width))
        case In(values=listed):
            width = max(width, *[len(value) for value in listed if isinstance(value, str)])
            test = replace(
                test, values=tuple(value.ljust(width) if isinstance(value, str) else value for value in listed)
            )
    return pc.utf8_rpad(values, width), Not(test) if isinstance(leaf, Not) else test


def _answer_values(values: pa.Array, data_type: DataType, leaf: Predicate) -> pa.BooleanArray:
    """The exact answer for each value: true, false (also for NULL in SQL), or null if the two cannot be compared."""
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


def _compare_values(values: pa.Array, data_type: DataType, operator: _Op, value: Any) -> pa.BooleanArray:
    if value is None:
        return pa.repeat(pa.scalar(False), len(values))
    literal = literal_of(value, data_type)
    if literal is None:
        return pa.nulls(len(values), pa.bool_())
    if pa.types.is_floating(values.type):
        return _compare_floats(values, operator, literal.as_py())
    return ARROW_COMPARISONS[operator](*aligned(values, literal)).fill_null(False)


def _compare_floats(values: pa.Array, operator: _Op, literal: float) -> pa.BooleanArray:
    """Compare in Spark's order, in which NaN equals NaN and is greater than every number."""
    is_nan = pc.is_nan(values)
    if math.isnan(literal):
        answers = {_Op.EQ: is_nan, _Op.GE: is_nan, _Op.NE: pc.invert(is_nan), _Op.LT: pc.invert(is_nan)}
        by_default = values.is_valid() if operator is _Op.LE else pa.repeat(pa.scalar(False), len(values))
        return answers.get(operator, by_default).fill_null(False)
    answer = ARROW_COMPARISONS[operator](values, pa.scalar(literal, pa.float64()))
    if operator in (_Op.GT, _Op.GE):
        answer = pc.or_(answer, is_nan)
    return answer.fill_null(False)
