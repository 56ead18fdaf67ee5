"""RECOVER: a catalog that is older than its storage takes in what the storage has.

First a plan, which is the dry run: which commits of ``_delta_log`` above the catalog's latest version continue each table, which
files do not, which staged files need a decision, and where catalog and storage hold different commits of one version. Then
the plan is carried out. Nothing is deleted: what is not kept of a forked history is set aside, see ``operations.set_aside``.
"""

from collections.abc import Collection, Iterable

from cm_delta_dagster.catalog.recovery import CommitHistory, HistoryStart
from cm_delta_dagster.catalog.tables import LEVELS_BELOW_WAREHOUSE, TableEntry, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.post_commit.publisher import publish_commits
from cm_delta_dagster.client.snapshots.log_reader import read_checksum, read_hint
from cm_delta_dagster.errors import InvalidArgumentError, RecoveryError
from cm_delta_dagster.operations.recovery.examination import Examined, examine_table, own_file
from cm_delta_dagster.operations.recovery.plan import (
    KeptHistory,
    RecoveredTable,
    RecoveryPlan,
    RecoveryResult,
    TableRecoveryPlan,
    explain,
)
from cm_delta_dagster.operations.recovery.published_chain import Chain
from cm_delta_dagster.operations.recovery.set_aside import copy_aside, set_aside_directory
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.log_files import ChecksumFile, parse_log_file


def plan_recovery(
    client: DeltaClient,
    *,
    tables: Collection[TableIdentifier | str] | None = None,
    keep: KeptHistory | None = None,
    take_staged: Collection[str] = (),
) -> RecoveryPlan:
    """Find out what :func:`recover` would do: the dry run, which changes nothing.

    Args:
        tables: names; None for every table of the catalog.
        keep: which history is kept where histories forked, and which files are set aside: with STORAGE those that are no
            commits of the table, with CATALOG every commit above the catalog's latest version too.
        take_staged: names of staged files that are taken in.

    Raises:
        TableNotFoundError: no table has one of the names.
        InvalidArgumentError: a staged file is named that no table has, or that does not follow.
        WarehouseMismatchError: the warehouse of a table belongs to another catalog.
    """
    entries = tuple(_entries(client, tables))
    for warehouse in sorted({entry.location.rsplit("/", LEVELS_BELOW_WAREHOUSE)[0] for entry in entries}):
        client.warehouse.check(warehouse)
    found = tuple(examine_table(client, entry, keep=keep, take_staged=take_staged).plan for entry in entries)
    offered = {staged.name: staged for table in found for staged in table.staged}
    for name in take_staged:
        if name not in offered:
            raise InvalidArgumentError(
                f"No staged file {name!r} is open for a decision. Those that are: {', '.join(offered) or 'none'}."
            )
        if not offered[name].is_taken:
            raise InvalidArgumentError(f"The staged file {name} cannot be taken in: {offered[name].problem}")
    return RecoveryPlan(tables=found, keep=keep, take_staged=tuple(take_staged))


def recover(client: DeltaClient, plan: RecoveryPlan) -> RecoveryResult:
    """Carry out ``plan``. Repeating a plan that was interrupted is safe: make it anew.

    Stop whatever reads or writes the tables before histories are replaced: a process that has a table's state in memory goes on
    from there.

    Raises:
        RecoveryError: a history has forked and nobody has said which one is kept; a table could not be examined and is the only
            one of the plan; or a table is not as it was when the plan was made. That table was left as it is.
        StorageError, CatalogError: make the plan anew and repeat it.
    """
    if plan.undecided:
        raise RecoveryError("\n".join(line for table in plan.undecided for line in explain(table)))
    if len(plan.tables) == 1 and plan.tables[0].problem is not None:
        raise RecoveryError(explain(plan.tables[0])[0])
    return RecoveryResult(tables=tuple(_recover_table(client, table, plan) for table in plan.tables))


def _entries(client: DeltaClient, tables: Collection[TableIdentifier | str] | None) -> Iterable[TableEntry]:
    for name in client.catalog.list_tables() if tables is None else tables:
        identifier = TableIdentifier.parse(name) if isinstance(name, str) else name
        yield client.catalog.load_table(identifier)


