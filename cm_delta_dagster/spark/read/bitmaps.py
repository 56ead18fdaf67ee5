"""Deletion vectors as Spark needs them (protocol heading "Deletion Vectors"): a bit for each row up to the last deleted row of
a file, regardless of how many rows are deleted.

With a file index the bits are in the JVM of the driver, which is given the bitmaps. Otherwise a bitmap becomes an array of
64-bit words, which Spark joins with the rows, and ``getbit`` tests each row by its position in the file.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.errors import UnsupportedFeatureError
from cm_delta_dagster.storage.deletion_vector_reader import read_deletion_vectors
from cm_delta_dagster.storage.store import Store

_MAX_BITS = (1 << 31) - 1
"""Maximum for one file: 256 MB, for two billion rows."""
_BATCH_BITS = 1 << 30
"""Bits that one scan has: 128 MB."""


def deletion_bitmaps(store: Store, *, location: str, files: pa.Table) -> list[BitMap64]:
    """The deleted positions of each file of ``files``, which all have a deletion vector.

    Raises:
        CorruptLogError, ObjectNotFoundError: as ``read_deletion_vectors``.
        UnsupportedFeatureError: a deletion vector deletes a row after the first two billion rows of its file.
    """
    bitmaps = read_deletion_vectors(store, location=location, files=files)
    for path, bitmap in zip(files["path"].to_pylist(), bitmaps, strict=True):
        if num_bits(bitmap) > _MAX_BITS:
            raise UnsupportedFeatureError(
                f"The deletion vector of {path!r} of the table at {location} deletes row {bitmap.max()}; files with more "
                f"than {_MAX_BITS} rows and a deletion vector cannot be read. Rewrite the file, or restore its deletion "
                "vector if the file is smaller."
            )
    return bitmaps


def num_bits(bitmap: BitMap64) -> int:
    """The number of rows up to the last deleted one."""
    return bitmap.max() + 1 if len(bitmap) else 0


def bitmap_words(bitmap: BitMap64) -> pa.Array:
    """Bit ``i % 64`` of word ``i // 64`` is set for every ``i`` of the bitmap."""
    positions = np.frombuffer(bitmap.to_array(), dtype=np.uint64)
    if not len(positions):
        return pa.array([], pa.int64())
    places = positions >> np.uint64(6)
    starts = np.flatnonzero(np.diff(places, prepend=places[0] + np.uint64(1)))
    words = np.zeros(int(places[-1]) + 1, dtype=np.uint64)
    words[places[starts]] = np.bitwise_or.reduceat(np.uint64(1) << (positions & np.uint64(63)), starts)
    return pa.array(words.view(np.int64), pa.int64())


def bit_batches(bitmaps: Sequence[BitMap64], limit: int = _BATCH_BITS) -> Iterator[slice]:
    """Consecutive parts of ``bitmaps``, each of at most ``limit`` bits unless a single file has more."""
    start = bits = 0
    for position, bitmap in enumerate(bitmaps):
        count = num_bits(bitmap)
        if position > start and bits + count > limit:
            yield slice(start, position)
            start, bits = position, 0
        bits += count
    if bitmaps:
        yield slice(start, len(bitmaps))
