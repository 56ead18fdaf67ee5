"""Ranges of the columns of a curve, and where files begin."""

import numpy as np
import pyarrow as pa
import pytest

from cm_delta_dagster.protocol.statistics.curve_ranges import KeyValues, RangeBounds, _roundest

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(("low", "high"), [(3, 9), (5, 7), (6, 7), (7, 8), (0, 5), (12, 20), (9, 9)])
def test_the_roundest_number_has_the_most_trailing_zeros(low: int, high: int) -> None:
    found = _roundest(low, high)
    assert found == high or low < found < high
    assert all(found & -found >= other & -other for other in range(low + 1, high + 1))


def test_ranges_hold_equally_many_rows_with_null_first_and_nan_last() -> None:
    values = [None, float("nan"), 0.0, -0.0, float("-inf"), 3.0, None, 1e300]
    keys = KeyValues.of(pa.array(values))
    numbers = RangeBounds.of(keys, 4).ranges(keys).tolist()
    assert numbers == [0, 3, 1, 1, 0, 2, 0, 2]


def test_texts_are_compared_by_their_first_bytes() -> None:
    texts = ["z", "\u00e9", "a", "", "ab", None, "\U0001f600", "z" * 70 + "a", "z" * 70]
    keys = KeyValues.of(pa.array(["x", *texts]).slice(1))
    order = np.argsort(keys.values, kind="stable")
    valid = [text for text in texts if text is not None]
    assert [valid[place] for place in order[:3]] == ["", "a", "ab"]
    assert keys.values[-1] == keys.values[-2] == b"z" * 64
    assert list(keys.values[:2]) == [b"z", "\u00e9".encode()]
    assert KeyValues.of(pa.array([None, None], pa.string())).is_valid.tolist() == [False, False]
