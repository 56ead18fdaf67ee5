"""Names of the files in ``_delta_log`` (protocol headings "Delta Log Entries", "Checkpoints", "Log Compaction Files").

Classifies files by name alone. A name that matches no pattern is not a file of the Delta log.
"""

import re
from dataclasses import dataclass
from typing import TypeAlias

LAST_CHECKPOINT_FILE_NAME = "_last_checkpoint"

_GREATEST_VERSION = f"{2**63 - 1:020d}"

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


@dataclass(frozen=True, slots=True)
class CommitFile:
    """A published commit."""

    version: int


@dataclass(frozen=True, slots=True)
class StagedCommitFile:
    """A proposal for ``version``. Only the catalog knows whether it was ratified."""

    version: int
    uuid: str


@dataclass(frozen=True, slots=True)
class ClassicCheckpointFile:
    """A checkpoint of ``version`` in one Parquet file without a UUID in its name."""

    version: int


@dataclass(frozen=True, slots=True)
class MultiPartCheckpointFile:
    """Part ``part`` of ``parts``, counted from 1."""

    version: int
    part: int
    parts: int


@dataclass(frozen=True, slots=True)
class V2CheckpointFile:
    """A UUID-named checkpoint; ``format`` is ``json`` or ``parquet``."""

    version: int
    uuid: str
    format: str


@dataclass(frozen=True, slots=True)
class CompactionFile:
    """A compaction of the commits ``start`` to ``end``, both included."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ChecksumFile:
    """The version checksum of ``version``."""

    version: int


@dataclass(frozen=True, slots=True)
class LastCheckpointFile:
    """The hint ``_last_checkpoint``."""


LogFile: TypeAlias = (
    CommitFile
    | StagedCommitFile
    | ClassicCheckpointFile
    | MultiPartCheckpointFile
    | V2CheckpointFile
    | CompactionFile
    | ChecksumFile
    | LastCheckpointFile
)

_COMMIT = re.compile(r"([0-9]{20})\.json")
_STAGED = re.compile(rf"([0-9]{{20}})\.({_UUID})\.json")
_CLASSIC = re.compile(r"([0-9]{20})\.checkpoint\.parquet")
_MULTI_PART = re.compile(r"([0-9]{20})\.checkpoint\.([0-9]{10})\.([0-9]{10})\.parquet")
_V2 = re.compile(rf"([0-9]{{20}})\.checkpoint\.({_UUID})\.(json|parquet)")
_COMPACTION = re.compile(r"([0-9]{20})\.([0-9]{20})\.compacted\.json")
_CHECKSUM = re.compile(r"([0-9]{20})\.crc")


def parse_log_file(name: str) -> LogFile | None:
    """Classify a file by its bare name; None if it is not a file of the Delta log."""
    # A version is a long, so a greater number is not a version.
    if not name.isascii() or (name[:1].isdigit() and name[:20] > _GREATEST_VERSION):
        return None
    if match := _COMMIT.fullmatch(name):
        return CommitFile(int(match[1]))
    if match := _CHECKSUM.fullmatch(name):
        return ChecksumFile(int(match[1]))
    if match := _STAGED.fullmatch(name):
        return StagedCommitFile(int(match[1]), match[2])
    if match := _V2.fullmatch(name):
        return V2CheckpointFile(int(match[1]), match[2], match[3])
    if match := _CLASSIC.fullmatch(name):
        return ClassicCheckpointFile(int(match[1]))
    if match := _MULTI_PART.fullmatch(name):
        return MultiPartCheckpointFile(int(match[1]), int(match[2]), int(match[3]))
    if match := _COMPACTION.fullmatch(name):
        return CompactionFile(int(match[1]), int(match[2]))
    return LastCheckpointFile() if name == LAST_CHECKPOINT_FILE_NAME else None


def commit_file_name(version: int) -> str:
    """Name of a published commit."""
    return f"{version:020d}.json"


def staged_commit_file_name(version: int, uuid: str) -> str:
    """Name of a staged commit."""
    return f"{version:020d}.{uuid}.json"


def classic_checkpoint_file_name(version: int) -> str:
    """Name of a classic checkpoint."""
    return f"{version:020d}.checkpoint.parquet"


def v2_checkpoint_file_name(version: int, uuid: str, file_format: str) -> str:
    """Name of a V2 checkpoint; ``file_format`` is ``json`` or ``parquet``."""
    return f"{version:020d}.checkpoint.{uuid}.{file_format}"


def sidecar_file_name(uuid: str) -> str:
    """Name of a sidecar of a V2 checkpoint."""
    return f"{uuid}.parquet"


def compaction_file_name(start: int, end: int) -> str:
    """Name of a compaction of the commits ``start`` to ``end``."""
    return f"{start:020d}.{end:020d}.compacted.json"


def checksum_file_name(version: int) -> str:
    """Name of a version checksum."""
    return f"{version:020d}.crc"


def log_directory(location: str) -> str:
    """``_delta_log`` of the table at ``location``."""
    return f"{location}/_delta_log"


def staged_commits_directory(location: str) -> str:
    """Directory of staged commits of the table at ``location``."""
    return f"{location}/_delta_log/_staged_commits"


def sidecars_directory(location: str) -> str:
    """Directory of sidecars of the table at ``location``."""
    return f"{location}/_delta_log/_sidecars"
