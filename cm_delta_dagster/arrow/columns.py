"""Conversion of the columns of a data file to the columns of the table (protocol heading "Column Mapping").

A :class:`FileLayout` is built from the schema of a file and serves all files with the same schema. It has the Parquet columns to
read and the conversions to the types of the table. Fields are found by name, physical name or id at every level; a field that
the file does not have is null. This module reads no files.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.types as pat

from cm_delta_dagster.arrow.calendar import PROLEPTIC, LegacyCalendar
from cm_delta_dagster.arrow.leaves import Conversion, leaf_conversion
from cm_delta_dagster.arrow.schema import arrow_type
from cm_delta_dagster.arrow.shredding import unshredded
from cm_delta_dagster.arrow.stored_types import plain_list
from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.changes.change_data_feed import is_change_type
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, field_id, physical_name
from cm_delta_dagster.protocol.schema.arrow_types import is_list
from cm_delta_dagster.protocol.schema.types import (
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    data_type_text,
)

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class FileColumn:
    """The conversion of a file's column to a column of the table.

    Attributes:
        source: name of the file's column; None if the file has none, so that all values are null.
        leaves: positions of the Parquet columns to read.
    """

    source: str | None
    leaves: tuple[int, ...]
    target: pa.DataType
    convert: Conversion

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """The column for every row of a batch that was read from the file."""
        if self.source is None:
            return pa.nulls(batch.num_rows, self.target)
        return self.convert(batch.column(batch.schema.get_field_index(self.source)))


@dataclass(frozen=True, slots=True)
class _FieldNode:
    """One field of the file; ``first`` is the position of its first Parquet column and ``count`` their number."""

    field: pa.Field
    type: pa.DataType
    first: int
    children: tuple["_FieldNode", ...]

    @property
    def name(self) -> str:
        return str(self.field.name)

    @property
    def count(self) -> int:
        return sum(child.count for child in self.children) if self.children else 1

    @property
    def id(self) -> int | None:
        value = (self.field.metadata or {}).get(_FIELD_ID)
        return None if value is None or int(value) < 0 else int(value)


@dataclass(frozen=True, slots=True)
class _Index:
    """The fields of one level by their names in lower case and by their ids."""

    by_name: Mapping[str, Sequence[_FieldNode]]
    by_id: Mapping[int, Sequence[_FieldNode]]

    @classmethod
    def of(cls, nodes: Sequence[_FieldNode]) -> "_Index":
        by_name: dict[str, list[_FieldNode]] = {}
        by_id: dict[int, list[_FieldNode]] = {}
        for node in nodes:
            by_name.setdefault(node.name.lower(), []).append(node)
            if node.id is not None:
                by_id.setdefault(node.id, []).append(node)
        return cls(by_name, by_id)


@dataclass(frozen=True, slots=True)
class _Shape:
    leaves: tuple[int, ...]
    convert: Conversion


@dataclass(frozen=True, kw_only=True)
class FileLayout:
    """The columns of one file schema, found for one table.

    Args:
        schema: Arrow schema of the file as pyarrow reads it, with INT96 in microseconds.
        file: location of the file, for messages.
        int96_leaves: positions of INT96 columns; needed only with a legacy calendar.
    """

    schema: pa.Schema
    file: str
    mapping: ColumnMappingMode
    calendar: LegacyCalendar = PROLEPTIC
    int96_leaves: frozenset[int] = frozenset()
    _nodes: tuple[_FieldNode, ...] = field(init=False, repr=False)
    _index: _Index = field(init=False, repr=False)

    def __post_init__(self) -> None:
        nodes = tuple(_nodes_of(self.schema, 0))
        object.__setattr__(self, "_nodes", nodes)
        object.__setattr__(self, "_index", _Index.of(nodes))
        if self.mapping is ColumnMappingMode.ID and nodes and not any(map(_has_ids, nodes)):
            raise CorruptLogError(
                f"The data file {self.file} has no field ids, and columns of this table are found by id (column mapping mode "
                "'id'). Nothing is read; write the file again with the ids of its columns."
            )

    @property
    def leaf_count(self) -> int:
        """Number of Parquet columns that the file must have, for the positions to be valid."""
        return sum(node.count for node in self._nodes)

    def column(self, item: StructField) -> FileColumn:
        """The column for the field ``item`` of the table.

        Raises:
            CorruptLogError: the file has it with an incompatible type, or twice.
        """
        target = arrow_type(item.type)
        if item.type == VOID:
            return FileColumn(None, (), target, _nothing)
        mapping = (
            ColumnMappingMode.NONE if is_change_type(item) else self.mapping
        )  # Change data files have no physical name or id for ``_change_type``.
        node = self._node_of(self._index, item, mapping, item.name)
        if node is None:
            return FileColumn(None, (), target, _nothing)
        shape = self._shape(node, item.type, target, item.name)
        return FileColumn(node.name, shape.leaves, target, shape.convert)

    def hidden_column(self, name: str, data_type: DataType) -> FileColumn:
        """A column that is not in the table's schema, by its literal name."""
        target = arrow_type(data_type)
        node = next((node for node in self._nodes if node.name == name), None)
        if node is None:
            return FileColumn(None, (), target, _nothing)
        shape = self._shape(node, data_type, target, name)
        return FileColumn(node.name, shape.leaves, target, shape.convert)

    def flat_leaf(self, item: StructField) -> int | None:
        """Position of the Parquet column that holds exactly the values of ``item``, or None; for its statistics."""
        if self.calendar.is_any:
            return None
        node = self._node_of(self._index, item, self.mapping, item.name)
        return node.first if node is not None and node.type == arrow_type(item.type) and not node.children else None

    def _node_of(self, index: _Index, item: StructField, mapping: ColumnMappingMode, where: str) -> _FieldNode | None:
        if mapping is ColumnMappingMode.ID:
            nodes = index.by_id.get(field_id(item), ())
        else:
            nodes = index.by_name.get(physical_name(item, mapping).lower(), ())
        if len(nodes) > 1:
            names = ", ".join(repr(node.name) for node in nodes)
            raise CorruptLogError(
                f"The data file {self.file} has several columns for {where!r}: {names}. It is unknown which one is meant; "
                "write the file again with one of them."
            )
        return nodes[0] if nodes else None

    def _shape(self, node: _FieldNode, data_type: DataType, target: pa.DataType, where: str) -> _Shape:
        stored = node.type
        if data_type == VARIANT:
            return self._variant(node, where)
        if isinstance(data_type, StructType) and pat.is_struct(stored):
            return self._struct(node, data_type, target, where)
        if isinstance(data_type, ArrayType) and is_list(stored):
            return self._list(node, data_type, target, where)
        if isinstance(data_type, MapType) and pat.is_map(stored):
            return self._map(node, data_type, target, where)
        conversion = None
        if not isinstance(data_type, StructType | ArrayType | MapType) and not node.children:
            int96 = node.first in self.int96_leaves
            conversion = leaf_conversion(stored, data_type, target, calendar=self.calendar, is_int96=int96)
        if conversion is None:
            raise self._unreadable(node, data_type_text(data_type), where)
        return _Shape((node.first,), _unwrapped(node, conversion))

    def _struct(self, node: _FieldNode, data_type: StructType, target: pa.StructType, where: str) -> _Shape:
        parts: list[tuple[str | None, Conversion]] = []
        leaves: list[int] = []
        children = _Index.of(node.children)
        for item in data_type.fields:
            here = f"{where}.{item.name}"
            child = None if item.type == VOID else self._node_of(children, item, self.mapping, here)
            if child is None:
                parts.append((None, _nothing))
                continue
            shape = self._shape(child, item.type, target.field(len(parts)).type, here)
            leaves.extend(shape.leaves)
            parts.append((child.name, shape.convert))
        # Each of its columns shows where the struct itself is null.
        return _Shape(tuple(leaves or (node.first,)), lambda array: _rebuilt_struct(array, parts, target))

    def _list(self, node: _FieldNode, data_type: ArrayType, target: pa.ListType, where: str) -> _Shape:
        element = self._shape(node.children[0], data_type.element_type, target.value_type, f"{where}.element")

        def convert(array: pa.Array) -> pa.Array:
            if not pat.is_list(array.type):
                array = plain_list(array)
            values = element.convert(array.values)
            return pa.Array.from_buffers(target, len(array), array.buffers()[:2], -1, array.offset, [values])

        return _Shape(element.leaves, convert)

    def _map(self, node: _FieldNode, data_type: MapType, target: pa.MapType, where: str) -> _Shape:
        key = self._shape(node.children[0], data_type.key_type, target.key_type, f"{where}.key")
        value = self._shape(node.children[1], data_type.value_type, target.item_type, f"{where}.value")
        entry = pa.struct([target.key_field, target.item_field])

        def convert(array: pa.Array) -> pa.Array:
            children = [key.convert(array.keys), value.convert(array.items)]
            entries = pa.Array.from_buffers(entry, len(children[0]), [None], children=children)
            return pa.Array.from_buffers(target, len(array), array.buffers()[:2], -1, array.offset, [entries])

        # A map whose values are not stored still has its keys and nulls.
        return _Shape((*key.leaves, *value.leaves), convert)

    def _variant(self, node: _FieldNode, where: str) -> _Shape:
        names = {child.name: child for child in node.children}
        if not pat.is_struct(node.type) or "metadata" not in names or not {"value", "typed_value"} & set(names):
            raise self._unreadable(node, "variant", where)
        leaves = tuple(range(node.first, node.first + node.count))
        return _Shape(leaves, _unwrapped(node, lambda array: unshredded(_plain_storage(array), where)))

    def _unreadable(self, node: _FieldNode, type_text: str, where: str) -> CorruptLogError:
        return CorruptLogError(
            f"Column {where!r} of the data file {self.file} is stored as {node.type}, which cannot be read as {type_text} without "
            "changing values. Write the file again with the table's type, or restore a version of the table without it."
        )


