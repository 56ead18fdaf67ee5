"""The files of a table, for ``doctor``: those that it needs and those that nobody does. Room: operations. Nothing is changed."""

from collections.abc import Iterable

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError, ObjectNotFoundError
from cm_delta_dagster.operations.clean_staged_commits import plan_clean_staged_commits
from cm_delta_dagster.operations.findings import Finding, Problem, Severity
from cm_delta_dagster.operations.sizes import size_text
from cm_delta_dagster.operations.vacuum import plan_vacuum, vector_files
from cm_delta_dagster.protocol import log_files
from cm_delta_dagster.protocol.path_encoding import file_keys, normalise_location

_SHOWN = 5


def check_files(table: Table, findings: list[Finding]) -> int:
    """Data files and deletion vectors of the latest version; their number."""
    snapshot = table.snapshot()
    sizes = dict(
        zip(
            file_keys(snapshot.location, snapshot.files["path"]).to_pylist(),
            snapshot.files["size"].to_pylist(),
            strict=True,
        )
    )
    wanted: dict[str, int | None] = {
        normalise_location(at): None for at in vector_files(table.location, snapshot.files)
    }
    wanted.update(sizes)
    found = {normalise_location(s.location): s.size for s in table.store.list_recursive(table.location)}
    missing = sorted(key for key in wanted if key not in found and not _exists(table, key))
    if missing:
        # Removed and vacuumed since the snapshot was taken, perhaps.
        now = table.snapshot()
        live = set(file_keys(now.location, now.files["path"]).to_pylist())
        live |= {normalise_location(at) for at in vector_files(now.location, now.files)}
        missing = [key for key in missing if key in live]
    resized = sorted(key for key, size in wanted.items() if size is not None and found.get(key, size) != size)
    for problem, keys, what in (
        (Problem.FILE_MISSING, missing, "are missing: reads of them fail. Restore them from a backup."),
        (Problem.FILE_SIZE, resized, "have another size than the log says: they were cut off or replaced."),
    ):
        if keys:
            shown = ", ".join(keys[:_SHOWN]) + (", ..." if len(keys) > _SHOWN else "")
            message = f"{len(keys)} files of version {snapshot.version} {what}"
            findings.append(Finding(severity=Severity.ERROR, problem=problem, where=shown, message=message))
    return len(wanted)


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
    try:
        orphans, staged = plan_vacuum(table), plan_clean_staged_commits(table)
    except (CmDeltaError, OSError):
        return  # A table that this client may not write to; others clean it up.
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
