"""Everything that ``doctor`` looks at, in order. Nothing is changed here.

First the commits, since only they tell what the derived files have to be; then the derived files; then the table as readers load
it, and its data files. None of it needs a table that can be loaded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.doctor.commit_check import CommitCheck
from cm_delta_dagster.operations.doctor.deep_check import DeepCheck, read_footers
from cm_delta_dagster.operations.doctor.file_check import check_files, leftovers
from cm_delta_dagster.operations.doctor.findings import Depth, Finding
from cm_delta_dagster.operations.doctor.log_check import (
    above_latest,
    as_readers_load,
    definition_differs,
    missing_storage,
    state_differs,
    wrong_hint,
)
from cm_delta_dagster.operations.doctor.observation import Observation, observe
from cm_delta_dagster.operations.doctor.state_check import StateCheck
from cm_delta_dagster.protocol.log.action_reconciliation import TableState
from cm_delta_dagster.protocol.log.version_checksum import VersionChecksum

Progress = Callable[[int, int], None]
"""Is called with the number of data files that were read and that of all files to be read."""


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What was found, and what repairs need.

    Attributes:
        num_commits: commits of which a file was compared with the catalog's record.
        num_files: data files and deletion vector files that were looked for.
        deep: what reading the data files gave; None if they were not read.
        first_fork: lowest version with a published commit of another history; None if there is none.
        proven: the proven state of the latest version; None if there is none.
        checksums: right checksums by version where the stored ones are wrong.
        states: proven states by version where a checkpoint is to be replaced.
    """

    seen: Observation
    num_commits: int
    num_files: int
    findings: tuple[Finding, ...]
    deep: DeepCheck | None = None
    first_fork: int | None = None
    proven: TableState | None = None
    checksums: Mapping[int, VersionChecksum] = field(default_factory=dict)
    states: Mapping[int, TableState] = field(default_factory=dict)


def examine(table: Table, *, depth: Depth, progress: Progress | None = None) -> Examination:
    """Look at everything.

    Raises:
        TableNotFoundError: the table was dropped.
        StorageError, CatalogError: storage or catalog cannot be asked.
    """
    seen = observe(table)
    if seen.is_missing:
        return Examination(seen=seen, num_commits=0, num_files=0, findings=(missing_storage(table, seen),))
    findings: list[Finding] = []
    commits, states = CommitCheck(table, seen, findings), StateCheck(table, seen, findings)
    for commit in commits.check():
        if commits.first_fork is not None:
            states.stop_judging()
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
    deep = None
    if state is not None and depth is Depth.FOOTERS:
        deep = read_footers(table, state, progress=progress)
        findings += deep.findings
    if loaded is not None:
        findings += leftovers(table)
    return Examination(
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
