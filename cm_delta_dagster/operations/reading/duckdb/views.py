"""The views of one version of a table in a DuckDB connection, each over the files that a statement needs."""

import uuid
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from cm_delta_dagster.arrow.dataset import DeltaDataset
from cm_delta_dagster.operations.reading.duckdb.relation import (
    MOST_LATE_FILES,
    DuckDBPyConnection,
    DuckDBPyRelation,
    native_relation,
)
from cm_delta_dagster.operations.reading.read_dataset import read_dataset
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.protocol.predicates.predicates import Predicate

_KEPT_SELECTIONS = 1_000


@dataclass(frozen=True, slots=True)
class View:
    """The name of a view in DuckDB, and the rows to register under it."""

    name: str
    rows: "DeltaDataset | DuckDBPyRelation"


@dataclass(eq=False)
class VersionViews:
    """The views of one version: one of all files, and one for each condition by which a statement selected files.

    Attributes:
        name: of the table; the names of the views begin with it.
        scan: the version, with all rows and columns.
    """

    name: str
    scan: SnapshotScan
    _views: dict[Any, View] = field(default_factory=dict)

    @cached_property
    def dataset(self) -> DeltaDataset:
        """All rows, for clients that add a condition later."""
        return read_dataset(self.scan)

    def view(self, connection: "DuckDBPyConnection", *, condition: Predicate | None, is_final: bool) -> View:
        """The view for a statement; the caller registers it. The oldest of more than 1,000 is removed.

        Args:
            condition: on the rows that the statement needs.
            is_final: whether no further condition can be added.
        """
        key = (repr(condition), is_final)
        view = self._views.pop(key, None)
        if view is None:
            view = View(self._new_name(), self._rows(connection, condition, is_final=is_final))
        self._views[key] = view
        while len(self._views) > _KEPT_SELECTIONS:
            connection.unregister(self._views.pop(next(iter(self._views))).name)
        return view

    def unregister(self, connection: "DuckDBPyConnection") -> None:
        """Remove all views."""
        for view in self._views.values():
            connection.unregister(view.name)

    def _new_name(self) -> str:
        # Unique, because several catalogs may use one connection.
        return f"{self.name}@v{self.scan.snapshot.version}-{uuid.uuid4().hex[:8]}"

    def _rows(
        self, connection: "DuckDBPyConnection", condition: Predicate | None, *, is_final: bool
    ) -> "DeltaDataset | DuckDBPyRelation":
        files: pa.Table = self.scan.snapshot.matching_files(condition)
        if files.num_rows > MOST_LATE_FILES and not is_final:
            return self.dataset
        relation = native_relation(self.scan, files, self.dataset, connection)
        return self.dataset if relation is None else relation
