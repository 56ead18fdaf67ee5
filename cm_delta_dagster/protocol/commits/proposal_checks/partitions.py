"""Partition values of a commit (protocol heading "Partition Value Serialization").

A reader fails on a file whose partition value is no value of the type of its column. A key that no partition column has is ignored,
and so is a column without a key, which is NULL. A ``remove`` may repeat whatever the table has.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import CorruptLogError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.actions.file_columns import partition_texts
from cm_delta_dagster.protocol.actions.partition_values import partition_value_array
from cm_delta_dagster.protocol.commits.commit_validation import CommitFlaw, NumberedAction
from cm_delta_dagster.protocol.features.column_mapping import (
    ColumnMappingMode,
    column_mapping_mode,
    stored_names,
)
from cm_delta_dagster.protocol.schema.types import (
    BYTE,
    DATE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    parse_schema,
)

PartitionTypes: TypeAlias = tuple[tuple[str, DataType], ...]
"""The physical names of partition columns, and their types."""

_DAY = r"[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_USUAL: Mapping[DataType, str] = {
    BYTE: r"^-?[0-9]{1,2}$",
    SHORT: r"^-?[0-9]{1,4}$",
    INTEGER: r"^-?[0-9]{1,9}$",
    LONG: r"^-?[0-9]{1,18}$",
    DATE: rf"^{_DAY}$",
    TIMESTAMP: rf"^{_DAY}[ T]{_TIME}Z?$",
    TIMESTAMP_NTZ: rf"^{_DAY}[ T]{_TIME}$",
}
"""What values of a type usually are. All texts of this form are values of the type."""


def partition_types(metadata: Metadata, protocol: Protocol) -> PartitionTypes:
    """The partition columns of a table. Raises CorruptLogError for a damaged schema, InvalidArgumentError for properties."""
    mode = column_mapping_mode(protocol, metadata)
    return _types(metadata.schema_string, tuple(metadata.partition_columns), mode)


@lru_cache(maxsize=64)
def _types(schema_string: str, columns: tuple[str, ...], mode: ColumnMappingMode) -> PartitionTypes:
    schema = parse_schema(schema_string)
    fields = [schema.field(name) for name in columns]
    names = stored_names(columns, schema, mode)
    return tuple((name, item.type) for name, item in zip(names, fields, strict=True) if item is not None)


@dataclass(frozen=True, slots=True)
class StatedPartitions:
    """The distinct partition values of the files of a commit.

    Attributes:
        texts: the values by the name of the action and the key.
    """

    texts: Mapping[tuple[str, str], pa.Array]
    _flaws: dict[PartitionTypes, CommitFlaw | None] = field(default_factory=dict, compare=False)

    def flaw_for(self, types: PartitionTypes) -> CommitFlaw | None:
        """The first value that a column of this type does not have. It is computed once for a table with these columns."""
        if types not in self._flaws:
            self._flaws[types] = self._flaw(types)
        return self._flaws[types]

    def _flaw(self, types: PartitionTypes) -> CommitFlaw | None:
        by_name = dict(types)
        for (action, key), texts in self.texts.items():
            data_type = by_name.get(key, STRING)
            if data_type == STRING:
                continue
            try:
                partition_value_array(_suspects(texts, data_type), data_type)
            except (CorruptLogError, UnsupportedFeatureError) as error:
                why = f"has a wrong value of {key!r}. {str(error).removesuffix('.')}"
                return CommitFlaw(action=action, field="partitionValues", why=why)
        return None


def _suspects(texts: pa.Array, data_type: DataType) -> pa.Array:
    """The texts that must be parsed: those that are not of the usual form."""
    pattern = _USUAL.get(data_type)
    return texts if pattern is None else texts.filter(pc.invert(pc.match_substring_regex(texts, pattern)))


def stated_partitions(actions: Iterable[NumberedAction], adds: pa.Table | None) -> StatedPartitions:
    """The partition values of a commit whose actions are valid.

    Args:
        adds: the files that are in columns instead of ``actions``.
    """
    values: dict[tuple[str, str], set[str]] = {}
    for _, action, fields in actions:
        if action in ("add", "cdc"):
            for key, text in fields["partitionValues"].items():
                if text is not None:
                    values.setdefault((action, key), set()).add(text)
    texts = {stated: pa.array(sorted(distinct), pa.string()) for stated, distinct in values.items()}
    if adds is not None:
        for key, of_columns in _in_columns(adds["partitionValues"]):
            others = texts.get(("add", key))
            texts["add", key] = of_columns if others is None else pa.concat_arrays([of_columns, others])
    return StatedPartitions(texts)


def _in_columns(maps: pa.ChunkedArray) -> Iterator[tuple[str, pa.Array]]:
    keys = {key for chunk in maps.chunks for key in pc.unique(chunk.keys).to_pylist()}
    for key in sorted(keys):
        yield key, pc.unique(partition_texts(maps, key)).drop_null()
