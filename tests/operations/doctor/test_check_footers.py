"""Deep mode: footers and deletion vectors of all data files are compared with the log."""

import uuid

import pyarrow as pa
import pytest

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.doctor import Depth, DoctorReport, Problem, doctor, repair_table
from cm_delta_dagster.protocol.actions.actions import DeletionVectorDescriptor
from cm_delta_dagster.protocol.features.deletion_vectors import (
    encode_bitmap,
    encode_file,
    encode_inline,
    encode_relative_name,
)
from cm_delta_dagster.storage.parquet import encode_parquet
from tests.support.lake import Lake


def parquet(rows: int) -> bytes:
    return encode_parquet(pa.table({"id": pa.array(range(rows), pa.int64())}))


def data_file(lake: Lake, table: Table, name: str, rows: int, *, stats: bool = True, **more: object) -> bytes:
    data = parquet(rows)
    text = f'{{"numRecords":{rows}}}' if stats else None
    lake.append(table, name, size=len(data), stats=text, **more)
    lake.put(table, name, data)
    return data


@pytest.fixture
def table(lake: Lake) -> Table:
    """Five files: three with row counts, one without, one with a deletion vector in a file of its own."""
    table = lake.new_table(properties={"delta.enableDeletionVectors": "true"})
    for number, rows in enumerate((10, 20, 30)):
        data_file(lake, table, f"file-{number}.parquet", rows)
    data_file(lake, table, "uncounted.parquet", 5, stats=False)
    bitmap = encode_bitmap([3, 4])
    content, (offset,) = encode_file([bitmap])
    file_id = uuid.UUID(int=7)
    descriptor = DeletionVectorDescriptor(
        storage_type="u",
        path_or_inline_dv=encode_relative_name(file_id),
        size_in_bytes=len(bitmap),
        cardinality=2,
        offset=offset,
    )
    lake.put(table, VECTOR, content)
    data_file(lake, table, "deleted.parquet", 40, deletion_vector=descriptor)
    lake.client.wait_for_background()
    return table


VECTOR = f"deletion_vector_{uuid.UUID(int=7)}.bin"


def run(lake: Lake, *, depth: Depth = Depth.FOOTERS) -> DoctorReport:
    lake.client.wait_for_background()
    return doctor(lake.reopened().table("main.test.t"), depth=depth)


def test_intact_files_are_counted_and_progress_is_reported(lake: Lake, table: Table) -> None:
    steps: list[tuple[int, int]] = []
    report = doctor(
        lake.reopened().table("main.test.t"),
        depth=Depth.FOOTERS,
        progress=lambda done, total: steps.append((done, total)),
    )
    assert (report.findings, report.num_files_read, report.num_files_without_row_count) == ((), 5, 1)
    assert steps == [(number, 5) for number in range(1, 6)]


def test_without_the_deep_mode_no_data_file_is_read(lake: Lake, table: Table) -> None:
    lake.store.calls.clear()
    assert run(lake, depth=Depth.LISTING).num_files_read == 0
    assert not [at for _, at in lake.store.calls if str(at).endswith("-0.parquet")]


def test_swapped_files_are_found_by_their_row_counts(lake: Lake, table: Table) -> None:
    one, other = (f"{table.location}/file-{number}.parquet" for number in (0, 1))
    first, second = lake.memory.read(one), lake.memory.read(other)
    assert first != second
    lake.memory.write(one, second)
    lake.memory.write(other, first)
    report = run(lake)
    (finding,) = [finding for finding in report.findings if finding.problem is Problem.FILE_DIFFERS]
    assert "2 files" in finding.message and "file-0.parquet" in finding.where and "file-1.parquet" in finding.where
    assert not report.healthy


@pytest.mark.parametrize("name", ["file-1.parquet", "uncounted.parquet"])
@pytest.mark.parametrize("harm", ["footer", "zeros"])
def test_a_damaged_file_of_the_same_size_is_found(lake: Lake, table: Table, name: str, harm: str) -> None:
    location = f"{table.location}/{name}"
    data = lake.memory.read(location)
    lake.memory.write(location, data[:-6] + b"\xff\xff\xff\xff\xff\xff" if harm == "footer" else bytes(len(data)))
    assert run(lake, depth=Depth.LISTING).findings == ()
    report = run(lake)
    assert [finding.problem for finding in report.findings] == [Problem.FILE_DAMAGED]
    assert name in report.findings[0].where


@pytest.mark.parametrize("place", [0, 3, 12, -1])
def test_a_changed_deletion_vector_is_found(lake: Lake, table: Table, place: int) -> None:
    data = bytearray(lake.memory.read(f"{table.location}/{VECTOR}"))
    data[place] ^= 1
    lake.put(table, VECTOR, bytes(data))
    report = run(lake)
    assert [finding.problem for finding in report.findings] == [Problem.VECTOR_DAMAGED]
    assert "deleted.parquet" in report.findings[0].where


def test_a_deletion_vector_that_is_cut_off_is_found_without_reading_it(lake: Lake, table: Table) -> None:
    lake.put(table, VECTOR, lake.memory.read(f"{table.location}/{VECTOR}")[:-1])
    assert [finding.problem for finding in run(lake, depth=Depth.LISTING).findings] == [Problem.VECTOR_DAMAGED]


def test_a_deletion_vector_beyond_the_rows_of_its_file_is_found(lake: Lake, table: Table) -> None:
    data_file(lake, table, "short.parquet", 3, deletion_vector=encode_inline([7]))
    assert [finding.problem for finding in run(lake).findings] == [Problem.VECTOR_DAMAGED]


def test_a_missing_file_is_reported_once(lake: Lake, table: Table) -> None:
    lake.memory.delete(f"{table.location}/file-2.parquet")
    lake.memory.delete(f"{table.location}/{VECTOR}")
    report = run(lake)
    assert [finding.problem for finding in report.findings] == [Problem.FILE_MISSING]
    assert report.num_files_read == 4


def test_a_repair_keeps_what_the_files_gave(lake: Lake, table: Table) -> None:
    lake.put(table, "file-1.parquet", bytes(len(lake.memory.read(f"{table.location}/file-1.parquet"))))
    lake.memory.write(f"{table.location}/_delta_log/_last_checkpoint", b"{")
    report = repair_table(lake.reopened().table("main.test.t"), depth=Depth.FOOTERS)
    assert [finding.problem for finding in report.repaired] == [Problem.HINT_WRONG]
    assert [finding.problem for finding in report.findings] == [Problem.FILE_DAMAGED]
    assert [finding.problem for finding in report.plan.untouched] == [Problem.FILE_DAMAGED]
