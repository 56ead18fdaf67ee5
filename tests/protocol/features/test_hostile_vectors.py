"""Damaged and malicious deletion vectors: the deleted rows or an error, never a crash or unlimited memory."""

import struct
import zlib
from collections.abc import Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.actions import DeletionVectorDescriptor
from cm_delta_dagster.protocol.features.deletion_vectors import (
    decode_bitmap,
    decode_from_file,
    decode_inline,
    dv_location,
    encode_bitmap,
    z85_decode,
    z85_encode,
)

pytestmark = pytest.mark.slow

_SETTINGS = settings(deadline=None, max_examples=300)

# Sparse, dense and run containers, in one bucket and in several.
_POSITIONS = st.one_of(
    st.sets(st.integers(0, 2**40), min_size=1, max_size=30),
    st.builds(lambda start, count: set(range(start, start + count)), st.integers(0, 2**34), st.integers(1, 9000)),
    st.just({1, 2**32 + 2, 2**33 + 3}),
)


@st.composite
def _changed(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A bitmap, and the same bitmap with a few bytes changed, removed, inserted or doubled."""
    data = encode_bitmap(draw(_POSITIONS))
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, min(len(changed), 200) - 1)))
        match draw(st.integers(0, 3)):
            case 0 if changed:
                changed[at] = draw(st.integers(0, 255))
            case 1:
                del changed[at:]
            case 2:
                changed[at:at] = draw(st.binary(max_size=9))
            case _:
                changed[at : at + 4] = struct.pack("<I", draw(st.sampled_from([0, 1, 0xFFFF, 2**31, 2**32 - 1])))
    return data, bytes(changed)


def _file(bitmaps: Iterable[bytes]) -> bytes:
    return b"\x01" + b"".join(
        struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data)) for data in bitmaps
    )


def _descriptor(data: bytes, *, offset: int | None = 1, cardinality: int | None = None) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type="u" if offset is not None else "i",
        path_or_inline_dv="^-aqEH.-t@S}K{vb[*k^" if offset is not None else z85_encode(data),
        size_in_bytes=len(data),
        cardinality=len(decode_bitmap(data)) if cardinality is None else cardinality,
        offset=offset,
    )


@pytest.mark.requirements("DV-16", "DV-17", "DV-19")
@_SETTINGS
@given(_changed())
def test_a_changed_bitmap_is_decoded_or_refused(pair: tuple[bytes, bytes]) -> None:
    """Positions are within the declared containers, or the bitmap is refused."""
    _, changed = pair
    try:
        found = decode_bitmap(changed)
    except CorruptLogError:
        return
    # Eight bytes declare at most 2**16 rows (a run).
    assert isinstance(found, BitMap64) and len(found) <= len(changed) * 2**16
    assert not len(found) or found.max() < 2**63


@pytest.mark.requirements("DV-19", "DV-20")
@_SETTINGS
@given(st.binary(max_size=200))
@example(b"\xd1\xd39d" + struct.pack("<Q", 2**64 - 1))
@example(b"\xd1\xd39d" + struct.pack("<Q", 1) + b"\x00" * 4 + struct.pack("<II", 12346, 2**31))
@example(b"\xd1\xd39d" + struct.pack("<Q", 1) + b"\x00" * 4 + struct.pack("<HH", 12347, 0xFFFF))
@example(b"d9\xd3\xd0" + b"\xff" * 8)
@example(b"\xd0\xd39d" + b"\xff\xff\xff\x7f" + b"\x00" * 20)
def test_any_bytes_are_a_bitmap_or_refused(data: bytes) -> None:
    """The obsolete layouts too."""
    for candidate in (data, b"\xd1\xd39d" + data, b"d9\xd3\xd0" + data, b"\xd0\xd39d" + data):
        try:
            decode_bitmap(candidate)
        except CorruptLogError:
            continue


@pytest.mark.requirements("DV-18", "DV-19")
@_SETTINGS
@given(_changed())
def test_a_changed_vector_in_a_file_is_never_another_vector(pair: tuple[bytes, bytes]) -> None:
    """Size and checksum are compared."""
    data, changed = pair
    content = _file([data]).replace(data, changed, 1)
    try:
        assert decode_from_file(content, _descriptor(data)) == decode_bitmap(data)
    except CorruptLogError:
        assert changed != data


@pytest.mark.requirements("DV-11", "DV-12", "DV-19")
@_SETTINGS
@given(st.binary(max_size=60), st.integers(-5, 200) | st.none(), st.integers(-5, 10**12), st.integers(-5, 10**12))
def test_any_file_and_descriptor_is_a_vector_or_refused(
    content: bytes, offset: int | None, size: int, cardinality: int
) -> None:
    """Numbers beyond the file, and negative ones."""
    descriptor = DeletionVectorDescriptor(
        storage_type="u",
        path_or_inline_dv="^-aqEH.-t@S}K{vb[*k^",
        size_in_bytes=size,
        cardinality=cardinality,
        offset=offset,
    )
    for data in (content, _file([encode_bitmap({1, 2})]) + content):
        try:
            found = decode_from_file(data, descriptor)
        except CorruptLogError:
            continue
        assert len(found) == cardinality


@pytest.mark.requirements("DV-10", "DV-12", "DV-14")
@_SETTINGS
@given(_changed(), st.text(max_size=30))
def test_an_inline_vector_has_the_announced_rows_or_is_refused(pair: tuple[bytes, bytes], text: str) -> None:
    """There is no checksum; size and number of rows are compared."""
    data, changed = pair
    cardinality = len(decode_bitmap(data))
    for inline in (z85_encode(changed), text, z85_encode(data) + text):
        descriptor = DeletionVectorDescriptor(
            storage_type="i", path_or_inline_dv=inline, size_in_bytes=len(data), cardinality=cardinality
        )
        try:
            assert len(decode_inline(descriptor)) == cardinality
        except CorruptLogError:
            continue


@pytest.mark.requirements("DV-6", "DV-7", "DV-8", "DV-9")
@_SETTINGS
@given(st.sampled_from("uipx") | st.text(max_size=2), st.text(max_size=40))
@example("p", "../../etc/passwd")
@example("u", "../../../^-aqEH.-t@S}K{vb[*k^")
@example("p", "file:///t/%zz")
def test_any_name_is_a_location_or_refused(storage_type: str, text: str) -> None:
    """And a relative one never leaves the table."""
    descriptor = DeletionVectorDescriptor(
        storage_type=storage_type, path_or_inline_dv=text, size_in_bytes=1, cardinality=1
    )
    try:
        location = dv_location("file:///t", descriptor)
    except CorruptLogError:
        return
    if storage_type == "u":
        assert location is not None and location.startswith("file:///t/") and "/../" not in location
    try:
        z85_decode(text)
    except CorruptLogError:
        return
