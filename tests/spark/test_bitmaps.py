"""Deletion vectors as words: every bit where it belongs, and bounded portions."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from cm_delta_dagster.spark.bitmaps import bitmap_words, word_batches


@given(st.sets(st.integers(0, 700) | st.integers(0, 200_000), max_size=200))
def test_words_have_exactly_the_bits_of_the_bitmap(positions: set[int]) -> None:
    """DV-4."""
    words = bitmap_words(BitMap64(positions)).to_pylist()
    assert {
        64 * place + bit for place, word in enumerate(words) if word for bit in range(64) if word >> bit & 1
    } == positions
    assert len(words) == (max(positions) // 64 + 1 if positions else 0)


@given(st.lists(st.integers(0, 12), max_size=30))
def test_batches_hold_all_words_in_order_and_none_is_too_large(lengths: list[int]) -> None:
    words = [pa.array([number] * length, pa.int64()) for number, length in enumerate(lengths)]
    batches = [words[part] for part in word_batches(words, 10)]
    assert [item for batch in batches for item in batch] == words
    assert all(len(batch) == 1 or (batch and sum(map(len, batch)) <= 10) for batch in batches)
