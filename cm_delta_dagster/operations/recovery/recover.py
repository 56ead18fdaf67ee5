"""RECOVER: records commits that storage holds in a catalog that is older than its storage.

The plan is the dry run. For each table it says which commits of ``_delta_log`` above the catalog's latest version continue the
table, which files do not, which staged files need a decision, and where catalog and storage hold different commits of one
version. Carrying out a plan deletes nothing: commits of a forked history that are not kept are set aside, see
:mod:`~cm_delta_dagster.operations.recovery.set_aside`.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from cm_delta_dagster.catalog.recovery import CommitHistory, HistoryStart
from cm_delta_dagster.catalog.tables import LEVELS_BELOW_WAREHOUSE, TableEntry, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.post_commit.publisher import publish_commits
from cm_delta_dagster.client.snapshots.commit_reader import CatalogRecords, CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import commit_sources
from cm_delta_dagster.client.snapshots.log_reader import read_checksum, read_hint
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    OperationRefusedError,
    ProtocolError,
    RecoveryError,
    StorageError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.arguments import check_plan
from cm_delta_dagster.operations.recovery.commit_chain import Chain
from cm_delta_dagster.operations.recovery.compare_history import HistoryComparison, compare_history, own_file
from cm_delta_dagster.operations.recovery.plan import (
    KeptHistory,
    RecoveredTable,
    RecoveryPlan,
    RecoveryResult,
    TableRecoveryPlan,
    explain,
)
from cm_delta_dagster.operations.recovery.set_aside import copy_aside, set_aside_directory
from cm_delta_dagster.operations.recovery.transaction_parts import (
    KnownCommit,
    RecoveredHistory,
    TransactionsOfPlan,
)
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.log_files import ChecksumFile, parse_log_file


def plan_recovery(
    client: DeltaClient,
    *,
    tables: Collection[TableIdentifier | str] | None = None,
    keep: KeptHistory | None = None,
    take_staged: Collection[str] = (),
) -> RecoveryPlan:
    """Plan what :func:`recover` does; changes nothing.

    Args:
        tables: names; None for every table of the catalog.
        keep: the history to keep where histories have forked, and which files are set aside: with STORAGE files that are not
            commits of the table, with CATALOG also every commit above the catalog's latest version.
        take_staged: names of staged files to record in the catalog.

    Raises:
        TableNotFoundError: no table has one of the names.
        InvalidArgumentError: no table has a staged file of that name, or the file does not continue its table.
        WarehouseMismatchError: the warehouse of a table belongs to another catalog.
    """
    entries = tuple(_entries(client, tables))
    for warehouse in sorted({entry.location.rsplit("/", LEVELS_BELOW_WAREHOUSE)[0] for entry in entries}):
        client.warehouse.check(warehouse)
    plans, with_proven = _plans(client, entries, keep, take_staged)
    offered = {staged.name: staged for table in plans for staged in table.staged}
    for name in take_staged:
        if name not in offered:
            raise InvalidArgumentError(
                f"No staged file {name!r} needs a decision. The staged files that do: {', '.join(offered) or 'none'}."
            )
        if not offered[name].is_taken:
            raise InvalidArgumentError(f"The staged file {name} cannot be recorded: {offered[name].problem}")
    return RecoveryPlan(tables=plans, keep=keep, take_staged=with_proven)


def _plans(
    client: DeltaClient, entries: Collection[TableEntry], keep: KeptHistory | None, take_staged: Collection[str]
) -> tuple[tuple[TableRecoveryPlan, ...], tuple[str, ...]]:
    """The plans, and the staged files to record: also those that were ratified together with a commit that is recorded."""
    known, names = _KnownCommits(client), tuple(take_staged)
    while True:
        plans = tuple(compare_history(client, entry, keep=keep, take_staged=names).plan for entry in entries)
        transactions = TransactionsOfPlan(
            histories={plan.table_id: _history(plan) for plan in plans}, known_commit=known.commit
        )
        proven = transactions.proven().difference(names)
        if not proven:
            break
        names += tuple(sorted(proven))
    taken = {staged.name for plan in plans for staged in plan.staged if staged.is_taken}
    return (
        tuple(replace(plan, transactions=transactions.parts(plan.table_id)) for plan in plans),
        tuple(name for name in names if name in take_staged or name in taken),
    )


def _history(plan: TableRecoveryPlan) -> RecoveredHistory:
    problem = plan.problem or ("its history has forked" if plan.needs_decision else "")
    return RecoveredHistory(
        table_id=plan.table_id,
        name=str(plan.identifier),
        known_version=plan.common_version,
        recorded={commit.version: commit for commit in plan.taken},
        staged=plan.staged,
        problem=problem,
    )


class _KnownCommits:
    """Commits that the catalog has, for their transactions; each is read once."""

    def __init__(self, client: DeltaClient) -> None:
        self._client = client
        self._commits: dict[tuple[str, int], KnownCommit | None] = {}

    def commit(self, table_id: str, version: int) -> KnownCommit | None:
        """See ``ReadKnownCommit``."""
        key = table_id, version
        if key not in self._commits:
            self._commits[key] = self._read(table_id, version)
        return self._commits[key]

    def _read(self, table_id: str, version: int) -> KnownCommit | None:
        client = self._client
        try:
            entry = client.registry.load_table_by_id(table_id)
            if version > entry.ratified.latest_version:
                return None
            reader = CommitReader(
                client.stores.store_for(entry.location),
                entry.location,
                records=CatalogRecords(client.coordinator, table_id),
            )
            unpublished = entry.ratified.unpublished
            (source,) = commit_sources(entry.location, start=version, end=version, ratified=unpublished)
            (commit,) = reader.decode_all([source])
        except (TableNotFoundError, OperationRefusedError, ProtocolError, StorageError):
            return None
        return KnownCommit(group=commit.transaction_group)


def recover(client: DeltaClient, plan: RecoveryPlan) -> RecoveryResult:
    """Carry out ``plan``. After an interruption, make a new plan and carry it out.

    Stop the readers and writers of a table before its history is replaced: they continue from the table state that they have in
    memory.

    Raises:
        RecoveryError: a history has forked and the plan does not say which to keep; the only table of the plan could not be
            checked; or a table has changed since the plan was made. That table is unchanged.
        StorageError, CatalogError: a request failed; make a new plan and carry it out.
    """
    check_plan(plan, RecoveryPlan, method="plan_recover")
    if plan.undecided:
        raise RecoveryError("\n".join(line for table in plan.undecided for line in explain(table)))
    if len(plan.tables) == 1 and plan.tables[0].problem is not None:
        raise RecoveryError(explain(plan.tables[0])[0])
    return RecoveryResult(tables=tuple(_recover_table(client, table, plan) for table in plan.tables))


def _entries(client: DeltaClient, tables: Collection[TableIdentifier | str] | None) -> Iterable[TableEntry]:
    for name in client.registry.list_tables() if tables is None else tables:
        identifier = TableIdentifier.parse(name) if isinstance(name, str) else name
        yield client.registry.load_table(identifier)


def _recover_table(client: DeltaClient, plan: TableRecoveryPlan, whole: RecoveryPlan) -> RecoveredTable:
    unchanged = RecoveredTable(
        identifier=plan.identifier,
        taken=(),
        latest_version=plan.catalog_version,
        warnings=() if plan.problem is None else explain(plan),
    )
    if not plan.changes_anything:
        return unchanged
    entry = client.registry.load_table_by_id(plan.table_id)
    comparison = compare_history(client, entry, keep=whole.keep, take_staged=whole.take_staged)
    if comparison.plan != replace(plan, transactions=()):
        raise RecoveryError(
            f"{plan.identifier} has changed since the plan was made: a writer has committed or its log was changed. The table is "
            "unchanged. Stop its writers and make a new plan."
        )
    chain = comparison.chain
    assert chain is not None
    directory = set_aside_directory(plan.location, client.now_ms())
    aside = directory if plan.sets_aside else None
    _set_overtaken_aside(comparison, directory)
    if plan.keep is KeptHistory.CATALOG and aside is not None:
        _remove_from_log(comparison, aside, first=plan.common_version + 1)
    elif plan.keep is not KeptHistory.CATALOG:
        _take_in(client, comparison, chain, aside)
    client.forget(plan.table_id)
    _publish(client, comparison, up_to=None)
    after = client.coordinator.get_ratified_commits(plan.table_id)
    return RecoveredTable(
        identifier=plan.identifier,
        taken=tuple(commit.version for commit in plan.taken),
        latest_version=after.latest_version,
        set_aside=directory if plan.sets_aside or plan.overtaken else None,
        warnings=explain(plan) if plan.missing_files or plan.lost or _is_incomplete(plan) else (),
    )


def _is_incomplete(plan: TableRecoveryPlan) -> bool:
    return any(part.missing for part in plan.transactions)


def _take_in(client: DeltaClient, comparison: HistoryComparison, chain: Chain, aside: str | None) -> None:
    plan, store = comparison.plan, comparison.reader.store
    own_ids = tuple(record.txn_id for record in comparison.own)
    if aside is not None:
        files = [own_file(comparison.reader, record) for record in comparison.own]
        copy_aside(store, aside, {file.name: file.data for file in files})
        # Before the commits are replaced: the checksum of a commit that is not kept contradicts the kept commit.
        _move_aside(comparison, aside, _checksums_of(comparison, set(own_ids)))
    if not comparison.is_cleaned:
        _publish(client, comparison, up_to=plan.common_version)
    if chain.links:
        published = [
            link.proposal.version
            for link in chain.links
            if link.proposal.file_name == log_files.commit_file_name(link.proposal.version)
        ]
        history = CommitHistory(
            proposals=tuple(link.proposal for link in chain.links),
            published_version=max(published, default=plan.common_version),
            definition=chain.definition(),
            row_id_mark=chain.row_id_mark(),
            start=HistoryStart.AFTER_CLEANUP if comparison.is_cleaned else HistoryStart.NEXT_VERSION,
        )
        client.recovery.take_in_commits(plan.table_id, history, after=plan.common_version, replaces=own_ids)
    if aside is not None:
        _move_aside(
            comparison, aside, [*(rejected.name for rejected in plan.rejected), *_published_below(comparison, chain)]
        )


def _set_overtaken_aside(comparison: HistoryComparison, aside: str) -> None:
    """Set aside overtaken commits, so that VACUUM keeps their files, and their checksums, which contradict the kept commits."""
    store, overtaken = comparison.reader.store, comparison.plan.overtaken
    staged = log_files.staged_commits_directory(comparison.reader.location)
    copy_aside(store, aside, {commit.name: store.read(f"{staged}/{commit.name}") for commit in overtaken})
    _move_aside(comparison, aside, {commit.known_from for commit in overtaken})


def _published_below(comparison: HistoryComparison, chain: Chain) -> list[str]:
    """Names of the catalog's commits in ``_delta_log`` below a chain that begins with a checkpoint."""
    first = chain.links[0].proposal.version if comparison.is_cleaned and chain.links else 0
    versions = [record.version for record in comparison.own if record.version < first]
    return [
        comparison.listing.published[version].name for version in versions if version in comparison.listing.published
    ]


