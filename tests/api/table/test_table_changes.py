"""Changes and streams of a table as values: their forms, the versions that they are bound to, and what they refuse at once."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cm_delta_dagster import (
    Connection,
    InvalidArgumentError,
    PathDeltaTable,
    TableChanges,
    VersionNotFoundError,
    connect,
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "w")) as lake:
        yield lake


def add(place: str, *ids: int, **options: Any) -> None:
    write_deltalake(place, pa.table({"id": pa.array(ids, pa.int64())}), mode="append", **options)


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Two commits, with a change feed."""
    path = str(tmp_path / "foreign")
    add(path, 1, 2, configuration={"delta.enableChangeDataFeed": "true"})
    add(path, 3)
    return path


@pytest.fixture
def table(lake: Connection, place: str) -> PathDeltaTable:
    return lake.path_table(place)


FORMS: dict[str, Callable[[TableChanges], Any]] = {
    "to_arrow": lambda changes: changes.to_arrow()["id"].to_pylist(),
    "to_batches": lambda changes: changes.to_batches().read_all()["id"].to_pylist(),
    "to_pandas": lambda changes: changes.to_pandas()["id"].to_list(),
    "to_polars": lambda changes: changes.to_polars()["id"].to_list(),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_return_the_changes_up_to_the_version_that_was_the_latest(
    table: PathDeltaTable, place: str, form: str
) -> None:
    changes = table.changes(starting_version=0, where="id > 1")
    add(place, 4)
    assert FORMS[form](changes) == [2, 3]
    assert FORMS[form](table.changes(starting_version=2)) == [4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "have no start"),
        ({"starting_version": 0, "starting_timestamp": 1}, "at a version and at a time"),
        ({"starting_version": 1, "ending_version": 0}, "before they begin"),
        ({"starting_version": 0, "columns": ["nosuch"]}, "no column 'nosuch'"),
        ({"starting_version": 0, "where": "nosuch = 1"}, "nosuch"),
    ],
)
def test_changes_that_cannot_be_read_are_an_error_of_the_call(
    table: PathDeltaTable, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        table.changes(**arguments)
    with pytest.raises(VersionNotFoundError):
        table.changes(starting_version=9)


def test_the_methods_of_a_frame_are_those_of_the_frame(table: PathDeltaTable) -> None:
    changes: Any = table.changes(starting_version=0)
    with pytest.raises(
        AttributeError, match=r"TableChanges has no attribute 'where': changes are returned by to_df\(\)"
    ):
        changes.where("id > 1")
    stream: Any = table.stream()
    with pytest.raises(
        AttributeError, match=r"TableStream has no attribute 'writeStream': a stream is read by to_df\(\)"
    ):
        _ = stream.writeStream


def test_each_call_of_a_stream_begins_at_its_offset(table: PathDeltaTable, place: str) -> None:
    stream = table.stream(columns=["id"])
    (first,) = stream.to_batches()
    assert sorted(first.to_batches().read_all()["id"].to_pylist()) == [1, 2, 3]
    add(place, 4)
    assert sum(batch.to_arrow().num_rows for batch in stream.to_batches()) == 4
    (second,) = table.stream(first.offset).to_batches()
    assert second.to_arrow()["id"].to_pylist() == [4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_files": 0}, "max_files is 0"),
        ({"changes": "nosuch"}, "changes is 'nosuch'"),
        ({"starting_version": 0, "starting_timestamp": 1}, "not both"),
        ({"offset": "{}"}, "offset"),
        ({"time_zone": "Mars/Base"}, "is not a time zone"),
    ],
)
def test_invalid_options_of_a_stream_are_an_error_of_the_call(
    table: PathDeltaTable, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        table.stream(**arguments)


def test_spark_takes_no_offset_because_its_checkpoint_has_one(table: PathDeltaTable) -> None:
    (batch,) = table.stream().to_batches()
    with pytest.raises(InvalidArgumentError, match=r"has an offset, which only to_batches\(\) takes"):
        table.stream(batch.offset).to_df()
