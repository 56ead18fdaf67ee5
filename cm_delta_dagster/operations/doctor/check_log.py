"""Checks the log as a whole, for ``doctor``: files above the latest version, ``_last_checkpoint``, the definition in the catalog.

Changes nothing.
"""

from collections.abc import Iterable

from cm_delta_dagster.advice import advice
from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.client.snapshots.log_reader import load_state, storage_missing
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CmDeltaError,
    CorruptLogError,
    ObjectNotFoundError,
    StorageError,
    TableNotFoundError,
    TableStorageMissingError,
)
from cm_delta_dagster.operations.doctor.check_state import differing_parts
from cm_delta_dagster.operations.doctor.commit_copies import read_copies, read_or_none
from cm_delta_dagster.operations.doctor.findings import Finding, Findings, Problem, Repair, Severity, text_of
from cm_delta_dagster.operations.doctor.observation import Observation, observe
from cm_delta_dagster.operations.doctor.take_back import plan_take_back, take_back_advice
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.log import last_checkpoint, log_files
from cm_delta_dagster.protocol.log.action_reconciliation import TableState
from cm_delta_dagster.protocol.log.log_files import CommitFile, CompactionFile, LastCheckpointFile, LogFile
from cm_delta_dagster.remedies import RecoverTable

_SHOWN = 5
"""Files that one finding names."""


def missing_storage(table: Table, seen: Observation) -> Finding:
    """The finding for a table whose log is absent; no other check is possible."""
    return Finding(
        severity=Severity.ERROR,
        problem=Problem.STORAGE_MISSING,
        where=log_files.log_directory(table.location),
        message=str(storage_missing(table.location, seen.published)),
    )


def as_readers_load(table: Table, seen: Observation, findings: Findings) -> TableState | None:
    """Load the latest version as a new client does; None, with a finding, if that fails.

    Raises:
        TableNotFoundError: the table was dropped.
        StorageError, CatalogUnavailableError: a request to storage or catalog failed.
    """
    try:
        loaded = load_state(table.reader, version=seen.latest, ratified=seen.ratified.commits).state
        _ = loaded.files.num_files  # Reconciles the files, which is done on demand.
        table.snapshot()  # Fails if this client does not support the table.
        return loaded
    except (TableNotFoundError, CatalogUnavailableError):
        raise
    except CmDeltaError as error:
        if isinstance(error, StorageError) and not isinstance(error, ObjectNotFoundError | TableStorageMissingError):
            raise
        message, repair, version = text_of(error, table.identifier), None, None
        if isinstance(error, CorruptLogError) and error.action is not None:
            version = error.version
            known = any(finding.version == version and finding.repair is Repair.TAKE_BACK for finding in findings)
            record = None if version is None or known else seen.records.get(version)
            data = None if record is None else _ratified_bytes(table, seen, record)
            if record is not None and data is not None:
                superseding = plan_take_back(data, record)
                message += take_back_advice(table.identifier, record.version, superseding)
                repair = None if superseding is None else Repair.TAKE_BACK
        where = "the latest version" if repair is None else f"version {version}"
        findings.add(Severity.ERROR, Problem.UNREADABLE, where, message, version, repair)
        return None


def _ratified_bytes(table: Table, seen: Observation, record: RatifiedCommit) -> bytes | None:
    served = next((commit for commit in seen.ratified.commits if commit.version == record.version), None)
    return read_copies(table, record, staged_names=seen.staged, served=served).proven


def above_latest(table: Table, seen: Observation) -> Iterable[Finding]:
    """Report files above the catalog's latest version: commits that continue its history, other commits, and other files."""
    above = {name: version for name, file in seen.log.items() if (version := _version_of(file)) > seen.latest_after}
    chain = _chain_above(table, seen)
    if chain:
        first, last = chain.start, chain.stop - 1
        yield Finding(
            severity=Severity.ERROR,
            problem=Problem.CATALOG_BEHIND,
            where=f"versions {first} to {last}" if last > first else f"version {first}",
            message=f"the log holds commits that continue the table, and the catalog's latest version is {seen.latest_after}: "
            "the catalog is older than its storage, as after it was restored from a backup. Readers of the catalog do not see "
            f"these commits. {advice(RecoverTable(table=str(table.identifier)))}",
            version=first,
        )
    unconnected = _commits_above(table, seen).difference(chain)
    if unconnected:
        yield Finding(
            severity=Severity.ERROR,
            problem=Problem.CATALOG_BEHIND,
            where=", ".join(log_files.commit_file_name(version) for version in sorted(unconnected)[:_SHOWN])
            + (" and others" if len(unconnected) > _SHOWN else ""),
            message=f"these commits are above the catalog's latest version {seen.latest_after} and do not directly follow it: the "
            "catalog is older than its storage, and the commits in between were removed by log cleanup or lost. "
            f"{advice(RecoverTable(table=str(table.identifier)))}",
            version=min(unconnected),
        )
    for name, version in above.items():
        is_commit = isinstance(seen.log[name], CommitFile)
        if version in chain or (is_commit and version in unconnected):
            continue
        if is_commit:
            message = "it does not continue the history of the table and blocks that version. Move it away if no writer needs it."
        else:
            message = "readers ignore it."
        yield Finding(
            severity=Severity.ERROR if is_commit else Severity.WARNING,
            problem=Problem.ABOVE_LATEST,
            where=name,
            message=f"the catalog's latest version is {seen.latest_after}; {message}",
            version=version,
        )


