"""The files that conflict detection searches for those that a winner removed."""

import pyarrow as pa
import pytest

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table
from cm_delta_dagster.protocol.commits.candidate_files import KnownFiles
from tests.support.actions import add_file

LOCATION = "s3://bucket/table"


def files(*paths: str) -> pa.Table:
    return adds_to_table([add_file(path) for path in paths])


def search(known: KnownFiles, *paths: str) -> tuple[list[str], bool]:
    found, has_all = known.find(pa.chunked_array([list(paths)], pa.string()))
    return found["path"].to_pylist(), has_all


def test_files_are_found_in_the_version_and_in_later_commits() -> None:
    known = KnownFiles.of(LOCATION, lambda: files("a", "b")).plus(files("c")).plus(files())
    assert search(known, "a") == (["a"], True)
    assert search(known, "c", "b") == (["b", "c"], True)
    assert search(known, "a", "unknown") == (["a"], False)
    assert search(known, "unknown") == ([], False)
    assert search(known) == ([], True)


def test_a_relative_and_an_absolute_path_of_one_file_are_equal() -> None:
    known = KnownFiles.of(LOCATION, lambda: files("a%20b"))
    assert search(known, f"{LOCATION}/a%20b") == (["a%20b"], True)
    assert search(known, "s3://bucket/other/a%20b") == ([], False)


def test_files_are_loaded_once_and_only_for_a_search() -> None:
    loads = []

    def load() -> pa.Table:
        loads.append(1)
        return files("a")

    known = KnownFiles.of(LOCATION, load)
    later = known.plus(files("b"))
    assert not loads and known.plus(files()) is known
    search(known, "a")
    search(later, "b")
    assert loads == [1]


def test_an_invalid_path_is_refused() -> None:
    with pytest.raises(CorruptLogError):
        search(KnownFiles.of(LOCATION, files), "../x")
