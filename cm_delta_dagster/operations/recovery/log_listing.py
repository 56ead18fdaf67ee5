"""Lists a log and finds staged commits, lost versions and missing files above a known history. Changes nothing."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.log_reader import read_checksum, read_hint
from cm_delta_dagster.operations.recovery.commit_chain import (
    Chain,
    CommitFileContent,
    Link,
    RefusedError,
    describe_commit,
)
from cm_delta_dagster.operations.recovery.plan import LostCommit, OvertakenCommit, StagedCandidate
from cm_delta_dagster.protocol.actions.paths import resolve_path
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.log_files import (
    ChecksumFile,
    CommitFile,
    CompactionFile,
    LastCheckpointFile,
    StagedCommitFile,
    parse_log_file,
)
from cm_delta_dagster.storage.other_names import sizes_of
from cm_delta_dagster.storage.store import ObjectStatus, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryListings:
    """One listing of ``_delta_log`` and one of ``_staged_commits``.

    Attributes:
        published: commits by version.
        derived: name and version of checksums, checkpoints and compactions; the last version of a compaction.
    """

    published: Mapping[int, ObjectStatus]
    derived: Mapping[str, int]
    staged: tuple[ObjectStatus, ...]


def list_log(store: Store, location: str) -> DirectoryListings:
    """The files of a table's log. Raises StorageError."""
    published: dict[int, ObjectStatus] = {}
    derived: dict[str, int] = {}
    for status in store.list_from(log_files.log_directory(location)):
        match parse_log_file(status.name):
            case CommitFile(version=version):
                published[version] = status
            case CompactionFile(end=end):
                derived[status.name] = end
            case None | LastCheckpointFile() | StagedCommitFile():
                continue
            case file:
                derived[status.name] = file.version
    staged = tuple(store.list_from(log_files.staged_commits_directory(location)))
    return DirectoryListings(published=published, derived=derived, staged=staged)


def above(versions: Iterable[int], version: int) -> list[int]:
    """Return the versions greater than ``version``, ascending."""
    return sorted(other for other in versions if other > version)


def staged_candidates(
    reader: CommitReader,
    chain: Chain,
    listing: DirectoryListings,
    *,
    chosen: Collection[str],
    known: Collection[str],
    holds: Mapping[str, str],
) -> tuple[tuple[StagedCandidate, ...], tuple[LostCommit, ...]]:
    """Find staged files above the chain, and versions above it of which no copy exists.

    Files that are ``chosen`` and follow the chain are appended to it.

    Args:
        known: ``txnId`` of commits that the catalog has: their staged files are copies or earlier commit attempts.
        holds: by ``txnId``, the ids of the holds that the catalog has. Without evidence that they were ratified, their files
            are not recorded: readers would see rows that wait, or were discarded.
    """
    end = chain.version
    recorded = {*known, *(link.proposal.summary.txn_id for link in chain.links)}
    evidence_by_version = _evidence_by_version(reader, listing, end)
    candidates: list[StagedCandidate] = []
    for status in sorted(listing.staged, key=lambda status: (status.name not in chosen, status.name)):
        file = parse_log_file(status.name)
        if not isinstance(file, StagedCommitFile) or file.version <= end:
            continue
        content = CommitFileContent.read(reader.store, status, file.version)
        candidate = _candidate(
            chain, content, take=status.name in chosen, evidence_by_version=evidence_by_version, holds=holds
        )
        if candidate.commit is None or candidate.commit.txn_id not in recorded:
            candidates.append(candidate)
    copied = {(candidate.version, candidate.commit.txn_id) for candidate in candidates if candidate.commit is not None}
    lost = tuple(
        source
        for version, source in sorted(evidence_by_version.items())
        if (version, source.txn_id) not in copied
        and (source.txn_id is not None or version not in {v for v, _ in copied})
    )
    return tuple(sorted(candidates, key=lambda candidate: candidate.name)), lost


