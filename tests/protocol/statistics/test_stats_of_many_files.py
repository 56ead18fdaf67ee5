"""The statistics of many files are parsed with the same results as few at a time."""

import json
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cm_delta_dagster.protocol.schema.types import DOUBLE, LONG, STRING, DataType, DecimalType, PrimitiveType
from cm_delta_dagster.protocol.statistics.stats_json import ParsedStatistics, parse_statistics

_COLUMNS: dict[tuple[str, ...], DataType] = {
    ("id",): LONG,
    ("amount",): DOUBLE,
    ("single",): PrimitiveType("float"),
    ("name",): STRING,
    ("day",): PrimitiveType("date"),
    ("s", "at"): PrimitiveType("timestamp"),
    ("absent",): LONG,
}
_PIECE = 100
_MANY = 512


def _one_by_one(texts: list[str | None]) -> list[ParsedStatistics]:
    """Parse the texts in small pieces."""
    pieces = [pa.array(texts[first : first + _PIECE], pa.string()) for first in range(0, len(texts), _PIECE)]
    return [parse_statistics(piece, _COLUMNS) for piece in pieces]


def _assert_same(texts: list[str | None]) -> None:
    many = parse_statistics(pa.chunked_array([pa.array(texts, pa.string())]), _COLUMNS)
    pieces = _one_by_one(texts)
    assert many.num_records.to_pylist() == [value for piece in pieces for value in piece.num_records.to_pylist()]
    for path in _COLUMNS:
        for name in ("minimums", "maximums", "null_counts"):
            expected = [value for piece in pieces for value in getattr(piece, name)[path].to_pylist()]
            assert getattr(many, name)[path].to_pylist() == expected, (path, name)
            assert getattr(many, name)[path].type == getattr(pieces[0], name)[path].type


_numbers = st.sampled_from([0, 7, 10, 42, 99, 100, 12345678, 123456789, -5, -50, 10**17, 2**63 - 1, 2**64])
_doubles = st.sampled_from([0.5, -0.0, 1e30, 1.25e-7, 99999.25, 7])
_singles = st.sampled_from([0.5, -0.0, 0.1, 1.25e-7, 99999.25, 7])
_names = st.sampled_from(["a", "b", "ab", "", "zz", "ä", "€", "😀", 'q"', "back\\slash", "tab\t", '"},"id":5,"x":"'])
_days = st.sampled_from(["2024-01-01", "1582-10-04", "0001-01-01", "2024-02-30", "yesterday"])
_moments = st.sampled_from(["2024-01-01T00:00:00.000Z", "2024-01-01T00:00:00.000+02:00", "2024-01-01 00:00:00", "x"])


@st.composite
def _texts(draw: st.DrawFn) -> str:
    low, high = draw(_numbers), draw(_numbers)
    bounds = {"id": low, "amount": draw(_doubles), "single": draw(_singles), "name": draw(_names)}
    upper = {"id": high, "name": draw(_names), "day": draw(_days), "s": {"at": draw(_moments)}}
    tree = {
        "numRecords": draw(_numbers),
        "minValues": bounds,
        "maxValues": upper,
        "nullCount": {"id": 0, "s": {"at": 3}},
    }
    text = json.dumps(
        tree, ensure_ascii=draw(st.booleans()), separators=draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    )
    if draw(st.integers(0, 9)):
        return text
    place = draw(st.integers(0, len(text)))
    damage = draw(st.sampled_from(["", '"', "\\", "{", "}", ",", "0", "-", " ", "\x01", "e", ".5"]))
    return text[:place] + damage + text[place + draw(st.integers(0, 1)) :]


@pytest.mark.requirements("STATS-1", "SKIP-2", "FILE-2")
@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(_texts(), st.none()), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_many_texts_are_read_like_single_texts(kinds: list[str | None], random: Random) -> None:
    """Also for texts of another shape, invalid texts and nulls."""
    texts = [random.choice(kinds) for _ in range(_MANY)]

    _assert_same(texts)


@pytest.mark.requirements("SKIP-2", "FILE-2")
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 200), st.sampled_from(list('"\\{}[]:,.-0519eE \x01x')), st.integers(0, 1))
@example(15, "0", 1)
def test_a_changed_letter_at_any_place_is_noticed(place: int, letter: str, replaced: int) -> None:
    """A text that differs in one letter gives the same values as alone."""
    texts: list[str | None] = [
        f'{{"numRecords":10{number % 10},"minValues":{{"id":5{number:03},"name":"n{number:03}"}},'
        f'"maxValues":{{"id":6{number:03},"name":"z"}},"nullCount":{{"id":0}}}}'
        for number in range(300)
    ]
    changed = texts[150] or ""
    texts[150] = changed[:place] + letter + changed[place + replaced :]

    _assert_same(texts)


@pytest.mark.requirements("SKIP-2")
def test_a_duplicate_key_among_many_texts_is_read_as_alone() -> None:
    """The parser decides which of the two values is valid."""
    _assert_same([f'{{"minValues":{{"id":1}},"minValues":{{"id":{number}}}}}' for number in range(100, 400)])


@pytest.mark.requirements("SKIP-2")
def test_a_value_of_another_type_among_many_texts_is_read_as_alone() -> None:
    """An integer written as a float, as a string, or with too many digits."""
    for value in ("10#.0", '"#"', "1234567890123456#", "#e3", "[#]", '{"a":#}'):
        texts = ['{"numRecords":10,"minValues":{"id":' + value.replace("#", str(n)) + "}}" for n in range(100, 400)]
        _assert_same(list(texts))


@pytest.mark.requirements("SKIP-2")
def test_texts_in_chunks_and_slices_keep_their_rows() -> None:
    """Offsets of slices are respected."""
    texts = [f'{{"numRecords":10,"minValues":{{"id":{number}}}}}' for number in range(100_000, 300_000)]
    whole = pa.array(texts)
    chunks = [whole.slice(start, 50_000) for start in range(0, len(whole), 50_000)]

    parsed = parse_statistics(pa.chunked_array(chunks), {("id",): LONG})

    assert parsed.minimums[("id",)].to_pylist() == list(range(100_000, 300_000))


@pytest.mark.requirements("STATS-7")
def test_decimals_of_many_texts_are_exact() -> None:
    texts = [f'{{"numRecords":1,"minValues":{{"d":12345678901234567890.{number % 100:02}}}}}' for number in range(300)]

    parsed = parse_statistics(pa.array(texts), {("d",): DecimalType(38, 2)})

    assert parsed.minimums[("d",)].to_pylist()[:2] == [
        Decimal("12345678901234567890.00"),
        Decimal("12345678901234567890.01"),
    ]
