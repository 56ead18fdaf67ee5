"""Deletion vectors as rows that Spark can join with (protocol heading "Deletion Vectors", DV-3, DV-4). Room: spark.

A bitmap becomes an array of 64-bit words, so that a scanned row is tested by ``getbit`` on its position in the file.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions import DeletionVectorDescriptor
from cm_delta_dagster.protocol.deletion_vectors import decode_from_file, decode_inline, dv_location
from cm_delta_dagster.storage.store import Store

_THREADS = 8


def deletion_words(store: Store, *, location: str, files: pa.Table) -> list[pa.Array]:
    """The deleted positions of each file of ``files``, which all have a deletion vector, as 64-bit words.

    Raises:
        CorruptLogError: a deletion vector contradicts its descriptor or names a row that the file does not have
        (DV-27). ObjectNotFoundError: the file of a deletion vector is gone.
    """
    descriptors = [_descriptor(value) for value in files["deletionVector"].to_pylist()]
    places = [dv_location(location, descriptor) for descriptor in descriptors]
    wanted = sorted({place for place in places if place is not None})
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        content = dict(zip(wanted, pool.map(store.read, wanted), strict=True))
    words = []
    for descriptor, place, path, stats in zip(
        descriptors, places, files["path"].to_pylist(), files["stats"].to_pylist(), strict=True
    ):
        bitmap = decode_inline(descriptor) if place is None else decode_from_file(content[place], descriptor)
        _check_range(bitmap, stats, path)
        words.append(bitmap_words(bitmap))
    return words


def bitmap_words(bitmap: BitMap64) -> pa.Array:
    """Bit ``i % 64`` of word ``i // 64`` is set for every ``i`` of the bitmap."""
    positions = np.fromiter(bitmap, dtype=np.uint64, count=len(bitmap))
    if not len(positions):
        return pa.array([], pa.int64())
    words = np.zeros(int(positions[-1] >> np.uint64(6)) + 1, dtype=np.uint64)
    np.bitwise_or.at(words, (positions >> np.uint64(6)).astype(np.int64), np.uint64(1) << (positions & np.uint64(63)))
    return pa.array(words.view(np.int64), pa.int64())


def _descriptor(value: Mapping[str, Any]) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type=value["storageType"],
        path_or_inline_dv=value["pathOrInlineDv"],
        size_in_bytes=value["sizeInBytes"],
        cardinality=value["cardinality"],
        offset=value.get("offset"),
    )


def _check_range(bitmap: BitMap64, stats: str | None, path: str) -> None:
    try:
        rows = json.loads(stats or "{}").get("numRecords")
    except (ValueError, AttributeError):
        rows = None
    if isinstance(rows, int) and len(bitmap) and bitmap.max() >= rows:
        raise CorruptLogError(
            f"The deletion vector of {path!r} deletes row {bitmap.max()}, and the file has {rows} rows. It belongs to "
            "another file; restore the deletion vector or an older version of the table."
        )
