"""Checks footers and deletion vectors of all data files of one version, for ``doctor``. Changes nothing.

Only the footer of a data file is read. This finds files that are truncated, have another row count than the log says, or have a
damaged footer; it does not find a changed bit in a page. Deletion vectors are read completely and compared with their checksums.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CorruptLogError, InvalidDataError, ObjectNotFoundError
from cm_delta_dagster.operations.doctor.check_files import first_names
from cm_delta_dagster.operations.doctor.findings import Finding, Problem, Severity
from cm_delta_dagster.operations.recovery.display_text import counted
from cm_delta_dagster.protocol.actions.action_fields import deletion_vector_of
from cm_delta_dagster.protocol.actions.actions import DeletionVectorDescriptor
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.features import deletion_vectors
from cm_delta_dagster.protocol.log.action_reconciliation import TableState
from cm_delta_dagster.protocol.statistics.statistics import num_records
from cm_delta_dagster.storage.parquet import count_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class FooterCheck:
    """The result.

    Attributes:
        num_files: data files whose footer was read.
        num_without_row_count: of these, files without a row count in the log.
    """

    num_files: int
    num_without_row_count: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _LiveFile:
    location: str
    num_records: int | None
    vector: DeletionVectorDescriptor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileResult:
    """``problem`` is None if the file is intact."""

    location: str
    was_read: bool = True
    problem: Problem | None = None
    reason: str = ""


def check_footers(
    table: Table, state: TableState, *, progress: Callable[[int, int], None] | None = None
) -> FooterCheck:
    """Read every data file's footer and every deletion vector of ``state``, several concurrently.

    :func:`~cm_delta_dagster.operations.doctor.check_files.check_files` reports missing files.

    Args:
        progress: called after each file with the number of files done and the total.
    """
    files = _live_files(table, state)
    done = 0
    lock = threading.Lock()
    vectors = _VectorFiles(table)

    def check_file(file: _LiveFile) -> _FileResult:
        nonlocal done
        result = _check_file(table, vectors, file)
        with lock:
            done += 1
            if progress is not None:
                progress(done, len(files))
        return result

    with ThreadPoolExecutor(max_workers=table.services.settings.read_threads) as pool:
        results = list(pool.map(check_file, files))
    return FooterCheck(
        num_files=sum(result.was_read for result in results),
        num_without_row_count=sum(
            result.was_read and file.num_records is None for file, result in zip(files, results, strict=True)
        ),
        findings=tuple(_findings_by_problem(results, version=state.version)),
    )


class _VectorFiles:
    """Reads deletion vector files; caches the last one, since neighbouring data files usually share a file."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._lock = threading.Lock()
        self._last: tuple[str, bytes] | None = None

    def read(self, location: str) -> bytes:
        with self._lock:
            if self._last is not None and self._last[0] == location:
                return self._last[1]
        data = self._table.store.read(location)
        with self._lock:
            self._last = (location, data)
        return data


def _check_file(table: Table, vectors: _VectorFiles, file: _LiveFile) -> _FileResult:
    try:
        rows = count_rows(table.store, file.location)
    except ObjectNotFoundError:
        return _FileResult(location=file.location, was_read=False)
    except InvalidDataError as error:
        return _FileResult(location=file.location, problem=Problem.FILE_DAMAGED, reason=str(error))
    if file.num_records is not None and rows != file.num_records:
        return _FileResult(
            location=file.location,
            problem=Problem.FILE_DIFFERS,
            reason=f"it has {rows} rows and the log says {file.num_records}",
        )
    if file.vector is not None:
        try:
            bitmap = _positions(table, vectors, file.vector)
            deletion_vectors.check_positions(bitmap, num_rows=rows, path=file.location)
        except ObjectNotFoundError:
            pass
        except CorruptLogError as error:
            return _FileResult(location=file.location, problem=Problem.VECTOR_DAMAGED, reason=str(error))
    return _FileResult(location=file.location)


def _positions(table: Table, vectors: _VectorFiles, descriptor: DeletionVectorDescriptor) -> Any:
    location = deletion_vectors.dv_location(table.location, descriptor)
    if location is None:
        return deletion_vectors.decode_inline(descriptor)
    return deletion_vectors.decode_from_file(vectors.read(location), descriptor)


def _findings_by_problem(results: Sequence[_FileResult], *, version: int) -> list[Finding]:
    """One finding for each kind of problem."""
    findings = []
    for problem, what in (
        (Problem.FILE_DAMAGED, "not a complete Parquet file: reads fail. Restore from a backup"),
        (
            Problem.FILE_DIFFERS,
            "with another row count than the log says: swapped or replaced. Restore from a backup",
        ),
        (
            Problem.VECTOR_DAMAGED,
            "with a damaged deletion vector, so that the deleted rows are not known. Restore its file from a backup",
        ),
    ):
        bad = [result for result in results if result.problem is problem]
        if bad:
            findings.append(
                Finding(
                    severity=Severity.ERROR,
                    problem=problem,
                    where=first_names([result.location for result in bad]),
                    message=f"{counted(len(bad), 'file')} of version {version} {what}. The first: {bad[0].reason}",
                )
            )
    return findings


def _live_files(table: Table, state: TableState) -> list[_LiveFile]:
    adds = state.files.adds
    keys = file_keys(table.location, adds["path"]).to_pylist()
    records = num_records(adds["stats"]).to_pylist()
    return [
        _LiveFile(location=key, num_records=rows, vector=None if vector is None else deletion_vector_of(vector))
        for key, rows, vector in zip(keys, records, adds["deletionVector"].to_pylist(), strict=True)
    ]
