"""Sets of file actions, searched by logical file."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA, adds_to_table
from cm_delta_dagster.protocol.log.file_set import BLOCK_ROWS, FileSet, KeyedFiles, logical_keys, text_hashes
from tests.support.actions import add_file as _add

_LOCATION = "file:///data/t"


def _keyed(*adds: AddFile) -> KeyedFiles:
    return KeyedFiles.of(adds_to_table(adds), _LOCATION)


def _many(count: int, prefix: str = "part") -> pa.Table:
    paths = pa.array([f"{prefix}-{number:07d}.parquet" for number in range(count)])
    columns = [paths if field.name == "path" else pa.nulls(count, field.type) for field in ADD_SCHEMA]
    return pa.table(columns, schema=ADD_SCHEMA)


def _paths(files: FileSet) -> list[str]:
    return files.table["path"].to_pylist()


@pytest.mark.requirements("REC-14")
@settings(deadline=None)
@given(st.lists(st.text(max_size=40), max_size=30), st.integers(0, 5))
def test_equal_texts_have_equal_hashes(texts: list[str], start: int) -> None:
    """At any offset in memory."""
    hashes = text_hashes(pa.array([*texts, *texts], pa.string()))
    moved = text_hashes(pa.array(["x" * start, *texts], pa.string()).slice(1))
    assert hashes[: len(texts)].tolist() == hashes[len(texts) :].tolist() == moved.tolist()
    assert len(set(hashes.tolist())) == len(set(texts))


@pytest.mark.requirements("REC-14")
@settings(deadline=None)
@given(st.lists(st.text("ab%/", max_size=40), min_size=1, max_size=20))
def test_the_hash_of_a_text_does_not_depend_on_other_texts(texts: list[str]) -> None:
    """Texts of equal length are hashed by other code with the same result."""
    for length, same in {len(text): [other for other in texts if len(other) == len(text)] for text in texts}.items():
        alone = text_hashes(pa.array(same, pa.string()))
        among = text_hashes(pa.array([*same, "x" * (length + 9)], pa.string()))
        assert alone.tolist() == among[:-1].tolist()


@pytest.mark.requirements("REC-14")
@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 15, 16, 17, 24, 32])
def test_the_hash_of_a_text_does_not_depend_on_shorter_texts(length: int) -> None:
    """At each length around a multiple of the words that are read."""
    text = "abcdefghijklmnopqrstuvwxyz0123456789"[:length]
    alone = text_hashes(pa.array([text], pa.string()))[0]
    for other in range(40):
        assert text_hashes(pa.array(["x" * other, text, "y" * other], pa.string()))[1] == alone


@pytest.mark.requirements("REC-5")
@pytest.mark.parametrize("asked", [1, 4, 5, 40])
def test_small_and_large_searches_find_the_same_files(asked: int) -> None:
    """A file that is added again, one that is removed, and one that is not in the set."""
    files = FileSet.of(_many(1000, "old"), location=_LOCATION)
    gone = _many(asked, "old")
    for _ in range(2):
        fewer = files.without(KeyedFiles.of(pa.concat_tables([gone, _many(asked, "new")]), _LOCATION))
        assert _paths(fewer) == _paths(files)[asked:]
    more = fewer.plus(KeyedFiles.of(gone, _LOCATION))
    assert len(more.without(KeyedFiles.of(gone.slice(0, 1), _LOCATION))) == 999


@pytest.mark.requirements("REC-5", "REC-14")
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_set_agrees_with_a_dictionary_by_key(data: st.DataObject) -> None:
    """Vectors, encoded and absolute spellings, many steps."""
    spellings = ["a", "d/b", "d%20d/b", "file:/data/t/a", "file:///data/t/d/b", "/elsewhere/a", "c%2Fd", "c/d"]
    model: dict[str, AddFile] = {}
    files = FileSet.of(ADD_SCHEMA.empty_table(), location=_LOCATION)
    for _ in range(data.draw(st.integers(1, 8))):
        chosen = [
            _add(path, vector)
            for path, vector in data.draw(
                st.lists(st.tuples(st.sampled_from(spellings), st.sampled_from([None, "v", "w"])), max_size=4)
            )
        ]
        keys = logical_keys(adds_to_table(chosen), _LOCATION).to_pylist()
        files = files.without(_keyed(*chosen))
        for key in keys:
            model.pop(key, None)
        if data.draw(st.booleans()):
            fresh = dict(zip(keys, chosen, strict=True))
            files = files.plus(_keyed(*fresh.values()))
            model |= fresh
        assert len(files) == len(model)
        assert set(logical_keys(files.table, _LOCATION).to_pylist()) == set(model)


@pytest.mark.requirements("REC-13", "LOG-19")
def test_derived_sets_share_memory() -> None:
    """Removing a file copies one block, adding a file copies that file."""
    base = FileSet.of(_many(3 * BLOCK_ROWS), location=_LOCATION)
    grown = base.plus(_keyed(_add("new")))
    shrunk = grown.without(_keyed(_add("part-0000005.parquet"), _add("never")))

    def places(files: FileSet) -> list[tuple[int, int]]:
        return [(chunk.offset, chunk.buffers()[2].address) for chunk in files.table["path"].chunks]

    assert places(grown)[:3] == places(base)
    assert places(shrunk)[1:] == places(grown)[1:]
    assert (len(base), len(grown), len(shrunk)) == (3 * BLOCK_ROWS, 3 * BLOCK_ROWS + 1, 3 * BLOCK_ROWS)
    assert "part-0000005.parquet" in _paths(base) and "part-0000005.parquet" not in _paths(shrunk)


@pytest.mark.requirements("REC-13")
def test_many_small_additions_give_few_segments_and_chunks() -> None:
    files = FileSet.of(_many(10_000), location=_LOCATION)
    for number in range(1000):
        files = files.plus(_keyed(_add(f"new-{number}")))
    assert len(files) == 11_000
    assert len(files.segments) < 16 and files.table["path"].num_chunks < 16
    files = files.without(KeyedFiles.of(_many(10_000), _LOCATION))
    assert sorted(_paths(files)) == sorted(f"new-{number}" for number in range(1000))


@pytest.mark.requirements("REC-13")
def test_a_set_that_loses_most_files_frees_their_memory() -> None:
    files = FileSet.of(_many(BLOCK_ROWS), location=_LOCATION)
    gone = files.without(KeyedFiles.of(_many(BLOCK_ROWS - 10), _LOCATION))
    assert len(gone) == 10
    assert gone.segments[0].rows.files.get_total_buffer_size() < files.table.get_total_buffer_size() / 100
    assert len(gone.without(KeyedFiles.of(_many(BLOCK_ROWS), _LOCATION))) == 0


@pytest.mark.requirements("REC-5")
@pytest.mark.parametrize("asked", [1, 20])
def test_files_with_equal_hashes_are_distinguished(asked: int) -> None:
    """Keys are compared after hashes, and the cost is not quadratic in the number of collisions."""
    files = _many(200)
    same = np.zeros(200, dtype=np.uint64)
    colliding = FileSet(_LOCATION, files.schema).plus(KeyedFiles(files, _LOCATION, same))
    gone = KeyedFiles(files.slice(50, asked), _LOCATION, same[:asked])
    assert (colliding.segments[0].rows.candidates(gone.hashes) is None) == (asked == 20)
    left = colliding.without(gone)
    assert len(left) == 200 - asked
    assert not set(_paths(left)) & set(gone.files["path"].to_pylist())
