"""The fast path for statistics of many files gives the same results as parsing each text."""

import json
from decimal import Decimal

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cm_delta_dagster.protocol.schema.types import DOUBLE, LONG, STRING, DataType, DecimalType, PrimitiveType
from cm_delta_dagster.protocol.statistics.stats_json import ParsedStatistics, parse_statistics
from cm_delta_dagster.protocol.statistics.stats_json_fast_path import MIN_TEXTS, scan_texts

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
_WANTED = {("minValues", "id"): pa.int64()}


def _one_by_one(texts: list[str | None]) -> list[ParsedStatistics]:
    """Parse the texts in pieces that are too short for the fast path."""
    assert _PIECE < MIN_TEXTS
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


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(_texts(), st.none()), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_many_texts_are_read_like_single_texts(kinds, random) -> None:
    """STATS-1, SKIP-2, FILE-2: also for texts of another shape, invalid texts and nulls."""
    texts = [random.choice(kinds) for _ in range(2 * MIN_TEXTS)]

    _assert_same(texts)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 200), st.sampled_from(list('"\\{}[]:,.-0519eE \x01x')), st.integers(0, 1))
@example(15, "0", 1)
def test_a_changed_letter_at_any_place_is_noticed(place: int, letter: str, replaced: int) -> None:
    """SKIP-2, FILE-2: a text that differs in one letter gives the same values as alone."""
    texts: list[str | None] = [
        f'{{"numRecords":10{number % 10},"minValues":{{"id":5{number:03},"name":"n{number:03}"}},'
        f'"maxValues":{{"id":6{number:03},"name":"z"}},"nullCount":{{"id":0}}}}'
        for number in range(300)
    ]
    changed = texts[150] or ""
    texts[150] = changed[:place] + letter + changed[place + replaced :]

    _assert_same(texts)


def test_texts_of_few_shapes_are_not_left_to_the_parser() -> None:
    """Numbers of three lengths, one text that is not JSON, one null."""
    texts: list[str | None] = [
        json.dumps({"numRecords": 1, "minValues": {"id": number, "x": 0.5}, "nullCount": {}}) for number in range(1000)
    ]
    texts[500], texts[600] = '{"numRecords":', None

    scanned = scan_texts([pa.array(texts)], _WANTED)

    expected = [*range(500), None, *range(501, 600), None, *range(601, 1000)]
    values = scanned.columns[("minValues", "id")].to_pylist()
    left = scanned.is_unread.nonzero()[0].tolist()
    assert 500 in left and 600 not in left
    assert len(left) < 20
    assert [value for row, value in enumerate(values) if row not in left] == [
        value for row, value in enumerate(expected) if row not in left
    ]


def test_a_duplicate_key_is_left_to_the_parser() -> None:
    """SKIP-2: the parser decides which of the two values is valid."""
    texts = [f'{{"minValues":{{"id":1}},"minValues":{{"id":{number}}}}}' for number in range(100, 400)]

    assert scan_texts([pa.array(texts)], _WANTED).is_unread.all()


def test_a_value_of_another_type_is_left_to_the_parser() -> None:
    """SKIP-2: an integer written as a float, as a string, or with too many digits."""
    for value in ("10#.0", '"#"', "1234567890123456#", "#e3", "[#]", '{"a":#}'):
        texts = [
            '{"numRecords":10,"minValues":{"id":' + value.replace("#", str(number)) + "}}" for number in range(100, 400)
        ]

        assert scan_texts([pa.array(texts)], _WANTED).is_unread.all(), value


def test_texts_in_chunks_and_slices_keep_their_rows() -> None:
    """SKIP-2: offsets of slices are respected."""
    texts = [f'{{"numRecords":10,"minValues":{{"id":{number}}}}}' for number in range(100_000, 300_000)]
    whole = pa.array(texts)
    chunks = [whole.slice(start, 50_000) for start in range(0, len(whole), 50_000)]

    scanned = scan_texts([chunk.cast(pa.large_string()) for chunk in chunks], _WANTED)

    assert not scanned.is_unread.any()
    assert scanned.columns[("minValues", "id")].to_pylist() == list(range(100_000, 300_000))


def test_decimals_of_many_texts_are_exact() -> None:
    """STATS-7."""
    texts = [f'{{"numRecords":1,"minValues":{{"d":12345678901234567890.{number % 100:02}}}}}' for number in range(300)]

    parsed = parse_statistics(pa.array(texts), {("d",): DecimalType(38, 2)})

    assert parsed.minimums[("d",)].to_pylist()[:2] == [
        Decimal("12345678901234567890.00"),
        Decimal("12345678901234567890.01"),
    ]
