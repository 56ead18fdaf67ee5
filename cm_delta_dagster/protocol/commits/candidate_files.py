"""Live files that conflict detection searches for the files that a winning commit removed.

The files are loaded and keyed on the first search, because most transactions need none; further searches use the same keys.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.actions.paths import file_keys


@dataclass(frozen=True, eq=False)
class _Part:
    files: Callable[[], pa.Table]
    location: str

    @cached_property
    def table(self) -> pa.Table:
        return self.files()

    @cached_property
    def keys(self) -> pa.Array:
        return file_keys(self.location, self.table.column("path"))


@dataclass(frozen=True, eq=False)
class KnownFiles:
    """Live files of a version and files added by later commits. Immutable."""

    location: str
    _parts: tuple[_Part, ...]

    @classmethod
    def of(cls, location: str, files: Callable[[], pa.Table]) -> "KnownFiles":
        """Files that are loaded when they are searched for the first time.

        Args:
            location: absolute URI of the table root.
            files: returns the live files, columns of ``ADD_SCHEMA``.
        """
        return cls(location, (_Part(files, location),))

    def plus(self, added: pa.Table) -> "KnownFiles":
        """These files and the files ``added`` by a commit."""
        if not added.num_rows:
            return self
        return replace(self, _parts=(*self._parts, _Part(lambda: added, self.location)))

    def find(self, paths: pa.ChunkedArray) -> tuple[pa.Table, bool]:
        """The files with these ``paths``, as in the log, and whether each path has one.

        Raises CorruptLogError for an invalid path.
        """
        keys = file_keys(self.location, paths)
        unseen = pa.array([True] * len(keys), pa.bool_())
        matching = []
        for part in self._parts:
            matching.append(part.table.filter(pc.is_in(part.keys, value_set=keys)))
            unseen = pc.and_(unseen, pc.invert(pc.is_in(keys, value_set=part.keys)))
        return pa.concat_tables(matching), not pc.any(unseen).as_py()
