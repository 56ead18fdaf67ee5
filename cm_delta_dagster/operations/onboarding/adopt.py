"""ADOPT: bring an existing table of a path under the catalog, without copying or rewriting data files.

One commit adds the feature ``catalogManaged`` with what it requires. It is created put-if-absent, so that of this client and
the writers that the table had, one makes the next version; afterwards these writers are refused by the protocol. Then the catalog
registers the table. A client that fails before the commit leaves the table as it was. One that fails after it leaves a table that
no catalog has registered and that no client can write to; the commit names the catalog, and adopting the table again registers it.
"""

import logging
import typing
from dataclasses import replace

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.recovery import AdoptedState, AdoptedTable, CommitHistory
from cm_delta_dagster.catalog.tables import RecordedDefinition, TableEntry, TableIdentifier
from cm_delta_dagster.client.backoff import attempts, attempts_without_jitter
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.commits.proposal import ProposalRules, prepare_commit
from cm_delta_dagster.client.commits.put_if_absent import create_commit, found_proposal
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.snapshots.commit_sources import published_source
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.warehouse import write_table_marker
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitRetriesExceededError,
    CommitStateUnknownError,
    RecoveryError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.onboarding.adopt_plan import (
    ADOPTED_BY_TAG,
    AdoptDraft,
    AdoptPlan,
    AdoptState,
    draft_adoption,
)
from cm_delta_dagster.operations.onboarding.log_creation import create_resolved
from cm_delta_dagster.operations.onboarding.parquet_folder import (
    NO_OPTIONS,
    FolderOptions,
    convert,
)
from cm_delta_dagster.operations.recovery.table_places import record_clones
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.log.markers import MarkedState

_log = logging.getLogger(__name__)

OPERATION = "ADOPT TABLE"


def adopt(
    client: DeltaClient,
    *,
    location: str,
    identifier: TableIdentifier | str,
    folder: FolderOptions = NO_OPTIONS,
    context: CommitProperties = NO_PROPERTIES,
    planned: AdoptPlan | None = None,
) -> Table:
    """Bring the table at ``location`` under the catalog, under the name ``identifier``. A repeated call completes what is missing.

    Args:
        planned: a plan for these arguments. Without one, commits of other writers meanwhile are adopted too.

    Raises:
        RecoveryError: the location does not have what it had when the plan was made; nothing was changed.
        CmDeltaError: as :func:`plan_adopt`; nothing was changed.
        StoreNotSupportedError: the store cannot create a file exclusively; nothing was changed.
        CommitRetriesExceededError: other writers committed before each attempt; nothing was changed.
        CommitStateUnknownError: storage or catalog did not answer. Adopt the table again.
    """
    name, settings = TableIdentifier.of(identifier), client.settings
    for _ in attempts(settings, settings.max_commit_attempts):
        draft = draft_adoption(client, location, name, folder, planned=planned)
        plan = draft.plan
        if plan.state is AdoptState.ADOPTED:
            if draft.sources:  # The tables whose files it names may have been adopted since.
                client.recovery.record_sources(plan.table_id, draft.sources)
            record_clones(client, {plan.table_id: plan.location})
            return client.table(name)
        if draft.files is not None:
            tags = {**context.tags, ADOPTED_BY_TAG: client.registry.identity().catalog_id}
            if not convert(client, draft.files, table_id=plan.table_id, context=replace(context, tags=tags)):
                continue
        elif draft.snapshot is not None and not _commit(client, draft, draft.snapshot, context):
            continue
        entry = _register(client, draft, name)
        client.forget(entry.table_id)
        # After the registration: a table that is adopted at the same time finds this one, or is found.
        record_clones(client, {entry.table_id: entry.location})
        if draft.sources and not client.registry.sources_of(entry.table_id):
            _log.warning(
                "%s names files outside of its directory %s, of no table of this catalog, which does not keep them from being "
                "deleted. If their table is to come under this catalog, adopt it too.",
                name,
                plan.location,
            )
        return client.open(entry)
    raise CommitRetriesExceededError(
        f"{plan.location} was not adopted: other writers committed before each of {settings.max_commit_attempts} attempts. Nothing "
        "was changed. Stop them, or adopt the table again."
    )


class _Unused:
    """The committer of a transaction that is committed by creating its file."""

    def commit(self, transaction: Transaction) -> typing.NoReturn:
        raise AssertionError("not reached")


