"""Which partitions a commit changes, and what it does to each of them, for the catalog's feed.

The figures come from the actions of the commit alone. The rows and files that a partition has afterwards would need the files of
the whole table, which an append does not read.
"""

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import astuple, dataclass

from cm_delta_dagster.client.commits.table_counts import row_counts
from cm_delta_dagster.protocol.actions.actions import AddFile, RemoveFile
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, logical_partitions
from cm_delta_dagster.protocol.schema.char_types import char_width
from cm_delta_dagster.protocol.schema.types import StructType

MAX_PARTITIONS_IN_FEED = 1000
"""The feed names the changed partitions of a commit up to this number."""
MAX_PARTITIONS_WITH_FIGURES = 250
"""And has figures of them up to this number, in at most 24 KiB."""

CHANGED_PARTITIONS_TAG = "cm_delta/changed_partitions"
"""Tag of the feed: JSON array with one object for each partition that the commit changed, partition column to text or null."""
PARTITION_FIGURES_TAG = "cm_delta/partition_figures"
"""Tag of the feed: JSON array with the :class:`PartitionFigures` of each of these partitions, in the same order, as arrays."""


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """What a commit did to one partition; None for what its actions do not say.

    A file that is removed and added again with another deletion vector counts neither as added nor as removed.
    """

    added_rows: int | None = 0
    added_files: int | None = 0
    added_bytes: int | None = 0
    removed_files: int | None = 0
    removed_bytes: int | None = 0

    @classmethod
    def total(cls, figures: Iterable["PartitionFigures"]) -> "PartitionFigures":
        """The sum; None for what one of them does not say."""
        columns = zip(*(astuple(part) for part in figures), strict=True)
        return cls(*(None if None in column else sum(column) for column in columns))


@dataclass(frozen=True, slots=True)
class ChangedPartition:
    """A partition that a commit changes.

    Attributes:
        values: partition column, by its logical name, to text or null; of a ``char(n)`` without the blanks that fill it.
    """

    values: Mapping[str, str | None]
    figures: PartitionFigures


def changed_partitions(
    adds: Sequence[AddFile],
    removes: Iterable[RemoveFile],
    *,
    columns: Sequence[str],
    schema: StructType,
    mapping: ColumnMappingMode,
) -> tuple[ChangedPartition, ...] | None:
    """The partitions of those files that change data, each once; None if they are unknown or too many.

    Args:
        columns: partition columns of the table, by logical names.
        mapping: column mapping of the table.
    """
    if not columns:
        return None
    changing = [add for add in adds if add.data_change]
    gone = [remove for remove in removes if remove.data_change]
    updated = {add.path for add in changing} & {remove.path for remove in gone}
    figures_by_values: dict[tuple[tuple[str, str | None], ...], list[PartitionFigures]] = {}
    for add, rows in zip(changing, row_counts(changing), strict=True):
        figures = PartitionFigures() if add.path in updated else PartitionFigures(rows, 1, add.size)
        figures_by_values.setdefault(tuple(add.partition_values.items()), []).append(figures)
    for remove in gone:
        if remove.partition_values is None:
            return None
        if remove.path in updated:
            continue
        figures = PartitionFigures(removed_files=1, removed_bytes=remove.size)
        figures_by_values.setdefault(tuple(remove.partition_values.items()), []).append(figures)
    if len(figures_by_values) > MAX_PARTITIONS_IN_FEED:
        return None
    chars = {name for name in columns if (item := schema.field(name)) is not None and char_width(item)}
    return tuple(
        ChangedPartition(
            _without_blanks(logical_partitions(dict(values), columns, schema, mapping), chars),
            PartitionFigures.total(figures),
        )
        for values, figures in figures_by_values.items()
    )


def _without_blanks(values: Mapping[str, str | None], chars: Set[str]) -> Mapping[str, str | None]:
    return {name: text.rstrip(" ") if text is not None and name in chars else text for name, text in values.items()}


def feed_tags(partitions: Sequence[ChangedPartition]) -> dict[str, str]:
    """The tags of the feed for the changed partitions of a commit."""
    tags = {CHANGED_PARTITIONS_TAG: json.dumps([dict(partition.values) for partition in partitions])}
    if 0 < len(partitions) <= MAX_PARTITIONS_WITH_FIGURES:
        figures = [astuple(partition.figures) for partition in partitions]
        tags[PARTITION_FIGURES_TAG] = json.dumps(figures, separators=(",", ":"))
    return tags
