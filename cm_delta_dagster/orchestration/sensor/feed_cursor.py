"""The cursor of a commit sensor: its position in the commit feed and the pending commits. No I/O.

The cursor stores the catalog id and the last commit seen, so that the sensor detects a catalog that was replaced or restored
from a copy, in which the position belongs to another commit.
"""

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cm_delta_dagster.catalog.commit_feed import FeedEntry, FeedPage
from cm_delta_dagster.catalog.ratification import TableCounts
from cm_delta_dagster.client.commits.changed_partitions import (
    CHANGED_PARTITIONS_TAG,
    PARTITION_FIGURES_TAG,
    PartitionFigures,
)
from cm_delta_dagster.client.creation import CREATE_TABLE
from cm_delta_dagster.orchestration.runs.runs import ASSET_KEY_TAG, PARTITION_KEY_TAG, RUN_ID_TAG


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedCommit:
    """The facts of a commit that the sensor needs; pending commits are stored in the cursor.

    Attributes:
        data_change: whether the commit changed rows; False for the creation of an empty table.
        changed: partition values of the changed files; None if the feed does not have them.
        run_partition: the partition that the run wrote, from the tags of the commit.
        engine: name and version of the writer; None if the catalog does not know it.
        num_rows, num_files, size_bytes: of the table after the commit; None if the catalog does not know them.
    """

    position: int
    table: str
    table_id: str
    version: int
    data_version: int
    committed_ms: int
    operation: str
    data_change: bool
    txn_id: str = ""
    ratified_ms: int = 0
    run_id: str | None = None
    run_asset: str | None = None
    run_partition: str | None = None
    changed: tuple[Mapping[str, str | None], ...] | None = None
    figures: tuple[PartitionFigures, ...] | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    engine: str | None = None
    principal: str | None = None
    user_metadata: str | None = None
    num_rows: int | None = None
    num_files: int | None = None
    size_bytes: int | None = None

    @classmethod
    def of(cls, entry: FeedEntry) -> "WatchedCommit":
        summary = entry.summary
        counts = summary.counts
        created_empty = entry.version == 0 and summary.operation == CREATE_TABLE
        return cls(
            position=entry.position,
            table=str(entry.identifier),
            table_id=entry.table_id,
            version=entry.version,
            data_version=entry.data_version,
            committed_ms=summary.in_commit_timestamp,
            operation=summary.operation,
            data_change=summary.data_change and not created_empty,
            txn_id=summary.txn_id,
            ratified_ms=entry.ratified_ms,
            run_id=summary.tags.get(RUN_ID_TAG),
            run_asset=summary.tags.get(ASSET_KEY_TAG),
            run_partition=summary.tags.get(PARTITION_KEY_TAG),
            changed=_changed(summary.tags.get(CHANGED_PARTITIONS_TAG)),
            figures=_figures(summary.tags.get(PARTITION_FIGURES_TAG)),
            metrics=dict(summary.metrics),
            engine=summary.engine_info,
            principal=entry.principal,
            user_metadata=summary.user_metadata,
            num_rows=None if counts is None else counts.num_rows,
            num_files=None if counts is None else counts.num_files,
            size_bytes=None if counts is None else counts.size_bytes,
        )

    @property
    def counts(self) -> TableCounts | None:
        """Rows, files and bytes of the table after the commit."""
        if self.num_files is None or self.size_bytes is None:
            return None
        return TableCounts(num_rows=self.num_rows, num_files=self.num_files, size_bytes=self.size_bytes)

    def figures_of(self, positions: Sequence[int]) -> PartitionFigures | None:
        """What the commit did to those of the changed partitions together; None if the feed does not have it."""
        if self.figures is None or self.changed is None or len(self.figures) != len(self.changed) or not positions:
            return None
        return PartitionFigures.total(self.figures[position] for position in positions)

    @property
    def is_creation(self) -> bool:
        """Whether the commit is ``CREATE TABLE``. A first write without rows is ``CREATE TABLE AS SELECT``."""
        return self.version == 0 and self.operation == CREATE_TABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCommit:
    """The last commit that the sensor processed. In the same feed it is still at its position."""

    position: int
    table: str
    txn_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedCursor:
    """The state of a sensor between two ticks.

    Attributes:
        position: feed position up to which every commit was reported, has an event or is in ``pending``.
        first_position: where the sensor started; it does not report older commits.
        catalog_id: id of the catalog of the feed; empty in a cursor of an older release.
        seen: the last commit processed, None before the first one.
        pending: commits of runs that had not ended, by position.
        recovering_until: set after an unreadable cursor: up to this position, a version older than the newest one with
            an event counts as reported.
    """

    position: int
    first_position: int = 0
    catalog_id: str = ""
    seen: SeenCommit | None = None
    pending: tuple[WatchedCommit, ...] = ()
    recovering_until: int = 0

    def to_text(self) -> str:
        return json.dumps({"format": 2, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> "FeedCursor | None":
        """The cursor; None if the text is not a cursor of this sensor."""
        try:
            value = json.loads(text)
            if value.pop("format") not in (1, 2) or not isinstance(value["position"], int):
                return None
            pending = tuple(_pending(item) for item in value.pop("pending"))
            seen = value.pop("seen", None)
            return cls(pending=pending, seen=None if seen is None else SeenCommit(**seen), **value)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def reads_after(self, watched: Container[str]) -> int:
        """Position after which the feed is read. The page starts with the last commit seen, for :meth:`lost_place`."""
        return self.seen.position - 1 if self.seen is not None and self.seen.table in watched else self.position

    def gap(self, page: FeedPage) -> str | None:
        """Which entries were deleted from the feed before this cursor came to them; None if none was."""
        if not 0 < self.position < page.deleted_up_to:
            return None
        positions = f"{self.position + 1} to {page.deleted_up_to}"
        return f"The entries at the positions {positions} were deleted from the feed after their retention"

    def lost_place(self, page: FeedPage, watched: Container[str]) -> str | None:
        """Why the feed of ``page`` is not the feed of this cursor; None if it is."""
        if self.catalog_id and self.catalog_id != page.catalog_id:
            return f"its id is {page.catalog_id}, and the cursor is of the catalog {self.catalog_id}"
        if self.position > page.latest_position:
            return f"its feed ends at position {page.latest_position}, and the cursor is at {self.position}"
        if self.seen is None or self.seen.table not in watched or self.seen.position <= page.deleted_up_to:
            return None
        first = page.entries[0] if page.entries else None
        if first is None or (first.position, first.summary.txn_id) != (self.seen.position, self.seen.txn_id):
            return f"position {self.seen.position} of its feed is another commit than the one in the cursor"
        return None


def _pending(item: dict[str, Any]) -> WatchedCommit:
    changed, figures = item.pop("changed", None), item.pop("figures", None)
    return WatchedCommit(
        changed=None if changed is None else tuple(changed),
        figures=None if figures is None else tuple(PartitionFigures(**entry) for entry in figures),
        **item,
    )


def _figures(text: str | None) -> tuple[PartitionFigures, ...] | None:
    try:
        values = None if text is None else json.loads(text)
        if not all(type(number) is int or number is None for entry in values or () for number in entry):
            return None
        return None if values is None else tuple(PartitionFigures(*entry) for entry in values)
    except (ValueError, TypeError):
        return None


def _changed(text: str | None) -> tuple[Mapping[str, str | None], ...] | None:
    try:
        changes = None if text is None else json.loads(text)
    except ValueError:
        return None
    if not isinstance(changes, list) or not all(isinstance(values, dict) for values in changes):
        return None
    return tuple(changes)
