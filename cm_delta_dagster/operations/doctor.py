"""DOCTOR: compares what the catalog says of a table with what storage holds, and mends what is provably safe.

Room: operations. What is compared is in ``operations.examination``; here are the report and the repairs. A repair only
ever adds the bytes that were ratified, moves the published mark over what is there, or takes away a file that the
protocol makes optional. Data files are never touched.
"""

import contextlib
from dataclasses import dataclass, replace

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.checkpointer import write_checksum
from cm_delta_dagster.client.commit_sources import is_ratified, published_source
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError, ObjectAlreadyExistsError
from cm_delta_dagster.operations.examination import examine
from cm_delta_dagster.operations.findings import Examination, Finding, Problem, Repair, Severity
from cm_delta_dagster.operations.maintenance import require_permission
from cm_delta_dagster.operations.publish import publish
from cm_delta_dagster.protocol import log_files
from cm_delta_dagster.protocol.checksum import VersionChecksum

__all__ = ["DoctorReport", "Finding", "Problem", "Repair", "Severity", "doctor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """What was found at one moment; after repairs, what is still there.

    Attributes:
        version: latest version, by the catalog.
        num_commits: commits whose bytes were compared with the catalog's record.
        num_files: data files and deletion vectors of the latest version that were looked for.
        findings: worst first.
        repaired: findings that were mended.
        failed: repairs that were not carried out, and why.
    """

    identifier: str
    table_id: str
    location: str
    version: int
    published_version: int
    num_commits: int
    num_files: int
    findings: tuple[Finding, ...]
    repaired: tuple[Finding, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether nothing was found that gives wrong answers or errors, now or later."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)

    @property
    def repairable(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.repair is not None)


def doctor(table: Table, *, repair: bool = False) -> DoctorReport:
    """Look at everything; with ``repair``, mend what is provably safe and look again.

    It reads every commit and rebuilds every version, so it takes as long as the log is. It needs no permission to look;
    a repair asks for that of the file it writes. Other clients may go on meanwhile.

    Raises:
        TableNotFoundError: the table was dropped.
        StorageError, CatalogError: storage or catalog cannot be asked; that is no finding.
    """
    examination = examine(table)
    if not repair or all(finding.repair is None for finding in examination.findings):
        return _report(table, examination)
    repaired: list[Finding] = []
    failed: list[str] = []
    for finding in examination.findings:
        if finding.repair is None:
            continue
        try:
            _mend(table, examination, finding)
            repaired.append(finding)
        except CmDeltaError as error:
            failed.append(f"{finding.where}: {error}")
    return replace(_report(table, examine(table)), repaired=tuple(repaired), failed=tuple(failed))


def _report(table: Table, examination: Examination) -> DoctorReport:
    rank = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}
    return DoctorReport(
        identifier=str(table.identifier),
        table_id=table.table_id,
        location=table.location,
        version=examination.version,
        published_version=examination.published_version,
        num_commits=examination.num_commits,
        num_files=examination.num_files,
        findings=tuple(sorted(examination.findings, key=lambda finding: rank[finding.severity])),
    )


def _mend(table: Table, examination: Examination, finding: Finding) -> None:
    match finding.repair:
        case Repair.PUBLISH:
            publish(table)
        case Repair.MARK_PUBLISHED if finding.version is not None:
            table.catalog.set_published_version(table.table_id, finding.version)
        case Repair.RESTORE_COMMIT if finding.version is not None:
            _restore(table, finding.version)
        case Repair.REWRITE_CHECKSUM if finding.version is not None:
            _rewrite_checksum(table, finding.version, examination.checksums[finding.version])
        case Repair.TELL_DEFINITION:
            snapshot = table.snapshot()
            table.catalog.set_definition(
                table.table_id, version=snapshot.version, metadata=snapshot.metadata, protocol=snapshot.protocol
            )
        case Repair.REMOVE_HINT:
            require_permission(table, MaintenanceKind.CHECKPOINT)
            # A better one that a checkpoint writes at this moment may go too: without one, readers list the log.
            directory = log_files.log_directory(table.location)
            table.store.delete(f"{directory}/{log_files.LAST_CHECKPOINT_FILE_NAME}")


def _restore(table: Table, version: int) -> None:
    """Publish the ratified bytes again from their staged file, which is proven to be the ratified one once more."""
    (record,) = table.catalog.accepted_commits(table.table_id, start=version, end=version)
    data = table.store.read(f"{log_files.staged_commits_directory(table.location)}/{record.file_name}")
    if is_ratified(record, data):
        with contextlib.suppress(ObjectAlreadyExistsError):
            table.store.write_if_absent(published_source(table.location, version).location, data)


def _rewrite_checksum(table: Table, version: int, value: VersionChecksum) -> None:
    require_permission(table, MaintenanceKind.VERSION_CHECKSUM)
    # Taken away first and then made as any writer makes it: it is optional, and never replaced in place (CRC-8).
    table.store.delete(f"{log_files.log_directory(table.location)}/{log_files.checksum_file_name(version)}")
    write_checksum(table.store, table.location, version, value)
