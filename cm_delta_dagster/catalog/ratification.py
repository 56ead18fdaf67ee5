"""What is proposed to a catalog and what it answers: proposals, ratified commits, outcomes.

Values alone; see :class:`~cm_delta_dagster.catalog.catalog.Catalog` for what they promise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from cm_delta_dagster.catalog.commit_policy import (
    STAGED_POLICY,
    CommitMode,
    CommitPolicy,
)
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol

KEPT_CONTENT_BYTES = 16 * 1024
"""Size of the largest commit whose content a catalog goes on serving when it is published."""

MAX_CLOCK_DIFFERENCE_MS = 60 * 60 * 1000
"""Default bound of the difference between the clock of a writer and that of the catalog."""

KEPT_COMMITS = 64
"""So many of a table's newest commits are served with their content when they are published, if all of them are small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSummary:
    """What a writer tells the catalog about a commit, for the commit feed; the catalog does not interpret it.

    Attributes:
        txn_id: unique id of the transaction (CINFO-2).
        in_commit_timestamp: epoch milliseconds (ICT-4).
        operation: name as in commitInfo, e.g. ``WRITE``.
        data_change: True if any file action of the commit changes data, or if the metadata of a table changed; False for
            maintenance and for the creation of an empty table.
        metrics: operation metrics as in commitInfo.
        tags: provenance as in commitInfo, e.g. ``dagster/run_id``, ``dagster/asset_key``, ``dagster/partition_key``.
    """

    txn_id: str
    in_commit_timestamp: int
    operation: str
    data_change: bool
    metrics: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitProposal:
    """A commit offered for ``version``.

    Attributes:
        file_name: staged: the bare name inside the table's ``_delta_log/_staged_commits``. Inline: a name of the same form
            that no file has; it tells proposals apart. Put-if-absent: the bare name of the published file.
        file_modification_time: epoch milliseconds; of a commit without a file its commit time.
        content: the whole commit. Inline it is the commit (CM-6); of another mode it is a copy that saves readers the file,
            only for commits of at most ``KEPT_CONTENT_BYTES``.
        metadata, protocol: those of the table after this commit. Given if the commit carries the one or the other; then the
            one that it does not carry is given too, unless the proposer does not know it (CM-C13).
        published_version: how far ``_delta_log`` reaches, told with the commit instead of by a call of its own. Older than
            what the catalog knows is no error; it has to be below ``version``.
        sha256: SHA-256 of the bytes of the commit, as 64 lower-case hexadecimal digits; None if the proposer does not tell.
    """

    version: int
    file_name: str
    file_size: int
    file_modification_time: int
    summary: CommitSummary
    mode: CommitMode = CommitMode.STAGED
    content: bytes | None = None
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    published_version: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialCommit:
    """What is told of version 0 when its table is registered; its file is published from the start.

    ``content`` and ``sha256`` as of :class:`CommitProposal`.
    """

    file_size: int
    file_modification_time: int
    metadata: Metadata
    protocol: Protocol
    content: bytes | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RatifiedCommit:
    """One ratified commit as the catalog keeps it.

    ``content`` holds the whole commit: of INLINE mode until it is published the only copy there is (CM-6), else one that
    saves the look into ``file_name``, where it is served at all.
    """

    version: int
    file_name: str
    file_size: int
    file_modification_time: int
    txn_id: str
    in_commit_timestamp: int
    content: bytes | None = None
    mode: CommitMode = CommitMode.STAGED
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RatifiedCommits:
    """Answer of ``get_ratified_commits``.

    Invariants: ``commits`` is ascending and contiguous; ``latest_version`` is the table's, whatever range was asked for
    (CM-C10); every version in ``(published_version, latest_version]`` that lies in the range is among ``commits``.
    ``latest_data_version`` is the newest version that changed data, ``commit_policy`` what writers have to keep to now.
    ``latest_in_commit_timestamp`` is that of ``latest_version``, None where the catalog does not tell.
    ``preceding_timestamp`` is the in-commit timestamp of the version before ``content_from_version``, None where there is no newer
    version or the catalog does not tell.
    ``cached_commits`` are published commits that are served with their content: ascending, contiguous, up to ``published_version``
    or the end of the range; empty unless they were asked for.
    """

    latest_version: int
    published_version: int
    latest_data_version: int
    commits: tuple[RatifiedCommit, ...]
    commit_policy: CommitPolicy = STAGED_POLICY
    cached_commits: tuple[RatifiedCommit, ...] = ()
    latest_in_commit_timestamp: int | None = None
    preceding_timestamp: int | None = None

    @property
    def unpublished(self) -> tuple[RatifiedCommit, ...]:
        """Those of ``commits`` that are not known to be in ``_delta_log``."""
        return tuple(commit for commit in self.commits if commit.version > self.published_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratified:
    """The proposal is now version ``version`` of the table (or was already: ``repeated``)."""

    version: int
    latest_version: int
    published_version: int
    repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionTaken:
    """Another commit has the proposed version. ``winners`` holds the commits from the proposed version on, published or
    not, with all the content that the catalog has (CM-C11)."""

    proposed_version: int
    winners: RatifiedCommits


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPolicyChanged:
    """Nothing was ratified: the table's policy does not let proposals through the catalog now. Look again and retry."""

    policy: CommitPolicy


CommitOutcome: TypeAlias = Ratified | VersionTaken | CommitPolicyChanged
