"""Deletion vectors: golden vectors, round trips and every kind of damage."""

import struct
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from cm_delta_dagster.errors import CorruptLogError, IllegalCommitError
from cm_delta_dagster.protocol.actions.actions import DeletionVectorDescriptor
from cm_delta_dagster.protocol.features.deletion_vectors import (
    check_positions,
    decode_bitmap,
    decode_from_file,
    decode_inline,
    dv_location,
    encode_bitmap,
    encode_file,
    encode_inline,
    encode_relative_name,
    z85_decode,
    z85_encode,
)

ROWS = [3, 4, 7, 11, 18, 29]
NORMATIVE = bytes.fromhex("d1d339640100000000000000000000003a3000000100000000000500100000000300040007000b0012001d00")
INLINE = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
FILE_ID = uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")


def stored(data: bytes, *, rows: int = 6, offset: int | None = 1) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type="u",
        path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^",
        offset=offset,
        size_in_bytes=len(data),
        cardinality=rows,
    )


@pytest.mark.requirements("DV-14", "GV-7")
def test_z85_golden_vectors() -> None:
    assert z85_encode(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"
    assert z85_decode("HelloWorld").hex() == "864fd26fb559f75b"
    assert encode_relative_name(FILE_ID) == "^-aqEH.-t@S}K{vb[*k^"


@pytest.mark.requirements("DV-14")
@given(st.binary(max_size=40))
def test_z85_round_trips_with_padding(data: bytes) -> None:
    decoded = z85_decode(z85_encode(data))
    assert decoded[: len(data)] == data
    assert not any(decoded[len(data) :])


@pytest.mark.requirements("DV-14")
@pytest.mark.parametrize("text", ["Hell", "Hel o", "Hellé", "#####"])
def test_damaged_z85_is_refused(text: str) -> None:
    with pytest.raises(CorruptLogError):
        z85_decode(text)


@pytest.mark.requirements("DV-10", "DV-12", "DV-15", "DV-16", "GV-8", "GV-11")
def test_the_normative_bitmap_has_the_golden_bytes() -> None:
    assert encode_bitmap(ROWS) == NORMATIVE
    descriptor = encode_inline(ROWS)
    assert (descriptor.path_or_inline_dv, descriptor.size_in_bytes, descriptor.cardinality) == (INLINE, 44, 6)
    assert descriptor.offset is None
    assert list(decode_inline(descriptor)) == ROWS
    two_buckets = encode_inline([1, 4294967298])
    assert two_buckets.path_or_inline_dv == "^Bg9^0SSi20000000000iXQKl0rr91000005c8Xg0rrc20025l0003100000000Mg00062"
    assert list(decode_inline(two_buckets)) == [1, 4294967298]


@pytest.mark.requirements("DV-20", "GV-10")
def test_the_legacy_layouts_are_read() -> None:
    for text in (
        "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "^9>0=0rr918#]%siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    ):
        descriptor = DeletionVectorDescriptor(storage_type="i", path_or_inline_dv=text, size_in_bytes=40, cardinality=6)
        assert list(decode_inline(descriptor)) == ROWS


@pytest.mark.requirements("DV-20")
def test_a_legacy_bitmap_of_two_parts_has_its_index_as_key() -> None:
    parts = [bytes(BitMap([1]).serialize()), bytes(BitMap([2]).serialize())]
    body = struct.pack("<II", 1681511376, 2) + b"".join(struct.pack("<I", len(part)) + part for part in parts)
    assert list(decode_bitmap(body)) == [1, (1 << 32) + 2]
    for end in range(len(body)):
        with pytest.raises(CorruptLogError):
            decode_bitmap(body[:end])


@pytest.mark.requirements("DV-11", "DV-18", "GV-9")
def test_the_golden_file_is_written_and_read() -> None:
    content, offsets = encode_file([NORMATIVE])
    assert content.hex() == "01" + "0000002c" + NORMATIVE.hex() + "acd74a79"
    assert offsets == (1,)
    assert list(decode_from_file(content, stored(NORMATIVE))) == ROWS


@pytest.mark.requirements("DV-11", "DV-16", "DV-18")
@given(st.lists(st.sets(st.integers(0, 2**63 - 1) | st.integers(0, 70_000), min_size=1), min_size=1, max_size=3))
def test_several_vectors_of_a_file_are_read_by_their_offsets(sets: list[set[int]]) -> None:
    bitmaps = [encode_bitmap(positions) for positions in sets]
    content, offsets = encode_file(bitmaps)
    for positions, bitmap, offset in zip(sets, bitmaps, offsets, strict=True):
        assert set(decode_from_file(content, stored(bitmap, rows=len(positions), offset=offset))) == positions


@pytest.mark.requirements("DV-17")
def test_every_container_kind_is_read() -> None:
    positions = BitMap64(list(range(0, 10_000, 3))) | BitMap64(list(range(70_000, 140_000, 2)))
    for position in range(200_000, 203_000):
        positions.add(position)
    data = encode_bitmap(positions)
    positions.run_optimize()
    optimised = encode_bitmap(positions)
    assert optimised != data
    assert decode_bitmap(data) == decode_bitmap(optimised) == positions


@pytest.mark.requirements("DV-12", "DV-19")
def test_any_damage_to_a_file_is_an_error() -> None:
    content, _ = encode_file([NORMATIVE])
    descriptor = stored(NORMATIVE)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptLogError):
            decode_from_file(bytes(damaged), descriptor)
    for end in range(len(content)):
        with pytest.raises(CorruptLogError):
            decode_from_file(content[:end], descriptor)
    with pytest.raises(CorruptLogError, match="format version 2, not 1"):
        decode_from_file(b"\x02", descriptor)


@pytest.mark.requirements("DV-11", "DV-12", "DV-19")
@pytest.mark.parametrize(
    "changes",
    [{"size_in_bytes": 43}, {"size_in_bytes": -1}, {"cardinality": 5}, {"offset": 2}, {"offset": -1}, {"offset": None}],
)
def test_a_descriptor_that_contradicts_its_file_is_an_error(changes: dict[str, int | None]) -> None:
    content, _ = encode_file([NORMATIVE])
    with pytest.raises(CorruptLogError):
        decode_from_file(content, replace(stored(NORMATIVE), **changes))


@pytest.mark.requirements("DV-10", "DV-12")
@pytest.mark.parametrize("changes", [{"size_in_bytes": 40}, {"size_in_bytes": 45}, {"cardinality": 7}, {"offset": 1}])
def test_an_inline_descriptor_that_contradicts_its_text_is_an_error(changes: dict[str, int]) -> None:
    with pytest.raises(CorruptLogError):
        decode_inline(replace(encode_inline(ROWS), **changes))


@pytest.mark.requirements("DV-16", "DV-19")
@pytest.mark.parametrize(
    "data",
    [b"", b"\x00\x00\x00\x00", NORMATIVE[:8], NORMATIVE[:4] + b"\xff" * 8, NORMATIVE[:15] + b"\x80" + NORMATIVE[16:]],
)
def test_damaged_bitmaps_are_errors(data: bytes) -> None:
    """One of them sets the top bit of a key."""
    with pytest.raises(CorruptLogError):
        decode_bitmap(data)


@pytest.mark.requirements("DV-16", "DV-25")
@pytest.mark.parametrize("positions", [[], [-1], [2**63], [2**64]])
def test_positions_that_must_not_be_written_are_refused(positions: list[int]) -> None:
    with pytest.raises(IllegalCommitError):
        encode_bitmap(positions)


@pytest.mark.requirements("DV-6", "DV-7", "DV-8", "DV-9")
def test_descriptors_name_their_files() -> None:
    descriptor = stored(NORMATIVE)
    assert dv_location("s3://mytable/", descriptor) == f"s3://mytable/ab/deletion_vector_{FILE_ID}.bin"
    plain = replace(descriptor, path_or_inline_dv="^-aqEH.-t@S}K{vb[*k^")
    assert dv_location("s3://mytable", plain) == f"s3://mytable/deletion_vector_{FILE_ID}.bin"
    absolute = replace(descriptor, storage_type="p", path_or_inline_dv="s3://other/a%20b.bin")
    assert dv_location("s3://mytable", absolute) == "s3://other/a b.bin"
    assert dv_location("s3://mytable", encode_inline(ROWS)) is None


@pytest.mark.requirements("DV-6", "DV-7")
@pytest.mark.parametrize(
    ("storage_type", "text"), [("x", INLINE), ("u", "short"), ("u", "../^-aqEH.-t@S}K{vb[*k^"), ("u", "é" * 20)]
)
def test_a_descriptor_without_a_valid_location_is_an_error(storage_type: str, text: str) -> None:
    with pytest.raises(CorruptLogError):
        dv_location("s3://t", replace(stored(NORMATIVE), storage_type=storage_type, path_or_inline_dv=text))


@pytest.mark.requirements("DV-27")
def test_a_position_beyond_the_last_row_is_an_error() -> None:
    check_positions(BitMap64(ROWS), num_rows=30, path="f")
    with pytest.raises(CorruptLogError, match="29"):
        check_positions(BitMap64(ROWS), num_rows=29, path="f")
