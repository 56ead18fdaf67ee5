"""The catalog seam: names, ratification and maintenance policy (protocol "Catalog-managed tables").

A catalog knows versions, file names, summaries and policies; never the meaning of a data file. Values here are what every
implementation answers with; ``catalog.sql`` is the implementation over SQLAlchemy. The guarantees of :class:`Catalog` are
proven for every implementation by ``tests/contracts/catalog_contract.py``.
"""

import typing
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from cm_delta_dagster.catalog.commit_policy import (
    STAGED_POLICY,
    CommitMode,
    CommitPolicy,
    CommitPolicyRule,
    PolicyChange,
)
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions import Metadata, Protocol
from cm_delta_dagster.protocol.schema import StructType, parse_schema


@dataclass(frozen=True, slots=True, order=True)
class TableIdentifier:
    """A three-level name. ``str()`` gives ``catalog.schema.table``."""

    catalog: str
    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.table}"

    @classmethod
    def parse(cls, text: str) -> "TableIdentifier":
        """``catalog.schema.table``. Raises InvalidArgumentError for another number of parts or an empty one."""
        parts = text.split(".")
        if len(parts) != 3 or not all(part.strip() == part and part for part in parts):
            raise InvalidArgumentError(
                f"{text!r} is not a table name: write it as catalog.schema.table, three non-empty parts without dots."
            )
        return cls(*parts)


PIN_LIFETIME_MS = 30 * 24 * 60 * 60 * 1000
"""For so long a pinned version is kept, much longer than any run takes."""

