"""Combinations of parameters: few in each run of the tests, all of them with ``-m exhaustive``."""

import itertools
from collections.abc import Iterable
from typing import Any

import pytest


def covering(*axes: Iterable[Any]) -> list[Any]:
    """Parameters for ``pytest.mark.parametrize`` of every combination of the values of ``axes``.

    Each value of each axis is in a combination that is not exhaustive: the axes are walked side by side, the shorter ones again
    from their beginning. The others are marked ``exhaustive``.
    """
    values = [tuple(axis) for axis in axes]
    longest = max(map(len, values))
    always = {tuple(at % len(axis) for axis in values) for at in range(longest)}
    return [
        pytest.param(
            *(axis[place] for axis, place in zip(values, places, strict=True)),
            marks=() if places in always else pytest.mark.exhaustive,
        )
        for places in itertools.product(*(range(len(axis)) for axis in values))
    ]
