"""Reads deletion vectors from storage, each file once.

Protocol heading "Deletion Vectors". ``protocol.features.deletion_vectors`` decodes them.
"""

import json
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.errors import CorruptLogError, ObjectNotFoundError
from cm_delta_dagster.protocol.actions.action_fields import deletion_vector_of
from cm_delta_dagster.protocol.features.deletion_vectors import decode_from_file, decode_inline, dv_location
from cm_delta_dagster.storage.store import Store

_THREADS = 8


def read_deletion_vectors(store: Store, *, location: str, files: pa.Table) -> list[BitMap64]:
    """The deleted positions of each row of ``files``.

    Args:
        location: absolute URI of the table root.
        files: columns of ``ADD_SCHEMA``; every row has a deletion vector.

    Raises:
        CorruptLogError: a deletion vector contradicts its descriptor or deletes a row that the file does not have.
        ObjectNotFoundError: the file of a deletion vector does not exist.
    """
    descriptors = [deletion_vector_of(value) for value in files["deletionVector"].to_pylist()]
    places = [dv_location(location, descriptor) for descriptor in descriptors]
    locations = sorted({place for place in places if place is not None})
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        content = dict(zip(locations, pool.map(lambda place: _fetch(store, place), locations), strict=True))
    bitmaps = []
    for descriptor, place, path, stats in zip(
        descriptors, places, files["path"].to_pylist(), files["stats"].to_pylist(), strict=True
    ):
        try:
            bitmap = decode_inline(descriptor) if place is None else decode_from_file(content[place], descriptor)
            _check_range(bitmap, stats, path)
        except CorruptLogError as error:
            vector = "its inline deletion vector" if place is None else f"the deletion vector in {place}"
            raise CorruptLogError(
                f"The file {path!r} of the table at {location} cannot be read with {vector}: {error}"
            ) from error
        bitmaps.append(bitmap)
    return bitmaps


def _fetch(store: Store, place: str) -> bytes:
    try:
        return store.read(place)
    except ObjectNotFoundError as error:
        raise ObjectNotFoundError(
            f"The deletion vector file {place} does not exist, although the table's log refers to it. Without it deleted rows "
            "would be read. Restore the file, or read a version of the table without it."
        ) from error


def _check_range(bitmap: BitMap64, stats: str | None, path: str) -> None:
    try:
        rows = json.loads(stats or "{}").get("numRecords")
    except (ValueError, AttributeError, RecursionError):
        rows = None
    if isinstance(rows, int) and len(bitmap) and bitmap.max() >= rows:
        raise CorruptLogError(
            f"The deletion vector of {path!r} deletes row {bitmap.max()}, and the file has {rows} rows. It belongs to "
            "another file; restore the deletion vector or an older version of the table."
        )
