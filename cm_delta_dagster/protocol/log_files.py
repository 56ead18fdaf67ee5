"""File names of the log <-> values (protocol headings "Delta Log Entries", "Checkpoints", "Log Compaction Files", "Staged").

A file of ``_delta_log`` is classified by its name alone (LOG-9); anything that is no name of the protocol is None here and
ignored by every reader. Which of the files make a version is the business of :mod:`~cm_delta_dagster.protocol.log_segment`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

LOG_DIRECTORY = "_delta_log"
STAGED_COMMITS_DIRECTORY = "_staged_commits"
SIDECARS_DIRECTORY = "_sidecars"
LAST_CHECKPOINT_FILE_NAME = "_last_checkpoint"
MAX_VERSION = 2**63 - 1


class CheckpointFormat(StrEnum):
    """Format of the top-level file of a UUID-named V2 checkpoint."""

    PARQUET = "parquet"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class CommitFile:
    """``v20(version).json``: a published commit."""

    version: int


@dataclass(frozen=True, slots=True)
class StagedCommitFile:
    """``_staged_commits/v20(version).<uuid>.json``; its existence proves nothing (CM-5)."""

    version: int
    uuid: str


@dataclass(frozen=True, slots=True)
class ClassicCheckpointFile:
    """``v20(version).checkpoint.parquet``; may follow the V1 or the V2 specification."""

    version: int


@dataclass(frozen=True, slots=True)
class MultiPartCheckpointFile:
    """One part (1-based) of a multi-part checkpoint."""

    version: int
    part: int
    parts: int


@dataclass(frozen=True, slots=True)
class V2CheckpointFile:
    """Top-level file of a UUID-named V2 checkpoint."""

    version: int
    uuid: str
    format: CheckpointFormat


@dataclass(frozen=True, slots=True)
class SidecarLogFile:
    """A file of ``_sidecars``; ``name`` is its bare name."""

    name: str


@dataclass(frozen=True, slots=True)
class CompactionFile:
    """The reconciled commits ``start..end``, both inclusive, ``end > start``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ChecksumFile:
    """``v20(version).crc``."""

    version: int


@dataclass(frozen=True, slots=True)
class LastCheckpointFile:
    """``_last_checkpoint``, a hint."""


LogFile: TypeAlias = (
    CommitFile
    | StagedCommitFile
    | ClassicCheckpointFile
    | MultiPartCheckpointFile
    | V2CheckpointFile
    | SidecarLogFile
    | CompactionFile
    | ChecksumFile
    | LastCheckpointFile
)

_UUID = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"


def _multi_part(match: re.Match[str]) -> LogFile | None:
    version, part, parts = (int(group) for group in match.groups())
    return MultiPartCheckpointFile(version, part, parts) if 1 <= part <= parts else None


def _compaction(match: re.Match[str]) -> LogFile | None:
    start, end = (int(group) for group in match.groups())
    return CompactionFile(start, end) if end > start else None


# [0-9], never \d: \d would accept the digits of every script.
_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], LogFile | None]], ...] = (
    (re.compile(r"([0-9]{20})\.json"), lambda m: CommitFile(int(m[1]))),
    (re.compile(r"([0-9]{20})\.crc"), lambda m: ChecksumFile(int(m[1]))),
    (re.compile(r"([0-9]{20})\.checkpoint\.parquet"), lambda m: ClassicCheckpointFile(int(m[1]))),
    (
        re.compile(rf"([0-9]{{20}})\.checkpoint\.({_UUID})\.(json|parquet)"),
        lambda m: V2CheckpointFile(int(m[1]), m[2], CheckpointFormat(m[3])),
    ),
    (re.compile(r"([0-9]{20})\.checkpoint\.([0-9]{10})\.([0-9]{10})\.parquet"), _multi_part),
    (re.compile(r"([0-9]{20})\.([0-9]{20})\.compacted\.json"), _compaction),
    (
        re.compile(rf"{STAGED_COMMITS_DIRECTORY}/([0-9]{{20}})\.({_UUID})\.json"),
        lambda m: StagedCommitFile(int(m[1]), m[2]),
    ),
    (re.compile(rf"{SIDECARS_DIRECTORY}/([^/]+\.parquet)"), lambda m: SidecarLogFile(m[1])),
    (re.compile(LAST_CHECKPOINT_FILE_NAME), lambda _: LastCheckpointFile()),
)


