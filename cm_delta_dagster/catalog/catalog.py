"""The catalog seam: names, ratification and maintenance policy (protocol "Catalog-managed tables").

A catalog knows versions, file names, summaries and policies; never the meaning of a data file. What it is told and answers is in
``tables``, ``ratification``, ``maintenance`` and, for its feed, here; ``catalog.sql`` is the implementation over SQLAlchemy. The
guarantees of :class:`Catalog` are proven for every implementation by ``tests/contracts``.
"""

import typing
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from cm_delta_dagster.catalog.commit_policy import (
    CommitPolicy,
    CommitPolicyRule,
    PolicyChange,
)
from cm_delta_dagster.catalog.maintenance import (
    LeaseGranted,
    LeaseHeldByAnother,
    MaintenanceDecision,
    MaintenanceKind,
    MaintenanceRule,
)
from cm_delta_dagster.catalog.ratification import (
    CommitOutcome,
    CommitProposal,
    CommitSummary,
    InitialCommit,
    Ratified,
    RatifiedCommit,
    RatifiedCommits,
    VersionTaken,
)
from cm_delta_dagster.catalog.recovery import RecoverableCatalog
from cm_delta_dagster.catalog.tables import (
    InactiveTable,
    StagingTable,
    TableEntry,
    TableIdentifier,
)
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol

PIN_LIFETIME_MS = 30 * 24 * 60 * 60 * 1000
"""For so long a pinned version is kept, much longer than any run takes."""


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


class Catalog(RecoverableCatalog, typing.Protocol):
    """Names and ratification.

    Guarantees: a ratified commit is durable when the call returns (CM-C1); versions are ratified in order, each once
    (CM-C2, CM-C3); all answers are consistent when several processes use the catalog at once and across restarts (CM-C15);
    tables are addressed by id after resolution, so that a dropped and re-created name fences stale clients (CM-D8).
    Raises only errors of this package; CatalogUnavailableError when the catalog cannot be reached.
    """

    def now_ms(self) -> int:
        """The catalog's clock, which all of its clients share, in epoch milliseconds.

        It costs no request, but for the first connection. Raises CatalogUnavailableError if that cannot be made.
        """
        ...

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
        belongs to another table, TableNotFoundError if the id was never reserved, CommitRejectedError if the in-commit
        timestamp lies too far ahead of the catalog's clock.
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
        mark that is not below the version, for an in-commit timestamp too far ahead of the catalog's clock that does not
        directly follow the previous one, or for a proposal that contradicts itself (CM-C14), TableNotFoundError for an
        unknown or dropped table.
        """
        ...

    def commit_lock(self, table_id: str, *, seconds: float) -> AbstractContextManager[bool]:
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
        self,
        table_id: str,
        *,
        start: int | None = None,
        end: int | None = None,
        content_from_version: int | None = None,
    ) -> RatifiedCommits:
        """The unpublished ratified commits within the inclusive range (CM-C9) and the latest version (CM-C10).

        Args:
            content_from_version: from this version on content is served wherever the catalog has it, and of published commits too
                (``cached_commits``); None serves that of inline commits alone.
        """
        ...

    def accepted_commits(self, table_id: str, *, start: int, end: int) -> tuple[RatifiedCommit, ...]:
        """What the catalog keeps of the versions ``start..end``, published or not, ascending.

        The size of version 0 is 0 where the catalog was not told of it. Raises TableNotFoundError.
        """
        ...

    def commit_digests(self, table_id: str, *, start: int, end: int) -> Mapping[int, str]:
        """SHA-256 of the versions ``start..end``, published or not, as 64 hexadecimal digits by version.

        Versions that were ratified before catalogs kept digests, and those of an unknown table, are left out.
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

    def acquire_maintenance_lease(
        self, table_id: str, kind: MaintenanceKind, *, owner: str, duration_ms: int
    ) -> LeaseGranted | LeaseHeldByAnother:
        """Hold the table for one maintenance run; the same owner renews. An expired claim is free."""
        ...

    def release_maintenance_lease(self, table_id: str, *, owner: str) -> None:
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
