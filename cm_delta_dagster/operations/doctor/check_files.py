"""Checks that the files of a table exist and lists files that clean-up may delete, for ``doctor``. Changes nothing."""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError, StoreNotSupportedError
from cm_delta_dagster.operations.doctor.findings import Finding, Findings, Problem, Severity
from cm_delta_dagster.operations.maintenance.clean_staged_commits import plan_clean_staged_commits
from cm_delta_dagster.operations.maintenance.sizes import size_text
from cm_delta_dagster.operations.maintenance.vacuum import plan_vacuum
from cm_delta_dagster.operations.recovery.display_text import counted
from cm_delta_dagster.protocol.actions.action_fields import deletion_vector_of
from cm_delta_dagster.protocol.actions.paths import file_keys, normalise_location
from cm_delta_dagster.protocol.features.deletion_vectors import dv_location, vector_files
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.action_reconciliation import TableState
from cm_delta_dagster.storage.other_names import resolved_files, resolved_location, sizes_of

_SHOWN = 5

_AROUND_VECTOR = 8
"""Bytes of the size before and of the checksum after a deletion vector in its file."""


def check_files(table: Table, state: TableState, findings: Findings) -> int:
    """Check existence and size of the data files and deletion vectors of ``state``; return their number."""
    adds = state.files.adds
    try:
        vectors = _vector_sizes(table.location, adds)
    except CmDeltaError as error:
        findings.add(Severity.ERROR, Problem.VECTOR_DAMAGED, "the log", str(error))
        vectors = {}
    sizes = dict(zip(file_keys(table.location, adds["path"]).to_pylist(), adds["size"].to_pylist(), strict=True))
    needed = {**vectors, **sizes}
    existing_sizes = {normalise_location(s.location): s.size for s in table.store.list_recursive(table.location)}
    # What a listing does not show lies elsewhere, or is named through a link.
    elsewhere = [key for key in needed if key not in existing_sizes]
    unknown = _without_store(table, elsewhere, findings)
    existing_sizes |= sizes_of(table.services.stores.store_for, (key for key in elsewhere if key not in unknown))
    missing = sorted(key for key in needed if key not in existing_sizes and key not in unknown)
    if missing:
        still = _live_now(table)
        missing = [key for key in missing if still is None or key in still]
    resized = sorted(key for key, size in sizes.items() if key not in missing and existing_sizes.get(key, size) != size)
    cut = sorted(key for key, size in vectors.items() if key not in missing and existing_sizes.get(key, size) < size)
    for problem, keys, what in (
        (Problem.FILE_MISSING, missing, f"missing: reads fail. {_advice(table, missing)}"),
        (
            Problem.FILE_SIZE,
            resized,
            "with another size than the log says: truncated or replaced. Restore from a backup.",
        ),
        (
            Problem.VECTOR_DAMAGED,
            cut,
            "of deletion vectors shorter than the log says: reads fail. Restore from a backup.",
        ),
    ):
        if keys:
            message = f"{counted(len(keys), 'file')} of version {state.version} {what}"
            findings.add(Severity.ERROR, problem, first_names(keys), message)
    return len(needed)


def _without_store(table: Table, keys: Sequence[str], findings: Findings) -> set[str]:
    """The files whose location no store of this client can read, which are reported."""
    refused: dict[str, str] = {}
    for key in keys:
        try:
            table.services.stores.store_for(key)
        except StoreNotSupportedError as error:
            refused[key] = str(error)
    if refused:
        message = (
            f"{counted(len(refused), 'file')} whose location this client cannot read: {next(iter(refused.values()))}"
        )
        findings.add(Severity.ERROR, Problem.FILE_MISSING, first_names(sorted(refused)), message)
    return set(refused)


def _vector_sizes(location: str, adds: pa.Table) -> dict[str, int]:
    """Locations of the deletion vector files, and the bytes that each must have at least for the vectors in it."""
    needed_sizes: dict[str, int] = {}
    for row in adds["deletionVector"].drop_null().to_pylist():
        vector = deletion_vector_of(row)
        at = dv_location(location, vector)
        if at is not None:
            key = normalise_location(at)
            needed_sizes[key] = max(
                needed_sizes.get(key, 0), (vector.offset or 0) + vector.size_in_bytes + _AROUND_VECTOR
            )
    return needed_sizes


def first_names(keys: list[str]) -> str:
    """Return the first names, separated by commas."""
    return ", ".join(keys[:_SHOWN]) + (", ..." if len(keys) > _SHOWN else "")


def _live_now(table: Table) -> set[str] | None:
    """The files of the current latest version: others may have been removed and vacuumed since; None if it cannot be loaded."""
    try:
        now = table.snapshot()
        files: pa.Table = now.files
        live = set(file_keys(now.location, files["path"]).to_pylist())
        return live | {normalise_location(at) for at in vector_files(now.location, files)}
    except CmDeltaError:
        return None


def _advice(table: Table, missing: Sequence[str]) -> str:
    """What to do about missing files; names the tables whose files a shallow clone has lost."""
    stores = table.services.stores
    places = resolved_files(stores, pa.array(missing, pa.string())).drop_null().to_pylist()
    sources = [
        f"{source.identifier} (table id {source.table_id}, {source.state or 'active'})"
        for source in table.services.registry.sources_of(table.table_id)
        if any(place.startswith(f"{resolved_location(stores, source.location)}/") for place in places)
    ]
    of_sources = f"They are files of {', '.join(sources)}, of which this table is a shallow clone. " if sources else ""
    return f"{of_sources}Restore from a backup."


def leftovers(table: Table) -> Iterable[Finding]:
    """Report files that clean-up may delete; nothing if this client may not clean up the table or cannot load it."""
    try:
        orphans, staged = plan_vacuum(table), plan_clean_staged_commits(table)
    except (CmDeltaError, OSError):
        return
    if orphans.num_files:
        yield Finding(
            severity=Severity.NOTE,
            problem=Problem.ORPHANED_FILES,
            where=table.location,
            message=f"{counted(orphans.num_files, 'file')} ({size_text(orphans.num_bytes)}) that no version within the retention "
            "needs; vacuum deletes them.",
        )
    if staged.num_files:
        yield Finding(
            severity=Severity.NOTE,
            problem=Problem.STAGED_LEFTOVERS,
            where=log_files.staged_commits_directory(table.location),
            message=f"{counted(staged.num_files, 'staged commit')} ({size_text(staged.num_bytes)}) of published versions; "
            "the cleanup of staged commits deletes them.",
        )
