"""RESTORE TABLE: make the state of an older version the next version, without reading or writing rows (protocol heading
"Action Reconciliation").

The history stays, so that a restore can itself be undone by a restore. While a restore runs, it holds the maintenance lease of
the table, because a concurrent VACUUM could delete files that it adds again; for a shallow clone, also those of the tables whose
files it reads.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CommitConflictError, IllegalCommitError, InvalidArgumentError, ObjectNotFoundError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.maintenance.clone_files import SourceLeases, leases_with_sources
from cm_delta_dagster.operations.plans import Plan
from cm_delta_dagster.operations.tables.missing_files import missing_files as find_missing_files
from cm_delta_dagster.operations.tables.missing_files import vectors_by_key
from cm_delta_dagster.protocol.actions.file_columns import removes_of, size_of, table_to_new_adds
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.commits.proposal_checks.changed_types import flaw_of_changed_types
from cm_delta_dagster.protocol.commits.proposal_checks.definition import flaw_of_definition
from cm_delta_dagster.protocol.commits.proposal_checks.features import flaw_of_features
from cm_delta_dagster.protocol.features.clustering import clustering_domain, stored_clustering_columns
from cm_delta_dagster.protocol.features.table_features import check_writable, is_catalog_managed
from cm_delta_dagster.protocol.log.restoration import (
    FileDifference,
    file_difference,
    restored_metadata,
    restored_protocol,
)
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from cm_delta_dagster.remedies import RepeatWithOption

_log = logging.getLogger(__name__)

OPERATION = "RESTORE"

_SHOWN = 5


class RestoreOutcome(StrEnum):
    """How a restore ended. A failure is an exception."""

    COMMITTED = "committed"
    NOTHING_TO_DO = "nothing_to_do"
    """The restored version is the latest one; no version was created."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RestorePlan(Plan["RestoreResult"]):
    """What :func:`restore` would commit.

    Attributes:
        current: the latest version.
        target: the version to restore.
        difference: the files to remove and to add, without the missing ones.
        missing: locations of files of ``target`` that storage no longer holds, in order. A data file counts as missing if its
            deletion vector is.
        parameters: what the commit records of the request.
        is_forced: whether the other files are restored if some are missing. The rows of the missing ones are lost.
    """

    current: Snapshot
    target: Snapshot
    difference: FileDifference
    missing: tuple[str, ...]
    parameters: Mapping[str, str]
    is_forced: bool = False

    def __repr__(self) -> str:
        return (
            f"RestorePlan(current={self.current.version}, target={self.target.version}, "
            f"num_removed_files={self.num_removed_files}, num_restored_files={self.num_restored_files}, "
            f"num_missing_files={len(self.missing)})"
        )

    @property
    def num_removed_files(self) -> int:
        return int(self.difference.removed.num_rows)

    @property
    def num_restored_files(self) -> int:
        return int(self.difference.added.num_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """The result of a restore.

    Attributes:
        version: the version that the restore committed, or the latest version if there was nothing to do.
        restored_version: the version whose state the table has now.
        num_missing_files: files that were left out because storage does not hold them.
    """

    outcome: RestoreOutcome
    version: int
    restored_version: int
    num_restored_files: int = 0
    num_removed_files: int = 0
    num_missing_files: int = 0
    restored_bytes: int = 0
    removed_bytes: int = 0
    retries: int = 0


@names_table
def plan_restore(
    table: Table, *, version: int | None = None, timestamp_ms: int | None = None, force: bool = False
) -> RestorePlan:
    """Compare the latest version with the one to restore, and look for its files in storage: the dry run of :func:`restore`.

    Args:
        version: the version to restore.
        timestamp_ms: in its place, a time in epoch milliseconds; the version of that time is restored.
        force: restore the other files if VACUUM or a failure has deleted files of that version, whose rows are lost.

    Raises:
        InvalidArgumentError: neither or both of ``version`` and ``timestamp_ms``.
        VersionNotFoundError: the table has no such version, or its log was cleaned.
        UnsupportedFeatureError: the table needs a feature that this client does not support for writing.
        IllegalCommitError: the catalog does not ratify the definition of the version, which is from before it checked commits.
    """
    if (version is None) == (timestamp_ms is None):
        number = "Neither a version nor a timestamp" if version is None else "Both a version and a timestamp"
        raise InvalidArgumentError(f"{number} to restore was given. Give one of them.")
    current = table.snapshot()
    target = table.snapshot(version=version, timestamp_ms=timestamp_ms)
    check_writable(current.protocol, current.identifier)
    difference = file_difference(current.files, target.files, location=table.location)
    _check_definition(current, target, keeps_files=difference.removed.num_rows < current.num_files)
    lost = find_missing_files(table.services.stores, difference.added, location=table.location)
    return RestorePlan(
        current=current,
        target=target,
        difference=FileDifference(removed=difference.removed, added=_without(difference.added, lost, table.location)),
        missing=tuple(sorted(lost)),
        parameters=_parameters(version, timestamp_ms),
        is_forced=force,
    )


@names_table
def restore(
    table: Table,
    *,
    version: int | None = None,
    timestamp_ms: int | None = None,
    force: bool = False,
    context: CommitProperties = NO_PROPERTIES,
) -> RestoreResult:
    """Commit the rows, schema and properties of an older version as the next version. Arguments as in :func:`plan_restore`.

    The protocol of the table is never lowered, and identity columns and column ids continue where they are. An append-only table is
    restored too.

    Raises:
        ObjectNotFoundError: storage does not hold all files of the version; nothing was committed.
        MaintenanceInProgressError: a maintenance run holds the lease of the table; nothing was committed.
        CommitConflictError: a concurrent commit changed the table; nothing was committed.
        InvalidArgumentError, VersionNotFoundError, UnsupportedFeatureError, IllegalCommitError: as :func:`plan_restore`.
    """
    with leases_with_sources(table, kind=MaintenanceKind.DATA_REORGANIZATION) as leases:
        attempts = context.with_defaults(table.services.context).max_attempts(
            table.services.settings.max_commit_attempts
        )
        for left in reversed(range(attempts)):
            plan = plan_restore(table, version=version, timestamp_ms=timestamp_ms, force=force)
            if plan.missing and not plan.is_forced:
                raise _missing_error(plan)
            leases.check()
            try:
                return _commit(table, plan, leases, context)
            except CommitConflictError as error:
                # The state to restore does not depend on the commits that came first.
                if not left:
                    raise
                _log.info("RESTORE of %s is planned again: %s", table.identifier, error)
    raise AssertionError("there is at least one attempt")


def _check_definition(current: Snapshot, target: Snapshot, *, keeps_files: bool) -> None:
    """Refuse a version whose definition the catalog of the table would refuse. Raises IllegalCommitError."""
    if not is_catalog_managed(current.protocol):
        return
    metadata = restored_metadata(current.metadata, target.metadata)
    protocol = restored_protocol(current.protocol, target.protocol)
    flaw = flaw_of_definition(metadata) or flaw_of_features(metadata, protocol)
    if flaw is None and keeps_files:
        before = current.metadata, current.protocol
        flaw = flaw_of_changed_types(before, (metadata, protocol), operation=OPERATION)
    if flaw is not None:
        raise IllegalCommitError(
            f"Version {target.version} of {current.identifier} cannot be restored: {flaw}. Nothing was written. Other clients could"
            " not read the table afterwards. Restore another version, or read the rows of this one and write them."
        )


@names_table
def apply_restore(table: Table, plan: RestorePlan, *, context: CommitProperties = NO_PROPERTIES) -> RestoreResult:
    """Commit what ``plan`` says.

    Raises:
        CommitConflictError: the table has another latest version than when the plan was made; nothing was committed.
        ObjectNotFoundError: storage no longer holds a file that the plan restores, or the plan lacks files and is not forced.
        CmDeltaError: as :func:`restore`.
    """
    if plan.missing and not plan.is_forced:
        raise _missing_error(plan)
    with leases_with_sources(table, kind=MaintenanceKind.DATA_REORGANIZATION) as leases:
        latest = table.snapshot().version
        if latest != plan.current.version:
            raise CommitConflictError(
                f"RESTORE of {table.identifier} was planned for version {plan.current.version}, and the latest version is "
                f"{latest}. Nothing was committed. Make a new plan."
            )
        lost = find_missing_files(table.services.stores, plan.difference.added, location=table.location)
        if lost:
            raise _missing_error(replace(plan, missing=tuple(sorted({*plan.missing, *lost}))))
        leases.check()
        return _commit(table, plan, leases, context)


def _parameters(version: int | None, timestamp_ms: int | None) -> dict[str, str]:
    return {"version": str(version)} if timestamp_ms is None else {"timestamp": utc_text(timestamp_ms)}


def _commit(table: Table, plan: RestorePlan, leases: SourceLeases, context: CommitProperties) -> RestoreResult:
    if plan.current.version == plan.target.version:
        return RestoreResult(
            outcome=RestoreOutcome.NOTHING_TO_DO,
            version=plan.current.version,
            restored_version=plan.target.version,
        )
    transaction = table.start_transaction(
        plan.current, operation=OPERATION, parameters=plan.parameters, context=context
    )
    leases.fence(transaction)
    _fill(transaction, plan)
    committed = transaction.commit()
    return RestoreResult(
        outcome=RestoreOutcome.COMMITTED,
        version=committed.version,
        restored_version=plan.target.version,
        num_restored_files=plan.num_restored_files,
        num_removed_files=plan.num_removed_files,
        num_missing_files=len(plan.missing),
        restored_bytes=size_of(plan.difference.added),
        removed_bytes=size_of(plan.difference.removed),
        retries=committed.retries,
    )


def _fill(transaction: Transaction, plan: RestorePlan) -> None:
    difference = plan.difference
    transaction.read_whole_table()
    protocol = restored_protocol(plan.current.protocol, plan.target.protocol)
    metadata = restored_metadata(plan.current.metadata, plan.target.metadata)
    if protocol != plan.current.protocol:
        transaction.set_protocol(protocol)
    # Metadata, even if it is the same, makes each concurrent commit of rows a conflict; then the restore is planned again.
    transaction.set_metadata(metadata)
    clustering = stored_clustering_columns(plan.target.domains)
    if clustering != stored_clustering_columns(plan.current.domains):
        transaction.set_clustering(clustering_domain(clustering))
    transaction.remove_files(removes_of(difference.removed, data_change=True))
    transaction.add_files(replace(file, data_change=True) for file in table_to_new_adds(difference.added))
    after = plan.current.num_files - difference.removed.num_rows + difference.added.num_rows
    size = plan.current.size_bytes - size_of(difference.removed) + size_of(difference.added)
    transaction.metrics.update(
        tableSizeAfterRestore=str(size),
        numOfFilesAfterRestore=str(after),
        numRemovedFiles=str(difference.removed.num_rows),
        numRestoredFiles=str(difference.added.num_rows),
        removedFilesSize=str(size_of(difference.removed)),
        restoredFilesSize=str(size_of(difference.added)),
    )


def _without(files: pa.Table, lost: set[str], location: str) -> pa.Table:
    """``files`` without those that are lost, or whose deletion vector is."""
    if not lost:
        return files
    gone = pc.is_in(file_keys(location, files["path"]), value_set=pa.array(sorted(lost), pa.string()))
    kept = files.filter(pc.invert(gone))
    vectors = [not vectors_by_key(location, kept.slice(row, 1)).keys().isdisjoint(lost) for row in range(kept.num_rows)]
    return kept.filter(pc.invert(pa.array(vectors, pa.bool_())))


def _missing_error(plan: RestorePlan) -> ObjectNotFoundError:
    shown = ", ".join(plan.missing[:_SHOWN]) + (", ..." if len(plan.missing) > _SHOWN else "")
    return ObjectNotFoundError(
        f"Version {plan.target.version} of {plan.current.identifier} cannot be restored: storage no longer holds "
        f"{len(plan.missing)} of its files ({shown}); VACUUM has deleted them, or they were lost. Nothing was committed. Restore "
        "the files from a backup, or choose a later version. The version can also be restored without their rows."
    ).with_remedy(RepeatWithOption(option="force"))
