"""What ``doctor`` looks at: the log as a whole, and in their modules its commits and the files. Room: operations. Nothing is
changed here.

Three sources are compared: the catalog's record of each commit, the log, and the listing of the table's files. The
latest version is taken from the catalog before the listings and again after them, so that what writers do meanwhile
is not taken for damage.
"""

from collections.abc import Iterable

from cm_delta_dagster.client.log_reader import load_state
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import ObjectNotFoundError, ProtocolError, TableError
from cm_delta_dagster.operations.commit_examination import CommitExamination, Seen, differ
from cm_delta_dagster.operations.file_examination import check_files, leftovers
from cm_delta_dagster.operations.findings import Examination, Finding, Problem, Repair, Severity
from cm_delta_dagster.protocol import last_checkpoint, log_files
from cm_delta_dagster.protocol.log_files import (
    CommitFile,
    CompactionFile,
    LastCheckpointFile,
)
from cm_delta_dagster.protocol.reconciliation import TableState


def examine(table: Table) -> Examination:
    """Look at everything. Raises TableNotFoundError, StorageError, CatalogError."""
    findings: list[Finding] = []
    # A client's own look at the table first: it records what a dead writer created and could not tell the catalog.
    readable = _looked_at(table, findings)
    seen = Seen.of(table)
    commits = CommitExamination(table, seen, findings)
    commits.check()
    findings += _above_latest(seen)
    if commits.state is not None and readable:
        findings += _state_differs(table, seen, commits.state)
        findings += _definition_differs(table, commits.state)
    findings += _hint(table, seen)
    num_files = 0
    if readable:
        num_files = check_files(table, findings)
        findings += leftovers(table)
    return Examination(
        version=seen.ratified.latest_version,
        published_version=seen.ratified.published_version,
        num_commits=commits.compared,
        num_files=num_files,
        findings=tuple(findings),
        checksums=commits.checksums,
    )


def _looked_at(table: Table, findings: list[Finding]) -> bool:
    try:
        _ = table.snapshot().num_files  # The files are reconciled on demand.
    except (ProtocolError, TableError, ObjectNotFoundError) as error:
        table.catalog.get_ratified_commits(table.table_id)  # A dropped table is no finding.
        findings.append(
            Finding(severity=Severity.ERROR, problem=Problem.UNREADABLE, where="the latest version", message=str(error))
        )
        return False
    return True


def _above_latest(seen: Seen) -> Iterable[Finding]:
    for name, file in seen.log.items():
        if isinstance(file, LastCheckpointFile):
            continue
        version = file.end if isinstance(file, CompactionFile) else file.version
        if version > seen.latest_after:
            commit = isinstance(file, CommitFile)
            yield Finding(
                severity=Severity.ERROR if commit else Severity.WARNING,
                problem=Problem.ABOVE_LATEST,
                where=name,
                message=f"the catalog's latest version is {seen.latest_after}; "
                + (
                    "no client of this catalog wrote it, and it blocks that version."
                    if commit
                    else "readers ignore it."
                ),
                version=version,
            )


def _state_differs(table: Table, seen: Seen, replayed: TableState) -> Iterable[Finding]:
    """The latest version as a new client builds it, with checkpoints and compactions, against the commits one by one."""
    latest = seen.ratified.latest_version
    loaded = load_state(table.reader, version=latest, ratified=seen.ratified.commits)
    different = differ(loaded.state, replayed)
    if different:
        yield Finding(
            severity=Severity.ERROR,
            problem=Problem.STATE_DIFFERS,
            where=f"version {latest}",
            message=f"checkpoints and compactions give another {', '.join(different)} than the commits one by one.",
            version=latest,
        )


def _definition_differs(table: Table, replayed: TableState) -> Iterable[Finding]:
    """What the catalog serves as metadata and protocol, against the log (CM-C13)."""
    entry = table.catalog.load_table_by_id(table.table_id)
    if entry.ratified.latest_version != replayed.version:
        return  # Somebody has committed since; the next examination sees it.
    definition = entry.definition
    if definition is None:
        severity, message = (
            Severity.NOTE,
            "the catalog was never told metadata and protocol; its readers take them from the log.",
        )
    elif (definition.metadata, definition.protocol) != (replayed.metadata, replayed.protocol):
        severity, message = (
            Severity.ERROR,
            "the catalog serves other metadata or another protocol than the commits set.",
        )
    else:
        return
    yield Finding(
        severity=severity,
        problem=Problem.DEFINITION_DIFFERS,
        where=f"version {replayed.version}",
        message=message,
        version=replayed.version,
        repair=Repair.TELL_DEFINITION,
    )


def _hint(table: Table, seen: Seen) -> Iterable[Finding]:
    name = log_files.LAST_CHECKPOINT_FILE_NAME
    if name not in seen.log:
        return
    try:
        hint = last_checkpoint.decode(table.store.read(f"{log_files.log_directory(table.location)}/{name}"))
    except ObjectNotFoundError:
        return
    if hint is None:
        message = "it cannot be understood or fails its own checksum."
    elif hint.version > seen.latest_after:
        message = f"it points to version {hint.version}, above the catalog's latest {seen.latest_after}."
    elif hint.version <= seen.ratified.latest_version and hint.version not in seen.checkpoints():
        if hint.version > max(seen.checkpoints(), default=-1):
            # Written after the listing, perhaps: the hint follows its checkpoint.
            listed = Seen.of(table)
            if hint.version in listed.checkpoints():
                return
        message = f"it points to a checkpoint of version {hint.version}, which is not there."
    else:
        return
    yield Finding(
        severity=Severity.WARNING,
        problem=Problem.HINT_WRONG,
        where=name,
        message=f"{message} Readers go without it.",
        repair=Repair.REMOVE_HINT,
    )
