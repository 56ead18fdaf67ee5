"""What ``doctor`` can find and what it can do about it: values only. Room: operations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cm_delta_dagster.protocol.checksum import VersionChecksum


class Severity(StrEnum):
    """ERROR: answers are wrong or missing, or will be. WARNING: slower or overdue. NOTE: may be cleaned up."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Problem(StrEnum):
    """What is wrong."""

    UNREADABLE = "unreadable"
    NO_RECORD = "no_record"
    COMMIT_MISSING = "commit_missing"
    COMMIT_DIFFERS = "commit_differs"
    COMMIT_LOST = "commit_lost"
    TIMESTAMP_ORDER = "timestamp_order"
    ABOVE_LATEST = "above_latest"
    UNPUBLISHED = "unpublished"
    PUBLISHED_UNMARKED = "published_unmarked"
    CHECKSUM_WRONG = "checksum_wrong"
    CHECKPOINT_WRONG = "checkpoint_wrong"
    CHECKPOINT_UNREADABLE = "checkpoint_unreadable"
    HINT_WRONG = "hint_wrong"
    STATE_DIFFERS = "state_differs"
    DEFINITION_DIFFERS = "definition_differs"
    COPY_DIFFERS = "copy_differs"
    FILE_MISSING = "file_missing"
    FILE_SIZE = "file_size"
    ORPHANED_FILES = "orphaned_files"
    STAGED_LEFTOVERS = "staged_leftovers"
    STRAY_COMMIT = "stray_commit"


class Repair(StrEnum):
    """What ``doctor`` can do about a finding without any doubt."""

    PUBLISH = "publish"
    MARK_PUBLISHED = "mark_published"
    RESTORE_COMMIT = "restore_commit"
    REWRITE_CHECKSUM = "rewrite_checksum"
    REMOVE_HINT = "remove_hint"
    TELL_DEFINITION = "tell_definition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be. ``where`` is a file or a range of versions."""

    severity: Severity
    problem: Problem
    where: str
    message: str
    version: int | None = None
    repair: Repair | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was found, and by version the checksums that are right where the stored ones are not."""

    version: int
    published_version: int
    num_commits: int
    num_files: int
    findings: tuple[Finding, ...]
    checksums: Mapping[int, VersionChecksum] = field(default_factory=dict)