KEPT_CONTENT_BYTES = 16 * 1024
"""Size of the largest commit whose content a catalog goes on serving when it is published."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialCommit:
    """What is told of version 0 when its table is registered; its file is published from the start.

    ``content`` as of :class:`CommitProposal`.
    """

    file_size: int
    file_modification_time: int
    metadata: Metadata
    protocol: Protocol
    content: bytes | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RatifiedCommits:
    """Answer of ``get_ratified_commits``.

    Invariants: ``commits`` is ascending and contiguous; ``latest_version`` is the table's, whatever range was asked for
    (CM-C10); every version in ``(published_version, latest_version]`` that lies in the range is among ``commits``.
    ``latest_data_version`` is the newest version that changed data, ``commit_policy`` what writers have to keep to now.
    ``kept`` are published commits that are served with their content: ascending, contiguous, up to ``published_version``
    or the end of the range; empty unless they were asked for.
    """

    latest_version: int
    published_version: int
    latest_data_version: int
    commits: tuple[RatifiedCommit, ...]
    commit_policy: CommitPolicy = STAGED_POLICY
    kept: tuple[RatifiedCommit, ...] = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingTable:
    """Phase 1 of a creation: a reserved id and location, no name yet. ``location`` has no trailing slash."""

    table_id: str
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """Metadata and protocol of a table at its latest version, as its commits said them: those of log replay (CM-C13).

    Attributes:
        version: they hold from this version on; the commit that set them, where the catalog has seen it.
        in_commit_timestamp: of that version, epoch milliseconds.
    """

    metadata: Metadata
    protocol: Protocol
    version: int
    in_commit_timestamp: int

    @property
    def columns(self) -> StructType:
        return parse_schema(self.metadata.schema_string)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.metadata.partition_columns

    @property
    def properties(self) -> Mapping[str, str]:
        """Table properties as the log has them."""
        return self.metadata.configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """A registered table and, from the same catalog call, its ratified commits (CM-R1) and its definition.

    Attributes:
        etag: another text whenever name, metadata or protocol change, and only then.
        definition: of ``ratified.latest_version``; None where the catalog was never told all of it.
    """

    identifier: TableIdentifier
    table_id: str
    location: str
    ratified: RatifiedCommits
    created_ms: int
    etag: str = ""
    definition: TableDefinition | None = None


class InactiveState(StrEnum):
    """Why a table that the catalog knows has no name.

    STAGING: reserved and not registered. DROPPED: its name was taken away. PURGING: its files are being deleted, or
    were partly deleted by a run that died; nothing brings it back.
    """

    STAGING = "staging"
    DROPPED = "dropped"
    PURGING = "purging"


@dataclass(frozen=True, slots=True, kw_only=True)
class InactiveTable:
    """A table that no name resolves to. ``identifier`` is the name that it had or was to have.

    ``since_ms`` is when it was dropped, or reserved if it never was ``registered``; epoch milliseconds.
    """

    identifier: TableIdentifier
    table_id: str
    location: str
    state: InactiveState
    since_ms: int
    registered: bool

    @property
    def purge_kind(self) -> "MaintenanceKind":
        """What the policy must allow before the files may be deleted: nobody has ever seen those of a creation."""
        return MaintenanceKind.TABLE_PURGE if self.registered else MaintenanceKind.CREATION_PURGE


class MaintenanceKind(StrEnum):
    """What a client may want to do to a table beside committing. The last four are allowed unless denied.

    CHECKPOINT, LOG_COMPACTION and VERSION_CHECKSUM are exempt by the protocol. CREATION_PURGE is about reservations that
    never became a table: no version of anything was ever in them.
    """

    DATA_REORGANIZATION = "DATA_REORGANIZATION"
    DATA_CLEANUP = "DATA_CLEANUP"
    METADATA_CLEANUP = "METADATA_CLEANUP"
    TABLE_PURGE = "TABLE_PURGE"
    CHECKPOINT = "CHECKPOINT"
    LOG_COMPACTION = "LOG_COMPACTION"
    VERSION_CHECKSUM = "VERSION_CHECKSUM"
    CREATION_PURGE = "CREATION_PURGE"

    @property
    def allowed_by_default(self) -> bool:
        """Protocol default: of what is done to tables only the exempt kinds need no permission (CM-M4)."""
        return self in (
            MaintenanceKind.CHECKPOINT,
            MaintenanceKind.LOG_COMPACTION,
            MaintenanceKind.VERSION_CHECKSUM,
            MaintenanceKind.CREATION_PURGE,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceRule:
    """One line of policy. ``scope`` is ``catalog``, ``catalog.schema`` or ``catalog.schema.table``; the longest one decides."""

    scope: str
    kind: MaintenanceKind
    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceDecision:
    """The catalog's answer for one table and kind. ``decided_by`` is the scope of the rule, or ``default``."""

    kind: MaintenanceKind
    allowed: bool
    reason: str
    decided_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEntry:
    """One commit in the feed of the whole catalog.

    ``position`` grows strictly in the order in which commits become visible, over all tables, without ever showing a smaller
    one later. ``data_version`` is the newest data-changing version of the table at this commit.
    """

    position: int
    identifier: TableIdentifier
    table_id: str
    version: int
    data_version: int
    ratified_ms: int
    summary: CommitSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPage:
    """A part of the feed, and whose feed it is.

    ``catalog_id`` never changes in the life of a catalog; ``latest_position`` is that of the newest commit of any table.
    """

    catalog_id: str
    latest_position: int
    entries: tuple[FeedEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The caller holds the table for maintenance until ``expires_ms``."""

    expires_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldByAnother:
    """Another maintenance run holds the table."""

    owner: str
    kind: MaintenanceKind
    expires_ms: int


class Catalog(typing.Protocol):
    """Names and ratification.

    Guarantees: a ratified commit is durable when the call returns (CM-C1); versions are ratified in order, each once
    (CM-C2, CM-C3); all answers are consistent when several processes use the catalog at once and across restarts (CM-C15);
    tables are addressed by id after resolution, so that a dropped and re-created name fences stale clients (CM-D8).
    Raises only errors of this package; CatalogUnavailableError when the catalog cannot be reached.
    """

    def create_staging_table(self, identifier: TableIdentifier) -> StagingTable:
        """Phase 1: reserve an id and a unique location. Nothing resolves by name. TableAlreadyExistsError if it is taken."""
        ...

    def register_table(
        self,
        table_id: str,
        identifier: TableIdentifier,
        *,
        summary: CommitSummary,
        initial: InitialCommit | None = None,
    ) -> TableEntry:
        """Phase 3: give the staging table its name, atomically, with version 0 ratified and published.

        Registering the same id under the same name again answers with the entry. Raises TableAlreadyExistsError if the name
        belongs to another table, TableNotFoundError if the id was never reserved.
        """
        ...

    def load_table(self, identifier: TableIdentifier) -> TableEntry:
        """Resolve a name: id, location, ratified commits and definition in one call. Raises TableNotFoundError."""
        ...

    def load_table_by_id(self, table_id: str) -> TableEntry:
        """As ``load_table``, whatever name the table has now. Raises TableNotFoundError."""
        ...

    def set_definition(self, table_id: str, *, version: int, metadata: Metadata, protocol: Protocol) -> bool:
        """Tell what the log says at ``version``, where the catalog was never told or was told something else.

        Returns:
            False if there is a later version by now: nothing was changed. Raises TableNotFoundError.
        """
        ...

    def drop_table(self, identifier: TableIdentifier, *, table_id: str | None = None) -> None:
        """Soft drop: the name is free, log and data stay (CM-D6).

        With ``table_id`` only that table is dropped, whoever has the name by now (CM-D8), and one that is dropped
        already is no error. Raises TableNotFoundError.
        """
        ...

    def inactive_tables(self, scope: str = "") -> tuple[InactiveTable, ...]:
        """Tables under ``scope`` that no name resolves to and whose files may still be there, oldest first."""
        ...

    def undrop_table(self, table_id: str) -> TableEntry:
        """Give a dropped table its name back, with all of its commits; again for one that has it answers the entry.

        Raises TableNotFoundError if the id is unknown, was never registered or is being purged, TableAlreadyExistsError
        if the name belongs to another table by now.
        """
        ...

    def rename_table(self, table_id: str, identifier: TableIdentifier) -> TableEntry:
        """Give a table another name; id, location, log and feed stay.

        Rules of maintenance policy belong to names: what a rule for the old name allowed is not allowed by it any more, what
        it denied is denied under the new name too. The same again answers the entry. Raises TableNotFoundError,
        TableAlreadyExistsError.
        """
        ...

    def begin_purge(self, table_id: str, *, min_age_ms: int) -> InactiveTable:
        """Take a dropped or never registered table out of reach for good, so that its files may be deleted (CM-D7).

        Afterwards neither ``undrop_table`` nor ``register_table`` succeeds. The same again answers the same.

        Args:
            min_age_ms: it must have been without a name for so long, by the catalog's clock.

        Raises:
            TableNotFoundError: the id is unknown or purged.
            PurgeRefusedError: it has a name, is too young, or its location is not strictly inside the managed root or
                is shared with another table.
        """
        ...

    def finish_purge(self, table_id: str) -> None:
        """Tell that every file of a table being purged is gone; no error if that was told before.

        The commits of a table that had a name stay in the feed. Raises PurgeRefusedError without ``begin_purge``.
        """
        ...

    def list_tables(self, scope: str = "") -> tuple[TableIdentifier, ...]:
        """Names under ``scope`` (``""``, ``catalog`` or ``catalog.schema``), sorted."""
        ...

    def commit(self, table_id: str, proposal: CommitProposal) -> CommitOutcome:
        """Ratify exactly one proposal for each version.

        The same file name again for its version answers ``Ratified(repeated=True)`` and has no effect at all. A version that
        is taken is answered as such, whatever else the proposal says. Raises CommitRejectedError for a gap, for a published
        mark that is not below the version, or for a proposal that contradicts itself (CM-C14), TableNotFoundError for an
        unknown or dropped table.
        """
        ...

    def turn(self, table_id: str, *, seconds: float) -> AbstractContextManager[bool]:
        """Wait in a row with the table's other writers, for at most ``seconds``; gives whether it is one's turn.

        For writers who have met, so that they need not race. It is advice: without it, or when a turn is lost, commits are
        decided as ever. Raises nothing.
        """
        ...

    def record_published(self, table_id: str, proposal: CommitProposal) -> Ratified | VersionTaken:
        """Take note of a commit that the creation of its published file has ratified (CM-C5, CM-C6).

        The same version with the same ``txn_id`` again answers ``Ratified(repeated=True)``. Raises CommitRejectedError for a
        gap, for unpublished versions before it, or if the table's commits are not made that way; TableNotFoundError.
        """
        ...

    def set_commit_policy(self, rule: CommitPolicyRule) -> None:
        """Choose for a catalog or a schema. PUT_IF_ABSENT holds for tables that are registered afterwards only.

        Raises InvalidArgumentError for another scope, or for SWITCHING.
        """
        ...

    def remove_commit_policy(self, scope: str) -> None:
        """Back to the wider scope or the default; an absent rule is no error."""
        ...

    def change_commit_policy(self, table_id: str, policy: CommitPolicy | None) -> PolicyChange:
        """Choose for one table; None goes back to the wider scope. To be repeated until it answers DONE.

        Into put-if-absent: first everything has to be published. Out of it: first a commit of ``BARRIER_OPERATION`` has to be
        made put-if-absent and recorded. Until then the policy is SWITCHING. Raises TableNotFoundError, InvalidArgumentError.
        """
        ...

    def commit_policies(self) -> tuple[CommitPolicyRule, ...]:
        """Every rule, those of tables under their present names, by scope."""
        ...

    def get_ratified_commits(
        self, table_id: str, *, start: int | None = None, end: int | None = None, kept_from: int | None = None
    ) -> RatifiedCommits:
        """The unpublished ratified commits within the inclusive range (CM-C9) and the latest version (CM-C10).

        Args:
            kept_from: from this version on content is served wherever the catalog has it, and of published commits too
                (``kept``); None serves that of inline commits alone.
        """
        ...

    def accepted_commits(self, table_id: str, *, start: int, end: int) -> tuple[RatifiedCommit, ...]:
        """What the catalog keeps of the versions ``start..end``, published or not, ascending.

        The size of version 0 is 0 where the catalog was not told of it. Raises TableNotFoundError.
        """
        ...

    def set_published_version(self, table_id: str, version: int) -> None:
        """Tell that ``_delta_log`` holds every version up to ``version``; it may come late, and over several versions at once.

        An older mark changes nothing. Content up to there is forgotten, but for that of the newest commits if they are small
        (CM-C7, CM-C8). Raises InvalidArgumentError above the latest version: nothing but ratified commits is published.
        """
        ...

    def set_maintenance_rule(self, rule: MaintenanceRule) -> None:
        """Create or replace the rule of that scope and kind."""
        ...

    def remove_maintenance_rule(self, scope: str, kind: MaintenanceKind) -> None:
        """Back to the wider scope or the default; an absent rule is no error."""
        ...

    def maintenance_rules(self) -> tuple[MaintenanceRule, ...]:
        """Every rule, by scope and kind."""
        ...

    def maintenance_decision(
        self, identifier: TableIdentifier, kind: MaintenanceKind, *, table_id: str | None = None
    ) -> MaintenanceDecision:
        """Whether that maintenance is permitted on that table now, and why.

        With ``table_id`` the name that this table has now decides, in case it was renamed since.
        """
        ...

    def claim_maintenance(
        self, table_id: str, kind: MaintenanceKind, *, owner: str, duration_ms: int
    ) -> Claimed | HeldByAnother:
        """Hold the table for one maintenance run; the same owner renews. An expired claim is free."""
        ...

    def release_maintenance(self, table_id: str, *, owner: str) -> None:
        """Give the claim back; no error if it is not held."""
        ...

    def pin_version(self, table_id: str, version: int, *, owner: str) -> int:
        """Fix the version of the table that ``owner`` reads; the first one given stays. Returns the one that holds.

        Pins are forgotten ``PIN_LIFETIME_MS`` after they were last set. Raises TableNotFoundError for an unknown id.
        """
        ...

    def raise_pinned_version(self, table_id: str, version: int, *, owner: str) -> int:
        """Move the owner's pin forward to ``version``, never back; make it if there is none. Returns the one that holds."""
        ...

    def pinned_version(self, table_id: str, *, owner: str) -> int | None:
        """The version that the owner has fixed, None if it has not."""
        ...

    def feed(
        self,
        *,
        after: int,
        limit: int,
        identifiers: Iterable[TableIdentifier] | None = None,
    ) -> Sequence[FeedEntry]:
        """Commits of position > ``after`` in order of position, at most ``limit``, in one query; optionally of these names."""
        ...

    def feed_page(
        self,
        *,
        after: int,
        limit: int,
        identifiers: Iterable[TableIdentifier] | None = None,
    ) -> FeedPage:
        """As ``feed``, with the feed's identity and end from the same query."""
        ...

    def latest_feed_position(self) -> int:
        """Position of the newest commit, 0 when there is none."""
        ...

    def close(self) -> None:
        """Release connections; the object may not be used afterwards."""
        ...
