"""A join by parts in files has the pairs, bounds and repeated keys of a join in memory."""

import random
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cm_delta_dagster.arrow import spilled_keys
from cm_delta_dagster.arrow.keyed_rows import KeyedRows
from cm_delta_dagster.arrow.spilled_keys import SpilledKeys

pytestmark = pytest.mark.fast

_LONG = "long text with the same beginning and the same end, whose letters differ in the middle: {} and so on, until the end"
_VALUES: Sequence[tuple[pa.DataType, Sequence[Any]]] = (
    (pa.int64(), (-1, 0, 1, 2**62, -(2**63))),
    (pa.int8(), (-128, 0, 3)),
    (pa.string(), ("", "a", "b", "ab", *map(_LONG.format, range(3)))),
    (pa.binary(), (b"", b"\x00", b"\x00\x00", b"\xff")),
    (pa.decimal128(12, 2), (Decimal("0.00"), Decimal("-1.50"), Decimal("9999999999.99"))),
    (pa.date32(), (date(1, 1, 1), date(2024, 2, 29))),
    (pa.timestamp("us"), (datetime(1, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 4))),
    (pa.timestamp("us", "UTC"), (datetime(1970, 1, 1), datetime(2024, 2, 29))),
    (pa.bool_(), (True, False)),
)


def _rows(chance: random.Random, kinds: Sequence[int], names: Sequence[str], count: int) -> pa.Table:
    columns = [
        pa.array([chance.choice([None, *_VALUES[kind][1]]) for _ in range(count)], _VALUES[kind][0]) for kind in kinds
    ]
    return pa.table(columns, names=list(names))


def _chunked(table: pa.Table) -> pa.Table:
    return pa.Table.from_batches(table.to_batches(max_chunksize=3), table.schema)


def _pairs(keys: KeyedRows | SpilledKeys, others: pa.Table) -> tuple[list[tuple[int, int]], list[int]]:
    """The pairs by numbers of rows, and the other rows that were returned."""
    pairs, returned = [], []
    for paired in keys.pairs(others.to_batches(max_chunksize=5)):
        numbers = paired.batch.column("number").to_pylist()
        assert list(paired.places) == sorted(paired.places)
        pairs += [(numbers[place], int(row)) for place, row in zip(paired.places, paired.rows, strict=True)]
        returned += numbers
    return sorted(pairs), sorted(returned)


@pytest.mark.parametrize("seed", range(40))
def test_a_join_by_parts_is_the_join_in_memory(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(spilled_keys, "_PART_BYTES", 32)
    chance = random.Random(seed)
    kinds = chance.sample(range(len(_VALUES)), chance.choice([1, 1, 2, 3]))
    names = [f"k{place}" for place in range(len(kinds))]
    null_safe = chance.sample(names, chance.randrange(len(names) + 1))
    rows = _rows(chance, kinds, names, chance.choice([0, 4, 30]))
    others = _rows(chance, kinds, names, chance.choice([0, 40])).slice(chance.randrange(3))
    others = others.append_column("number", pa.array(range(others.num_rows), pa.int64()))
    in_memory = KeyedRows(rows, names, null_safe)
    by_parts = SpilledKeys(_chunked(rows), names, null_safe)
    assert _pairs(by_parts, others) == _pairs(in_memory, others)
    assert by_parts.bounds(names[:1], 2) == in_memory.bounds(names[:1], 2)
    assert (by_parts.duplicate is None) == (in_memory.duplicate is None)
    if by_parts.duplicate is not None:
        row = rows.slice(by_parts.duplicate, 1).to_pylist()
        assert rows.to_pylist().count(*row) > 1


def test_keys_are_spread_over_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also keys that are NULL, and equal nothing."""
    monkeypatch.setattr(spilled_keys, "_PART_BYTES", 1_000)
    numbers = pa.array(range(1_000), pa.int64())
    for column in (numbers, pa.nulls(1_000, pa.int64()), numbers.cast(pa.string()), numbers.cast(pa.decimal128(38, 4))):
        keys = SpilledKeys(pa.table({"k": column}), ["k"])
        sizes = [keys._part(number)[0].rows.num_rows for number in range(keys._num_parts)]
        assert sum(sizes) == 1_000 and max(sizes) < 2 * 1_000 / len(sizes)
