"""What ``doctor`` can find and what it can do about it: values only."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """ERROR: answers are wrong or missing, or will be. WARNING: slower or overdue. NOTE: may be cleaned up."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Problem(StrEnum):
    """What is wrong."""

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
    PUBLISHED_UNMARKED = "published_unmarked"
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
    ORPHANED_FILES = "orphaned_files"
    STAGED_LEFTOVERS = "staged_leftovers"


class Repair(StrEnum):
    """What ``doctor`` can do about a finding without any doubt, in the order in which repairs are carried out."""

    RESTORE_COMMIT = "restore_commit"
    REWRITE_STAGED = "rewrite_staged"
    MARK_PUBLISHED = "mark_published"
    PUBLISH = "publish"
    REMOVE_HINT = "remove_hint"
    REWRITE_CHECKSUM = "rewrite_checksum"
    REPLACE_CHECKPOINT = "replace_checkpoint"
    SET_ASIDE_COMPACTION = "set_aside_compaction"
    TELL_DEFINITION = "tell_definition"


class Depth(StrEnum):
    """How far ``doctor`` looks at data files. LISTING: that they are there and as long as the log says. FOOTERS: their
    footers and their deletion vectors are read as well, which takes a request or two for each file."""

    LISTING = "listing"
    FOOTERS = "footers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        where: a file, or a range of versions.
        version: the version that is concerned, where it is one.
        repair: what :func:`~cm_delta_dagster.operations.doctor.doctor` can do about it; None if nothing proves what is right.
        files: names of the files in ``_delta_log`` (or below it) that a repair replaces or sets aside.
    """

    severity: Severity
    problem: Problem
    where: str
    message: str
    version: int | None = None
    repair: Repair | None = None
    files: tuple[str, ...] = ()