def parse_log_file(name: str) -> LogFile | None:
    """The value that a name stands for, or None for a file that the protocol does not know (LOG-9).

    Args:
        name: path relative to ``_delta_log``, e.g. ``00000000000000000000.json`` or ``_sidecars/x.parquet``.
    """
    for pattern, build in _PATTERNS:
        match = pattern.fullmatch(name)
        if match is not None:
            value = build(match)
            return None if _highest_version(value) > MAX_VERSION else value
    return None


def _highest_version(value: LogFile | None) -> int:
    if isinstance(value, CompactionFile):
        return value.end
    return int(getattr(value, "version", 0))


def padded_version(version: int) -> str:
    """``v20(version)``. Raises ValueError for a negative version or one beyond a signed 64-bit integer."""
    if not 0 <= version <= MAX_VERSION:
        raise ValueError(f"{version} is no version: versions run from 0 to {MAX_VERSION}")
    return f"{version:020d}"


def commit_file_name(version: int) -> str:
    """Name of the published commit (LOG-2)."""
    return f"{padded_version(version)}.json"


def staged_commit_file_name(version: int, uuid: str) -> str:
    """Bare name of a staged commit inside ``_staged_commits`` (CM-3)."""
    return f"{padded_version(version)}.{uuid}.json"


def classic_checkpoint_file_name(version: int) -> str:
    """Name of a classic checkpoint (CKPT-5)."""
    return f"{padded_version(version)}.checkpoint.parquet"


def multi_part_checkpoint_file_name(version: int, part: int, parts: int) -> str:
    """Name of one part of a multi-part checkpoint (CKPT-MP-1); only ever read, never written."""
    return f"{padded_version(version)}.checkpoint.{part:010d}.{parts:010d}.parquet"


def v2_checkpoint_file_name(version: int, uuid: str, format: CheckpointFormat | str) -> str:
    """Name of a UUID-named V2 checkpoint (CKPT-V2-2)."""
    return f"{padded_version(version)}.checkpoint.{uuid}.{CheckpointFormat(format)}"


def sidecar_file_name(version: int, part: int, parts: int, uuid: str) -> str:
    """Bare name of a sidecar inside ``_sidecars``: unique by ``uuid``, readable by version and part (1-based)."""
    return f"{padded_version(version)}.checkpoint.{part:010d}.{parts:010d}.{uuid}.parquet"


def compaction_file_name(start: int, end: int) -> str:
    """Name of the compaction of ``start..end`` (LC-1). Raises ValueError unless ``end > start``."""
    if end <= start:
        raise ValueError(f"a log compaction covers at least two commits, not {start}..{end}")
    return f"{padded_version(start)}.{padded_version(end)}.compacted.json"


def checksum_file_name(version: int) -> str:
    """Name of the version checksum (CRC-1)."""
    return f"{padded_version(version)}.crc"


def log_directory(location: str) -> str:
    """Location of ``_delta_log`` of a table, without a trailing slash."""
    return f"{location.rstrip('/')}/{LOG_DIRECTORY}"


def staged_commits_directory(location: str) -> str:
    """Location of ``_staged_commits`` of a table, without a trailing slash."""
    return f"{log_directory(location)}/{STAGED_COMMITS_DIRECTORY}"


def sidecars_directory(location: str) -> str:
    """Location of ``_sidecars`` of a table, without a trailing slash."""
    return f"{log_directory(location)}/{SIDECARS_DIRECTORY}"
