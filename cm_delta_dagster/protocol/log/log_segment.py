"""Which files make a version (protocol "Reading catalog-managed tables", LOG-4, CKPT-14, LC-7).

Handed the names in ``_delta_log`` and the catalog's ratified commits, it picks the newest complete checkpoint and the
commits after it. The catalog's commit goes before a published one of the same version (CM-R4), nothing above the asked
version is looked at (CM-R5), and a gap is an error (CM-R7).
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCommit:
    """The commit file of ``version`` in ``_delta_log``.

    Attributes:
        sha256: digest of its bytes where the catalog tells it, as 64 lower-case hexadecimal digits.
    """

    version: int
    location: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCommit:
    """A ratified commit that the catalog names by its staged file.

    Attributes:
        size: in bytes, where the catalog tells it.
        sha256: as of :class:`PublishedCommit`.
    """

    version: int
    location: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineCommit:
    """A ratified commit whose content came with the catalog's answer (CM-6).

    Attributes:
        file: where the content stands too, if it is a copy: that decides if the copy is damaged.
    """

    version: int
    content: bytes
    file: PublishedCommit | StagedCommit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedCommits:
    """A compaction; it stands for the commits ``start`` to ``version``."""

    start: int
    version: int
    location: str


RatifiedSource: TypeAlias = StagedCommit | InlineCommit
CommitSource: TypeAlias = PublishedCommit | RatifiedSource | CompactedCommits


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSegment:
    """Invariant: ``checkpoint`` (or nothing), then ``compactions`` and ``commits`` cover every later version once."""

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
    """The files that make ``version``.

    Args:
        names: bare names of the files in ``_delta_log``.
        ratified: the catalog's unpublished commits.
        excluded_checkpoints: checkpoints found to be unusable.
        excluded_compactions: compactions found to be unusable.

    Raises:
        CorruptLogError: a version between the checkpoint and ``version`` is missing; the message names the gap.
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
        found = segment.checkpoint
        base = "no checkpoint" if found is None else f"the checkpoint of version {found.version}"
        raise CorruptLogError(
            f"Version {version} of the table at {location} cannot be built: with {base} to start from, the commits of "
            f"{_names(missing)} are missing from _delta_log and from the catalog. If their staged files are still there, "
            "`cm-delta doctor NAME --repair` puts them back; else restore them from a backup, bring the current storage back if "
            "this is an older copy of it, or read a version that is complete. "
            "No older version is shown in place of this one.",
            version=missing[0].start,
        )
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
    """As :func:`build_log_segment`, but with the missing versions, if any, as a value beside the incomplete segment."""
    directory = log_directory(location)
    parsed = [(file, f"{directory}/{name}") for name in names if (file := parse_log_file(name)) is not None]
    staged = {commit.version: commit for commit in ratified if commit.version <= version}
    checkpoint = newest_checkpoint(
        [found for found in checkpoints_among(parsed) if found.version <= version and found not in excluded_checkpoints]
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
    """Newest version that the names in ``_delta_log`` prove: by its commit, or by a complete checkpoint of it.

    None for a directory without either. Not for catalog-managed tables, whose catalog knows the latest version.
    """
    parsed = [(file, name) for name in names if (file := parse_log_file(name)) is not None]
    commits = [file.version for file, _ in parsed if isinstance(file, CommitFile)]
    return max([*commits, *(found.version for found in checkpoints_among(parsed))], default=None)


def earliest_version(names: Iterable[str], *, ratified: Iterable[int] = (), latest: int) -> int:
    """Oldest version from which every version up to ``latest`` can be rebuilt (TT-5).

    That is 0 or the version of a complete checkpoint, with every commit after it; ``latest`` itself if there is none.

    Args:
        ratified: versions that the catalog holds.
    """
    parsed = [(file, name) for name in names if (file := parse_log_file(name)) is not None]
    commits = {file.version for file, _ in parsed if isinstance(file, CommitFile)} | set(ratified)
    bases = {found.version for found in checkpoints_among(parsed)}
    if 0 in commits:
        bases.add(0)
    first = latest
    while first in commits:
        first -= 1
    # Commits first+1..latest are all there; a base may be one below, its own commit is not needed.
    return min((base for base in bases if first <= base <= latest), default=latest)


def readable_below(names: Iterable[str], *, ratified: Iterable[int] = (), version: int) -> range:
    """The versions directly below ``version`` that can be rebuilt, whatever became of its own commit; empty if none can.

    Args:
        ratified: versions that the catalog holds.
    """
    held = list(names)
    parsed = [(file, name) for name in held if (file := parse_log_file(name)) is not None]
    known = {file.version for file, _ in parsed if isinstance(file, CommitFile)} | set(ratified)
    oldest = earliest_version(held, ratified=known, latest=version - 1)
    is_base = (oldest == 0 and 0 in known) or any(found.version == oldest for found in checkpoints_among(parsed))
    return range(oldest, version) if is_base else range(0)


def oldest_checkpoint(names: Iterable[str], *, latest: int) -> int | None:
    """Version of the oldest complete checkpoint up to ``latest``; None without one."""
    parsed = [(file, name) for name in names if (file := parse_log_file(name)) is not None]
    return min((found.version for found in checkpoints_among(parsed) if found.version <= latest), default=None)


def version_after_cleanup(
    names: Iterable[str], *, ratified: Iterable[int] = (), version: int, latest: int
) -> int | None:
    """Oldest readable version, if ``version`` is older because cleanup removed the beginning of the log (CLEAN-10).

    None if the log has a hole instead: cleanup removes commits from the oldest on and leaves none above its checkpoint.
    What lies below the oldest checkpoint of a log without its beginning serves no version and does not count.
    """
    held = list(names)
    commits = {file.version for name in held if isinstance(file := parse_log_file(name), CommitFile)} | set(ratified)
    kept = 0 if 0 in commits else oldest_checkpoint(held, latest=latest) or 0
    wanted = [number for number in commits if kept <= number <= latest]
    if wanted and len(wanted) != latest - min(wanted) + 1:
        return None
    oldest = earliest_version(held, ratified=commits, latest=latest)
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
    """Compactions that do not overlap, longest first at each start; none over a commit of the catalog (CM-R4)."""
    named = set(staged)
    usable = [
        item
        for item in compactions
        if first <= item.start < item.version <= version
        and not any(item.start <= number <= item.version for number in named)
    ]
    chosen: list[CompactedCommits] = []
    following = first
    for candidate in sorted(usable, key=lambda compaction: (compaction.start, -compaction.version)):
        if candidate.start >= following:
            chosen.append(candidate)
            following = candidate.version + 1
    return tuple(chosen)


def _gaps(present: Iterable[range], wanted: range) -> tuple[range, ...]:
    """What of ``wanted`` the ranges ``present``, which do not overlap, leave out. Versions are not counted up to."""
    gaps = []
    following = wanted.start
    for part in sorted(present, key=lambda part: part.start):
        if part.start > following:
            gaps.append(range(following, part.start))
        following = max(following, part.stop)
    if following < wanted.stop:
        gaps.append(range(following, wanted.stop))
    return tuple(gaps)


def _names(gaps: Sequence[range]) -> str:
    """``1, 4 to 6`` for the versions 1, 4, 5 and 6."""
    return ", ".join(str(gap.start) if gap.stop - gap.start == 1 else f"{gap.start} to {gap.stop - 1}" for gap in gaps)
