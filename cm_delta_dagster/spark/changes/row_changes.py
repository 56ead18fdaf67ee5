"""Queries of row changes: which rows of which files change, and which rows are written.

DELETE, UPDATE and MERGE are clauses that apply to the rows of a join of the table with a source; without a source every row of the
table has no partner. The first clause of its kind whose condition is true applies to a row. Files and positions of the changed rows
are found first, from the columns that the conditions need. Rows are written by a second query over the files that changed.

Source and target are addressed by their aliases.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind, FoundChanges
from cm_delta_dagster.protocol.features.computed_columns import computed_columns
from cm_delta_dagster.protocol.features.generated_columns import generated_columns
from cm_delta_dagster.protocol.features.row_tracking import ROW_COMMIT_VERSION, ROW_ID, RowIdColumns
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.types import StructField, StructType
from cm_delta_dagster.spark.changes.change_clauses import ChangeClause
from cm_delta_dagster.spark.changes.found_changes import counted_changes, found_changes
from cm_delta_dagster.spark.expressions.schema import quoted, sql_type
from cm_delta_dagster.spark.library import Column, DataFrame, F, pyspark
from cm_delta_dagster.spark.read.file_values import FILE_COLUMN, OWN_PREFIX, POSITION_COLUMN
from cm_delta_dagster.spark.rules.fill import FilledRows, fill, numbered_columns
from cm_delta_dagster.spark.session.cancellation import collected_table
from cm_delta_dagster.spark.session.errors import spark_errors
from cm_delta_dagster.spark.session.plans import plan_broadcasts, selected

_ACTION_COLUMN = f"{OWN_PREFIX}action"
"""Number of the clause that applies to a row, or -1."""
_IN_TARGET = f"{OWN_PREFIX}in_target"
_IN_SOURCE = f"{OWN_PREFIX}in_source"
_KEEP_COLUMN = f"{OWN_PREFIX}keep"
_SOURCE_ROW = f"{OWN_PREFIX}source_row"
_UNCHANGED = -1


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
class RowsToWrite:
    """Rows that a change writes; None stands for none.

    Attributes:
        copied: rows that tasks write which read them from files, unchanged ones among them.
        changed: rows that are updated or inserted.
    """

    copied: DataFrame | None
    changed: DataFrame | None

    def union(self, gather: Callable[[DataFrame], DataFrame]) -> DataFrame | None:
        """All rows; None if there are none.

        Args:
            gather: what is done with the changed rows before.
        """
        changed = None if self.changed is None else gather(self.changed)
        return _union([rows for rows in (self.copied, changed) if rows is not None])


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
            target: rows of :func:`~cm_delta_dagster.spark.read.scan.scan_with_files`.
            few: one task can read them; this saves a stage.
        """
        groups = self._groups()
        joined = self._labelled(self._touched(target), self._how(keeps=False), numbered=self.inserts)
        joined = joined.coalesce(1) if few else joined
        pair = "FALSE" if self.source is None else f"({_IN_SOURCE} IS NOT NULL AND {_IN_TARGET} IS NOT NULL)"
        counted = counted_changes(
            joined.where(f"{_ACTION_COLUMN} >= 0 OR {pair}"),
            pair=pair,
            changes=[f"{_ACTION_COLUMN} IN ({', '.join(map(str, numbers))})" for numbers in groups.values()],
            source_row=_SOURCE_ROW if self.inserts else None,
        )
        with spark_errors("looking for the rows that change"):
            plan_broadcasts(counted)
            rows = collected_table(counted)
        return found_changes(rows, list(groups), counts_source=self.inserts)

    def _groups(self) -> dict[tuple[ClauseKind, ClauseAction], list[int]]:
        """Numbers of the clauses that change rows of the table, by kind and action."""
        groups: dict[tuple[ClauseKind, ClauseAction], list[int]] = {}
        for number, clause in enumerate(self.clauses):
            if clause.action is not ClauseAction.INSERT:
                groups.setdefault((clause.kind, clause.action), []).append(number)
        return groups

    @property
    def is_apart(self) -> bool:
        """Whether :meth:`rows_apart` has less work than :meth:`rows`: only rows that change are shuffled, and rows that are
        copied need no condition.
        """
        return self.moves_only or (self.source is not None and not self.source.is_small)

    def rows_apart(self, copied: DataFrame | None, touched: DataFrame | None) -> RowsToWrite:
        """The rows to write.

        Args:
            copied: rows that are written as they are.
            touched: rows that are updated or that have partners; None if there are none.
        """
        rows, changed = None if copied is None else self._copied(copied), None
        if touched is not None:
            how = self._how(keeps=False)
            if self.inserts:
                how = "full_outer" if how == "left" else "right"
            kept = touched.withColumn(_KEEP_COLUMN, F.lit(False))
            changed = self._written(self._labelled(kept, how), False)
        elif self.inserts:
            changed = self.inserted(None)
        return RowsToWrite(copied=rows, changed=changed)

    def _copied(self, rows: DataFrame) -> DataFrame:
        unchanged = rows.alias(self.target_alias).withColumn(_ACTION_COLUMN, F.lit(_UNCHANGED))
        return self._selected(unchanged, frozenset(), is_new=False)

    def rows(
        self, kept: Sequence[tuple[DataFrame, bool]], matched: DataFrame | None, *, few: bool = False
    ) -> RowsToWrite:
        """The rows to write. Updated rows of files that are copied are among the copied ones.

        Args:
            kept: rows of files that changed, and whether their unchanged rows are written too.
            matched: rows of the other files that hold partners of rows of the source; None if there are none.
            few: the rows of the table that have partners fit in the memory of each task.
        """
        keeps = any(keep for _, keep in kept)
        target = _union(
            [(rows if keep else self._touched(rows)).withColumn(_KEEP_COLUMN, F.lit(keep)) for rows, keep in kept]
        )
        rows = None if target is None else self._written(self._labelled(target, self._how(keeps)), keeps)
        inserted = None
        if self.inserts:
            partners = _union([item for item in (target, _with_keep(matched)) if item is not None])
            inserted = self.inserted(partners, few=few)
        if keeps:
            return RowsToWrite(copied=rows, changed=inserted)
        return RowsToWrite(copied=None, changed=_union([part for part in (rows, inserted) if part is not None]))

    def filled(self, rows: DataFrame, layout: TableLayout) -> FilledRows:
        """``rows`` of :meth:`rows` or :meth:`inserted` with the values that the table computes: defaults and identity values where
        a clause gives none, and generated values of all rows that change, unless a clause gives them.
        """
        action = F.col(_ACTION_COLUMN)
        generated = generated_columns(self.schema)
        is_given_by_name: dict[str, Column] = {}
        for name in computed_columns(self.schema):
            without = [
                number
                for number, clause in enumerate(self.clauses)
                if name in clause.defaults
                or (name not in clause.values and (clause.action is ClauseAction.INSERT or name in generated))
            ]
            if without:
                is_given_by_name[name] = ~action.isin(without)
        frame = fill(rows, layout, is_given_by_name) if is_given_by_name else rows
        numbered = numbered_columns(self.schema, list(is_given_by_name)) if self.inserts else frozenset[str]()
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
        labelled = rows.withColumn(_ACTION_COLUMN, self._action({ClauseKind.NOT_MATCHED: "TRUE"}))
        return self._selected(labelled.where(f"{_ACTION_COLUMN} >= 0"), {ClauseAction.INSERT}, is_new=True)

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
        old, names = {name: F.col(self._old(name)) for name in self.schema.names}, self.schema.names
        new = {**old, **self._values({ClauseAction.UPDATE}, is_new=False)}

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
        keep = f"({_ACTION_COLUMN} = {_UNCHANGED} AND coalesce({_KEEP_COLUMN}, FALSE))"
        is_written = keep if not stays else f"{_ACTION_COLUMN} IN ({', '.join(map(str, stays))}) OR {keep}"
        actions = {ClauseAction.UPDATE, ClauseAction.INSERT}
        return self._selected(labelled.where(is_written), actions, is_new=False, keeps=keeps)

    def _selected(self, rows: DataFrame, actions: Set[ClauseAction], *, is_new: bool, keeps: bool = False) -> DataFrame:
        """The columns of the table as :meth:`_values` has them, the ids that rows keep, and the numbers of the clauses."""
        values = self._values(actions, is_new=is_new, keeps=keeps)
        columns = [
            values[item.name].alias(item.name)
            if item.name in values
            else f"{self._null(item) if is_new else self._old(item.name)} AS {quoted(item.name)}"
            for item in self.schema.fields
        ]
        return selected(rows, [*columns, *self._kept_ids(is_new=is_new), _ACTION_COLUMN])

    def _kept_ids(self, *, is_new: bool) -> list[str]:
        """Ids and commit versions that rows keep. NULL stands for a fresh id, and for the version of the commit."""
        if self.row_ids is None:
            return []
        row_id = version = "CAST(NULL AS BIGINT)"
        if not is_new:
            row_id = self._old(ROW_ID)
            version = f"CASE WHEN {_ACTION_COLUMN} = {_UNCHANGED} THEN {self._old(ROW_COMMIT_VERSION)} END"
        names = self.row_ids.row_id, self.row_ids.row_commit_version
        return [f"{value} AS {quoted(name)}" for value, name in zip((row_id, version), names, strict=True)]

    def _values(self, actions: Set[ClauseAction], *, is_new: bool, keeps: bool = True) -> dict[str, Column]:
        """The new value of each column to which a clause gives one; where none does, the old one, or NULL in a new row.

        Args:
            keeps: no clause applies to some of the rows. Otherwise a column that every clause gives is not read.
        """
        action = F.col(_ACTION_COLUMN)
        clauses = [(number, clause) for number, clause in enumerate(self.clauses) if clause.action in actions]
        applies = {number: action == number for number, _ in clauses}
        values: dict[str, Column] = {}
        for item in self.schema.fields:
            name = item.name
            assigned = [(number, clause.values[name]) for number, clause in clauses if name in clause.values]
            if not assigned:
                continue
            if not keeps and len(assigned) == len(clauses):
                value = assigned.pop()[1]
            else:
                value = F.expr(self._null(item) if is_new else self._old(name))
            for number, column in reversed(assigned):
                value = F.when(applies[number], column).otherwise(value)
            values[name] = value
        return values

    def _old(self, name: str) -> str:
        return f"{quoted(self.target_alias)}.{quoted(name)}"

    @staticmethod
    def _null(item: StructField) -> str:
        return f"CAST(NULL AS {sql_type(item.type)})"

    def _has(self, kind: ClauseKind) -> bool:
        return any(clause.kind is kind for clause in self.clauses)

    def _labelled(self, target: DataFrame, how: str, *, numbered: bool = False) -> DataFrame:
        """The join of ``target`` and source with the number of the clause that applies to each row."""
        rows = self._target(target)
        if self.source is not None:
            rows = rows.join(self.source.side(numbered=numbered), self.source.on, how)
        places = {
            ClauseKind.MATCHED: f"{_IN_TARGET} IS NOT NULL AND {_IN_SOURCE} IS NOT NULL",
            ClauseKind.NOT_MATCHED: f"{_IN_SOURCE} IS NOT NULL AND {_IN_TARGET} IS NULL",
            ClauseKind.NOT_MATCHED_BY_SOURCE: f"{_IN_TARGET} IS NOT NULL AND {_IN_SOURCE} IS NULL",
        }
        if self.source is None:
            places = {ClauseKind.NOT_MATCHED_BY_SOURCE: "TRUE"}
        return rows.withColumn(_ACTION_COLUMN, self._action(places))

    def _target(self, rows: DataFrame) -> DataFrame:
        marks = {} if self.source is None else {_IN_TARGET: F.lit(True)}
        columns = {**self.computed, **marks}
        return (rows.withColumns(columns) if columns else rows).alias(self.target_alias)

    def _action(self, places: Mapping[ClauseKind, str]) -> Column:
        """The number of the first clause that applies to a row.

        Args:
            places: for each kind of clause, the condition on the rows of the join as SQL text; others do not apply.
        """
        number_of_clause = F.lit(_UNCHANGED)
        for number, clause in reversed(list(enumerate(self.clauses))):
            if clause.kind not in places:
                continue
            place = places[clause.kind]
            if clause.condition is None:
                applies = F.expr(place)
            else:
                applies = clause.condition if place == "TRUE" else F.expr(place) & clause.condition
            number_of_clause = F.when(applies, F.lit(number)).otherwise(number_of_clause)
        return number_of_clause


def _with_keep(rows: DataFrame | None) -> DataFrame | None:
    return None if rows is None else rows.withColumn(_KEEP_COLUMN, F.lit(False))


def _union(frames: Sequence[DataFrame]) -> DataFrame | None:
    return reduce(pyspark.sql.DataFrame.union, frames) if frames else None
