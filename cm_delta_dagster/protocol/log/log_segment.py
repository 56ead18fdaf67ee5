"""Selects the files from which a version is built (protocol heading "Reading Catalog-managed Tables").

From the names in ``_delta_log`` and the catalog's ratified commits, selects the newest complete checkpoint and the commits
after it. A commit from the catalog takes precedence over a published commit of the same version, files of later versions are
ignored, and a missing version is an error.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.log.checkpoint_files import CheckpointSource, checkpoints_among, newest_checkpoint
from cm_delta_dagster.protocol.log.log_files import (
    CommitFile,
    CompactionFile,
    log_directory,
    parse_log_file,
)
from cm_delta_dagster.remedies import RepairTable


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCommit:
    """The commit file of ``version`` in ``_delta_log``.

    Attributes:
        sha256: digest of its bytes, 64 lower-case hexadecimal digits; None if the catalog does not report one.
    """

    version: int
    location: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCommit:
    """A ratified commit for which the catalog reports the staged file.

    Attributes:
        size: in bytes; None if the catalog does not report it.
        sha256: as in :class:`PublishedCommit`.
    """

    version: int
    location: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineCommit:
    """A ratified commit whose content is part of the catalog's response.

    Attributes:
        file: the commit file, if ``content`` is a cached copy of it; readers fall back to the file if the copy is damaged.
    """

    version: int
    content: bytes
    file: PublishedCommit | StagedCommit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedCommits:
    """A log compaction file, which replaces the commits ``start`` to ``version``."""

    start: int
    version: int
    location: str


RatifiedSource: TypeAlias = StagedCommit | InlineCommit
CommitSource: TypeAlias = PublishedCommit | RatifiedSource | CompactedCommits


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSegment:
    """The files from which ``version`` is built.

    Invariant: ``compactions`` and ``commits`` cover each version after ``checkpoint`` (or from 0 on) exactly once.
    """

    version: int
    checkpoint: CheckpointSource | None
    compactions: tuple[CompactedCommits, ...]
    commits: tuple[PublishedCommit | RatifiedSource, ...]


def build_log_segment(
    *,
    location: str,
    names: Iterable[str],
    ratified: Sequence[RatifiedSource],
    version: int,
    excluded_checkpoints: frozenset[CheckpointSource] = frozenset(),
    excluded_compactions: frozenset[CompactedCommits] = frozenset(),
) -> LogSegment:
    """Select the files from which ``version`` is built.

    Args:
        location: absolute URI of the table root.
        names: bare names of the files in ``_delta_log``.
        ratified: ratified commits reported by the catalog.
        excluded_checkpoints: checkpoints that could not be read.
        excluded_compactions: compactions that could not be read.

    Raises:
        CorruptLogError: versions between the checkpoint and ``version`` are missing; the message lists them.
    """
    segment, missing = plan_log_segment(
        location=location,
        names=names,
        ratified=ratified,
        version=version,
        excluded_checkpoints=excluded_checkpoints,
        excluded_compactions=excluded_compactions,
    )
    if missing:
        checkpoint = segment.checkpoint
        base = "no checkpoint" if checkpoint is None else f"the checkpoint of version {checkpoint.version}"
        raise CorruptLogError(
            f"Version {version} of the table at {location} cannot be built: starting from {base}, the commits of "
            f"{_ranges_text(missing)} are missing from _delta_log and from the catalog. No older version is read instead. "
            "If neither a staged file nor another copy is left, restore them from a backup, restore the current storage if this is "
            "an older copy of it, or read a version that is complete.",
            version=missing[0].start,
        ).with_remedy(RepairTable())
    return segment


def plan_log_segment(
    *,
    location: str,
    names: Iterable[str],
    ratified: Sequence[RatifiedSource],
    version: int,
    excluded_checkpoints: frozenset[CheckpointSource] = frozenset(),
    excluded_compactions: frozenset[CompactedCommits] = frozenset(),
) -> tuple[LogSegment, tuple[range, ...]]:
    """As :func:`build_log_segment`, but return the missing versions beside the incomplete segment instead of raising."""
    directory = log_directory(location)
    parsed = [(file, f"{directory}/{name}") for name in names if (file := parse_log_file(name)) is not None]
    staged = {commit.version: commit for commit in ratified if commit.version <= version}
    checkpoint = newest_checkpoint(
        [
            source
            for source in checkpoints_among(parsed)
            if source.version <= version and source not in excluded_checkpoints
        ]
    )
    first = 0 if checkpoint is None else checkpoint.version + 1
    commits: dict[int, PublishedCommit | RatifiedSource] = {
        file.version: PublishedCommit(version=file.version, location=path)
        for file, path in parsed
        if isinstance(file, CommitFile) and first <= file.version <= version
    }
    commits.update((number, commit) for number, commit in staged.items() if number >= first)
    usable = [item for item in _compactions(parsed) if item not in excluded_compactions]
    compactions = _choose_compactions(usable, first=first, version=version, staged=staged.keys())
    kept = tuple(
        commits[number]
        for number in sorted(commits)
        if not any(chosen.start <= number <= chosen.version for chosen in compactions)
    )
    segment = LogSegment(version=version, checkpoint=checkpoint, compactions=compactions, commits=kept)
    present = [range(chosen.start, chosen.version + 1) for chosen in compactions]
    present += [range(commit.version, commit.version + 1) for commit in kept]
    missing = _gaps(present, range(first, version + 1))
    return segment, missing


def latest_version(names: Iterable[str]) -> int | None:
    """Newest version with a commit or a complete checkpoint among the names in ``_delta_log``; None if there is neither.

    Not for catalog-managed tables: their latest version is known to the catalog only.
    """
    parsed = [(file, name) for name in names if (file := parse_log_file(name)) is not None]
    commits = [file.version for file, _ in parsed if isinstance(file, CommitFile)]
    return max([*commits, *(checkpoint.version for checkpoint in checkpoints_among(parsed))], default=None)


def earliest_version(names: Iterable[str], *, ratified: Iterable[int] = (), latest: int) -> int:
    """Oldest version from which every version up to ``latest`` can be built.

    This is 0 or the version of a complete checkpoint, with every commit after it present; ``latest`` if there is no such
    version.

    Args:
        ratified: versions whose commits the catalog reports.
    """
    parsed = [(file, name) for name in names if (file := parse_log_file(name)) is not None]
    commits = {file.version for file, _ in parsed if isinstance(file, CommitFile)} | set(ratified)
    bases = {checkpoint.version for checkpoint in checkpoints_among(parsed)}
    if 0 in commits:
        bases.add(0)
    first = latest
    while first in commits:
        first -= 1
    # Commits first+1..latest are present. A checkpoint of `first` serves as base without the commit of that version.
    return min((base for base in bases if first <= base <= latest), default=latest)


def readable_below(names: Iterable[str], *, ratified: Iterable[int] = (), version: int) -> range:
    """The contiguous versions below ``version`` that can be built, whether or not its own commit exists; empty if none.

    Args:
        ratified: versions whose commits the catalog reports.
    """
    listed = list(names)
    parsed = [(file, name) for name in listed if (file := parse_log_file(name)) is not None]
    known = {file.version for file, _ in parsed if isinstance(file, CommitFile)} | set(ratified)
    oldest = earliest_version(listed, ratified=known, latest=version - 1)
    is_base = (oldest == 0 and 0 in known) or any(
        checkpoint.version == oldest for checkpoint in checkpoints_among(parsed)
    )
    return range(oldest, version) if is_base else range(0)


def oldest_checkpoint(names: Iterable[str], *, latest: int) -> int | None:
    """Version of the oldest complete checkpoint of a version up to ``latest``; None if there is no such checkpoint."""
    parsed = [(file, name) for name in names if (file := parse_log_file(name)) is not None]
    return min(
        (checkpoint.version for checkpoint in checkpoints_among(parsed) if checkpoint.version <= latest), default=None
    )


def version_after_cleanup(
    names: Iterable[str], *, ratified: Iterable[int] = (), version: int, latest: int
) -> int | None:
    """Oldest readable version if metadata cleanup has removed ``version``; None if cleanup cannot explain its absence.

    Cleanup removes commits from the oldest on and never removes one after the checkpoint that it keeps. A gap after that
    checkpoint is therefore damage. Commits before the oldest checkpoint of a log without version 0 are ignored.
    """
    listed = list(names)
    commits = {file.version for name in listed if isinstance(file := parse_log_file(name), CommitFile)} | set(ratified)
    kept = 0 if 0 in commits else oldest_checkpoint(listed, latest=latest) or 0
    present = [number for number in commits if kept <= number <= latest]
    if present and len(present) != latest - min(present) + 1:
        return None
    oldest = earliest_version(listed, ratified=commits, latest=latest)
    return oldest if version < oldest else None


def _compactions(parsed: Sequence[tuple[object, str]]) -> list[CompactedCommits]:
    return [
        CompactedCommits(start=file.start, version=file.end, location=path)
        for file, path in parsed
        if isinstance(file, CompactionFile)
    ]


def _choose_compactions(
    compactions: Sequence[CompactedCommits], *, first: int, version: int, staged: Iterable[int]
) -> tuple[CompactedCommits, ...]:
    """Non-overlapping compactions, the longest at each start, that cover no commit reported by the catalog."""
    ratified = set(staged)
    usable = [
        item
        for item in compactions
        if first <= item.start < item.version <= version
        and not any(item.start <= number <= item.version for number in ratified)
    ]
    chosen: list[CompactedCommits] = []
    following = first
    for candidate in sorted(usable, key=lambda compaction: (compaction.start, -compaction.version)):
        if candidate.start >= following:
            chosen.append(candidate)
            following = candidate.version + 1
    return tuple(chosen)


def _gaps(present: Iterable[range], versions: range) -> tuple[range, ...]:
    """The parts of ``versions`` that the disjoint ranges ``present`` leave out. Does not enumerate versions."""
    gaps = []
    following = versions.start
    for part in sorted(present, key=lambda part: part.start):
        if part.start > following:
            gaps.append(range(following, part.start))
        following = max(following, part.stop)
    if following < versions.stop:
        gaps.append(range(following, versions.stop))
    return tuple(gaps)


def _ranges_text(gaps: Sequence[range]) -> str:
    """``1, 4 to 6`` for the versions 1, 4, 5 and 6."""
    return ", ".join(str(gap.start) if gap.stop - gap.start == 1 else f"{gap.start} to {gap.stop - 1}" for gap in gaps)
