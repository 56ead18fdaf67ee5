"""Deletion vectors as rows that Spark can join with (protocol heading "Deletion Vectors"). Room: spark.

A bitmap becomes an array of 64-bit words, so that a scanned row is tested by ``getbit`` on its position in the file.
"""

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.storage.deletion_vectors import read_deletion_vectors
from cm_delta_dagster.storage.store import Store


def deletion_words(store: Store, *, location: str, files: pa.Table) -> list[pa.Array]:
    """The deleted positions of each file of ``files``, which all have a deletion vector, as 64-bit words.

    Raises:
        CorruptLogError, ObjectNotFoundError: as ``read_deletion_vectors``.
    """
    return [bitmap_words(bitmap) for bitmap in read_deletion_vectors(store, location=location, files=files)]


def bitmap_words(bitmap: BitMap64) -> pa.Array:
    """Bit ``i % 64`` of word ``i // 64`` is set for every ``i`` of the bitmap."""
    positions = np.fromiter(bitmap, dtype=np.uint64, count=len(bitmap))
    if not len(positions):
        return pa.array([], pa.int64())
    words = np.zeros(int(positions[-1] >> np.uint64(6)) + 1, dtype=np.uint64)
    np.bitwise_or.at(words, (positions >> np.uint64(6)).astype(np.int64), np.uint64(1) << (positions & np.uint64(63)))
    return pa.array(words.view(np.int64), pa.int64())
