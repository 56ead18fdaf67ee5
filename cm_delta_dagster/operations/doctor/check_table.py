"""Runs the checks of ``doctor`` in order. Changes nothing.

The commits come first, since they determine the derived files; then the derived files, the table as readers load it, and its
data files. The checks also work on a table that cannot be loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.arguments import ReportProgress
from cm_delta_dagster.operations.doctor.check_commits import CommitCheck
from cm_delta_dagster.operations.doctor.check_files import check_files, leftovers
from cm_delta_dagster.operations.doctor.check_footers import FooterCheck, check_footers
from cm_delta_dagster.operations.doctor.check_log import (
    above_latest,
    as_readers_load,
    definition_differs,
    missing_storage,
    state_differs,
    wrong_hint,
)
from cm_delta_dagster.operations.doctor.check_row_ids import check_row_ids
from cm_delta_dagster.operations.doctor.check_state import StateCheck
from cm_delta_dagster.operations.doctor.findings import Depth, Finding, Findings
from cm_delta_dagster.operations.doctor.observation import Observation, observe
from cm_delta_dagster.protocol.log.action_reconciliation import TableState
from cm_delta_dagster.protocol.log.version_checksum import VersionChecksum


@dataclass(frozen=True, kw_only=True)
class CheckedTable:
    """The findings, and what repairs need.

    Attributes:
        num_commits: commits of which a file was compared with the catalog's record.
        num_files: data files and deletion vector files whose existence was checked.
        deep: result of reading the data files; None if they were not read.
        first_fork: lowest version with a published commit of another history; None if there is none.
        proven: the proven state of the latest version; None if there is none.
        checksums: correct checksums by version, where the stored ones are wrong.
        states: proven states by version, where a checkpoint has to be replaced.
    """

    seen: Observation
    num_commits: int
    num_files: int
    findings: tuple[Finding, ...]
    deep: FooterCheck | None = None
    first_fork: int | None = None
    proven: TableState | None = None
    checksums: Mapping[int, VersionChecksum] = field(default_factory=dict)
    states: Mapping[int, TableState] = field(default_factory=dict)


def check_table(table: Table, *, depth: Depth, progress: ReportProgress | None = None) -> CheckedTable:
    """Run all checks.

    Raises:
        TableNotFoundError: the table was dropped.
        StorageError, CatalogError: a request to storage or catalog failed.
    """
    seen = observe(table)
    if seen.is_missing:
        return CheckedTable(seen=seen, num_commits=0, num_files=0, findings=(missing_storage(table, seen),))
    findings = Findings()
    commits, states = CommitCheck(table, seen, findings), StateCheck(table, seen, findings)
    for commit in commits.check():
        if commits.first_fork is not None:
            states.skip_derived_files()
        states.advance(commit)
    findings += above_latest(table, seen)
    proven = states.state
    loaded = as_readers_load(table, seen, findings)
    if proven is not None:
        if loaded is not None:
            findings += state_differs(seen, loaded, proven)
        findings += definition_differs(table, proven)
    findings += wrong_hint(table, seen)
    state = loaded if proven is None else proven
    num_files = 0 if state is None else check_files(table, state, findings)
    if state is not None:
        check_row_ids(table, state, findings, marked_by=states.row_id_commit)
    deep = None
    if state is not None and depth is Depth.FOOTERS:
        deep = check_footers(table, state, progress=progress)
        findings += deep.findings
    if loaded is not None:
        findings += leftovers(table)
    return CheckedTable(
        seen=seen,
        num_commits=commits.compared,
        num_files=num_files,
        findings=tuple(findings),
        deep=deep,
        first_fork=commits.first_fork,
        proven=proven,
        checksums=states.checksums,
        states=states.states,
    )