def _nodes_of(fields: pa.Schema | Sequence[pa.Field], first: int) -> Iterator[_FieldNode]:
    for item in fields:
        node = _node(item, first)
        yield node
        first += node.count


def _node(item: pa.Field, first: int) -> _FieldNode:
    stored = item.type.storage_type if isinstance(item.type, pa.BaseExtensionType) else item.type
    if pat.is_struct(stored):
        children: Sequence[pa.Field] = [stored.field(index) for index in range(stored.num_fields)]
    elif pat.is_map(stored):
        children = [stored.key_field, stored.item_field]
    elif is_list(stored):
        children = [stored.value_field]
    else:
        children = []
    return _FieldNode(item, stored, first, tuple(_nodes_of(children, first)))


def _has_ids(node: _FieldNode) -> bool:
    return node.id is not None or any(map(_has_ids, node.children))


def _nothing(array: pa.Array) -> pa.Array:
    raise AssertionError("a column that the file does not have is never converted")


def _unwrapped(node: _FieldNode, convert: Conversion) -> Conversion:
    if not isinstance(node.field.type, pa.BaseExtensionType):
        return convert
    return lambda array: convert(array.storage)


def _plain_storage(array: pa.Array) -> pa.Array:
    """The struct with the storage arrays of direct children that are extension arrays."""
    children = [array.field(index) for index in range(array.type.num_fields)]
    if not any(isinstance(child.type, pa.BaseExtensionType) for child in children):
        return array
    plain = [child.storage if isinstance(child.type, pa.BaseExtensionType) else child for child in children]
    return pa.StructArray.from_arrays(plain, names=[item.name for item in array.type], mask=_nulls(array))


def _rebuilt_struct(
    array: pa.StructArray, parts: Sequence[tuple[str | None, Conversion]], target: pa.StructType
) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if not parts:
        # Without fields, only the nulls remain.
        return pa.array([None if is_null else {} for is_null in array.is_null().to_pylist()], target)
    children = [
        pa.nulls(len(array), target.field(position).type)
        if name is None
        else convert(array.field(array.type.get_field_index(name)))
        for position, (name, convert) in enumerate(parts)
    ]
    return pa.StructArray.from_arrays(
        children, fields=[target.field(position) for position in range(target.num_fields)], mask=_nulls(array)
    )


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
