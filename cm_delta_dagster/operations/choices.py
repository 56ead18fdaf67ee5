"""The choices and defaults of arguments of operations. A module of its own, so that signatures need no other module."""

from enum import StrEnum

_DAY_MS = 24 * 60 * 60 * 1000
DROPPED_RETENTION_MS = 7 * _DAY_MS
"""Milliseconds for which a dropped table is not purged."""
ABANDONED_AFTER_MS = 7 * _DAY_MS
"""Age in milliseconds from which a creation without a registered table counts as abandoned; longer than any creation takes."""


class CloneMode(StrEnum):
    """What a clone does with the data files of its source."""

    SHALLOW = "shallow"
    """The clone names them."""
    DEEP = "deep"
    """The clone has copies of them."""


class Depth(StrEnum):
    """How ``doctor`` checks data files. LISTING: existence and size. FOOTERS: footers and deletion vectors too, which takes one or
    two requests per file.
    """

    LISTING = "listing"
    FOOTERS = "footers"


class MergeMode(StrEnum):
    """What a merge does to matched and unmatched rows."""

    UPSERT = "upsert"
    """Update matched target rows; insert unmatched source rows."""
    INSERT_ONLY = "insert_only"
    """Insert unmatched source rows; target rows stay as they are."""
    UPDATE_ONLY = "update_only"
    """Update matched target rows; insert nothing."""
    DELETE_UNMATCHED = "delete_unmatched"
    """As UPSERT, and delete the unmatched target rows within ``within``."""


class MissingFiles(StrEnum):
    """What a restore does if storage does not hold all files of the restored version."""

    REFUSE = "refuse"
    IGNORE = "ignore"
    """Restore the other files. The rows of the missing ones are lost."""


class OutputMode(StrEnum):
    """What a query hands to the table, as Spark names it."""

    APPEND = "append"
    """New rows; each batch is appended."""
    COMPLETE = "complete"
    """The whole result of an aggregation; each batch replaces all rows."""
    UPDATE = "update"
    """The rows of an aggregation that changed; needs a function that writes them, such as a merge."""


class PartitionOverwrite(StrEnum):
    """Which partitions an overwrite replaces, as Spark's partitionOverwriteMode."""

    STATIC = "static"
    """All of them."""
    DYNAMIC = "dynamic"
    """Those in which the new rows are."""


class RetentionCheck(StrEnum):
    """Whether a retention shorter than that of the table is refused."""

    ENFORCED = "enforced"
    OFF = "off"
    """Dangerous: with a short retention, vacuum deletes files that running readers and writers use."""
