"""What maintenance keeps for held commits: their staged files, the files that they add, and the version on which they were made.

A held commit is read, rebased and ratified on that version, so that its files and its log stay while the commit is held.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from cm_delta_dagster.catalog.holds import HeldProposal
from cm_delta_dagster.client.commits.held_commit import read_held_bytes
from cm_delta_dagster.client.commits.transaction_intent import TransactionIntent
from cm_delta_dagster.client.services import Services
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError, ObjectNotFoundError, VersionNotFoundError
from cm_delta_dagster.operations.recovery.set_aside import files_added_by_all
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.features.deletion_vectors import vector_files
from cm_delta_dagster.protocol.log.log_files import StagedCommitFile, parse_log_file


def staged_files_of_held(table: Table) -> frozenset[str]:
    """Names of the staged files of the held commits."""
    return frozenset(proposal.file_name for proposal in table.services.holds.protected_commits(table.table_id))


def files_of_held(table: Table) -> frozenset[str]:
    """Locations of all files that held commits add, deletion vectors and change files included.

    Call it before the snapshot is loaded: a commit that is ratified later is then found by one of the two.

    Raises:
        CorruptLogError: a staged file was changed, so that its files are not known.
    """
    proposals = table.services.holds.protected_commits(table.table_id)
    commits = [commit for commit in _read_all(table, proposals) if commit is not None]
    locations = files_added_by_all(table.location, commits)
    for version in frozenset(map(_read_version, proposals)):
        with suppress(VersionNotFoundError):  # Without its log the commit cannot be ratified.
            files = table.snapshot(version=version).files
            locations |= set(file_keys(table.location, files["path"]).to_pylist())
            locations |= set(vector_files(table.location, files))
    return frozenset(locations)


def _read_all(table: Table, proposals: Sequence[HeldProposal]) -> Iterator[tuple[int, bytes] | None]:
    """Version and content of each held commit, read concurrently; None without its staged file: it cannot be ratified."""

    def read(proposal: HeldProposal) -> tuple[int, bytes] | None:
        file = parse_log_file(proposal.file_name)
        assert isinstance(file, StagedCommitFile)
        try:
            return file.version, read_held_bytes(table.store, table.location, proposal)
        except ObjectNotFoundError:
            return None

    threads = min(len(proposals), table.services.settings.read_threads)
    if threads < 2:
        yield from map(read, proposals)
        return
    with ThreadPoolExecutor(max_workers=threads) as pool:
        yield from pool.map(read, proposals)


def held_versions(services: Services, table_id: str) -> frozenset[int]:
    """The versions on which the held commits of a table were made. Raises OperationRefusedError."""
    return frozenset(_read_version(proposal) for proposal in services.holds.protected_commits(table_id))


def _read_version(proposal: HeldProposal) -> int:
    try:
        return min(TransactionIntent.parse(proposal.intent).read_version, proposal.table.read_version)
    except InvalidArgumentError:  # Of another release, which alone can ratify it.
        return proposal.table.read_version
