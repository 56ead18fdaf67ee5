"""Folders of Parquet files become tables: columns and statistics from footers, partition values from directories."""

import datetime
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cm_delta_dagster import connect
from cm_delta_dagster.errors import (
    CmDeltaError,
    InvalidArgumentError,
    InvalidDataError,
    SchemaMismatchError,
    StorageError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.doctor import doctor
from cm_delta_dagster.operations.onboarding.adopt import adopt
from cm_delta_dagster.operations.onboarding.adopt_plan import AdoptState, explain, plan_adopt
from cm_delta_dagster.operations.onboarding.parquet_folder import FolderOptions
from cm_delta_dagster.operations.onboarding.release import release
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.protocol.schema.types import data_type_text
from tests.operations.onboarding.worlds import NAME, objects
from tests.support.lake import Lake

ROOT = "memory://lake/raw/events"
MISSPELT = FolderOptions(partition_by={"dayy": "date"})
BY_DAY = FolderOptions(partition_by={"day": "date", "country": "string"})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def put(lake: Lake, path: str, **columns: Any) -> None:
    buffer = io.BytesIO()
    options = columns.pop("options", {})
    pq.write_table(pa.table(columns), buffer, **options)
    lake.memory.write(f"{ROOT}/{path}", buffer.getvalue())


def longs(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int64())


@pytest.mark.requirements("CM-2")
def test_a_plain_folder_becomes_a_table_without_touching_files(lake: Lake) -> None:
    """Protocol heading "Per-file Statistics"."""
    put(lake, "a.parquet", id=longs(1, 2, None), text=["x", "y", "z"])
    put(lake, "deep/b c%20.parquet", id=longs(7), more=pa.array([1.5]))
    lake.memory.write(f"{ROOT}/_SUCCESS", b"")
    before = objects(lake)
    seen: list[tuple[int, int]] = []
    options = FolderOptions(progress=lambda done, total: seen.append((done, total)))
    plan = plan_adopt(lake.client, location=ROOT, identifier=NAME, folder=options)
    assert objects(lake) == before and seen == [(2, 2)]
    assert (plan.state, plan.version, plan.adopted_version, plan.num_files) == (AdoptState.PARQUET_FOLDER, -1, 0, 2)
    assert "version 0 names 2 Parquet files" in next(iter(explain(plan)))
    table = adopt(lake.client, location=ROOT, identifier=NAME)
    assert {name: data for name, data in objects(lake).items() if "_delta_log" not in name} == before
    rows = read_arrow(open_scan(table)).sort_by("id").to_pylist()
    assert [(row["id"], row["text"], row["more"]) for row in rows] == [
        (1, "x", None),
        (2, "y", None),
        (7, None, 1.5),
        (None, "z", None),
    ]
    files = {add["path"]: json.loads(add["stats"]) for add in table.snapshot().files.to_pylist()}
    assert set(files) == {"a.parquet", "deep/b%20c%2520.parquet"}
    assert files["a.parquet"]["numRecords"] == 3 and files["a.parquet"]["nullCount"]["id"] == 1
    assert files["a.parquet"]["minValues"] == {"id": 1, "text": "x"}
    report = doctor(table, depth="footers")  # type: ignore[arg-type]
    assert report.healthy, report.findings
    assert release(lake.client, identifier=NAME).version > 0


@pytest.mark.requirements("PART-1")
def test_hive_partitions_give_values_of_the_declared_types(lake: Lake) -> None:
    """Protocol heading "Partition Value Serialization"."""
    put(lake, "day=2024-05-01/country=de/a.parquet", id=longs(1), country=["ignored"])
    put(lake, "day=2024-05-02/country=a%2Fb/b.parquet", id=longs(2))
    put(lake, "day=__HIVE_DEFAULT_PARTITION__/country=us/c.parquet", id=longs(3))
    table = adopt(lake.client, location=ROOT, identifier=NAME, folder=BY_DAY)
    assert table.snapshot().partition_columns == ("day", "country")
    rows = {row["id"]: (row["day"], row["country"]) for row in read_arrow(open_scan(table)).to_pylist()}
    assert rows == {
        1: (datetime.date(2024, 5, 1), "de"),
        2: (datetime.date(2024, 5, 2), "a/b"),
        3: (None, "us"),
    }
    again = adopt(lake.client, location=ROOT, identifier=NAME)
    assert again.table_id == table.table_id


def test_types_are_those_that_readers_of_delta_read(lake: Lake) -> None:
    times = pa.array([datetime.datetime(2024, 5, 1)], pa.timestamp("us"))
    put(lake, "a.parquet", old=times, options={"use_deprecated_int96_timestamps": True})
    put(lake, "b.parquet", local=times, point=times.cast(pa.timestamp("us", tz="UTC")), small=pa.array([1], pa.int8()))
    schema = adopt(lake.client, location=ROOT, identifier=NAME).snapshot().schema
    assert {item.name: data_type_text(item.type) for item in schema.fields} == {
        "old": "timestamp",
        "local": "timestamp_ntz",
        "point": "timestamp",
        "small": "tinyint",
    }


def _nothing(lake: Lake) -> None:
    lake.memory.write(f"{ROOT}/_SUCCESS", b"")


def _other_type(lake: Lake) -> None:
    put(lake, "a.parquet", id=longs(1))
    put(lake, "b.parquet", id=pa.array([1], pa.int32()))


def _other_case(lake: Lake) -> None:
    put(lake, "a.parquet", id=longs(1))
    put(lake, "b.parquet", ID=longs(1))


def _nanoseconds(lake: Lake) -> None:
    put(lake, "a.parquet", at=pa.array([1], pa.timestamp("ns")))


def _unsigned(lake: Lake) -> None:
    put(lake, "a.parquet", s=pa.array([{"n": 1}], pa.struct([("n", pa.uint32())])))


def _no_parquet(lake: Lake) -> None:
    put(lake, "a.parquet", id=longs(1))
    lake.memory.write(f"{ROOT}/b.parquet", b"PAR1 no")


def _other_file(lake: Lake) -> None:
    put(lake, "a.parquet", id=longs(1))
    lake.memory.write(f"{ROOT}/b.csv", b"id")


def _undeclared(lake: Lake) -> None:
    put(lake, "day=1/a.parquet", id=longs(1))


def _mixed(lake: Lake) -> None:
    put(lake, "day=2024-05-01/country=de/a.parquet", id=longs(1))
    put(lake, "b.parquet", id=longs(1))


def _wrong_order(lake: Lake) -> None:
    put(lake, "country=de/day=2024-05-01/a.parquet", id=longs(1))


def _wrong_value(lake: Lake) -> None:
    put(lake, "day=monday/country=de/a.parquet", id=longs(1))


def _bad_name(lake: Lake) -> None:
    put(lake, "a.parquet", **{"a b": longs(1)})


def _only_partitions(lake: Lake) -> None:
    put(lake, "day=2024-05-01/country=de/a.parquet", day=["x"])


def _delta_table_below(lake: Lake) -> None:
    put(lake, "a.parquet", id=longs(1))
    put(lake, "sub/b.parquet", id=longs(1))
    lake.memory.write(f"{ROOT}/sub/_delta_log/{0:020d}.json", b"{}")


def _inside_delta_table(lake: Lake) -> None:
    put(lake, "a.parquet", id=longs(1))
    lake.memory.write(f"{ROOT.rpartition('/')[0]}/_delta_log/{0:020d}.json", b"{}")


def _streaming_sink(lake: Lake) -> None:
    put(lake, "a.parquet", id=longs(1))
    lake.memory.write(f"{ROOT}/_spark_metadata/0", b"v1")


BAD = [
    (_delta_table_below, None, InvalidArgumentError, "which of the Parquet files are live"),
    (_inside_delta_table, None, InvalidArgumentError, "below the Delta table memory://lake/raw,"),
    (_streaming_sink, None, InvalidArgumentError, "which of the Parquet files are live"),
    (_nothing, None, TableNotFoundError, "neither a Delta table.*nor a directory with Parquet"),
    (_other_type, None, SchemaMismatchError, "'id' is int in b.parquet"),
    (_other_case, None, SchemaMismatchError, "'ID'"),
    (_nanoseconds, None, InvalidArgumentError, "nanoseconds"),
    (_unsigned, None, InvalidArgumentError, r"'s\.n' has the type uint32"),
    (_no_parquet, None, StorageError, "b.parquet"),
    (_other_file, None, InvalidArgumentError, "b.csv is not a Parquet file"),
    (_undeclared, None, InvalidArgumentError, 'partition columns {"day": "string"}'),
    (_mixed, BY_DAY, InvalidArgumentError, "b.parquet"),
    (_wrong_order, BY_DAY, InvalidArgumentError, "country=de/day"),
    (
        _wrong_order,
        BY_DAY,
        InvalidArgumentError,
        r"columns \(country, day\), and the partition columns are \(day, country\)",
    ),
    (
        _undeclared,
        MISSPELT,
        InvalidArgumentError,
        r'Give the partition columns \{"day": "string"\}, with their types, or move the file',
    ),
    (_wrong_value, BY_DAY, InvalidDataError, "'monday'"),
    (_bad_name, None, SchemaMismatchError, "a b"),
    (_only_partitions, BY_DAY, InvalidArgumentError, "partition column"),
]


@pytest.mark.parametrize(
    ("prepare", "options", "error", "text"), BAD, ids=[case[0].__name__.strip("_") for case in BAD]
)
def test_a_folder_that_is_not_one_table_is_refused_and_nothing_changes(
    prepare: Any, options: FolderOptions | None, error: type[CmDeltaError], text: str, lake: Lake
) -> None:
    prepare(lake)
    before = objects(lake)
    for act in (plan_adopt, adopt):
        with pytest.raises(error, match=text):
            act(lake.client, location=ROOT, identifier=NAME, folder=options or FolderOptions())
    assert objects(lake) == before and lake.client.registry.list_tables() == ()


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_a_link_whose_files_a_listing_leaves_out_is_refused(target: str, tmp_path: Path) -> None:
    folder = tmp_path / "raw"
    for directory in (folder, tmp_path / "elsewhere"):
        directory.mkdir()
        pq.write_table(pa.table({"id": [1]}), directory / "a.parquet")
    (folder / "sub").mkdir()
    (folder / "sub" / "b.parquet").symlink_to(tmp_path / "elsewhere" / "a.parquet")
    (folder / "_hidden").symlink_to(tmp_path / "elsewhere")
    link = folder / "sub" / "more"
    link.symlink_to(tmp_path / target)
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse") as lake:
        for act in (lake.onboarding.plan_adopt, lake.onboarding.adopt):
            with pytest.raises(InvalidArgumentError, match="sub/more is a symbolic link"):
                act(str(folder), NAME)
        assert not (folder / "_delta_log").exists()
        link.unlink()
        assert lake.onboarding.adopt(str(folder), NAME).to_arrow()["id"].to_pylist() == [1, 1], (
            "a link to a file is read"
        )


def test_a_link_to_another_file_of_the_folder_is_refused(tmp_path: Path) -> None:
    """Its rows would be in the table twice. A hidden file has one visible name."""
    folder = tmp_path / "raw"
    (folder / "_hidden").mkdir(parents=True)
    for name in ("a.parquet", "_hidden/c.parquet"):
        pq.write_table(pa.table({"id": [1]}), folder / name)
    link = folder / "b.parquet"
    link.symlink_to("a.parquet")
    (folder / "c.parquet").symlink_to(folder / "_hidden" / "c.parquet")
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse") as lake:
        with pytest.raises(InvalidArgumentError, match=r"b\.parquet is a symbolic link to a\.parquet"):
            lake.onboarding.adopt(str(folder), NAME)
        link.unlink()
        assert lake.onboarding.adopt(str(folder), NAME).to_arrow()["id"].to_pylist() == [1, 1]


@pytest.mark.parametrize(
    ("wrong", "text"), [(["day"], "in the order of the directories"), ({"day": "array<int>"}, "array")]
)
def test_partition_columns_without_a_usable_type_are_refused(lake: Lake, wrong: Any, text: str) -> None:
    put(lake, "day=1/a.parquet", id=longs(1))
    with pytest.raises(InvalidArgumentError, match=text):
        plan_adopt(lake.client, location=ROOT, identifier=NAME, folder=FolderOptions(partition_by=wrong))


def test_partition_columns_are_refused_for_a_delta_table(lake: Lake) -> None:
    put(lake, "a.parquet", id=longs(1))
    adopt(lake.client, location=ROOT, identifier=NAME)
    release(lake.client, identifier=NAME)
    with pytest.raises(InvalidArgumentError, match="Leave partition_by out"):
        adopt(lake.client, location=ROOT, identifier=NAME, folder=BY_DAY)


def test_a_log_that_another_writer_creates_first_is_adopted_instead(lake: Lake) -> None:
    put(lake, "a.parquet", id=longs(1))
    other = Lake(lake.directory / "other" if (lake.directory / "other").mkdir() is None else lake.directory)

    def overtake(method: str, argument: object) -> None:
        if method == "write_if_absent" and str(argument).endswith(f"{0:020d}.json"):
            lake.store.fails = lambda *_: None
            for status in list(lake.memory.list_recursive(ROOT)):
                other.memory.write(status.location, lake.memory.read(status.location))
            adopt(other.client, location=ROOT, identifier=NAME)
            release(other.client, identifier=NAME)
            for status in list(other.memory.list_recursive(ROOT)):
                lake.memory.write(status.location, other.memory.read(status.location))

    lake.store.fails = overtake
    table = adopt(lake.client, location=ROOT, identifier=NAME)
    assert table.snapshot().version > 1 and read_arrow(open_scan(table))["id"].to_pylist() == [1]
