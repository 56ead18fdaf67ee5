"""Which files make a version (protocol "Reading catalog-managed tables", LOG-4, CKPT-14, LC-7). Room: protocol.

Handed the names in ``_delta_log`` and the catalog's ratified commits, it picks the newest complete checkpoint and the
commits after it. The catalog's commit goes before a published one of the same version (CM-R4), nothing above the asked
version is looked at (CM-R5), and a gap is an error (CM-R7).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.log_files import (
    ClassicCheckpointFile,
    CommitFile,
    CompactionFile,
    MultiPartCheckpointFile,
    V2CheckpointFile,
    log_directory,
    parse_log_file,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCommit:
    """The commit file of ``version`` in ``_delta_log``."""

    version: int
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCommit:
    """A ratified commit that the catalog names by its staged file."""

    version: int
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedCommits:
    """A compaction; it stands for the commits ``start`` to ``version``."""

    start: int
    version: int
    location: str


CommitSource: TypeAlias = PublishedCommit | StagedCommit | CompactedCommits


class CheckpointKind(StrEnum):
    CLASSIC = "classic"
    MULTI_PART = "multi-part"
    V2 = "v2"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSource:
    """A complete checkpoint: all its top-level files."""

    version: int
    kind: CheckpointKind
    locations: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSegment:
    """Invariant: ``checkpoint`` (or nothing), then ``compactions`` and ``commits`` cover every later version once."""

    version: int
    checkpoint: CheckpointSource | None
    compactions: tuple[CompactedCommits, ...]
    commits: tuple[PublishedCommit | StagedCommit, ...]


def build_log_segment(
    *,
    location: str,
    names: Iterable[str],
    ratified: Sequence[StagedCommit],
    version: int,
    excluded_checkpoints: frozenset[CheckpointSource] = frozenset(),
) -> LogSegment:
    """The files that make ``version``.

    Args:
        names: bare names of the files in ``_delta_log``.
        ratified: the catalog's unpublished commits.
        excluded_checkpoints: checkpoints found to be unusable.

    Raises:
        CorruptLogError: a version between the checkpoint and ``version`` is missing; the message names the gap.
    """
    directory = log_directory(location)
    parsed = [(file, f"{directory}/{name}") for name in names if (file := parse_log_file(name)) is not None]
    staged = {commit.version: commit for commit in ratified if commit.version <= version}
    checkpoint = _newest_checkpoint(
        [found for found in _checkpoints(parsed) if found.version <= version and found not in excluded_checkpoints]
    )
    first = 0 if checkpoint is None else checkpoint.version + 1
    commits: dict[int, PublishedCommit | StagedCommit] = {
        file.version: PublishedCommit(version=file.version, location=path)
        for file, path in parsed
        if isinstance(file, CommitFile) and first <= file.version <= version
    }
    commits.update((number, commit) for number, commit in staged.items() if number >= first)
    compactions = _choose_compactions(parsed, first=first, version=version, staged=staged.keys())
    covered = {number for chosen in compactions for number in range(chosen.start, chosen.version + 1)}
    missing = [number for number in range(first, version + 1) if number not in commits and number not in covered]
    if missing:
        base = "no checkpoint" if checkpoint is None else f"the checkpoint of version {checkpoint.version}"
        raise CorruptLogError(
            f"Version {version} of the table at {location} cannot be built: with {base} to start from, the commits of "
            f"{_ranges(missing)} are missing from _delta_log and from the catalog. Restore them from a backup, or read "
            "a version that is complete; no older version is shown in place of this one."
        )
    kept = tuple(commits[number] for number in sorted(commits) if number not in covered)
    return LogSegment(version=version, checkpoint=checkpoint, compactions=compactions, commits=kept)


def _newest_checkpoint(candidates: Sequence[CheckpointSource]) -> CheckpointSource | None:
    """Several kinds of one version are interchangeable (CKPT-14); the choice only has to be stable."""
    preference = {CheckpointKind.V2: 2, CheckpointKind.CLASSIC: 1, CheckpointKind.MULTI_PART: 0}
    return max(candidates, key=lambda found: (found.version, preference[found.kind], found.locations), default=None)


def _checkpoints(parsed: Sequence[tuple[object, str]]) -> list[CheckpointSource]:
    found: list[CheckpointSource] = []
    parts: dict[tuple[int, int], dict[int, str]] = {}
    for file, path in parsed:
        match file:
            case ClassicCheckpointFile():
                found.append(CheckpointSource(version=file.version, kind=CheckpointKind.CLASSIC, locations=(path,)))
            case V2CheckpointFile():
                found.append(CheckpointSource(version=file.version, kind=CheckpointKind.V2, locations=(path,)))
            case MultiPartCheckpointFile():
                parts.setdefault((file.version, file.parts), {})[file.part] = path
            case _:
                pass
    for (version, count), known in parts.items():
        if set(known) == set(range(1, count + 1)):  # An incomplete set is no checkpoint (CKPT-MP-2).
            locations = tuple(known[part] for part in sorted(known))
            found.append(CheckpointSource(version=version, kind=CheckpointKind.MULTI_PART, locations=locations))
    return found


def _choose_compactions(
    parsed: Sequence[tuple[object, str]], *, first: int, version: int, staged: Iterable[int]
) -> tuple[CompactedCommits, ...]:
    """Compactions that do not overlap, longest first at each start; none over a commit of the catalog (CM-R4)."""
    named = set(staged)
    usable = [
        CompactedCommits(start=file.start, version=file.end, location=path)
        for file, path in parsed
        if isinstance(file, CompactionFile)
        and first <= file.start < file.end <= version
        and not any(file.start <= number <= file.end for number in named)
    ]
    chosen: list[CompactedCommits] = []
    following = first
    for candidate in sorted(usable, key=lambda compaction: (compaction.start, -compaction.version)):
        if candidate.start >= following:
            chosen.append(candidate)
            following = candidate.version + 1
    return tuple(chosen)


def _ranges(numbers: Sequence[int]) -> str:
    """``1, 4 to 6`` for [1, 4, 5, 6]."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][1] + 1:
            groups[-1][1] = number
        else:
            groups.append([number, number])
    return ", ".join(str(start) if start == end else f"{start} to {end}" for start, end in groups)
