"""Queries of row changes: which rows of which files change, and which rows are written.

DELETE, UPDATE and MERGE are clauses that apply to the rows of a join of the table with a source; without a source every row of the
table has no partner. The first clause of its kind whose condition is true applies to a row. Files and positions of the changed rows
are found first, from the columns that the conditions need. Rows are written by a second query over the files that changed.

Source and target are addressed by their aliases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce
from operator import or_

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cm_delta_dagster.protocol.features.generated_columns import generated_columns
from cm_delta_dagster.protocol.features.row_tracking import ROW_COMMIT_VERSION, ROW_ID, RowIdColumns
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.cancellation import collected_table
from cm_delta_dagster.spark.plans import plan_broadcasts
from cm_delta_dagster.spark.errors import spark_errors
from cm_delta_dagster.spark.file_values import FILE_COLUMN, OWN_PREFIX, POSITION_COLUMN, spark_file_key
from cm_delta_dagster.spark.fill import FilledRows, computed_columns, fill, numbered_columns
from cm_delta_dagster.spark.schema import quoted, sql_type

_ACTION_COLUMN = f"{OWN_PREFIX}action"
"""Number of the clause that applies to a row, or -1."""
_IN_TARGET = f"{OWN_PREFIX}in_target"
_IN_SOURCE = f"{OWN_PREFIX}in_source"
_KEEP_COLUMN = f"{OWN_PREFIX}keep"
_SOURCE_ROW = f"{OWN_PREFIX}source_row"
_WORD_COLUMN = f"{OWN_PREFIX}word"
_UNCHANGED = -1


class ClauseKind(StrEnum):
    """Which rows of the join a clause applies to."""

    MATCHED = "matched"
    NOT_MATCHED = "not_matched"
    """Rows of the source without a partner."""
    NOT_MATCHED_BY_SOURCE = "not_matched_by_source"
    """Rows of the table without a partner; all rows of the table if there is no source."""


class ClauseAction(StrEnum):
    """What a clause does."""

    UPDATE = "update"
    INSERT = "insert"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChangeClause:
    """A clause whose expressions have been resolved.

    Attributes:
        condition: None for a clause without a condition.
        values: new values of columns of the table, of the column's type. Other columns keep their value in an update, and are NULL
            in an insert, unless the table computes them.
        defaults: columns that get their default, among ``values`` as NULL.
    """

    kind: ClauseKind
    action: ClauseAction
    condition: Column | None = None
    values: Mapping[str, Column]
    defaults: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChangeSource:
    """The source of a merge.

    Attributes:
        frame: cached rows.
        on: condition of the join.
        is_small: the rows fit in the memory of each task, so that the table need not be shuffled.
    """

    frame: DataFrame
    alias: str
    on: Column
    is_small: bool

    def side(self, *, numbered: bool = False) -> DataFrame:
        """The rows of the source; with ``numbered`` also a number of each row, which is the same during one job."""
        more = {_SOURCE_ROW: F.monotonically_increasing_id()} if numbered else {}
        rows = self.frame.withColumns({_IN_SOURCE: F.lit(True), **more}).alias(self.alias)
        return F.broadcast(rows) if self.is_small else rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileChanges:
    """Positions of the rows of one file that have a partner or change."""

    matched: BitMap64
    updated: Mapping[ClauseKind, BitMap64]
    deleted: Mapping[ClauseKind, BitMap64]

    @property
    def all_updated(self) -> BitMap64:
        return reduce(or_, self.updated.values(), BitMap64())

    @property
    def changed(self) -> BitMap64:
        return reduce(or_, self.deleted.values(), self.all_updated)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoundChanges:
    """Result of :meth:`RowChangeQuery.find`.

    Attributes:
        files: changes by file key.
        num_ambiguous: pairs of a row of the table with a second or further partner.
        num_partners: rows of the source with a partner; None if there are no clauses for the others.
    """

    files: Mapping[str, FileChanges]
    num_ambiguous: int
    num_partners: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowChangeQuery:
    """Clauses over a table and a source.

    Attributes:
        schema: of the table after the change.
        computed: more columns, which are computed from the rows of the table before the join, by name.
        row_ids: hidden columns in which rows of the table keep their ids; rows of files then have their ids as ``scan`` gives them.
    """

    schema: StructType
    target_alias: str
    clauses: tuple[ChangeClause, ...]
    source: ChangeSource | None = None
    computed: Mapping[str, Column] = field(default_factory=dict)
    row_ids: RowIdColumns | None = None

    @property
    def inserts(self) -> bool:
        """Whether rows of the source may be added."""
        return self._has(ClauseKind.NOT_MATCHED)

    def find(self, target: DataFrame, *, few: bool = False) -> FoundChanges:
        """Find the rows that have a partner or change, by one Spark job.

        Args:
            target: rows of :func:`~cm_delta_dagster.spark.scan.scan_with_files`.
            few: one task can read them; this saves a stage.
        """
        groups = self._groups()
        joined = self._labelled(self._touched(target), self._how(keeps=False), numbered=self.inserts)
        joined = joined.coalesce(1) if few else joined
        is_pair = self._in_source() & self._in_target()
        action = F.col(_ACTION_COLUMN)
        file, position = F.col(FILE_COLUMN), F.col(POSITION_COLUMN)
        changes = [action.isin(list(numbers)) for numbers in groups.values()]
        touched = joined.where((action >= 0) | is_pair).select(
            _entry(file, position, pairs=is_pair, matched=is_pair, changes=changes).alias("entry"),
            *([F.when(is_pair, F.col(_SOURCE_ROW)).alias(_SOURCE_ROW)] if self.inserts else []),
        )
        if self.inserts:
            # The rows of the source are counted as those of a file without a name.
            row, no = F.col(_SOURCE_ROW), F.lit(False)
            partner = _entry(F.lit(""), row, pairs=no, matched=row.isNotNull(), changes=[no] * len(changes))
            touched = touched.select(F.explode(F.array(F.col("entry"), partner)).alias("entry"))
        bit = F.expr("shiftleft(1L, CAST(entry.position & 63 AS INT))")
        counted = touched.groupBy(
            F.col("entry.file").alias(FILE_COLUMN), F.expr("shiftright(entry.position, 6)").alias(_WORD_COLUMN)
        ).agg(
            F.count_if("entry.pairs").alias("pairs"),
            *[F.bit_or(F.when(F.col(f"entry.{name}"), bit)).alias(name) for name in _bit_names(len(changes))],
        )
        with spark_errors("looking for the rows that change"):
            plan_broadcasts(counted)
            found = collected_table(counted)
        return _found(found, list(groups), counts_source=self.inserts)

    def _groups(self) -> dict[tuple[ClauseKind, ClauseAction], list[int]]:
        """Numbers of the clauses that change rows of the table, by kind and action."""
        groups: dict[tuple[ClauseKind, ClauseAction], list[int]] = {}
        for number, clause in enumerate(self.clauses):
            if clause.action is not ClauseAction.INSERT:
                groups.setdefault((clause.kind, clause.action), []).append(number)
        return groups

    @property
    def reads_changed_rows_apart(self) -> bool:
        """Whether :meth:`rows_apart` writes the rows with less work than :meth:`rows`: only rows that change are shuffled."""
        return self.source is not None and not self.source.is_small

    def rows_apart(self, copied: DataFrame | None, touched: DataFrame | None) -> DataFrame | None:
        """The rows to write; None if there are none.

        Args:
            copied: rows that are written as they are.
            touched: rows that are updated or that have partners; None if there are none.
        """
        parts = [] if copied is None else [self._copied(copied)]
        if touched is not None:
            how = self._how(keeps=False)
            if self.inserts:
                how = "full_outer" if how == "left" else "right"
            parts.append(self._written(self._labelled(touched.withColumn(_KEEP_COLUMN, F.lit(False)), how), False))
        elif self.inserts:
            parts.append(self.inserted(None))
        return _union(parts)

    def _copied(self, rows: DataFrame) -> DataFrame:
        unchanged = rows.alias(self.target_alias).withColumn(_ACTION_COLUMN, F.lit(_UNCHANGED))
        old = [column.alias(name) for name, column in self._old().items()]
        return unchanged.select(*old, *self._kept_ids(is_new=False), F.col(_ACTION_COLUMN))

    def rows(
        self, kept: Sequence[tuple[DataFrame, bool]], matched: DataFrame | None, *, few: bool = False
    ) -> DataFrame | None:
        """The rows to write; None if there are none.

        Args:
            kept: rows of files that changed, and whether their unchanged rows are written too.
            matched: rows of the other files that hold partners of rows of the source; None if there are none.
            few: the rows of the table that have partners fit in the memory of each task.
        """
        keeps = any(keep for _, keep in kept)
        target = _union(
            [(rows if keep else self._touched(rows)).withColumn(_KEEP_COLUMN, F.lit(keep)) for rows, keep in kept]
        )
        parts = [] if target is None else [self._written(self._labelled(target, self._how(keeps)), keeps)]
        if self.inserts:
            partners = _union([item for item in (target, _with_keep(matched)) if item is not None])
            parts.append(self.inserted(partners, few=few))
        return _union(parts)

    def filled(self, rows: DataFrame, layout: TableLayout) -> FilledRows:
        """``rows`` of :meth:`rows` or :meth:`inserted` with the values that the table computes: defaults and identity values where
        a clause gives none, and generated values of all rows that change, unless a clause gives them.
        """
        action = F.col(_ACTION_COLUMN)
        generated = generated_columns(self.schema)
        given: dict[str, Column] = {}
        for name in computed_columns(self.schema):
            without = [
                number
                for number, clause in enumerate(self.clauses)
                if name in clause.defaults
                or (name not in clause.values and (clause.action is ClauseAction.INSERT or name in generated))
            ]
            if without:
                given[name] = ~action.isin(without)
        frame = fill(rows, layout, given) if given else rows
        numbered = numbered_columns(self.schema, list(given)) if self.inserts else frozenset[str]()
        return FilledRows(frame=frame.drop(_ACTION_COLUMN), numbered=numbered)

    @property
    def moves_only(self) -> bool:
        """Whether no row gets new values: rows are only deleted and copied."""
        return all(clause.action is ClauseAction.DELETE for clause in self.clauses)

    def _how(self, keeps: bool) -> str:
        """The join that has the rows of the table to write.

        Args:
            keeps: unchanged rows are among them.
        """
        return "left" if keeps or self._has(ClauseKind.NOT_MATCHED_BY_SOURCE) else "inner"

    def _touched(self, rows: DataFrame) -> DataFrame:
        """Without a source: the rows to which a clause applies. Spark uses such a filter to skip parts of files."""
        conditions = [clause.condition for clause in self.clauses]
        known = [condition for condition in conditions if condition is not None]
        if self.source is not None or self.computed or len(known) < len(conditions):
            return rows
        return rows.alias(self.target_alias).where(reduce(or_, known))

    def inserted(self, target: DataFrame | None, *, few: bool = False) -> DataFrame:
        """The rows of the source without a partner in ``target`` that a clause inserts.

        Args:
            few: the rows of ``target`` that have partners fit in the memory of each task, so that they need not be shuffled.
        """
        assert self.source is not None
        rows = self.source.frame.alias(self.source.alias)
        if target is not None:
            partners = self._target(target)
            if self.source.is_small:
                partners = partners.join(self.source.side(), self.source.on, "left_semi").alias(self.target_alias)
                partners = F.broadcast(partners) if few else partners
            rows = rows.join(partners, self.source.on, "left_anti")
        labelled = rows.withColumn(_ACTION_COLUMN, self._action({ClauseKind.NOT_MATCHED: F.lit(True)}))
        return self._selected(labelled.where(F.col(_ACTION_COLUMN) >= 0), {ClauseAction.INSERT}, old=None)

    def without_inserts(self) -> "RowChangeQuery":
        """The clauses that change rows of the table."""
        clauses = tuple(clause for clause in self.clauses if clause.kind is not ClauseKind.NOT_MATCHED)
        return replace(self, clauses=clauses)

    def images(self, target: DataFrame, layout: TableLayout, change_type: str) -> DataFrame:
        """Rows of ``target`` that change, before and after, as change files have them.

        Args:
            target: with the columns of files and positions if a row may have several partners.
            layout: of the table after the change.
            change_type: name of the column with the kind of the change.
        """
        labelled = self._labelled(self._touched(target), self._how(keeps=False))
        action = F.col(_ACTION_COLUMN)
        if FILE_COLUMN in target.columns:
            labelled = labelled.dropDuplicates([FILE_COLUMN, POSITION_COLUMN])
        old, names = self._old(), self.schema.names
        new = self._values({ClauseAction.UPDATE}, old)

        def image(values: Mapping[str, Column], kind: str, number: Column) -> Column:
            columns = [values[name].alias(f"c{place}") for place, name in enumerate(names)]
            return F.struct(*columns, number.alias("number"), F.lit(kind).alias("kind"))

        updates = [number for number, clause in enumerate(self.clauses) if clause.action is ClauseAction.UPDATE]
        unchanged = F.lit(_UNCHANGED)
        images = F.array(image(old, "delete", unchanged))
        if updates:
            pair = F.array(image(old, "update_preimage", unchanged), image(new, "update_postimage", action))
            images = F.when(action.isin(updates), pair).otherwise(images)
        exploded = labelled.where(action >= 0).select(F.explode(images).alias("image"))
        rows = exploded.select(
            *[F.col(f"image.c{place}").alias(name) for place, name in enumerate(names)],
            F.col("image.kind").alias(change_type),
            F.col("image.number").alias(_ACTION_COLUMN),
        )
        return self.filled(rows, layout).frame

    def _written(self, labelled: DataFrame, keeps: bool) -> DataFrame:
        """The new rows of a join: updated and inserted ones, and those that are kept."""
        stays = [number for number, clause in enumerate(self.clauses) if clause.action is not ClauseAction.DELETE]
        action = F.col(_ACTION_COLUMN)
        keep = (action == _UNCHANGED) & F.coalesce(F.col(_KEEP_COLUMN), F.lit(False))
        wanted = keep if not stays else action.isin(stays) | keep
        actions = {ClauseAction.UPDATE, ClauseAction.INSERT}
        return self._selected(labelled.where(wanted), actions, old=self._old(), keeps=keeps)

    def _selected(
        self, rows: DataFrame, actions: set[ClauseAction], *, old: Mapping[str, Column] | None, keeps: bool = False
    ) -> DataFrame:
        values = self._values(actions, old, keeps=keeps)
        columns = [values[name].alias(name) for name in self.schema.names]
        return rows.select(*columns, *self._kept_ids(is_new=old is None), F.col(_ACTION_COLUMN))

    def _kept_ids(self, *, is_new: bool) -> list[Column]:
        """Ids and commit versions that rows keep. NULL stands for a fresh id, and for the version of the commit."""
        if self.row_ids is None:
            return []
        null = F.lit(None).cast("bigint")
        alias = quoted(self.target_alias)
        row_id = null if is_new else F.col(f"{alias}.{ROW_ID}")
        version = (
            null if is_new else F.when(F.col(_ACTION_COLUMN) == _UNCHANGED, F.col(f"{alias}.{ROW_COMMIT_VERSION}"))
        )
        return [row_id.alias(self.row_ids.row_id), version.alias(self.row_ids.row_commit_version)]

    def _values(
        self, actions: set[ClauseAction], old: Mapping[str, Column] | None, *, keeps: bool = True
    ) -> dict[str, Column]:
        """The value of each column after the change; of a column that no clause gives, that of ``old`` or NULL.

        Args:
            keeps: no clause applies to some of the rows. Otherwise a column that every clause gives is not read.
        """
        action = F.col(_ACTION_COLUMN)
        clauses = [(number, clause) for number, clause in enumerate(self.clauses) if clause.action in actions]
        values: dict[str, Column] = {}
        for item in self.schema.fields:
            name = item.name
            other = F.lit(None).cast(sql_type(item.type)) if old is None else old[name]
            given = [(number, clause.values[name]) for number, clause in clauses if name in clause.values]
            value = other
            if given and not keeps and len(given) == len(clauses):
                value = given.pop()[1]
            for number, column in reversed(given):
                value = F.when(action == number, column).otherwise(value)
            values[name] = value
        return values

    def _old(self) -> dict[str, Column]:
        alias = quoted(self.target_alias)
        return {name: F.col(f"{alias}.{quoted(name)}") for name in self.schema.names}

    def _has(self, kind: ClauseKind) -> bool:
        return any(clause.kind is kind for clause in self.clauses)

    def _labelled(self, target: DataFrame, how: str, *, numbered: bool = False) -> DataFrame:
        """The join of ``target`` and source with the number of the clause that applies to each row."""
        rows = self._target(target)
        if self.source is not None:
            rows = rows.join(self.source.side(numbered=numbered), self.source.on, how)
        in_target, in_source = self._in_target(), self._in_source()
        places = {
            ClauseKind.MATCHED: in_target & in_source,
            ClauseKind.NOT_MATCHED: in_source & ~in_target,
            ClauseKind.NOT_MATCHED_BY_SOURCE: in_target & ~in_source,
        }
        return rows.withColumn(_ACTION_COLUMN, self._action(places))

    def _target(self, rows: DataFrame) -> DataFrame:
        return rows.withColumns({**self.computed, _IN_TARGET: F.lit(True)}).alias(self.target_alias)

    def _in_target(self) -> Column:
        return F.col(_IN_TARGET).isNotNull()

    def _in_source(self) -> Column:
        return F.lit(False) if self.source is None else F.col(_IN_SOURCE).isNotNull()

    def _action(self, places: Mapping[ClauseKind, Column]) -> Column:
        found = F.lit(_UNCHANGED)
        for number, clause in reversed(list(enumerate(self.clauses))):
            if clause.kind not in places:
                continue
            applies = places[clause.kind]
            if clause.condition is not None:
                applies = applies & clause.condition
            found = F.when(applies, F.lit(number)).otherwise(found)
        return found


def _with_keep(rows: DataFrame | None) -> DataFrame | None:
    return None if rows is None else rows.withColumn(_KEEP_COLUMN, F.lit(False))


def _union(frames: Sequence[DataFrame]) -> DataFrame | None:
    return reduce(DataFrame.union, frames) if frames else None


def _entry(file: Column, position: Column, *, pairs: Column, matched: Column, changes: Sequence[Column]) -> Column:
    """A row of a file, or of the source, to be counted."""
    flags = zip(_bit_names(len(changes)), (matched, *changes), strict=True)
    named = [flag.alias(name) for name, flag in flags]
    return F.struct(file.alias("file"), position.alias("position"), pairs.alias("pairs"), *named)


def _bit_names(num_groups: int) -> list[str]:
    return ["matched", *(f"group{place}" for place in range(num_groups))]


def _found(
    counted: pa.Table, groups: Sequence[tuple[ClauseKind, ClauseAction]], *, counts_source: bool
) -> FoundChanges:
    """The changes of each file from rows of one word of positions each."""
    of_source = pc.equal(counted[FILE_COLUMN], "")
    num_partners = int(_flags(_bits(counted.filter(of_source), "matched")).sum()) if counts_source else None
    counted = counted.filter(pc.invert(of_source))
    counted = counted.combine_chunks()
    words = counted[_WORD_COLUMN].to_numpy()
    files = counted[FILE_COLUMN].combine_chunks().dictionary_encode()
    indices = files.indices.to_numpy()
    bits = {name: _bits(counted, name) for name in _bit_names(len(groups))}
    pairs = counted["pairs"].to_numpy()
    ambiguous = int(pairs.sum()) - int(_flags(bits["matched"]).sum())
    order = np.argsort(indices, kind="stable")
    bounds = np.searchsorted(indices[order], np.arange(len(files.dictionary) + 1))
    found: dict[str, FileChanges] = {}
    for place, name in enumerate(files.dictionary.to_pylist()):
        rows = order[bounds[place] : bounds[place + 1]]
        updated: dict[ClauseKind, BitMap64] = {}
        deleted: dict[ClauseKind, BitMap64] = {}
        for number, (kind, action) in enumerate(groups):
            positions = _positions(words[rows], bits[f"group{number}"][rows])
            (updated if action is ClauseAction.UPDATE else deleted)[kind] = positions
        matched = _positions(words[rows], bits["matched"][rows])
        found[spark_file_key(name)] = FileChanges(matched=matched, updated=updated, deleted=deleted)
    return FoundChanges(files=found, num_ambiguous=ambiguous, num_partners=num_partners)


def _bits(counted: pa.Table, name: str) -> npt.NDArray[np.uint64]:
    values: npt.NDArray[np.int64] = counted[name].fill_null(0).to_numpy().astype(np.int64)
    return values.view(np.uint64)


def _positions(words: npt.NDArray[np.int64], bits: npt.NDArray[np.uint64]) -> BitMap64:
    """The positions whose bits are set; word ``i`` holds those from ``64 * i`` on."""
    used = np.flatnonzero(bits)
    rows, places = np.nonzero(_flags(bits[used]))
    return BitMap64((words[used][rows] * 64 + places).astype(np.uint64))


def _flags(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """One row of 64 zeros and ones for each word, lowest bit first."""
    return np.unpackbits(bits.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
