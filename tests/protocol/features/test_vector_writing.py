"""Deletion vectors that a commit adds."""

import json
import uuid

import pytest
from pyroaring import BitMap64

from cm_delta_dagster.errors import CorruptLogError, IllegalCommitError
from cm_delta_dagster.protocol.actions.actions import AddFile, DeletionVectorDescriptor
from cm_delta_dagster.protocol.features.deletion_vectors import decode_from_file, decode_inline, dv_location
from cm_delta_dagster.protocol.features.vector_writing import MAX_INLINE_BYTES, pack_vectors, physical_rows, with_vector

_ID = uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
_SMALL, _LARGE = BitMap64([3, 8]), BitMap64(range(0, 1000, 3))


def _file(stats: str | None) -> AddFile:
    return AddFile(
        path="a.parquet",
        partition_values={},
        size=1,
        modification_time=7,
        data_change=False,
        stats=stats,
        base_row_id=5,
        default_row_commit_version=2,
    )


def _vector(positions: BitMap64) -> DeletionVectorDescriptor:
    return pack_vectors([positions], file_id=_ID).descriptors[0]


@pytest.mark.requirements("DV-10", "DV-11", "DV-12", "DV-18")
def test_vectors_of_a_commit_share_a_file_and_small_ones_are_inline() -> None:
    packed = pack_vectors([_SMALL, _LARGE, _LARGE | BitMap64([2**40])], file_id=_ID)
    small, *stored = packed.descriptors
    assert (small.storage_type, small.offset, decode_inline(small)) == ("i", None, _SMALL)
    assert [decode_from_file(packed.content, vector) for vector in stored] == [_LARGE, _LARGE | BitMap64([2**40])]
    assert stored[0].offset == 1 and stored[1].offset == 1 + 8 + stored[0].size_in_bytes
    assert {dv_location("s3://b/t", vector) for vector in stored} == {f"s3://b/t/{packed.name}"}
    assert packed.content[0] == 1


def test_without_large_vectors_there_is_no_file() -> None:
    packed = pack_vectors([_SMALL, BitMap64(range(100))], file_id=_ID)
    assert packed.name is None
    assert all(vector.size_in_bytes <= MAX_INLINE_BYTES for vector in packed.descriptors)


@pytest.mark.requirements("DV-16")
def test_consecutive_rows_take_no_space_each() -> None:
    """A run is stored as its first position and its length."""
    positions = BitMap64()
    for position in range(5, 3000):
        positions.add(position)  # Found row by row.
    packed = pack_vectors([positions], file_id=_ID)
    assert packed.name is None and decode_inline(packed.descriptors[0]) == BitMap64(range(5, 3000))


@pytest.mark.requirements("DV-25")
def test_an_empty_vector_is_refused() -> None:
    with pytest.raises(IllegalCommitError, match="empty"):
        pack_vectors([BitMap64()], file_id=_ID)


@pytest.mark.requirements("DV-21", "DV-24")
def test_the_bounds_of_a_file_with_a_vector_are_not_tight_and_all_else_stays() -> None:
    """Decimals keep their digits."""
    stats = '{"numRecords":9,"tightBounds":true,"minValues":{"d":1.2345678901234567890123,"t":"#1.5#"},"x":-1E-30}'
    added = with_vector(_file(stats), _vector(_SMALL), _SMALL)
    assert added.stats == stats.replace('"tightBounds":true', '"tightBounds":false')
    assert (added.modification_time, added.base_row_id, added.default_row_commit_version) == (7, 5, 2)
    assert added.data_change and added.deletion_vector == _vector(_SMALL)
    assert json.loads(with_vector(_file('{"numRecords":9}'), _vector(_SMALL), _SMALL).stats or "") == {
        "numRecords": 9,
        "tightBounds": False,
    }


@pytest.mark.requirements("DV-21")
@pytest.mark.parametrize("stats", [None, "", "{}", "[]", '{"numRecords":null}', '{"numRecords":true}', "{"])
def test_a_file_without_a_row_count_gets_no_vector(stats: str | None) -> None:
    assert physical_rows(stats) is None
    with pytest.raises(IllegalCommitError, match="how many rows"):
        with_vector(_file(stats), _vector(_SMALL), _SMALL)


@pytest.mark.requirements("DV-27")
def test_a_position_beyond_the_last_row_is_an_error() -> None:
    with pytest.raises(CorruptLogError, match="has 8 rows"):
        with_vector(_file('{"numRecords":8}'), _vector(_SMALL), _SMALL)
