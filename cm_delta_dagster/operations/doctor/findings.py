"""Findings of ``doctor`` and the repairs for them. Values only."""

from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.remedies import CheckTable, RepairTable


class Severity(StrEnum):
    """ERROR: reads or writes fail or give wrong results. WARNING: they are slower, or work is overdue. NOTE: files to clean up."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Problem(StrEnum):
    """Kind of a finding."""

    STORAGE_MISSING = "storage_missing"
    UNREADABLE = "unreadable"
    NO_RECORD = "no_record"
    COMMIT_MISSING = "commit_missing"
    COMMIT_DIFFERS = "commit_differs"
    COMMIT_FORKED = "commit_forked"
    COMMIT_UNPROVEN = "commit_unproven"
    COMMIT_LOST = "commit_lost"
    STAGED_DAMAGED = "staged_damaged"
    COPY_DIFFERS = "copy_differs"
    TIMESTAMP_ORDER = "timestamp_order"
    CATALOG_BEHIND = "catalog_behind"
    ABOVE_LATEST = "above_latest"
    UNPUBLISHED = "unpublished"
    PUBLISHED_VERSION_BEHIND = "published_version_behind"
    STRAY_COMMIT = "stray_commit"
    SECOND_HISTORY = "second_history"
    CHECKSUM_WRONG = "checksum_wrong"
    CHECKPOINT_WRONG = "checkpoint_wrong"
    CHECKPOINT_UNREADABLE = "checkpoint_unreadable"
    COMPACTION_WRONG = "compaction_wrong"
    HINT_WRONG = "hint_wrong"
    STATE_DIFFERS = "state_differs"
    DEFINITION_DIFFERS = "definition_differs"
    FILE_MISSING = "file_missing"
    FILE_SIZE = "file_size"
    FILE_DAMAGED = "file_damaged"
    FILE_DIFFERS = "file_differs"
    VECTOR_DAMAGED = "vector_damaged"
    ROW_IDS = "row_ids"
    ORPHANED_FILES = "orphaned_files"
    STAGED_LEFTOVERS = "staged_leftovers"


class Repair(StrEnum):
    """Kind of a repair, in the order in which repairs are carried out."""

    TAKE_BACK = "take_back"
    RESTORE_COMMIT = "restore_commit"
    REWRITE_STAGED = "rewrite_staged"
    UPDATE_PUBLISHED_VERSION = "update_published_version"
    PUBLISH = "publish"
    REMOVE_HINT = "remove_hint"
    REWRITE_CHECKSUM = "rewrite_checksum"
    REPLACE_CHECKPOINT = "replace_checkpoint"
    SET_ASIDE_COMPACTION = "set_aside_compaction"
    UPDATE_DEFINITION = "update_definition"


class Depth(StrEnum):
    """How ``doctor`` checks data files. LISTING: existence and size. FOOTERS: footers and deletion vectors too, which takes one or
    two requests per file.
    """

    LISTING = "listing"
    FOOTERS = "footers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One difference between a table and what its catalog, its log and the protocol say.

    Attributes:
        where: a file, or a range of versions.
        version: the version of the finding, if it is about one version.
        repair: the repair of :func:`~cm_delta_dagster.operations.doctor.doctor`; None if the right content is not proven.
        files: names relative to ``_delta_log`` of the files that the repair replaces or sets aside; empty without a repair.
    """

    severity: Severity
    problem: Problem
    where: str
    message: str
    version: int | None = None
    repair: Repair | None = None
    files: tuple[str, ...] = ()


def text_of(error: CmDeltaError, table: object) -> str:
    """The text of an error about ``table``, without the advice to check or repair the table."""
    if isinstance(error.remedy, CheckTable | RepairTable):
        return error.message
    return str(error.with_remedy(error.remedy, table=table))


class Findings(list[Finding]):
    """The findings of one run, in the order in which they are made."""

    def add(
        self,
        severity: Severity,
        problem: Problem,
        where: str,
        message: str,
        version: int | None = None,
        repair: Repair | None = None,
        files: tuple[str, ...] = (),
    ) -> None:
        """Append a finding; the arguments are its attributes. ``files`` is dropped if there is no repair."""
        self.append(
            Finding(
                severity=severity,
                problem=problem,
                where=where,
                message=message,
                version=version,
                repair=repair,
                files=files if repair is not None else (),
            )
        )
