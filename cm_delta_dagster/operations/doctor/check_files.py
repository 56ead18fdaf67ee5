"""The files of a table, for ``doctor``: those that it needs and those that nobody does. Nothing is changed."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError, ObjectNotFoundError
from cm_delta_dagster.operations.doctor.findings import Finding, Problem, Severity
from cm_delta_dagster.operations.maintenance.clean_staged_commits import plan_clean_staged_commits
from cm_delta_dagster.operations.maintenance.sizes import size_text
from cm_delta_dagster.operations.maintenance.vacuum import plan_vacuum, vector_files
from cm_delta_dagster.protocol.actions.actions import DeletionVectorDescriptor
from cm_delta_dagster.protocol.actions.paths import file_keys, normalise_location
from cm_delta_dagster.protocol.features.deletion_vectors import dv_location
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.action_reconciliation import TableState

_SHOWN = 5

_AROUND_VECTOR = 8
"""Bytes of the size before and of the checksum after a deletion vector in its file."""


def check_files(table: Table, state: TableState, findings: list[Finding]) -> int:
    """Data files and deletion vectors of ``state``; their number."""
    adds = state.files.adds
    try:
        vectors = _vector_sizes(table.location, adds)
    except CmDeltaError as error:
        findings.append(
            Finding(severity=Severity.ERROR, problem=Problem.VECTOR_DAMAGED, where="the log", message=str(error))
        )
        vectors = {}
    sizes = dict(zip(file_keys(table.location, adds["path"]).to_pylist(), adds["size"].to_pylist(), strict=True))
    wanted = {**vectors, **sizes}
    found = {normalise_location(s.location): s.size for s in table.store.list_recursive(table.location)}
    missing = sorted(key for key in wanted if key not in found and not _exists(table, key))
    if missing:
        still = _live_now(table)
        missing = [key for key in missing if still is None or key in still]
    resized = sorted(key for key, size in sizes.items() if key not in missing and found.get(key, size) != size)
    cut = sorted(key for key, size in vectors.items() if key not in missing and found.get(key, size) < size)
    for problem, keys, what in (
        (Problem.FILE_MISSING, missing, "are missing: reads of them fail. Restore them from a backup."),
        (Problem.FILE_SIZE, resized, "have another size than the log says: they were cut off or replaced."),
        (Problem.VECTOR_DAMAGED, cut, "with deletion vectors are shorter than the log says: reads of them fail."),
    ):
        if keys:
            message = f"{len(keys)} files of version {state.version} {what}"
            findings.append(Finding(severity=Severity.ERROR, problem=problem, where=shown(keys), message=message))
    return len(wanted)


def _vector_sizes(location: str, adds: pa.Table) -> dict[str, int]:
    """Locations of the deletion vector files, and the bytes that each must have at least for the vectors in it."""
    found: dict[str, int] = {}
    for row in adds["deletionVector"].drop_null().to_pylist():
        vector = descriptor_of(row)
        at = dv_location(location, vector)
        if at is not None:
            key = normalise_location(at)
            found[key] = max(found.get(key, 0), (vector.offset or 0) + vector.size_in_bytes + _AROUND_VECTOR)
    return found


def descriptor_of(row: Mapping[str, Any]) -> DeletionVectorDescriptor:
    """The deletion vector in a row of a table of files."""
    return DeletionVectorDescriptor(
        storage_type=row["storageType"],
        path_or_inline_dv=row["pathOrInlineDv"],
        offset=row["offset"],
        size_in_bytes=row["sizeInBytes"],
        cardinality=row["cardinality"],
    )


def shown(keys: list[str]) -> str:
    """The first few of many names."""
    return ", ".join(keys[:_SHOWN]) + (", ..." if len(keys) > _SHOWN else "")


def _live_now(table: Table) -> set[str] | None:
    """What the table needs by now: files may have been removed and vacuumed since; None if that cannot be found out."""
    try:
        now = table.snapshot()
        files: pa.Table = now.files
        live = set(file_keys(now.location, files["path"]).to_pylist())
        return live | {normalise_location(at) for at in vector_files(now.location, files)}
    except CmDeltaError:
        return None


def _exists(table: Table, location: str) -> bool:
    """A file outside of the table's directory, as a shallow clone has them."""
    if location.startswith(f"{normalise_location(table.location)}/"):
        return False
    try:
        table.store.stat(location)
    except ObjectNotFoundError:
        return False
    return True


def leftovers(table: Table) -> Iterable[Finding]:
    """Files that clean-up may delete. Nothing for a table that this client may not clean up or cannot load."""
    try:
        orphans, staged = plan_vacuum(table), plan_clean_staged_commits(table)
    except (CmDeltaError, OSError):
        return
    if orphans.num_files:
        yield Finding(
            severity=Severity.NOTE,
            problem=Problem.ORPHANED_FILES,
            where=table.location,
            message=f"{orphans.num_files} files ({size_text(orphans.num_bytes)}) are needed by no version within the "
            "retention; vacuum deletes them.",
        )
    if staged.num_files:
        yield Finding(
            severity=Severity.NOTE,
            problem=Problem.STAGED_LEFTOVERS,
            where=log_files.staged_commits_directory(table.location),
            message=f"{staged.num_files} staged commits ({size_text(staged.num_bytes)}) are needed by nobody; "
            "clean_staged_commits deletes them.",
        )
