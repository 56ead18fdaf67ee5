"""Deletion vectors as words: every bit where it belongs, and bounded portions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from cm_delta_dagster.spark.read.bitmaps import bit_batches, bitmap_words


@pytest.mark.requirements("DV-4")
@settings(deadline=None)
@given(st.sets(st.integers(0, 700) | st.integers(0, 200_000), max_size=200))
def test_words_have_exactly_the_bits_of_the_bitmap(positions: set[int]) -> None:
    words = bitmap_words(BitMap64(positions)).to_pylist()
    assert {
        64 * place + bit for place, word in enumerate(words) if word for bit in range(64) if word >> bit & 1
    } == positions
    assert len(words) == (max(positions) // 64 + 1 if positions else 0)


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), max_size=30))
def test_batches_hold_all_bits_in_order_and_none_is_too_large(lengths: list[int]) -> None:
    bitmaps = [BitMap64([length - 1] if length else []) for length in lengths]
    batches = [lengths[part] for part in bit_batches(bitmaps, 10)]
    assert [item for batch in batches for item in batch] == lengths
    assert all(len(batch) == 1 or (batch and sum(batch) <= 10) for batch in batches)
