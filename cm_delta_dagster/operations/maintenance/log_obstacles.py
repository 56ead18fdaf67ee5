"""Why a cleanup of the log deletes nothing. Pins, clones and streams keep data files, and no files of the log."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.advice import advice
from cm_delta_dagster.catalog.durations import span_text
from cm_delta_dagster.protocol.log.cleanup import next_cut_off
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from cm_delta_dagster.remedies import CheckTable


class LogObstacle(StrEnum):
    """Why the log is kept."""

    NOT_PUBLISHED = "not_published"
    RETENTION = "retention"
    NO_CHECKPOINT = "no_checkpoint"
    UNREADABLE_CHECKPOINT = "unreadable_checkpoint"
    PROTECTED_VERSIONS = "protected_versions"
    ALREADY_CLEAN = "already_clean"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLog:
    """Why a cleanup deletes no file: ``obstacle`` is None, and ``text`` is empty, if it deletes files."""

    obstacle: LogObstacle | None = None
    text: str = ""

    def __str__(self) -> str:
        return self.text


NOTHING_KEPT = KeptLog()


def kept_by_retention(oldest: tuple[int, int] | None, *, retention_ms: int) -> KeptLog:
    """No commit has expired.

    Args:
        oldest: the oldest published version in the log, and its commit time in epoch milliseconds; None if there is none.
    """
    if oldest is None:
        text = "No published commit is in the log: publish the commits first."
        return KeptLog(obstacle=LogObstacle.NOT_PUBLISHED, text=text)
    version, timestamp = oldest
    expiry = utc_text(next_cut_off(timestamp, retention_ms=retention_ms))
    text = (
        f"No commit has expired: delta.logRetentionDuration is {span_text(retention_ms)}, and the oldest commit in the log, "
        f"version {version} of {utc_text(timestamp)}, expires at {expiry}. Commits expire by whole days, UTC."
    )
    return KeptLog(obstacle=LogObstacle.RETENTION, text=text)


def kept_by_checkpoints(*, newest_expired: int, unusable: Sequence[str]) -> KeptLog:
    """No checkpoint can become the oldest readable version.

    Args:
        newest_expired: the newest version that has expired.
        unusable: names of files of checkpoints up to this version that are incomplete or cannot be read.
    """
    if unusable:
        text = (
            f"The commits up to version {newest_expired} have expired, and no checkpoint up to this version can be read, so that "
            f"they are needed: {', '.join(unusable)} cannot be used. {advice(CheckTable())}"
        )
        return KeptLog(obstacle=LogObstacle.UNREADABLE_CHECKPOINT, text=text)
    text = (
        f"The commits up to version {newest_expired} have expired, and there is no checkpoint up to this version, so that later "
        "versions need them. A checkpoint of the latest version permits their deletion once that version has expired."
    )
    return KeptLog(obstacle=LogObstacle.NO_CHECKPOINT, text=text)


def kept_by_protection(cut_off_version: int, *, before: int) -> KeptLog:
    """The table feature ``checkpointProtection`` keeps the versions below ``before`` together."""
    text = (
        f"The versions before {before} are deleted together or not at all, because they may need a feature that the table has "
        f"dropped since, and the newest checkpoint that has expired is of version {cut_off_version}."
    )
    return KeptLog(obstacle=LogObstacle.PROTECTED_VERSIONS, text=text)


def kept_by_earlier_runs(oldest_version: int | None) -> KeptLog:
    """All that has expired was deleted before."""
    text = f"Nothing is left to delete before version {oldest_version}, the newest checkpoint that has expired."
    return KeptLog(obstacle=LogObstacle.ALREADY_CLEAN, text=text)