def _publish(client: DeltaClient, comparison: HistoryComparison, *, up_to: int | None) -> None:
    """Publish ratified commits that are not in ``_delta_log``, up to a version on which both agree."""
    table_id = comparison.plan.table_id
    pending = client.coordinator.get_ratified_commits(table_id).unpublished
    publish_commits(
        comparison.reader,
        commits=[commit for commit in pending if up_to is None or commit.version <= up_to],
        reached=lambda version: client.coordinator.set_published_version(table_id, version),
    )


def _checksums_of(comparison: HistoryComparison, txn_ids: Collection[str]) -> list[str]:
    """Names of the version checksums of the given transactions."""
    names = []
    for name, version in comparison.listing.derived.items():
        if isinstance(parse_log_file(name), ChecksumFile) and version > comparison.plan.common_version:
            stored = read_checksum(comparison.reader.store, comparison.reader.location, version)
            if stored is not None and stored.txn_id in txn_ids:
                names.append(name)
    return names


def _remove_from_log(comparison: HistoryComparison, aside: str, *, first: int) -> None:
    """Set aside every log file from version ``first`` on that belongs to another history."""
    kept = set(_checksums_of(comparison, {record.txn_id for record in comparison.own}))
    names = [status.name for version, status in comparison.listing.published.items() if version >= first]
    names += [name for name, version in comparison.listing.derived.items() if version >= first and name not in kept]
    hint = read_hint(comparison.reader.store, log_files.log_directory(comparison.reader.location))
    if hint is not None and hint.version >= first:
        names.append(log_files.LAST_CHECKPOINT_FILE_NAME)
    _move_aside(comparison, aside, names)


def _move_aside(comparison: HistoryComparison, aside: str, names: Iterable[str]) -> None:
    """Copy files, verify the copies, then remove the files: newest first, so that the log never has a gap."""
    store, directory = comparison.reader.store, log_files.log_directory(comparison.reader.location)
    ordered = sorted(names, reverse=True)
    copy_aside(store, aside, {name: store.read(f"{directory}/{name}") for name in ordered})
    for name in ordered:
        store.delete(f"{directory}/{name}")
