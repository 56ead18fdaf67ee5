"""Deletion vectors that a commit adds (protocol heading "Deletion Vectors").

Bitmaps become descriptors and the content of at most one file; files are added again with their new vector. Only the normative
bitmap layout is written. A small bitmap is stored inline: it costs the commit fewer bytes than a request for a file would cost its
writer and every reader. All other bitmaps of a commit share one file.
"""

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyroaring import BitMap64

from cm_delta_dagster.errors import IllegalCommitError
from cm_delta_dagster.protocol.actions.actions import AddFile, DeletionVectorDescriptor
from cm_delta_dagster.protocol.features.deletion_vectors import (
    check_positions,
    encode_bitmap,
    encode_file,
    encode_inline,
    encode_relative_name,
)

MAX_INLINE_BYTES = 64
"""A bitmap of at most this size is stored in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedVectors:
    """Descriptors in the order of the bitmaps, and the file that they refer to.

    Attributes:
        name: name of the file in the table's directory; None if all vectors are inline.
        content: content of the file.
    """

    descriptors: tuple[DeletionVectorDescriptor, ...]
    name: str | None = None
    content: bytes = b""


def pack_vectors(bitmaps: Sequence[BitMap64], *, file_id: uuid.UUID) -> PackedVectors:
    """The descriptors of ``bitmaps``, with one file for all that are not inline.

    Args:
        bitmaps: deleted positions of data files, none of them empty.
        file_id: a new UUID, which names the file.

    Raises:
        IllegalCommitError: a bitmap is empty or has an impossible position.
    """
    for bitmap in bitmaps:
        bitmap.run_optimize()
    encoded = [encode_bitmap(bitmap) for bitmap in bitmaps]
    stored = [data for data in encoded if len(data) > MAX_INLINE_BYTES]
    content, offsets = encode_file(stored)
    positions = iter(offsets)
    path = encode_relative_name(file_id)
    descriptors = tuple(
        encode_inline(bitmap)
        if len(data) <= MAX_INLINE_BYTES
        else DeletionVectorDescriptor(
            storage_type="u",
            path_or_inline_dv=path,
            offset=next(positions),
            size_in_bytes=len(data),
            cardinality=len(bitmap),
        )
        for bitmap, data in zip(bitmaps, encoded, strict=True)
    )
    if not stored:
        return PackedVectors(descriptors=descriptors)
    return PackedVectors(descriptors=descriptors, name=f"deletion_vector_{file_id}.bin", content=content)


def with_vector(file: AddFile, vector: DeletionVectorDescriptor, positions: BitMap64) -> AddFile:
    """The live ``file`` as it is added again with ``vector``: its bounds are no longer tight, all else stays.

    Args:
        positions: all deleted positions of the file, old and new.

    Raises:
        IllegalCommitError: the statistics of the file lack the number of rows, which a file with a vector must have.
        CorruptLogError: a position lies beyond the last row.
    """
    num_rows = physical_rows(file.stats)
    if num_rows is None or file.stats is None:
        raise IllegalCommitError(
            f"The file {file.path} cannot get a deletion vector: its statistics do not say how many rows it has. Nothing was "
            "committed. Rewrite the file."
        )
    check_positions(positions, num_rows=num_rows, path=file.path)
    return replace(file, deletion_vector=vector, data_change=True, stats=_with_loose_bounds(file.stats))


def physical_rows(stats: str | None) -> int | None:
    """``numRecords`` of a file's statistics, which deletion vectors do not reduce; None if it is not known."""
    try:
        members = json.loads(stats or "")
    except (ValueError, RecursionError):
        return None
    rows = members.get("numRecords") if isinstance(members, dict) else None
    return rows if isinstance(rows, int) and not isinstance(rows, bool) and rows >= 0 else None


def _with_loose_bounds(stats: str) -> str:
    """The statistics with ``tightBounds`` false. Decimals keep all digits, of which a float would lose some."""
    mark = "#"
    while mark in stats:
        mark += "#"
    members = json.loads(stats, parse_float=lambda number: f"{mark}{number}{mark}")
    text = json.dumps({**members, "tightBounds": False}, separators=(",", ":"), ensure_ascii=False)
    return re.sub(f'"{mark}([^"]*){mark}"', r"\1", text)
