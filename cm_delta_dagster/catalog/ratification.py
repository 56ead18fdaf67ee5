"""Values of :class:`~cm_delta_dagster.catalog.commit_coordinator.CommitCoordinator`: proposals, ratified commits, outcomes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from cm_delta_dagster.catalog.commit_policy import (
    STAGED_POLICY,
    CommitMode,
    CommitPolicy,
)
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.commits.proposal_checks.content import CheckedContent

CACHED_CONTENT_BYTES = 16 * 1024
"""Size of the largest commit whose content a catalog keeps after publication."""

MAX_CLOCK_DIFFERENCE_MS = 60 * 60 * 1000
"""Default limit of the difference between the clock of a writer and the catalog's clock."""

CACHED_COMMITS = 64
"""Number of a table's newest commits whose content a catalog keeps after publication, if all of them are small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCounts:
    """Rows, files and bytes of a table; ``num_rows`` is None if it is not known."""

    num_rows: int | None
    num_files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSummary:
    """The description of a commit in the commit feed; the catalog does not interpret it.

    Attributes:
        txn_id: ``txnId`` of commitInfo, unique.
        in_commit_timestamp: epoch milliseconds.
        operation: name as in commitInfo, e.g. ``WRITE``.
        data_change: True if a file action of the commit changes data, or if the commit changes the metadata; False for
            maintenance and for the creation of an empty table.
        metrics: operation metrics as in commitInfo.
        tags: provenance as in commitInfo, e.g. ``dagster/run_id``, ``dagster/asset_key``, ``dagster/partition_key``.
        engine_info: name and version of the writer as in commitInfo; None if not known.
        user_metadata: ``userMetadata`` of commitInfo.
        counts: of the table after the commit; None if not known.
    """

    txn_id: str
    in_commit_timestamp: int
    operation: str
    data_change: bool
    metrics: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    engine_info: str | None = None
    user_metadata: str | None = None
    counts: TableCounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitProposal:
    """A commit proposed for ``version``.

    Attributes:
        file_name: staged: the bare name inside the table's ``_delta_log/_staged_commits``. Inline: a unique name of the same
            form, without a file. Put-if-absent: the bare name of the published file.
        file_modification_time: epoch milliseconds; the commit time if there is no file, or if the store does not return the
            time of a file with its creation.
        content: the whole commit. Required inline, where it is the only copy. In the other modes an optional copy that saves
            readers the file, only for commits of at most ``CACHED_CONTENT_BYTES``.
        metadata, protocol: those of the table after this commit. Set if the commit contains one of the two; the other one is
            then set too, if the proposer knows it.
        published_version: ``_delta_log`` holds every version up to this one; saves a call of ``set_published_version``. It
            must be below ``version``. A value below the recorded one has no effect.
        sha256: SHA-256 of the bytes of the commit, as 64 lower-case hexadecimal digits; None if not computed.
        hold_id: the hold of the commit, which the catalog closes with the ratification.
        content_to_check: the whole commit, for the checks of the catalog, which does not store it. None: the checks see
            ``content``; without both they assume that the commit does whatever they refuse. Content of another size or digest
            is rejected.
        checked: what the catalog has parsed of the content; only the catalog sets it.
        lease_token: fencing token of the maintenance lease under which the commit was made; the proposal is refused unless that
            lease is still held. None for commits that need no lease.
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
    hold_id: str | None = None
    content_to_check: bytes | None = field(default=None, repr=False)
    checked: CheckedContent | None = field(default=None, repr=False, compare=False)
    lease_token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialCommit:
    """Version 0 at the registration of its table; its file is already published.

    ``content``, ``sha256``, ``content_to_check`` and ``checked`` as in :class:`CommitProposal`.
    """

    file_size: int
    file_modification_time: int
    metadata: Metadata
    protocol: Protocol
    content: bytes | None = None
    sha256: str | None = None
    content_to_check: bytes | None = field(default=None, repr=False)
    checked: CheckedContent | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatifiedCommit:
    """The catalog's record of one ratified commit.

    ``content`` holds the whole commit, or None. For an unpublished INLINE commit it is the only copy; otherwise it saves the
    reader the file ``file_name``.
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

    Invariants: ``commits`` is ascending and contiguous, and contains every version in ``(published_version, latest_version]``
    that is in the requested range.

    Attributes:
        latest_version: latest version of the table, also outside of the requested range.
        latest_data_version: the newest version that changed data.
        commit_policy: the current policy that writers must follow.
        cached_commits: published commits with their content: ascending, contiguous, up to ``published_version`` or the end of
            the range. Empty without ``content_from_version``.
        latest_in_commit_timestamp: of ``latest_version``; None if the catalog does not return it.
        preceding_timestamp: in-commit timestamp of the version before ``content_from_version``; None if there is no newer
            version or the catalog does not return it.
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
        """The ``commits`` above ``published_version``."""
        return tuple(commit for commit in self.commits if commit.version > self.published_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratified:
    """The proposal is version ``version`` of the table. ``repeated``: an earlier call had already ratified it."""

    version: int
    latest_version: int
    published_version: int
    repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionTaken:
    """Another commit has the proposed version. ``winners`` holds the commits from the proposed version on, published or
    not, with the content that the catalog has.
    """

    proposed_version: int
    winners: RatifiedCommits


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPolicyChanged:
    """Nothing was ratified: under the current ``policy`` the catalog accepts no proposals. Load the table again and retry."""

    policy: CommitPolicy


CommitOutcome: TypeAlias = Ratified | VersionTaken | CommitPolicyChanged


@dataclass(frozen=True, slots=True, kw_only=True)
class RatifiedTogether:
    """Every proposal is now a version of its table. ``commits`` has the answers by table id."""

    commits: Mapping[str, Ratified]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedTogether:
    """No proposal was ratified. ``refusals`` has the answers of the tables that prevented it, by table id."""

    refusals: Mapping[str, VersionTaken | CommitPolicyChanged]


MultiTableOutcome: TypeAlias = RatifiedTogether | RefusedTogether