def overtaken_commits(
    reader: CommitReader,
    listing: DirectoryListings,
    records: Mapping[int, RatifiedCommit],
    *,
    up_to: int,
    known: Collection[str],
) -> tuple[OvertakenCommit, ...]:
    """Find staged commits up to version ``up_to`` that the catalog does not have although a version checksum names them.

    Args:
        known: ``txnId`` of commits that the catalog has, or that were set aside.
    """
    overtaken: list[OvertakenCommit] = []
    for status in listing.staged:
        file = parse_log_file(status.name)
        if not isinstance(file, StagedCommitFile) or file.version > up_to:
            continue
        record, checksum_name = records.get(file.version), log_files.checksum_file_name(file.version)
        if record is None or record.file_name == status.name or checksum_name not in listing.derived:
            continue
        stored = read_checksum(reader.store, reader.location, file.version)
        if stored is None or stored.txn_id is None or stored.txn_id in known:
            continue
        content = CommitFileContent.read(reader.store, status, file.version)
        try:
            commit = describe_commit(content)
        except RefusedError:
            continue  # Incomplete: its writer was interrupted.
        if commit.txn_id == stored.txn_id:
            overtaken.append(OvertakenCommit(name=status.name, known_from=checksum_name, commit=commit))
    return tuple(overtaken)


def _candidate(
    chain: Chain,
    content: CommitFileContent,
    *,
    take: bool,
    evidence_by_version: Mapping[int, LostCommit],
    holds: Mapping[str, str],
) -> StagedCandidate:
    problem = None
    taken = False
    try:
        commit = describe_commit(content)
    except RefusedError as error:
        return StagedCandidate(name=content.name, version=content.version, commit=None, problem=str(error))
    source = evidence_by_version.get(content.version)
    evidence = ""
    if source is not None and source.txn_id == commit.txn_id:
        evidence = f"{source.known_from} was written after this commit was ratified."
    hold_id = holds.get(commit.txn_id)
    try:
        if hold_id is not None and not evidence:
            problem = f"it is the held commit {hold_id}. Ratify or discard the hold."
        elif take:
            chain.add(content)
            taken = True
        else:
            chain.check(content)
    except RefusedError as error:
        problem = str(error)
    return StagedCandidate(
        name=content.name,
        version=content.version,
        commit=commit,
        evidence=evidence,
        problem=problem,
        is_taken=taken,
    )


def _evidence_by_version(reader: CommitReader, listing: DirectoryListings, end: int) -> dict[int, LostCommit]:
    """Files that prove that a version above ``end`` was committed, by version; checksums take precedence."""
    lost: dict[int, LostCommit] = {}
    for name, version in listing.derived.items():
        if version <= end:
            continue
        txn_id = None
        if isinstance(parse_log_file(name), ChecksumFile):
            stored = read_checksum(reader.store, reader.location, version)
            txn_id = None if stored is None else stored.txn_id
        if version not in lost or txn_id is not None:
            lost[version] = LostCommit(version=version, known_from=name, txn_id=txn_id)
    hint = read_hint(reader.store, log_files.log_directory(reader.location))
    if hint is not None and hint.version > end and hint.version not in lost:
        name = log_files.LAST_CHECKPOINT_FILE_NAME
        lost[hint.version] = LostCommit(version=hint.version, known_from=name)
    return lost


def missing_files(reader: CommitReader, chain: Chain) -> tuple[str, ...]:
    """Return the data files that the newest version of the chain needs and that do not exist, ascending."""
    if not chain.links or chain.state is None:
        return ()
    existing = {status.location for status in reader.store.list_recursive(reader.location)}
    live = chain.state.files.adds["path"].to_pylist()
    unlisted = {
        path: resolve_path(reader.location, path) for path in live if _is_unlisted(reader.location, path, existing)
    }
    # A listing does not show what lies behind a symbolic link.
    existing_sizes = sizes_of(lambda _: reader.store, unlisted.values())
    return tuple(sorted(path for path, at in unlisted.items() if at not in existing_sizes))


def without_files(chain: Chain, missing: Collection[str]) -> Link | None:
    """Return the oldest commit of the chain whose added files are all needed by the newest version and all missing.

    Files that a later commit removes may have been vacuumed and do not count.

    Args:
        missing: result of :func:`missing_files`.
    """
    gone = set(missing)
    return next((link for link in chain.links if len(link.added) and gone.issuperset(link.added.to_pylist())), None)


def _is_unlisted(location: str, path: str, existing: Collection[str]) -> bool:
    file = resolve_path(location, path)
    return file.startswith(f"{location}/") and file not in existing
