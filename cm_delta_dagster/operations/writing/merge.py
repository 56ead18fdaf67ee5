"""Merge by key: upsert, insert, update, replace a slice (heading "DML": DML-4, DML-5). One commit.

Copy-on-write: target files with a matching row are rewritten, the others are not touched. The source is evaluated once
and kept while the merge runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
from pyspark.sql import DataFrame

from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext, Idempotency
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import InvalidArgumentError, PartitionMismatchError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.writing.conditions import Condition, write_condition
from cm_delta_dagster.operations.writing.write_transaction import (
    RowCommit,
    WriteResult,
    already_done,
    begin,
    check_not_append_only,
    json_text,
    rows_of_files,
    scan_files,
    scan_files_by_name,
    size_of,
    target_shape,
)
from cm_delta_dagster.protocol.predicates.predicates import (
    AlwaysTrue,
    Predicate,
    conjunction,
    quote_column,
    short_sql,
    to_sql,
)
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.protocol.schema.types import StructType, data_type_text
from cm_delta_dagster.spark.errors import spark_errors
from cm_delta_dagster.spark.merge import (
    Hits,
    MergeSource,
    SourceFacts,
    check_keys_are_stored,
    check_unique,
    find_hits,
    find_scope,
    merge_source,
    new_rows,
    replaced,
    source_facts,
    updated,
    upserted,
)
from cm_delta_dagster.spark.rewrite import count_rows, files_named
from cm_delta_dagster.spark.schema import schema_of
from cm_delta_dagster.spark.session import check_frame


class MergeMode(StrEnum):
    """What happens to rows whose keys meet, and to those that stay alone."""

    UPSERT = "upsert"
    """Matching target rows are updated, other source rows inserted."""
    INSERT_ONLY = "insert_only"
    """Source rows without a partner are inserted; target rows stay as they are."""
    UPDATE_ONLY = "update_only"
    """Matching target rows are updated; nothing is inserted."""
    DELETE_UNMATCHED = "delete_unmatched"
    """As UPSERT, and target rows inside of ``within`` that have no partner are deleted."""


@names_table
def merge(
    table: WriteTarget,
    *,
    frame: DataFrame,
    keys: Sequence[str],
    mode: MergeMode = MergeMode.UPSERT,
    within: Condition | None = None,
    schema_mode: SchemaMode = SchemaMode.STRICT,
    idempotency: Idempotency | None = None,
    context: CommitContext = NO_CONTEXT,
) -> WriteResult:
    """Bring the rows of ``frame`` into the table by key. NULL keys match nothing.

    Args:
        frame: at most one row for each key. Columns it lacks keep their value in updated rows and are NULL in new ones.
        keys: names of the key columns, ignoring case.
        within: slice of the table that the merge is about; rows of the table outside are neither looked at nor changed,
            and rows of ``frame`` outside are an error. Merges of disjoint partitions do not conflict when they say so.
        schema_mode: STRICT, or MERGE to add columns to the table.
        idempotency: the merge happens once for this application and version (TXN-4).

    Raises:
        InvalidArgumentError: a key is no column of the table or of the frame, or the schema is to be replaced.
        InvalidDataError: several rows of ``frame`` have one key, or a key that is a partition column is the empty text; the
            message names one.
        PartitionMismatchError: a row of ``frame`` lies outside of ``within``.
        SchemaMismatchError: the columns do not fit.
        IllegalCommitError: the table is append-only and the mode changes rows.
        CommitConflictError: a concurrent commit changed rows that this merge looked at.
    """
    check_frame(frame)
    if schema_mode is SchemaMode.OVERWRITE:
        raise InvalidArgumentError(
            "A merge cannot replace the schema, because old rows stay. Use overwrite, or merge the schema."
        )
    snapshot = table.snapshot()
    done = already_done(table, snapshot, idempotency)
    if done is not None:
        return done
    if mode is not MergeMode.INSERT_ONLY:
        check_not_append_only(snapshot, f"a merge of mode {mode.value}")
    scope = write_condition(within, snapshot, session=frame.sparkSession, now_ms=table.services.now_ms())
    scope = None if isinstance(scope, AlwaysTrue) else scope
    names = _key_names(keys, snapshot.schema, schema_of(frame))
    shape = target_shape(snapshot, frame, schema_mode)
    with (
        spark_errors(f"merging into {snapshot.identifier}"),
        begin(
            table,
            snapshot,
            shape=shape,
            operation="MERGE",
            parameters=_parameters(names, mode, scope),
            idempotency=idempotency,
            context=context,
        ) as commit,
        _kept(merge_source(frame, shape.schema, names, partition_columns=snapshot.partition_columns)) as source,
    ):
        facts = source_facts(source, scope, partition_columns=snapshot.partition_columns)
        check_keys_are_stored(facts)
        check_unique(facts)
        _check_inside(facts, scope)
        return _Merge(commit=commit, source=source, facts=facts, scope=scope, mode=mode).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merge:
    """One merge whose source has been checked."""

    commit: RowCommit
    source: MergeSource
    facts: SourceFacts
    scope: Predicate | None
    mode: MergeMode

    @property
    def snapshot(self) -> Snapshot:
        return self.commit.transaction.snapshot

    def run(self) -> WriteResult:
        candidates = self._declare_read()
        if self.mode is MergeMode.INSERT_ONLY:
            return self._insert(candidates)
        hits = self._hits(candidates)
        touched = files_named(candidates, self.snapshot.location, {key: hit.matched for key, hit in hits.items()})
        self._write(touched)
        return self._finish(touched, hits)

    def _declare_read(self) -> pa.Table:
        """Tell the transaction what the outcome depends on, and answer with the files that may hold it."""
        parts = [] if self.scope is None else [self.scope]
        if self.mode is not MergeMode.DELETE_UNMATCHED:
            parts.append(self.facts.key_range)
        read = conjunction(parts)
        if isinstance(read, AlwaysTrue):
            self.commit.transaction.read_whole_table()
        else:
            self.commit.transaction.read(read)
        if not self.facts.num_rows and self.mode is not MergeMode.DELETE_UNMATCHED:
            return self.snapshot.files.slice(0, 0)
        return self.snapshot.matching_files(read)

    def _hits(self, candidates: pa.Table) -> dict[str, Hits]:
        if not candidates.num_rows:
            return {}
        session = self.source.frame.sparkSession
        rows = scan_files_by_name(self.commit.table, self.snapshot, session, candidates, self.source.schema)
        find = find_scope if self.mode is MergeMode.DELETE_UNMATCHED else find_hits
        return find(rows, self.source, self.scope)

    def _scan(self, files: pa.Table) -> DataFrame:
        session = self.source.frame.sparkSession
        return scan_files(self.commit.table, self.snapshot, session, files, self.source.schema)

    def _insert(self, candidates: pa.Table) -> WriteResult:
        rows = self.source.frame
        if candidates.num_rows:
            rows = new_rows(self._scan(candidates), self.source, self.scope)
        self.commit.write(rows)
        return self._commit(candidates.slice(0, 0), inserted=self._written_rows())

    def _write(self, touched: pa.Table) -> None:
        if not touched.num_rows:
            if self.mode is not MergeMode.UPDATE_ONLY:
                self.commit.write(self.source.frame)
            return
        join = {
            MergeMode.UPSERT: upserted,
            MergeMode.UPDATE_ONLY: updated,
            MergeMode.DELETE_UNMATCHED: replaced,
        }[self.mode]
        self.commit.write(join(self._scan(touched), self.source, self.scope))

    def _finish(self, touched: pa.Table, hits: Mapping[str, Hits]) -> WriteResult:
        matched = sum(hit.matched for hit in hits.values())
        deleted = sum(hit.unmatched for hit in hits.values())
        inserted = self._inserted(self._target_rows(touched), deleted)
        if not 0 <= inserted <= self.facts.num_rows:
            # The log's row counts are somebody else's statement; the rows themselves decide.
            inserted = self._inserted(count_rows(self._scan(touched)), deleted)
        return self._commit(touched, inserted=inserted, updated=matched, deleted=deleted)

    def _target_rows(self, touched: pa.Table) -> int:
        session = self.source.frame.sparkSession
        return rows_of_files(self.commit.table, self.snapshot, session, touched) if touched.num_rows else 0

    def _inserted(self, target_rows: int, deleted: int) -> int:
        # Keys of the source are unique, so a target row has at most one partner and the join never multiplies it.
        return self._written_rows() - (target_rows - deleted)

    def _written_rows(self) -> int:
        return sum(files.num_rows for files in self.commit.written)

    def _commit(self, removed: pa.Table, *, inserted: int, updated: int = 0, deleted: int = 0) -> WriteResult:
        written = self.commit.written
        metrics = {
            "numSourceRows": self.facts.num_rows,
            "numTargetRowsInserted": inserted,
            "numTargetRowsUpdated": updated,
            "numTargetRowsDeleted": deleted,
            "numTargetRowsCopied": self._written_rows() - inserted - updated,
            "numOutputRows": self._written_rows(),
            "numTargetFilesAdded": sum(len(files.adds) for files in written),
            "numTargetBytesAdded": sum(files.size_bytes for files in written),
            "numTargetFilesRemoved": removed.num_rows,
            "numTargetBytesRemoved": size_of(removed),
        }
        return self.commit.finish(removed, metrics)


@contextmanager
def _kept(source: MergeSource) -> Iterator[MergeSource]:
    """Compute the source once for the several passes over it, and let it go afterwards, unless the caller keeps it."""
    with spark_errors("keeping the source of a merge"):
        level = source.frame.storageLevel
        kept_by_caller = level.useMemory or level.useDisk
        if not kept_by_caller:
            source.frame.persist()
    try:
        yield source
    finally:
        if not kept_by_caller:
            source.frame.unpersist()


def _key_names(keys: Sequence[str], table: StructType, offered: StructType) -> tuple[str, ...]:
    """The keys in the table's spelling."""
    names: list[str] = []
    if not keys:
        raise InvalidArgumentError("A merge needs at least one key column; name those that tell rows apart.")
    if isinstance(keys, str):
        raise InvalidArgumentError(f"keys is the text {keys!r}; give a list of column names, e.g. [{keys!r}].")
    for key in keys:
        mine, theirs = table.field(key), offered.field(key)
        if mine is None or theirs is None:
            where, has = ("table", table) if mine is None else ("source", offered)
            raise InvalidArgumentError(
                f"The key column {key!r} is not in the {where}, whose columns are {', '.join(has.names)}."
            )
        if mine.name in names:
            raise InvalidArgumentError(f"The key column {key!r} is named twice.")
        if data_type_text(mine.type).startswith(("array", "map", "struct", "variant", "void")):
            raise InvalidArgumentError(
                f"The key column {key!r} has the type {data_type_text(mine.type)}; keys must be simple values."
            )
        names.append(mine.name)
    return tuple(names)


def _check_inside(facts: SourceFacts, scope: Predicate | None) -> None:
    if facts.outside is not None and scope is not None:
        raise PartitionMismatchError(
            f"The row with the key {facts.outside} lies outside of {short_sql(scope)}, the slice that this merge "
            "declared. Nothing was committed. Leave such rows out, or widen the slice."
        )


def _parameters(keys: Sequence[str], mode: MergeMode, scope: Predicate | None) -> dict[str, str]:
    conditions = [f"(target.{quote_column((key,))} = source.{quote_column((key,))})" for key in keys]
    if scope is not None:
        conditions.append(f"({to_sql(scope)})")
    updates = [{"actionType": "update"}] if mode is not MergeMode.INSERT_ONLY else []
    inserts = [{"actionType": "insert"}] if mode is not MergeMode.UPDATE_ONLY else []
    deletes = [{"actionType": "delete"}] if mode is MergeMode.DELETE_UNMATCHED else []
    return {
        "predicate": json_text([" AND ".join(conditions)]),
        "matchedPredicates": json_text(updates),
        "notMatchedPredicates": json_text(inserts),
        "notMatchedBySourcePredicates": json_text(deletes),
    }
