"""The rows of a version for polars, which reads the files that need no conversion itself.

polars asks a resolver for a frame while it plans a query, and passes the columns, the limit and the conditions of the query. So the
files are selected by conditions that are added to the frame at any time, and the rest of the plan, e.g. a condition on row groups,
reaches polars' Parquet reader. Files that need a conversion (:mod:`~cm_delta_dagster.arrow.plain_files`) come through
:class:`~cm_delta_dagster.operations.reading.polars.batch_source.BatchSource`.
"""

import importlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cm_delta_dagster.arrow.expressions import FunctionCall
from cm_delta_dagster.arrow.implied_predicates import implied_predicate
from cm_delta_dagster.arrow.plain_files import PlainColumn, PlainFile, plain_columns, plain_files
from cm_delta_dagster.arrow.scan import partition_arrays
from cm_delta_dagster.operations.arguments import names_version
from cm_delta_dagster.operations.reading.polars.batch_source import BatchSource
from cm_delta_dagster.operations.reading.polars.expressions import PolarsPredicate
from cm_delta_dagster.operations.reading.polars.file_frames import FileFrames
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.statistics.stats_json import parse_statistics

if TYPE_CHECKING:
    from polars import DataFrame, Expr, LazyFrame
else:
    DataFrame = Expr = LazyFrame = Any  # So that the hints can be evaluated without the package.

_ARGUMENTS = {
    "self",
    "projection",
    "limit",
    "filters",
    "filter_columns",
    "filter_drop_columns_idx",
    "existing_resolved_version_key",
}
"""What polars 2.1 passes to a resolver. polars may change that in any release; rows then come through Arrow."""

_FEW_FILES = 64
"""polars opens as many files in the time in which it asks a resolver. It opens these even if a condition excludes them, and skips
their row groups. But it counts rows by their footers, and for the first rows of an order it skips row groups, which it does not do
with a resolver."""
_ROW = "__cm_delta_row"


def resolved_frame(rows: BatchSource) -> LazyFrame | None:
    """The rows as a frame whose files are selected when polars plans a query; None if this polars has no resolvers.

    Few files, all of which polars reads itself, are not selected.

    Args:
        rows: of a scan without a condition and without row ids.
    """
    try:
        interface = importlib.import_module("polars.lazyframe.resolver")
        arguments = inspect.signature(interface.LazyFrameResolver.resolve_lazyframe).parameters.keys()
    except (ImportError, AttributeError):
        return None
    if arguments != _ARGUMENTS or _ROW in rows.dtypes:
        return None
    scan = rows.scan
    if scan.snapshot.num_files <= _FEW_FILES and not scan.snapshot.partition_columns:
        names = list(rows.dtypes)
        whole = _PlannedRead(rows=rows, names=names, returned=names, limit=None, conditions=())
        frame = whole.native_frame()
        if frame is not None:
            return frame
    # polars shows the name of the class in its plans.
    resolver = type("CmDelta", (FileResolver, interface.LazyFrameResolver), {})
    resolved: LazyFrame = resolver(rows=rows, interface=interface).lazy()
    return resolved