def _recover_table(client: DeltaClient, plan: TableRecoveryPlan, whole: RecoveryPlan) -> RecoveredTable:
    unchanged = RecoveredTable(
        identifier=plan.identifier,
        taken=(),
        latest_version=plan.catalog_version,
        warnings=() if plan.problem is None else explain(plan),
    )
    if not plan.changes_anything:
        return unchanged
    entry = client.catalog.load_table_by_id(plan.table_id)
    examined = examine_table(client, entry, keep=whole.keep, take_staged=whole.take_staged)
    if examined.plan != plan:
        raise RecoveryError(
            f"{plan.identifier} is not as it was when the plan was made: somebody has committed or changed its log since. It was "
            "left as it is. Stop its writers and make another plan."
        )
    chain = examined.chain
    assert chain is not None
    directory = set_aside_directory(plan.location, client.now_ms())
    aside = directory if plan.sets_aside else None
    _set_overtaken_aside(examined, directory)
    if plan.keep is KeptHistory.CATALOG and aside is not None:
        _remove_from_log(examined, aside, first=plan.common_version + 1)
    elif plan.keep is not KeptHistory.CATALOG:
        _take_in(client, examined, chain, aside)
    client.forget(plan.table_id)
    _publish(client, examined, up_to=None)
    after = client.catalog.get_ratified_commits(plan.table_id)
    return RecoveredTable(
        identifier=plan.identifier,
        taken=tuple(commit.version for commit in plan.taken),
        latest_version=after.latest_version,
        set_aside=directory if plan.sets_aside or plan.overtaken else None,
        warnings=explain(plan) if plan.missing_files or plan.lost else (),
    )


def _take_in(client: DeltaClient, examined: Examined, chain: Chain, aside: str | None) -> None:
    plan, store = examined.plan, examined.reader.store
    own_ids = tuple(record.txn_id for record in examined.own)
    if aside is not None:
        files = [own_file(examined.reader, record) for record in examined.own]
        copy_aside(store, aside, {file.name: file.data for file in files})
        # Before the commits are replaced: a checksum of a commit that is not kept contradicts the one that is.
        _move_aside(examined, aside, _checksums_of(examined, set(own_ids)))
    if not examined.is_cleaned:
        _publish(client, examined, up_to=plan.common_version)
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
            start=HistoryStart.AFTER_CLEANUP if examined.is_cleaned else HistoryStart.NEXT_VERSION,
        )
        client.catalog.take_in_commits(plan.table_id, history, after=plan.common_version, replaces=own_ids)
    if aside is not None:
        _move_aside(
            examined, aside, [*(rejected.name for rejected in plan.rejected), *_published_below(examined, chain)]
        )


def _set_overtaken_aside(examined: Examined, aside: str) -> None:
    """Protect commits that other ones have taken the place of; their checksums contradict those and go with them."""
    store, overtaken = examined.reader.store, examined.plan.overtaken
    staged = log_files.staged_commits_directory(examined.reader.location)
    copy_aside(store, aside, {one.name: store.read(f"{staged}/{one.name}") for one in overtaken})
    _move_aside(examined, aside, {one.known_from for one in overtaken})


def _published_below(examined: Examined, chain: Chain) -> list[str]:
    """Names of the catalog's own commits in ``_delta_log`` below a chain that begins with a checkpoint."""
    first = chain.links[0].proposal.version if examined.is_cleaned and chain.links else 0
    versions = [record.version for record in examined.own if record.version < first]
    return [examined.listing.published[version].name for version in versions if version in examined.listing.published]


def _publish(client: DeltaClient, examined: Examined, *, up_to: int | None) -> None:
    """Publish what the catalog has and ``_delta_log`` has not, up to a version that both agree on."""
    table_id = examined.plan.table_id
    pending = client.catalog.get_ratified_commits(table_id).unpublished
    publish_commits(
        examined.reader,
        commits=[commit for commit in pending if up_to is None or commit.version <= up_to],
        reached=lambda version: client.catalog.set_published_version(table_id, version),
    )


def _checksums_of(examined: Examined, txn_ids: Collection[str]) -> list[str]:
    """Names of the checksums that the given commits have left; those of others stay."""
    found = []
    for name, version in examined.listing.derived.items():
        if isinstance(parse_log_file(name), ChecksumFile) and version > examined.plan.common_version:
            stored = read_checksum(examined.reader.store, examined.reader.location, version)
            if stored is not None and stored.txn_id in txn_ids:
                found.append(name)
    return found


def _remove_from_log(examined: Examined, aside: str, *, first: int) -> None:
    """Set aside every file of the log that belongs to another history from version ``first`` on."""
    kept = set(_checksums_of(examined, {record.txn_id for record in examined.own}))
    names = [status.name for version, status in examined.listing.published.items() if version >= first]
    names += [name for name, version in examined.listing.derived.items() if version >= first and name not in kept]
    hint = read_hint(examined.reader.store, log_files.log_directory(examined.reader.location))
    if hint is not None and hint.version >= first:
        names.append(log_files.LAST_CHECKPOINT_FILE_NAME)
    _move_aside(examined, aside, names)


def _move_aside(examined: Examined, aside: str, names: Iterable[str]) -> None:
    """Copy files, prove the copies, and only then remove the files: newest first, so that the log never has a gap."""
    store, directory = examined.reader.store, log_files.log_directory(examined.reader.location)
    ordered = sorted(names, reverse=True)
    copy_aside(store, aside, {name: store.read(f"{directory}/{name}") for name in ordered})
    for name in ordered:
        store.delete(f"{directory}/{name}")
