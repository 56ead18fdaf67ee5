"""MERGE by key: upsert, insert, update, replace a slice, in one commit.

Copy-on-write: target files with a matching row are rewritten, the other files stay. The source is evaluated once and cached
until the merge ends.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
from pyspark.sql import DataFrame

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import InvalidArgumentError, PartitionMismatchError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.writing.conditions import Condition, write_condition
from cm_delta_dagster.operations.writing.write_transaction import (
    DEFAULT_OPTIONS,
    CommitOptions,
    WriteResult,
    WriteTransaction,
    check_not_append_only,
    earlier_write,
    json_text,
    rows_of_files,
    scan_files,
    scan_files_by_name,
    size_of,
    start_write,
    target_shape,
)
from cm_delta_dagster.protocol.features.identity_columns import check_not_given, identity_columns
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
from cm_delta_dagster.spark.fill import numbered_columns
from cm_delta_dagster.spark.merge import (
    Hits,
    MergeSource,
    SourceFacts,
    check_keys_are_stored,
    check_unique,
    filled,
    find_hits,
    find_scope,
    merge_source,
    new_rows,
    replaced,
    source_facts,
    updated,
    upserted,
)
from cm_delta_dagster.spark.object_stores import spark_storage
from cm_delta_dagster.spark.rewrite import count_frame_rows, files_named
from cm_delta_dagster.spark.schema import schema_of
from cm_delta_dagster.spark.session import check_frame
from cm_delta_dagster.spark.write import WriteSpec


class MergeMode(StrEnum):
    """What a merge does to matched and unmatched rows."""

    UPSERT = "upsert"
    """Update matched target rows; insert unmatched source rows."""
    INSERT_ONLY = "insert_only"
    """Insert unmatched source rows; target rows stay as they are."""
    UPDATE_ONLY = "update_only"
    """Update matched target rows; insert nothing."""
    DELETE_UNMATCHED = "delete_unmatched"
    """As UPSERT, and delete the unmatched target rows within ``within``."""


@names_table
def merge(
    table: WriteTarget,
    *,
    frame: DataFrame,
    keys: Sequence[str],
    mode: MergeMode = MergeMode.UPSERT,
    within: Condition | None = None,
    schema_mode: SchemaMode = SchemaMode.STRICT,
    options: CommitOptions = DEFAULT_OPTIONS,
) -> WriteResult:
    """Merge the rows of ``frame`` into the table by key. NULL keys match nothing.

    Args:
        frame: at most one row for each key. Columns that it lacks stay unchanged in updated rows, and are NULL in others.
        keys: names of the key columns, ignoring case.
        within: slice of the table to merge into. Rows of the table outside of the slice are neither read nor changed; a row
            of ``frame`` outside of it is an error. Merges into disjoint partitions do not conflict.
        schema_mode: STRICT, or MERGE to add columns to the table.

    Raises:
        InvalidArgumentError: the table or the frame has no such key column, or ``schema_mode`` is OVERWRITE.
        InvalidDataError: several rows of ``frame`` have the same key, or a key in a partition column is the empty text.
        PartitionMismatchError: a row of ``frame`` lies outside of ``within``.
        SchemaMismatchError: the columns do not fit.
        IllegalCommitError: the table is append-only and the mode changes rows.
        CommitConflictError: a concurrent commit changed rows that this merge read.
        StoreNotSupportedError: the session has no file system for the location of the table.
    """
    check_frame(frame)
    if schema_mode is SchemaMode.OVERWRITE:
        raise InvalidArgumentError(
            "A merge cannot replace the schema, because old rows stay. Use overwrite, or merge the schema."
        )
    snapshot = table.snapshot()
    earlier = earlier_write(table, snapshot, options.idempotency)
    if earlier is not None:
        return earlier
    if mode is not MergeMode.INSERT_ONLY:
        check_not_append_only(snapshot, f"a merge of mode {mode.value}")
    scope = write_condition(within, snapshot, session=frame.sparkSession, now_ms=table.services.now_ms())
    scope = None if isinstance(scope, AlwaysTrue) else scope
    offered = schema_of(frame)
    names = _key_names(keys, snapshot.schema, offered)
    _check_identity(snapshot.schema, offered, names, mode)
    shape = target_shape(snapshot, frame, schema_mode)
    parameters = _parameters(names, mode, scope)
    spark_storage(
        frame.sparkSession, table.store, snapshot.location
    )  # Jars that are missing are found before rows are computed.
    with (
        spark_errors(f"merging into {snapshot.identifier}"),
        start_write(table, snapshot, shape=shape, operation="MERGE", parameters=parameters, options=options) as write,
        _cached(merge_source(frame, shape.schema, names, partition_columns=snapshot.partition_columns)) as source,
    ):
        facts = _checked_facts(source, scope, snapshot)
        return _Merge(write=write, source=source, facts=facts, scope=scope, mode=mode).run()


def _checked_facts(source: MergeSource, scope: Predicate | None, snapshot: Snapshot) -> SourceFacts:
    facts = source_facts(source, scope, partition_columns=snapshot.partition_columns)
    check_keys_are_stored(facts)
    check_unique(facts)
    _check_inside(facts, scope)
    return facts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merge:
    """A merge whose source has been checked."""

    write: WriteTransaction
    source: MergeSource
    facts: SourceFacts
    scope: Predicate | None
    mode: MergeMode

    @property
    def snapshot(self) -> Snapshot:
        return self.write.transaction.snapshot

    def run(self) -> WriteResult:
        candidates = self._declare_read()
        if self.mode is MergeMode.INSERT_ONLY:
            return self._insert(candidates)
        hits = self._hits(candidates)
        touched = files_named(candidates, self.snapshot.location, {key: hit.matched for key, hit in hits.items()})
        self._add_rows(touched)
        return self._finish(touched, hits)

    def _declare_read(self) -> pa.Table:
        """Declare to the transaction which rows the outcome depends on, and return the files that may hold them."""
        parts = [] if self.scope is None else [self.scope]
        if self.mode is not MergeMode.DELETE_UNMATCHED:
            parts.append(self.facts.key_range)
        read = conjunction(parts)
        if isinstance(read, AlwaysTrue):
            self.write.transaction.read_whole_table()
        else:
            self.write.transaction.read(read)
        if not self.facts.num_rows and self.mode is not MergeMode.DELETE_UNMATCHED:
            return self.snapshot.files.slice(0, 0)
        return self.snapshot.matching_files(read)

    def _hits(self, candidates: pa.Table) -> dict[str, Hits]:
        if not candidates.num_rows:
            return {}
        session = self.source.frame.sparkSession
        rows = scan_files_by_name(self.write.table, self.snapshot, session, candidates, self.source.schema)
        find = find_scope if self.mode is MergeMode.DELETE_UNMATCHED else find_hits
        return find(rows, self.source, self.scope)

    def _scan(self, files: pa.Table) -> DataFrame:
        session = self.source.frame.sparkSession
        return scan_files(self.write.table, self.snapshot, session, files, self.source.schema)

    def _insert(self, candidates: pa.Table) -> WriteResult:
        rows = self.source.frame
        if candidates.num_rows:
            rows = new_rows(self._scan(candidates), self.source, self.scope)
        self.write.add_new_rows(rows)
        return self._commit(candidates.slice(0, 0), inserted=self._written_rows())

    def _add_rows(self, touched: pa.Table) -> None:
        if not touched.num_rows:
            if self.mode is not MergeMode.UPDATE_ONLY:
                self.write.add_new_rows(self.source.frame)
            return
        join = {
            MergeMode.UPSERT: upserted,
            MergeMode.UPDATE_ONLY: updated,
            MergeMode.DELETE_UNMATCHED: replaced,
        }[self.mode]
        rows = filled(join(self._scan(touched), self.source, self.scope), self.source, self.write.layout)
        missing = [name for name in self.source.schema.names if self.source.offered.field(name) is None]
        numbered = numbered_columns(self.source.schema, missing)
        self.write.add_rows(
            rows, spec=WriteSpec(numbered=numbered if self.mode is not MergeMode.UPDATE_ONLY else frozenset())
        )

    def _finish(self, touched: pa.Table, hits: Mapping[str, Hits]) -> WriteResult:
        matched = sum(hit.matched for hit in hits.values())
        deleted = sum(hit.unmatched for hit in hits.values())
        inserted = self._inserted(self._target_rows(touched), deleted)
        if not 0 <= inserted <= self.facts.num_rows:
            # Another writer put wrong row counts into the log: count the rows.
            inserted = self._inserted(count_frame_rows(self._scan(touched)), deleted)
        return self._commit(touched, inserted=inserted, updated=matched, deleted=deleted)

    def _target_rows(self, touched: pa.Table) -> int:
        session = self.source.frame.sparkSession
        return rows_of_files(self.write.table, self.snapshot, session, touched) if touched.num_rows else 0

    def _inserted(self, target_rows: int, deleted: int) -> int:
        # Source keys are unique, so a target row matches at most one source row and the join does not duplicate it.
        return self._written_rows() - (target_rows - deleted)

    def _written_rows(self) -> int:
        return sum(files.num_rows for files in self.write.written)

    def _commit(self, removed: pa.Table, *, inserted: int, updated: int = 0, deleted: int = 0) -> WriteResult:
        written = self.write.written
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
        return self.write.commit(removed, metrics)


@contextmanager
def _cached(source: MergeSource) -> Iterator[MergeSource]:
    """Persist the source for the several passes over it, unless the caller has persisted it."""
    with spark_errors("caching the source of a merge"):
        level = source.frame.storageLevel
        cached_by_caller = level.useMemory or level.useDisk
        if not cached_by_caller:
            source.frame.persist()
    try:
        yield source
    finally:
        if not cached_by_caller:
            source.frame.unpersist()


def _key_names(keys: Sequence[str], table: StructType, offered: StructType) -> tuple[str, ...]:
    """Return the keys as the table spells them."""
    names: list[str] = []
    if not keys:
        raise InvalidArgumentError("A merge needs at least one key column; name the columns that identify a row.")
    if isinstance(keys, str):
        raise InvalidArgumentError(f"keys is the text {keys!r}; give a list of column names, e.g. [{keys!r}].")
    for key in keys:
        in_table, in_source = table.field(key), offered.field(key)
        if in_table is None or in_source is None:
            where, schema = ("table", table) if in_table is None else ("source", offered)
            raise InvalidArgumentError(
                f"The key column {key!r} is not in the {where}, whose columns are {', '.join(schema.names)}."
            )
        if in_table.name in names:
            raise InvalidArgumentError(f"The key column {key!r} is named twice.")
        if data_type_text(in_table.type).startswith(("array", "map", "struct", "variant", "void")):
            raise InvalidArgumentError(
                f"The key column {key!r} has the type {data_type_text(in_table.type)}; keys must be simple values."
            )
        names.append(in_table.name)
    return tuple(names)


def _check_identity(table: StructType, offered: StructType, keys: Sequence[str], mode: MergeMode) -> None:
    """Refuse a source that would set an identity column: always in updated rows, and in inserted rows if it is always generated."""
    for name in identity_columns(table):
        if mode is not MergeMode.INSERT_ONLY and name not in keys and offered.field(name) is not None:
            raise InvalidArgumentError(
                f"The source has the identity column {name!r}, and a merge of mode {mode.value} would update it. Nothing was "
                "written. Leave the column out, or use it as a key."
            )
    if mode is not MergeMode.UPDATE_ONLY:
        check_not_given(table, offered.names, action="inserts")


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
