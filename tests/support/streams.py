"""Streams without Spark, with their options as keywords."""

from collections.abc import Sequence
from typing import Any

from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.operations.reading.streams.arrow_stream import StreamBatches, stream_arrow
from cm_delta_dagster.operations.reading.streams.state import StreamOptions
from cm_delta_dagster.protocol.changes.stream_offset import StreamOffset
from cm_delta_dagster.protocol.predicates.predicates import Predicate


def stream_of(
    table: ReadableTable,
    *,
    offset: StreamOffset | str | None = None,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
    **options: Any,
) -> StreamBatches:
    """``stream_arrow`` with the fields of ``StreamOptions`` as ``options``."""
    return stream_arrow(table, offset=offset, options=StreamOptions(**options), columns=columns, where=where)
