"""What maintenance keeps for commits that wait for an approval: their staged files, and the files that they add."""

from cm_delta_dagster.client.commits.parked_commit import read_parked_bytes
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import ObjectNotFoundError
from cm_delta_dagster.operations.recovery.set_aside import files_added_by
from cm_delta_dagster.protocol.log.log_files import StagedCommitFile, parse_log_file


def staged_files_of_parked(table: Table) -> frozenset[str]:
    """Names of the staged files of the commits that wait."""
    return frozenset(parked.file_name for parked in table.services.approvals.protected_commits(table.table_id))


def files_of_parked(table: Table) -> frozenset[str]:
    """Locations of all files that the commits add that wait, deletion vectors and change files included.

    Call it before the snapshot is loaded: a commit that is approved later is then found by one of the two.

    Raises:
        CorruptLogError: a staged file was changed, so that its files are not known.
    """
    locations: set[str] = set()
    for parked in table.services.approvals.protected_commits(table.table_id):
        file = parse_log_file(parked.file_name)
        assert isinstance(file, StagedCommitFile)
        try:
            data = read_parked_bytes(table.store, table.location, parked)
        except ObjectNotFoundError:
            continue  # Without its staged file the commit cannot be approved.
        locations |= set(files_added_by(table.location, data, file.version))
    return frozenset(locations)
