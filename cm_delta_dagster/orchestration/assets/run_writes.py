"""What the outputs of one run write to one table: an overwrite must not replace the rows of another output of its run.

The commits of a run have a ``txn`` action for each output, see ``runs``. So the log of the table says which other outputs have
written to it in this run, also those of other processes, of earlier attempts, and of a failed run that this run continues.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError, ObjectNotFoundError
from cm_delta_dagster.operations.reading.any_row import has_rows
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.orchestration.runs.runs import APP_PREFIX, WriteOrigin, numbers_of_run
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.log.action_reconciliation import FileState
from cm_delta_dagster.protocol.predicates.disjoint import are_disjoint
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue, Predicate, conjunction
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.spark.library import SparkSession
from cm_delta_dagster.storage.store import Store

_OVERWRITE = "Overwrite"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutputCommit:
    """A commit of an output.

    Attributes:
        operation: as in ``commitInfo``.
        marks: its ``txn`` actions as application id and version.
        added: the files with its rows; files that only got a deletion vector are not among them.
        replaced: SQL text of the condition of the rows that it replaced; None for all rows.
        is_overwrite: whether it is an overwrite of a table that existed.
        rewrites: whether it replaced files, and not only their deletion vectors: ``added`` then has rows that it only copied.
    """

    version: int
    operation: str | None
    marks: frozenset[tuple[str, int]]
    added: pa.Table
    replaced: str | None
    is_overwrite: bool
    rewrites: bool

    @classmethod
    def of(cls, commit: CommitActions) -> "OutputCommit":
        """What is kept of a commit."""
        info = commit.commit_info
        parameters = {} if info is None else info.operation_parameters
        removed, added = commit.removes.column("path"), commit.adds.column("path")
        return cls(
            version=commit.version,
            operation=None if info is None else info.operation,
            marks=frozenset((transaction.app_id, transaction.version) for transaction in commit.transactions),
            added=commit.adds.filter(pc.invert(pc.is_in(added, value_set=removed))),
            replaced=parameters.get("predicate"),
            is_overwrite=parameters.get("mode") == _OVERWRITE,
            rewrites=bool(len(removed.filter(pc.invert(pc.is_in(removed, value_set=added))))),
        )

    def condition(self, snapshot: Snapshot) -> Predicate:
        """The condition of the rows that an overwrite replaced; its own rows satisfy it."""
        return AlwaysTrue() if self.replaced is None else parse_predicate(self.replaced, snapshot.schema)

    def rows_of(self, snapshot: Snapshot) -> Snapshot:
        """``snapshot`` with the files of this commit alone."""
        files = FileState.of(self.added, snapshot.tombstones.slice(0, 0), location=snapshot.location)
        return snapshot.with_files(files)


@dataclass(slots=True)
class RunWrites:
    """Finds commits of outputs in the logs of tables, and remembers what it has read. For one process of one run."""

    _read: dict[tuple[str, int], OutputCommit | None] = field(default_factory=dict)

    def find(self, table: Table, marks: frozenset[tuple[str, int]]) -> Mapping[tuple[str, int], OutputCommit]:
        """The commits that have one of these ``txn`` actions. What the log holds no more is missing."""
        commits_by_mark: dict[tuple[str, int], OutputCommit] = {}
        commits = self._commits(table) if marks else iter(())
        for commit in commits:
            commits_by_mark |= {mark: commit for mark in commit.marks & marks if mark not in commits_by_mark}
            if len(commits_by_mark) == len(marks):
                break
        return commits_by_mark

    def _commits(self, table: Table) -> Iterator[OutputCommit]:
        """The commits of outputs, newest first."""
        log = table.commit_log()
        for version in range(log.latest, -1, -1):
            key = (table.table_id, version)
            if key not in self._read:
                try:
                    commit = OutputCommit.of(commit_json.decode_commit(log.read(version), version=version))
                except ObjectNotFoundError:
                    return  # Metadata cleanup removed this commit and all older ones.
                self._read[key] = commit if any(name.startswith(APP_PREFIX) for name, _ in commit.marks) else None
            known = self._read[key]
            if known is not None:
                yield known

    def refuse_lost_rows(
        self,
        table: Table,
        snapshot: Snapshot,
        *,
        origin: WriteOrigin,
        replaced: Predicate | None,
        session: Callable[[], SparkSession],
    ) -> None:
        """Refuse an overwrite that replaces rows of another output of the run, or the rows that another one has replaced.

        Args:
            snapshot: the version that the overwrite builds on.
            replaced: the rows that the overwrite replaces; None for all.
            session: returns the Spark session; called only if it is needed to look for rows.

        Raises:
            InvalidArgumentError: with the names of both outputs.
        """
        numbers = numbers_of_run(origin)
        others = frozenset(
            (app_id, entry.version)
            for app_id, entry in snapshot.transactions.items()
            if app_id.startswith(APP_PREFIX) and app_id != origin.app_id and entry.version in numbers
        )
        if not others:
            return
        commits_by_mark, condition = self.find(table, others), AlwaysTrue() if replaced is None else replaced
        for mark in sorted(others):
            commit = commits_by_mark.get(mark)
            if commit is None or _loses_rows(commit, snapshot, condition, store=table.store, session=session):
                raise _replaces(origin, mark[0].removeprefix(APP_PREFIX), snapshot, commit)


def _loses_rows(
    commit: OutputCommit, snapshot: Snapshot, condition: Predicate, *, store: Store, session: Callable[[], SparkSession]
) -> bool:
    """Whether an overwrite of the rows of ``condition`` replaces rows of ``commit``, or just the rows that it replaced."""
    both = condition
    if commit.is_overwrite:
        earlier = commit.condition(snapshot)
        if earlier == condition:
            return True
        if are_disjoint(earlier, condition):
            return False
        # A rewritten file also holds rows that the commit only copied: they lie outside of its condition.
        both = conjunction((earlier, condition))
    rows = commit.rows_of(snapshot)
    if isinstance(both, AlwaysTrue):
        return bool(rows.num_files)
    if not rows.matching_files(both).num_rows:
        return False
    return has_rows(SnapshotScan(snapshot=rows, store=store, where=both), session)


def _replaces(origin: WriteOrigin, other: str, snapshot: Snapshot, commit: OutputCommit | None) -> InvalidArgumentError:
    where = "" if commit is None else f" as version {commit.version}"
    what, remedy = (
        f"that the output {other} wrote in the same run{where}, so that only those of the last output would stay",
        "",
    )
    has_vectors = TableProperties(snapshot.metadata.configuration).deletion_vectors_enabled
    if commit is not None and commit.rewrites and not commit.is_overwrite and not has_vectors:
        what = (
            f"in files that the output {other} rewrote in the same run{where}. Which of their rows it changed is not known: a "
            "merge into a table without deletion vectors copies the other rows of each file that it rewrites"
        )
        remedy = "Enable deletion vectors ('table_properties': {'delta.enableDeletionVectors': 'true'}) if it changed other rows. "
    return InvalidArgumentError(
        f"The output {origin.name} would replace rows of {snapshot.identifier} {what}. Nothing was written. {remedy}Set the "
        "mode 'append' or 'merge' in the metadata of the outputs, let each replace rows of its own (partitions, the mode "
        "'replace_where', or a condition of the clauses 'not_matched_by_source'), or give each a table of its own."
    )