def _commit(client: DeltaClient, draft: AdoptDraft, snapshot: Snapshot, context: CommitProperties) -> bool:
    """Create the commit that makes the table catalog-managed. Returns False if another writer has made that version."""
    assert draft.protocol is not None and draft.metadata is not None
    tags = {**context.tags, ADOPTED_BY_TAG: client.registry.identity().catalog_id}
    transaction = Transaction(
        snapshot=snapshot,
        committer=_Unused(),
        operation=OPERATION,
        parameters={"name": draft.plan.name},
        context=replace(context, tags=tags).with_defaults(client.context),
    )
    transaction.set_protocol(draft.protocol)
    transaction.set_metadata(draft.metadata)
    store = client.stores.store_for(snapshot.location)
    rules = ProposalRules(
        mode=CommitMode.PUT_IF_ABSENT, now_ms=client.now_ms(), published_version=None, copied_content_bytes=0
    )
    prepared = prepare_commit(transaction, snapshot, store=store, rules=rules)
    return create_resolved(
        client,
        lambda: (
            create_commit(store, location=snapshot.location, proposal=prepared.proposal, data=prepared.data) is not None
        ),
        what=f"version {prepared.version} of {snapshot.location}",
        consequence="Either the table is as it was, or it is catalog-managed and not registered. Once storage answers again, adopt "
        "it again.",
        txn_id=transaction.txn_id,
        version=prepared.version,
    )


def _register(client: DeltaClient, draft: AdoptDraft, name: TableIdentifier) -> TableEntry:
    """Register the table with the commit in its log that adopted it. Repeating it is safe."""
    plan = draft.plan
    store, version = client.stores.store_for(plan.location), plan.adopted_version
    proposal = found_proposal(version, store.read(published_source(plan.location, version).location))
    assert proposal.metadata is not None and proposal.protocol is not None
    definition = RecordedDefinition(
        metadata=proposal.metadata,
        protocol=proposal.protocol,
        version=version,
        in_commit_timestamp=proposal.summary.in_commit_timestamp,
    )
    table = AdoptedTable(
        table_id=plan.table_id,
        identifier=name,
        location=plan.location,
        state=AdoptedState.ACTIVE,
        history=CommitHistory(
            proposals=(proposal,),
            published_version=version,
            definition=definition,
            # The commit that adopts a table changes only its metadata and protocol.
            row_id_mark=None if draft.snapshot is None else row_tracking.stated_high_water_mark(draft.snapshot.domains),
        ),
        is_external=True,
        sources=draft.sources,
    )
    entry = _insert(client, table)
    if entry.identifier != name:
        raise TableAlreadyExistsError(
            f"{plan.location} was not adopted as {name}: another client has completed the adoption, and it is the table "
            f"{entry.identifier} of this catalog. Rename the table."
        )
    write_table_marker(
        store,
        plan.location,
        table_id=plan.table_id,
        identifier=name,
        catalog_id=client.registry.identity().catalog_id,
        state=MarkedState.ACTIVE,
    )
    return entry


def _insert(client: DeltaClient, table: AdoptedTable) -> TableEntry:
    """The entry of the table, which another client may have inserted, and under another name."""
    last: CatalogUnavailableError | None = None
    for _ in attempts_without_jitter(client.settings, client.settings.max_resolve_attempts):
        try:
            entry = client.recovery.adopt_table(table)
        except CatalogUnavailableError as error:
            last = error
            continue
        except TableAlreadyExistsError as error:
            entry = _registered(client, table)  # Another client may have completed the adoption at the same time.
            if entry is not None:
                return entry
            raise TableAlreadyExistsError(
                f"{error} {table.location} is catalog-managed now and has no name. Adopt it again under another name."
            ) from error
        except RecoveryError:
            # Another client may have registered the table and made further commits.
            entry = _registered(client, table)
            if entry is None:
                raise
        assert entry is not None, "an active table has an entry"
        return entry
    raise CommitStateUnknownError(
        f"The catalog did not answer whether {table.identifier} was registered ({last}). The table at {table.location} is "
        "catalog-managed. Once the catalog answers again, adopt it again.",
        version=table.history.proposals[-1].version,
    ) from last


def _registered(client: DeltaClient, table: AdoptedTable) -> TableEntry | None:
    """The entry of the table; None if the catalog does not have it at that location."""
    try:
        entry = client.registry.load_table_by_id(table.table_id)
    except TableNotFoundError:
        return None
    return entry if entry.location == table.location else None
