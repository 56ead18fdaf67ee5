"""Offsets of streams: their JSON, refused texts, and the order of positions."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.changes.stream_offset import BEFORE_FIRST, StreamOffset, parse_offset

LONGS = st.integers(min_value=0, max_value=2**63 - 1)
OFFSETS = st.builds(
    StreamOffset,
    table_id=st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
    version=LONGS,
    index=st.integers(min_value=BEFORE_FIRST, max_value=2**63 - 1),
    is_initial=st.booleans(),
)
FIELDS = {"sourceVersion": 1, "reservoirId": "t", "reservoirVersion": 7, "index": 3, "isStartingVersion": False}


@pytest.mark.requirements("STREAM-1")
@given(OFFSETS)
def test_an_offset_is_decoded_from_its_json(offset: StreamOffset) -> None:
    assert parse_offset(offset.to_json()) == offset


@pytest.mark.requirements("STREAM-1")
def test_the_json_is_that_of_delta_spark() -> None:
    """Legacy field names, and index -1 before the first file of a version."""
    offset = StreamOffset(table_id="0b3f", version=5, is_initial=True)
    assert offset.to_json() == (
        '{"sourceVersion":1,"reservoirId":"0b3f","reservoirVersion":5,"index":-1,"isStartingVersion":true}'
    )


@pytest.mark.requirements("STREAM-1")
@pytest.mark.parametrize("index", [-1, -100])
def test_the_base_indexes_of_both_formats_of_delta_spark_are_equal(index: int) -> None:
    source_version = 1 if index == -1 else 3
    content = json.dumps(FIELDS | {"index": index, "sourceVersion": source_version})
    assert parse_offset(content) == StreamOffset(table_id="t", version=7)


@pytest.mark.requirements("STREAM-1")
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"sourceVersion": 2}, "sourceVersion 2"),
        ({"sourceVersion": 4}, "sourceVersion 4"),
        ({"sourceVersion": 3, "index": -20}, "schema tracking log"),
        ({"sourceVersion": 3, "index": -19}, "schema tracking log"),
        ({"index": -2}, "not a valid position"),
        ({"index": -100}, "not a valid position"),
        ({"index": True}, "index is not a whole number"),
        ({"index": 1.5}, "index is not a whole number"),
        ({"index": 2**63}, "index is not a whole number"),
        ({"reservoirVersion": -1}, "not a valid position"),
        ({"reservoirVersion": "7"}, "reservoirVersion is not a whole number"),
        ({"reservoirId": 7}, "reservoirId is not a string"),
        ({"isStartingVersion": 0}, "isStartingVersion is not true or false"),
        ({"isInitialSnapshot": False}, "unknown: isInitialSnapshot"),
    ],
)
def test_an_invalid_offset_is_refused_with_the_reason(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        parse_offset(json.dumps(FIELDS | changed))


@pytest.mark.requirements("STREAM-1")
@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_field_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"unknown: {name}"):
        parse_offset(json.dumps({key: value for key, value in FIELDS.items() if key != name}))


@pytest.mark.requirements("STREAM-1")
@pytest.mark.parametrize("content", ["", "{", "7", "null", "[]", '"7"', "x" * 1000, "[" * 100_000])
def test_text_that_is_not_a_json_object_is_refused_and_abbreviated(content: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not an offset of a stream") as caught:
        parse_offset(content)
    assert len(str(caught.value)) < 500


@pytest.mark.requirements("STREAM-1")
def test_positions_are_ordered_by_version_and_then_by_index() -> None:
    places = [(3, -1), (3, 0), (3, 12), (4, -1), (11, -1)]
    offsets = [StreamOffset(table_id="t", version=version, index=index) for version, index in places]
    shuffled = [offsets[number] for number in (3, 1, 4, 0, 2)]
    assert sorted(shuffled, key=lambda offset: offset.position) == offsets