def _version_of(file: LogFile) -> int:
    if isinstance(file, LastCheckpointFile):
        return -1
    return file.end if isinstance(file, CompactionFile) else file.version


def _commits_above(table: Table, seen: Observation) -> frozenset[int]:
    """The published versions above the latest one that are commits of a transaction without a record in the catalog.

    In mode put_if_absent the next version is left out, since clients record it.
    """
    directory = log_files.log_directory(table.location)
    recorded = -1 if seen.ratified.commit_policy.through_catalog else seen.latest_after + 1
    known = {record.txn_id for record in seen.records.values()}
    unrecorded: set[int] = set()
    for version in seen.versions(CommitFile):
        if version <= seen.latest_after or version == recorded:
            continue
        data = read_or_none(table, f"{directory}/{log_files.commit_file_name(version)}")
        try:
            info = None if data is None else commit_json.decode_commit_info(data)
        except CorruptLogError:
            continue
        if info is not None and info.txn_id and info.in_commit_timestamp is not None and info.txn_id not in known:
            unrecorded.add(version)
    return frozenset(unrecorded)


def _chain_above(table: Table, seen: Observation) -> range:
    """The published versions directly above the latest one that are commits with unknown txnIds and increasing timestamps.

    Empty in mode put_if_absent, since clients record such commits.
    """
    if not seen.ratified.commit_policy.through_catalog:
        return range(0)
    record = seen.records.get(seen.latest_after)
    time = -1 if record is None else record.in_commit_timestamp
    known = {record.txn_id for record in seen.records.values()}
    directory = log_files.log_directory(table.location)
    version = seen.latest_after
    listed = seen.versions(CommitFile)
    while version + 1 in listed:
        data = read_or_none(table, f"{directory}/{log_files.commit_file_name(version + 1)}")
        try:
            info = None if data is None else commit_json.decode_commit(data, version=version + 1).commit_info
        except CorruptLogError:
            break
        if info is None or not info.txn_id or info.txn_id in known or (info.in_commit_timestamp or -1) <= time:
            break
        time = info.in_commit_timestamp or -1
        version += 1
    return range(seen.latest_after + 1, version + 1)


def state_differs(seen: Observation, loaded: TableState, proven: TableState) -> Iterable[Finding]:
    """Compare the latest version as a new client loads it, with checkpoints and compactions, with the proven state."""
    different = differing_parts(loaded, proven)
    if different:
        yield Finding(
            severity=Severity.ERROR,
            problem=Problem.STATE_DIFFERS,
            where=f"version {seen.latest}",
            message=f"checkpoints and compactions give another {', '.join(different)} than the replayed commits.",
            version=seen.latest,
        )


def definition_differs(table: Table, proven: TableState) -> Iterable[Finding]:
    """Yield a finding if metadata or protocol in the catalog differ from ``proven``, the state of the latest version."""
    entry = table.services.registry.load_table_by_id(table.table_id)
    if entry.ratified.latest_version != proven.version:
        return  # There is a newer commit; the next check covers it.
    definition = entry.definition
    if definition is None:
        message = "metadata and protocol in the catalog cannot be read; readers take them from the log."
        yield _definition(Severity.NOTE, message, proven)
    elif (definition.metadata, definition.protocol) != (proven.metadata, proven.protocol):
        message = "metadata or protocol in the catalog differ from the commits."
        yield _definition(Severity.ERROR, message, proven)


def _definition(severity: Severity, message: str, proven: TableState) -> Finding:
    return Finding(
        severity=severity,
        problem=Problem.DEFINITION_DIFFERS,
        where=f"version {proven.version}",
        message=message,
        version=proven.version,
        repair=Repair.UPDATE_DEFINITION,
    )


def wrong_hint(table: Table, seen: Observation) -> Iterable[Finding]:
    """Report ``_last_checkpoint`` if it cannot be parsed or names a checkpoint that does not exist."""
    name = log_files.LAST_CHECKPOINT_FILE_NAME
    if name not in seen.log:
        return
    data = read_or_none(table, f"{log_files.log_directory(table.location)}/{name}")
    if data is None:
        return
    hint = last_checkpoint.decode(data)
    is_needed = False
    if hint is None:
        message = "it cannot be parsed or fails its own checksum."
    elif hint.version > seen.latest_after:
        message = f"it points to version {hint.version}, above the catalog's latest {seen.latest_after}."
        is_needed = hint.version in seen.checkpoints()  # By commits that recovery may record.
    elif hint.version <= seen.latest and hint.version not in seen.checkpoints():
        # It may have been written after the listing: writers write the hint after its checkpoint.
        is_newest = hint.version > max(seen.checkpoints(), default=-1)
        if is_newest and hint.version in observe(table).checkpoints():
            return
        message = f"it points to a checkpoint of version {hint.version}, which is not there."
    else:
        return
    yield Finding(
        severity=Severity.WARNING,
        problem=Problem.HINT_WRONG,
        where=name,
        message=f"{message} Readers ignore it.",
        repair=None if is_needed else Repair.REMOVE_HINT,
        files=() if is_needed else (name,),
    )
