"""Deletion vectors as rows that Spark can join with (protocol heading "Deletion Vectors").

A bitmap becomes an array of 64-bit words, and ``getbit`` tests each scanned row by its position in the file. The array has
one bit for each row up to the last deleted row, regardless of how many rows are deleted.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.errors import UnsupportedFeatureError
from cm_delta_dagster.storage.deletion_vector_reader import read_deletion_vectors
from cm_delta_dagster.storage.store import Store

_MAX_WORDS = 1 << 25
"""Maximum for one file: 256 MB of words, for two billion rows."""
_BATCH_WORDS = 1 << 24
"""Words that are sent to Spark together: 128 MB."""


def deletion_words(store: Store, *, location: str, files: pa.Table) -> list[pa.Array]:
    """The deleted positions of each file of ``files``, which all have a deletion vector, as 64-bit words.

    Raises:
        CorruptLogError, ObjectNotFoundError: as ``read_deletion_vectors``.
        UnsupportedFeatureError: a deletion vector deletes a row after the first two billion rows of its file.
    """
    bitmaps = read_deletion_vectors(store, location=location, files=files)
    words = []
    for path, bitmap in zip(files["path"].to_pylist(), bitmaps, strict=True):
        if len(bitmap) and bitmap.max() >> 6 >= _MAX_WORDS:
            raise UnsupportedFeatureError(
                f"The deletion vector of {path!r} of the table at {location} deletes row {bitmap.max()}; files with more "
                f"than {_MAX_WORDS << 6} rows and a deletion vector cannot be read. Rewrite the file, or restore its deletion "
                "vector if the file is smaller."
            )
        words.append(bitmap_words(bitmap))
    return words


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


def word_batches(words: Sequence[pa.Array], limit: int = _BATCH_WORDS) -> Iterator[slice]:
    """Consecutive parts of ``words``, each of at most ``limit`` words unless a single file has more."""
    start = held = 0
    for position, value in enumerate(words):
        if position > start and held + len(value) > limit:
            yield slice(start, position)
            start, held = position, 0
        held += len(value)
    if len(words):
        yield slice(start, len(words))
