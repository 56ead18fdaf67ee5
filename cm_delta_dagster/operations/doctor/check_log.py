"""The log as a whole, for ``doctor``: what lies above the latest version, the hint, the catalog's definition.

Nothing is changed here.
"""

from collections.abc import Iterable

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
from cm_delta_dagster.operations.doctor.commit_copies import read_or_none
from cm_delta_dagster.operations.doctor.findings import Finding, Problem, Repair, Severity
from cm_delta_dagster.operations.doctor.observation import Observation, observe
from cm_delta_dagster.operations.doctor.state_check import differ
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.log import last_checkpoint, log_files
from cm_delta_dagster.protocol.log.action_reconciliation import TableState
from cm_delta_dagster.protocol.log.log_files import CommitFile, CompactionFile, LastCheckpointFile, LogFile

_SHOWN = 5
"""Files that one finding names."""


def missing_storage(table: Table, seen: Observation) -> Finding:
    """The one finding about a table whose log is gone altogether."""
    return Finding(
        severity=Severity.ERROR,
        problem=Problem.STORAGE_MISSING,
        where=log_files.log_directory(table.location),
        message=str(storage_missing(table.location, seen.published)),
    )


def as_readers_load(table: Table, seen: Observation, findings: list[Finding]) -> TableState | None:
    """The latest version as a new client builds it; None, with a finding, where it cannot.

    Raises:
        TableNotFoundError: the table was dropped.
        StorageError, CatalogUnavailableError: storage or catalog cannot be asked.
    """
    try:
        loaded = load_state(table.reader, version=seen.latest, ratified=seen.ratified.commits).state
        _ = loaded.files.num_files  # The files are reconciled on demand.
        table.snapshot()  # Whether this client may read the table at all.
        return loaded
    except (TableNotFoundError, CatalogUnavailableError):
        raise
    except CmDeltaError as error:
        if isinstance(error, StorageError) and not isinstance(error, ObjectNotFoundError | TableStorageMissingError):
            raise
        where = "the latest version"
        findings.append(Finding(severity=Severity.ERROR, problem=Problem.UNREADABLE, where=where, message=str(error)))
        return None


def above_latest(table: Table, seen: Observation) -> Iterable[Finding]:
    """Commits above the catalog's latest version, whether they continue its history or not, and files that are no commits."""
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
            f"these commits. `cm-delta recover {table.identifier}` shows a plan that takes them in; nothing is changed here.",
            version=first,
        )
    unconnected = _commits_above(table, seen).difference(chain)
    if unconnected:
        yield Finding(
            severity=Severity.ERROR,
            problem=Problem.CATALOG_BEHIND,
            where=", ".join(log_files.commit_file_name(version) for version in sorted(unconnected)[:_SHOWN])
            + (" and others" if len(unconnected) > _SHOWN else ""),
            message=f"they are commits with a transaction and a time of their own, above the catalog's latest version "
            f"{seen.latest_after}, which do not follow the commits that it knows: the catalog is older than its storage, and the "
            f"commits in between were removed by log cleanup or lost. `cm-delta recover {table.identifier}` shows what can be "
            "taken in; nothing is changed here.",
            version=min(unconnected),
        )
    for name, version in above.items():
        is_commit = isinstance(seen.log[name], CommitFile)
        if version in chain or (is_commit and version in unconnected):
            continue
        if is_commit:
            message = "it does not continue the table's history and blocks that version. If it is nobody's commit, move it away."
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
    """The published versions above the latest one that are commits of a transaction which the catalog does not know.

    The version that follows where commits are made by creating their file is left out: clients record it, unless it cannot be
    a commit.
    """
    directory = log_files.log_directory(table.location)
    recorded = -1 if seen.ratified.commit_policy.through_catalog else seen.latest_after + 1
    known = {record.txn_id for record in seen.records.values()}
    found: set[int] = set()
    for version in seen.versions(CommitFile):
        if version <= seen.latest_after or version == recorded:
            continue
        data = read_or_none(table, f"{directory}/{log_files.commit_file_name(version)}")
        try:
            info = None if data is None else commit_json.decode_commit_info(data)
        except CorruptLogError:
            continue
        if info is not None and info.txn_id and info.in_commit_timestamp is not None and info.txn_id not in known:
            found.add(version)
    return frozenset(found)


def _chain_above(table: Table, seen: Observation) -> range:
    """The published versions directly above the latest one that are commits with a txnId of their own and growing times.

    Empty where commits are made by creating their file: clients record those, unless they cannot be commits.
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
    """The latest version as a new client builds it, with checkpoints and compactions, against the proven state."""
    different = differ(loaded, proven)
    if different:
        yield Finding(
            severity=Severity.ERROR,
            problem=Problem.STATE_DIFFERS,
            where=f"version {seen.latest}",
            message=f"checkpoints and compactions give another {', '.join(different)} than the commits one by one.",
            version=seen.latest,
        )


def definition_differs(table: Table, proven: TableState) -> Iterable[Finding]:
    """What the catalog serves as metadata and protocol, against the proven state of the latest version."""
    entry = table.catalog.load_table_by_id(table.table_id)
    if entry.ratified.latest_version != proven.version:
        return  # Somebody has committed since; the next examination sees it.
    definition = entry.definition
    if definition is None:
        message = "the catalog has no metadata and protocol that can be read; its readers take them from the log."
        yield _definition(Severity.NOTE, message, proven)
    elif (definition.metadata, definition.protocol) != (proven.metadata, proven.protocol):
        message = "the catalog serves other metadata or another protocol than the commits set."
        yield _definition(Severity.ERROR, message, proven)


def _definition(severity: Severity, message: str, proven: TableState) -> Finding:
    return Finding(
        severity=severity,
        problem=Problem.DEFINITION_DIFFERS,
        where=f"version {proven.version}",
        message=message,
        version=proven.version,
        repair=Repair.TELL_DEFINITION,
    )


def wrong_hint(table: Table, seen: Observation) -> Iterable[Finding]:
    """``_last_checkpoint``, where it cannot be understood or points to nothing."""
    name = log_files.LAST_CHECKPOINT_FILE_NAME
    if name not in seen.log:
        return
    data = read_or_none(table, f"{log_files.log_directory(table.location)}/{name}")
    if data is None:
        return
    hint = last_checkpoint.decode(data)
    is_needed = False
    if hint is None:
        message = "it cannot be understood or fails its own checksum."
    elif hint.version > seen.latest_after:
        message = f"it points to version {hint.version}, above the catalog's latest {seen.latest_after}."
        is_needed = hint.version in seen.checkpoints()  # By the commits that the catalog may take in.
    elif hint.version <= seen.latest and hint.version not in seen.checkpoints():
        # Written after the listing, perhaps: the hint follows its checkpoint.
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
        message=f"{message} Readers go without it.",
        repair=None if is_needed else Repair.REMOVE_HINT,
        files=() if is_needed else (name,),
    )