@dataclass(frozen=True, kw_only=True, eq=False)
class FileResolver:
    """The resolver of one scan. Its methods are those of ``polars.lazyframe.resolver.LazyFrameResolver``."""

    rows: BatchSource
    interface: ModuleType

    def schema(self) -> Any:
        return self.rows.dtypes

    def cse_eq(self, other: object) -> bool:
        return isinstance(other, FileResolver) and other.rows is self.rows

    def resolve_lazyframe(
        self,
        *,
        projection: list[str] | None,
        limit: int | None,
        filters: list[Any],
        filter_drop_columns_idx: int | None,
        **_: object,
    ) -> tuple[LazyFrame, Any]:
        """The rows, limited and filtered, and the statement that they are filtered."""
        names = list(self.rows.dtypes) if projection is None else projection
        # A limit counts the rows before the conditions, which are then left to polars.
        conditions = [] if limit is not None else [item.expr for item in filters]
        query = _PlannedRead(
            rows=self.rows,
            names=names,
            returned=names if limit is not None and filters else names[:filter_drop_columns_idx],
            limit=limit,
            conditions=conditions,
        )
        snapshot = self.rows.scan.snapshot
        with names_version(snapshot, store=self.rows.scan.store):
            frame = query.frame()
        return frame, self.interface.ResolvedLazyFrameProps(applied_filters=range(len(conditions)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlannedRead:
    """What polars asks for.

    Attributes:
        names: the columns of the frame, in this order.
        returned: those whose values are used after the conditions.
        limit: of rows, before conditions; None for all rows.
        conditions: which the rows have to satisfy.
    """

    rows: BatchSource
    names: Sequence[str]
    returned: Sequence[str]
    limit: int | None
    conditions: Sequence[Expr]

    def frame(self) -> LazyFrame:
        """The rows."""
        frames, others = self._native()
        if others.num_rows:
            through_arrow = replace(self.rows, scan=self.rows.scan.with_files(others)).lazy()
            frames.append(through_arrow.filter(*self.conditions) if self.conditions else through_arrow)
        return self._joined(frames)

    def native_frame(self) -> LazyFrame | None:
        """The rows; None if polars does not read all files itself, or if there are none."""
        frames, others = self._native()
        return None if others.num_rows or not frames else self._joined(frames)

    def _native(self) -> tuple[list[LazyFrame], pa.Table]:
        """The rows of the files that polars reads itself, and the other files."""
        polars, scan = self.rows.polars, self.rows.scan
        layout = scan.snapshot.layout
        files = scan.snapshot.matching_files(self._implied())
        partitions = frozenset(item.name for item in layout.partition_fields)
        on_partitions, on_rows = self._split_conditions(partitions)
        values = self._partition_values(files, partitions)
        if on_partitions:
            selected = _selected(values, on_partitions, polars)
            if selected is None:
                on_rows += on_partitions
            else:
                files, values = files.take(selected[_ROW].to_arrow()), selected
        if self.limit is not None:
            files = _first_files(files, self.limit)
            values = values.head(files.num_rows)
        used = {*self.returned, *(name for condition in on_rows for name in condition.meta.root_names())}
        columns = plain_columns(layout, [name for name in self.rows.dtypes if name in used])
        plain = [] if columns is None else self._plain_files(files, columns)
        if columns is None or not plain:
            return [], files
        native = FileFrames(
            polars=polars,
            dtypes=self.rows.dtypes,
            columns=columns,
            paths=[file.path for file in plain],
            values=values[[file.row for file in plain]].select(
                name for name in values.columns if name in used & partitions
            ),
        )
        others = sorted({*range(files.num_rows)} - {file.row for file in plain})
        return list(native.frames(on_rows)), files.take(pa.array(others, pa.int64()))

    def _plain_files(self, files: pa.Table, columns: Sequence[PlainColumn]) -> list[PlainFile]:
        """The files of which polars can read the columns.

        A footer is read once if all columns of a file can be read, else once for each choice of columns.
        """
        scan = self.rows.scan
        layout = scan.snapshot.layout
        every = plain_columns(layout, list(self.rows.dtypes))
        plain = [] if every is None else plain_files(scan.store, layout, files, every)
        if len(plain) == files.num_rows or every == columns:
            return plain
        others = sorted({*range(files.num_rows)} - {file.row for file in plain})
        in_part = plain_files(scan.store, layout, files.take(others), columns)
        return plain + [replace(file, row=others[file.row]) for file in in_part]

    def _joined(self, frames: Sequence[LazyFrame]) -> LazyFrame:
        """All rows with the columns ``names``; those that only conditions used are null where no condition is left to use them."""
        polars = self.rows.polars
        parts = []
        for frame in frames:
            known = frame.collect_schema().names()
            null = [polars.lit(None, self.rows.dtypes[name]).alias(name) for name in self.names if name not in known]
            parts.append(frame.with_columns(null).select(self.names) if self.names else frame.drop("*"))
        if not parts:
            dtypes = {name: self.rows.dtypes[name] for name in self.names}
            empty: LazyFrame = polars.LazyFrame(schema=dtypes)
            return empty
        whole: LazyFrame = parts[0] if len(parts) == 1 else polars.concat(parts)
        return whole if self.limit is None else whole.head(self.limit)

    def _implied(self) -> Predicate | None:
        """A condition on the rows by which files are selected."""
        parts = [PolarsPredicate(item, polars=self.rows.polars).parts for item in self.conditions]
        if not parts:
            return None
        return implied_predicate(FunctionCall("and_kleene", tuple(parts)), self.rows.scan.snapshot.schema)

    def _split_conditions(self, partitions: frozenset[str]) -> tuple[list[Expr], list[Expr]]:
        """The conditions that have only partition columns, and the others."""
        on_partitions: list[Expr] = []
        on_rows: list[Expr] = []
        for condition in self.conditions:
            names = set(condition.meta.root_names())
            (on_partitions if names and names <= partitions else on_rows).append(condition)
        return on_partitions, on_rows

    def _partition_values(self, files: pa.Table, partitions: frozenset[str]) -> DataFrame:
        """The value of each partition column of the scan for every file, and the number of the file."""
        names = [name for name in self.rows.dtypes if name in partitions]
        arrays = partition_arrays(files, self.rows.scan.snapshot.layout) if names else {}
        polars = self.rows.polars
        frame: DataFrame = polars.DataFrame({_ROW: range(files.num_rows)})
        return frame.with_columns(polars.from_arrow(arrays[name]).alias(name) for name in names)


def _selected(values: DataFrame, conditions: Sequence[Expr], polars: ModuleType) -> DataFrame | None:
    """Those of ``values`` that satisfy the conditions; None if polars needs the rows of the table for that."""
    try:
        selected: DataFrame = values.filter(*conditions)
    except polars.exceptions.PolarsError:
        return None
    return selected


def _first_files(files: pa.Table, limit: int) -> pa.Table:
    """The first files that are known to have ``limit`` rows together, so that the others need not be opened."""
    counts = parse_statistics(files["stats"], {}).num_records.to_pylist()
    has_vector = files["deletionVector"].is_valid().to_pylist()
    rows = 0
    for number, (count, has_deleted_rows) in enumerate(zip(counts, has_vector, strict=True)):
        rows += 0 if count is None or has_deleted_rows else count
        if rows >= limit:
            return files.slice(0, number + 1)
    return files
