"""Deletion vectors (protocol heading "Deletion Vectors"): descriptors, Z85 and bitmaps.

Converts bytes to a bitmap of zero-based physical row positions and back, and a descriptor to a location. It does not access files.
The scans in ``arrow`` and ``spark`` apply every deletion vector of a file, also if ``delta.enableDeletionVectors`` is false. Two
obsolete bitmap layouts are read but never written.
"""

import struct
import uuid
import zlib
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap, BitMap64

from cm_delta_dagster.errors import CorruptLogError, IllegalCommitError
from cm_delta_dagster.protocol.actions.actions import DeletionVectorDescriptor
from cm_delta_dagster.protocol.actions.paths import resolve_path

PORTABLE_MAGIC = 1681511377
LEGACY_MAGIC = 1681511376
FILE_FORMAT_VERSION = 1

_Z85_ALPHABET = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_VALUES = {character: value for value, character in enumerate(_Z85_ALPHABET)}
_UUID_CHARACTERS = 20
_SIZE_BYTES = 4
_CHECKSUM_BYTES = 4
_MAX_KEY = 2**31 - 1


def z85_encode(data: bytes) -> str:
    """Z85 text (ZeroMQ RFC 32) of ``data``, padded with zero bytes to a multiple of four."""
    padded = data + bytes(-len(data) % 4)
    text = bytearray()
    for (word,) in struct.iter_unpack(">I", padded):
        text += bytes(_Z85_ALPHABET[word // power % 85] for power in (85**4, 85**3, 85**2, 85, 1))
    return text.decode("ascii")


def z85_decode(text: str) -> bytes:
    """Bytes of a Z85 text, including any padding.

    Raises:
        CorruptLogError: the length is not a multiple of five, a character is not in the alphabet, or a group exceeds 32 bits.
    """
    if len(text) % 5:
        raise CorruptLogError(
            f"The Z85 text {_shown(text)} has {len(text)} characters, not a multiple of 5. It is damaged."
        )
    data = bytearray()
    for start in range(0, len(text), 5):
        word = 0
        for character in text[start : start + 5]:
            value = _Z85_VALUES.get(ord(character))
            if value is None:
                raise CorruptLogError(f"The Z85 text {_shown(text)} holds {character!r}, which is not in its alphabet.")
            word = word * 85 + value
        if word >= 2**32:
            raise CorruptLogError(f"The Z85 text {_shown(text)} holds a group beyond 32 bits. It is damaged.")
        data += word.to_bytes(4, "big")
    return bytes(data)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")


def dv_location(table_location: str, descriptor: DeletionVectorDescriptor) -> str | None:
    """Absolute location of the file that holds the deletion vector; None for an inline one.

    Raises:
        CorruptLogError: the storage type is unknown, or the name cannot be decoded.
    """
    match descriptor.storage_type:
        case "i":
            return None
        case "p":
            return resolve_path(table_location, descriptor.path_or_inline_dv)
        case "u":
            return f"{table_location.rstrip('/')}/{_relative_name(descriptor.path_or_inline_dv)}"
    raise CorruptLogError(
        f"A deletion vector has the storage type {descriptor.storage_type!r}; the protocol knows 'u', 'p' and 'i'. "
        "Without it deleted rows would be returned, so the file is not read. Use a client that knows the storage type."
    )


def vector_files(location: str, files: pa.Table) -> set[str]:
    """Return the locations of the deletion vector files of ``files``."""
    if files["deletionVector"].null_count == files.num_rows:
        return set()
    vectors = files["deletionVector"].combine_chunks()
    names = pa.table(
        {
            "storageType": pc.struct_field(vectors, "storageType"),
            "pathOrInlineDv": pc.struct_field(vectors, "pathOrInlineDv"),
        }
    ).filter(pc.is_valid(vectors))
    # A deletion vector file holds many vectors; compute each location once.
    unique = names.group_by(["storageType", "pathOrInlineDv"]).aggregate([])
    locations = set()
    for row in unique.to_pylist():
        descriptor = DeletionVectorDescriptor(
            storage_type=row["storageType"],
            path_or_inline_dv=row["pathOrInlineDv"],
            size_in_bytes=0,
            cardinality=0,
        )
        vector = dv_location(location, descriptor)
        if vector is not None:
            locations.add(vector)
    return locations


def _relative_name(text: str) -> str:
    prefix, encoded = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
    if len(encoded) != _UUID_CHARACTERS:
        raise CorruptLogError(
            f"The deletion vector name {text!r} is shorter than the 20 characters of a UUID. It is damaged."
        )
    if any(segment in ("", ".", "..") for segment in prefix.split("/")) and prefix:
        raise CorruptLogError(f"The deletion vector name {text!r} has a prefix that leaves the table. It is damaged.")
    name = f"deletion_vector_{uuid.UUID(bytes=z85_decode(encoded))}.bin"
    return f"{prefix}/{name}" if prefix else name


def encode_relative_name(file_id: uuid.UUID) -> str:
    """``pathOrInlineDv`` of a file ``deletion_vector_<file_id>.bin`` beside the log."""
    return z85_encode(file_id.bytes)


# Bitmaps


def encode_bitmap(positions: Iterable[int]) -> bytes:
    """Serialised bitmap in the normative layout.

    Raises:
        IllegalCommitError: ``positions`` is empty, or a position is outside of 0 .. 2**63 - 1.
    """
    try:
        bitmap = positions if isinstance(positions, BitMap64) else BitMap64(positions)
    except (OverflowError, ValueError) as error:
        raise IllegalCommitError(f"Row positions to delete must be 0 to 2**63 - 1: {error}.") from error
    if not bitmap:
        raise IllegalCommitError("An empty deletion vector must not be written. Leave the file as it is.")
    if bitmap.max() >= 2**63:
        raise IllegalCommitError(f"The row position {bitmap.max()} is beyond 2**63 - 1, which no file can have.")
    return struct.pack("<I", PORTABLE_MAGIC) + bytes(bitmap.serialize())


def decode_bitmap(data: bytes) -> BitMap64:
    """Row positions of a serialised bitmap: the normative layout and the two obsolete ones.

    Raises:
        CorruptLogError: the magic number is unknown, or the data is truncated.
    """
    if len(data) < 4:
        raise _damaged(f"it has {len(data)} bytes, fewer than its magic number")
    little, big = struct.unpack("<I", data[:4])[0], struct.unpack(">I", data[:4])[0]
    if little == PORTABLE_MAGIC:
        return _decode_portable(data)
    if little == LEGACY_MAGIC:
        return _decode_legacy(data, "<")
    if big == LEGACY_MAGIC:
        return _decode_legacy(data, ">")
    raise _damaged(f"its magic number {little} is unknown")


def _decode_portable(data: bytes) -> BitMap64:
    if len(data) < 12:
        raise _damaged("it ends within its header")
    (buckets,) = struct.unpack_from("<Q", data, 4)
    # A bucket takes at least 12 bytes. This refuses impossible counts before memory is allocated for them.
    if buckets * 12 > len(data) - 12:
        raise _damaged(f"it declares {buckets} buckets and has {len(data)} bytes")
    try:
        bitmap = BitMap64.deserialize(data[4:])
    except (ValueError, IndexError, MemoryError, OverflowError) as error:
        raise _damaged(str(error) or "its buckets cannot be read") from error
    if bitmap and bitmap.max() >> 32 > _MAX_KEY:
        raise _damaged("a bucket key has its top bit set")
    return bitmap


def _decode_legacy(data: bytes, order: str) -> BitMap64:
    if len(data) < 8:
        raise _damaged("it ends within its header")
    (count,) = struct.unpack_from(f"{order}I", data, 4)
    result = BitMap64()
    position = 8
    for key in range(count):
        if position + 4 > len(data):
            raise _damaged(f"it ends before bitmap {key} of {count}")
        (length,) = struct.unpack_from(f"{order}I", data, position)
        position += 4
        if length > len(data) - position:
            raise _damaged(f"bitmap {key} has {length} bytes and {len(data) - position} are left")
        try:
            bitmap = BitMap.deserialize(data[position : position + length])
        except (ValueError, IndexError, MemoryError, OverflowError) as error:
            raise _damaged(f"bitmap {key} cannot be read: {error}") from error
        result |= BitMap64((key << 32) + value for value in bitmap) if key else BitMap64(bitmap)
        position += length
    if position != len(data):
        raise _damaged(f"{len(data) - position} bytes follow its last bitmap")
    return result


def _damaged(reason: str) -> CorruptLogError:
    return CorruptLogError(
        f"A deletion vector cannot be decoded: {reason}. Without it deleted rows would be returned, so the data file is not "
        "read. Restore the deletion vector, or restore the table to a version without it."
    )


# Descriptors and files


def encode_inline(positions: Iterable[int]) -> DeletionVectorDescriptor:
    """Descriptor that contains the positions. Raises IllegalCommitError as :func:`encode_bitmap`."""
    bitmap = BitMap64(positions)
    data = encode_bitmap(bitmap)
    return DeletionVectorDescriptor(
        storage_type="i", path_or_inline_dv=z85_encode(data), size_in_bytes=len(data), cardinality=len(bitmap)
    )


def decode_inline(descriptor: DeletionVectorDescriptor) -> BitMap64:
    """Row positions of an inline deletion vector.

    Raises:
        CorruptLogError: the descriptor is not inline, or its text does not match its size or cardinality.
    """
    if descriptor.storage_type != "i" or descriptor.offset is not None:
        raise _damaged(f"{descriptor.unique_id!r} is not inline")
    padded = z85_decode(descriptor.path_or_inline_dv)
    if not 0 <= len(padded) - descriptor.size_in_bytes < 4:
        raise _damaged(f"its text holds {len(padded)} bytes and sizeInBytes is {descriptor.size_in_bytes}")
    return _checked(decode_bitmap(padded[: descriptor.size_in_bytes]), descriptor)


def encode_file(bitmaps: Iterable[bytes]) -> tuple[bytes, tuple[int, ...]]:
    """Bytes of a file that holds the serialised bitmaps, and the ``offset`` of each of them."""
    content = bytearray([FILE_FORMAT_VERSION])
    offsets: list[int] = []
    for bitmap in bitmaps:
        offsets.append(len(content))
        content += struct.pack(">I", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
    return bytes(content), tuple(offsets)


def decode_from_file(data: bytes, descriptor: DeletionVectorDescriptor) -> BitMap64:
    """Row positions of the deletion vector that the descriptor names.

    Args:
        data: the whole content of the file at :func:`dv_location`.
        descriptor: of storage type ``u`` or ``p``.

    Raises:
        CorruptLogError: version, size, checksum, magic number or cardinality do not match.
    """
    if descriptor.storage_type not in ("u", "p"):
        raise _damaged(f"{descriptor.unique_id!r} is not stored in a file")
    if not data or data[0] != FILE_FORMAT_VERSION:
        raise _damaged(f"its file has the format version {data[0] if data else 'nothing'}, not {FILE_FORMAT_VERSION}")
    offset = descriptor.offset or 0
    start = offset + _SIZE_BYTES
    end = start + descriptor.size_in_bytes
    if offset < 0 or descriptor.size_in_bytes < 0 or end + _CHECKSUM_BYTES > len(data):
        raise _damaged(f"it would end at byte {end + _CHECKSUM_BYTES} and its file has {len(data)}")
    (size,) = struct.unpack_from(">I", data, offset)
    if size != descriptor.size_in_bytes:
        raise _damaged(
            f"its size is {size} bytes at offset {offset} of the file and {descriptor.size_in_bytes} in the descriptor"
        )
    bitmap = data[start:end]
    (checksum,) = struct.unpack_from(">I", data, end)
    if checksum != zlib.crc32(bitmap):
        raise _damaged(f"its checksum is {zlib.crc32(bitmap):08x} and the file contains {checksum:08x}")
    return _checked(decode_bitmap(bitmap), descriptor)


def _checked(bitmap: BitMap64, descriptor: DeletionVectorDescriptor) -> BitMap64:
    if len(bitmap) != descriptor.cardinality:
        raise _damaged(
            f"it contains {len(bitmap)} positions and the cardinality of its descriptor is {descriptor.cardinality}"
        )
    return bitmap


def check_positions(bitmap: BitMap64, *, num_rows: int, path: str) -> None:
    """Require that every position lies within a data file of ``num_rows`` physical rows.

    Raises:
        CorruptLogError: a position lies beyond the last row.
    """
    if bitmap and bitmap.max() >= num_rows:
        raise _damaged(f"it deletes row {bitmap.max()} of the file {path!r}, which has {num_rows} rows")


def check_row_count(location: str, *, recorded: int | None, actual: int) -> None:
    """Require that a data file has as many rows as the log says; None if the log has no number.

    Raises:
        CorruptLogError: it has another number of rows.
    """
    if recorded not in (None, actual):
        raise CorruptLogError(
            f"The data file {location} has {actual} rows, and the log says that it was written with {recorded}: it was replaced or "
            "shortened, or a writer put a wrong number into the log. Restore the file from a backup, or the table to a version "
            "without it."
        )
