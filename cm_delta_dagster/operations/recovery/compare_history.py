"""Compares the history of one table in the catalog with that in its log, for recovery. Changes nothing."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from cm_delta_dagster.advice import advice
from cm_delta_dagster.catalog.ratification import RatifiedCommit, RatifiedCommits
from cm_delta_dagster.catalog.tables import TableEntry
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.commit_reader import CatalogRecords, CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import is_ratified, ratified_source
from cm_delta_dagster.client.snapshots.log_reader import LoadedState, load_state
from cm_delta_dagster.errors import CorruptLogError, ProtocolError, StorageError
from cm_delta_dagster.operations.recovery.commit_chain import Chain, CommitFileContent, RefusedError, describe_commit
from cm_delta_dagster.operations.recovery.log_listing import (
    DirectoryListings,
    above,
    list_log,
    missing_files,
    overtaken_commits,
    staged_candidates,
    without_files,
)
from cm_delta_dagster.operations.recovery.plan import (
    FoundCommit,
    KeptHistory,
    LostCommit,
    RejectedCommit,
    StagedCandidate,
    TableRecoveryPlan,
)
from cm_delta_dagster.operations.recovery.set_aside import txn_ids_set_aside
from cm_delta_dagster.operations.recovery.start_after_cleanup import (
    StartAfterCleanup,
    is_cleaned_above,
    start_after_cleanup,
)
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.remedies import RelocateTables, RepairTable


@dataclass(frozen=True, kw_only=True)
class HistoryComparison:
    """A plan, and the values that carrying it out needs.

    Attributes:
        chain: the commits to record in the catalog; None if the table could not be checked.
        own: commits of the catalog for whose versions storage holds other commits.
        is_cleaned: the chain begins with a checkpoint, since log cleanup removed the commits that lead to it.
    """

    plan: TableRecoveryPlan
    reader: CommitReader
    ratified: RatifiedCommits
    listing: DirectoryListings
    chain: Chain | None = None
    own: tuple[RatifiedCommit, ...] = ()
    is_cleaned: bool = False


class _NotComparableError(Exception):
    """Damage that recovery does not handle; the text describes it."""


def compare_history(
    client: DeltaClient, entry: TableEntry, *, keep: KeptHistory | None, take_staged: Collection[str]
) -> HistoryComparison:
    """Plan the recovery of one table. Raises StorageError, CatalogError."""
    store = client.stores.store_for(entry.location)
    records = CatalogRecords(client.coordinator, entry.table_id)
    reader = CommitReader(store, entry.location, records=records, threads=client.settings.read_threads)
    ratified = client.coordinator.get_ratified_commits(entry.table_id)
    listing = list_log(store, entry.location)
    plan = TableRecoveryPlan(
        identifier=entry.identifier,
        table_id=entry.table_id,
        location=entry.location,
        catalog_version=ratified.latest_version,
        common_version=ratified.latest_version,
        keep=keep,
    )
    comparison = HistoryComparison(plan=plan, reader=reader, ratified=ratified, listing=listing)
    metadata_id = None if entry.definition is None else entry.definition.metadata.id
    holds = {
        table.txn_id: hold.hold_id
        for hold in client.holds.holds(table_id=entry.table_id, with_closed=True)
        for table in hold.tables
        if table.table_id == entry.table_id
    }
    try:
        return _LogComparison(comparison, records, metadata_id, holds).run(keep, take_staged)
    except _NotComparableError as error:
        return replace(comparison, plan=replace(plan, problem=str(error)))


class _LogComparison:
    def __init__(
        self,
        comparison: HistoryComparison,
        records: CatalogRecords,
        metadata_id: str | None,
        holds: Mapping[str, str],
    ) -> None:
        self._comparison, self._holds = comparison, holds
        self._metadata_id = metadata_id
        self._plan, self._reader, self._listing = comparison.plan, comparison.reader, comparison.listing
        self._ratified = comparison.ratified
        self._records = {record.version: record for record in records.records(0, comparison.ratified.latest_version)}

    def run(self, keep: KeptHistory | None, take_staged: Collection[str]) -> HistoryComparison:
        if not self._listing.published:
            raise _NotComparableError(
                f"there is no published commit at {self._plan.location}, and the catalog has published versions up to "
                f"{self._ratified.published_version}. Check that the storage is mounted. "
                f"{advice(RelocateTables())}"
            )
        fork = self._first_difference()
        common = self._ratified.latest_version if fork is None else fork - 1
        start = self._start_after_cleanup(common)
        if start is not None:
            common, fork = start.common_version, start.fork
            if keep is KeptHistory.CATALOG:
                raise _NotComparableError(
                    f"the history of the catalog cannot be kept: its version {common} cannot be rebuilt, because log cleanup has "
                    "removed commits that it needs. Keep the history of storage."
                )
        chain = self._chain_after(common) if start is None else start.chain
        rejected = self._extend(chain)
        missing = missing_files(self._reader, chain)
        stray = None if start is not None else without_files(chain, missing)
        if stray is not None:
            chain = self._chain_after(common)
            rejected = self._extend(chain, without_files=stray.description)
            missing = missing_files(self._reader, chain)
        forked = fork is not None and bool(chain.links)
        own = tuple(self._records[version] for version in above(self._records, common)) if forked else ()
        plan = replace(
            self._plan,
            common_version=common,
            removed=range(0)
            if start is None
            else range(common + 1, chain.links[0].proposal.version if chain.links else 0),
            in_storage=tuple(link.description for link in chain.links),
            in_catalog=self._described(own),
            is_forked=forked,
            rejected=rejected,
            overtaken=overtaken_commits(
                self._reader, self._listing, self._records, up_to=common, known=self._known_txn_ids()
            ),
            missing_files=missing,
        )
        takes_storage = keep is not KeptHistory.CATALOG and (fork is None or (forked and keep is KeptHistory.STORAGE))
        if takes_storage:
            staged, lost = self._staged_candidates(chain, take_staged)
            plan = replace(plan, staged=staged, lost=lost)
        return replace(self._comparison, plan=plan, chain=chain, own=own, is_cleaned=start is not None)

    def _start_after_cleanup(self, common: int) -> StartAfterCleanup | None:
        """Where the chain begins if log cleanup has removed files that version ``common`` needs; None if they exist."""
        if not is_cleaned_above(self._listing, common):
            return None
        try:
            load_state(self._reader, version=common, ratified=self._ratified.commits)
        except CorruptLogError as error:
            start = start_after_cleanup(
                self._reader,
                self._listing,
                self._records,
                table_id=self._plan.table_id,
                metadata_id=self._metadata_id,
            )
            if isinstance(start, str):
                raise _NotComparableError(
                    f"log cleanup has removed commits that version {common} needs, and no later checkpoint can replace "
                    f"them: {start} ({error})"
                ) from error
            return start
        except StorageError as error:
            raise _NotComparableError(f"version {common} cannot be read: {error}") from error
        return None

    def _staged_candidates(
        self, chain: Chain, chosen: Collection[str]
    ) -> tuple[tuple[StagedCandidate, ...], tuple[LostCommit, ...]]:
        known = self._known_txn_ids()
        return staged_candidates(self._reader, chain, self._listing, chosen=chosen, known=known, holds=self._holds)

    def _known_txn_ids(self) -> frozenset[str]:
        """``txnId`` of commits that the catalog has or that were set aside: their staged files need no decision."""
        decided = txn_ids_set_aside(self._reader.store, self._plan.location)
        return decided | {record.txn_id for record in self._records.values()}

    def _first_difference(self) -> int | None:
        """The oldest unpublished version of which ``_delta_log`` holds another commit than the catalog."""
        for version in range(max(0, self._ratified.published_version), self._ratified.latest_version + 1):
            record, status = self._records.get(version), self._listing.published.get(version)
            if record is None or status is None:
                continue
            data = self._reader.store.read(status.location)
            if is_ratified(record, data):
                continue
            if version <= self._ratified.published_version or _txn_id(data) == record.txn_id:
                raise _NotComparableError(
                    f"{status.location} is not what the catalog ratified as version {version}: it was altered or damaged. "
                    f"{advice(RepairTable(table=str(self._plan.identifier)))}"
                )
            return version
        return None

    def _chain_after(self, common: int) -> Chain:
        loaded = self._state(common)
        time = loaded.in_commit_timestamp
        record = self._records.get(common)
        if time is None and record is not None:
            time = record.in_commit_timestamp
        if time is None:
            raise _NotComparableError(f"the timestamp of version {common} is not known: its commit is missing.")
        return Chain(
            self._reader.store,
            self._plan.location,
            table_id=self._plan.table_id,
            state=loaded.state,
            timestamp_ms=time,
            known_txn_ids=(record.txn_id for version, record in self._records.items() if version <= common),
        )

    def _state(self, version: int) -> LoadedState:
        try:
            return load_state(self._reader, version=version, ratified=self._ratified.commits)
        except (ProtocolError, StorageError) as error:
            raise _NotComparableError(f"version {version} cannot be read: {error}") from error

    def _extend(self, chain: Chain, *, without_files: FoundCommit | None = None) -> tuple[RejectedCommit, ...]:
        """Add the published commits that follow, except ``without_files``; return the files that do not follow."""
        rejected: list[RejectedCommit] = []
        for version in above(self._listing.published, chain.version):
            status = self._listing.published[version]
            file = CommitFileContent.read(self._reader.store, status, version)
            try:
                if without_files is not None and without_files.version == version:
                    raise RefusedError(
                        f"none of the {without_files.num_added_files} data files that it adds exists: it was copied from another "
                        "table, or its files were deleted. If they were deleted, restore them from a backup of the storage first."
                    )
                chain.add(file)
            except RefusedError as error:
                rejected.append(RejectedCommit(version=version, name=status.name, reason=str(error)))
        return tuple(rejected)

    def _described(self, own: Sequence[RatifiedCommit]) -> tuple[FoundCommit, ...]:
        return tuple(describe_commit(own_file(self._reader, record)) for record in own)


def own_file(reader: CommitReader, record: RatifiedCommit) -> CommitFileContent:
    """The ratified bytes of an unpublished commit of the catalog, under the name of its staged file.

    Raises:
        CorruptLogError, ObjectNotFoundError: no intact copy is left.
    """
    data = reader.read(ratified_source(reader.location, record))
    return CommitFileContent(
        version=record.version, name=record.file_name, data=data, modification_time=record.file_modification_time
    )


def _txn_id(data: bytes) -> str | None:
    try:
        info = commit_json.decode_commit_info(data)
    except CorruptLogError:
        return None
    return None if info is None else info.txn_id
