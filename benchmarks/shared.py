"""Locations and sizes of the tables that all engines of a run read; each is created once."""

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import changed_tables, changes, feed_tables, row_tables, tables, wide

_NEEDED = {
    "snapshot_checkpoint": "checkpoint",
    "refresh": "checkpoint",
    "list_partition": "checkpoint",
    "list_range": "checkpoint",
    "snapshot_json": "json",
    "cold_snapshot": "cold",
    "scan": "rows",
    "scan_partition": "rows",
    "scan_deleted": "deleted",
    "arrow_scan": "rows",
    "arrow_query": "rows",
    "arrow_deleted": "deleted",
    "scan_half_deleted": "half",
    "scan_many_vectors": "vectors",
    "scan_large_vector": "large_vector",
    "changes_spark": "feed",
    "changes_arrow": "feed",
    "history": "history",
    "long_log_history": "long_log",
    "long_log_snapshot": "long_log",
    "join_pruning": "rows",
    "first_query": "few",
    "first_query_spark": "few",
    "plan_cold": "many",
    "frame_memory": "many",
    **changes.SOURCES,
    **wide.SOURCES,
    **{f"{task}_{name}": name for task in ("late_filter", "early_filter", "plan") for name in ("few", "many")},
}
_OF_ROWS = ("rows", "deleted", "half", "vectors", "large_vector", "changed", "thousand")
_VECTORS = 1000
COLD_SHARE = 10
"""The table of the cold snapshot has the number of files of the other tables divided by this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Sizes and tables of a run. ``jars`` are delta-spark's; ``s3_jars`` those of Spark's S3 client."""

    home: Path
    rows: int
    files: int
    tasks: tuple[str, ...]
    jars: tuple[str, ...] = ()
    s3_jars: tuple[str, ...] = ()
    s3_endpoint: str = ""
    s3_rows: int = 1_000_000
    s3_files: int = 1_000
    small_files: int = 10_000
    frames: int = 1_000

    def place(self, name: str) -> Path:
        """Root of the table ``name``: a key of ``_makers``. The table never changes after its creation."""
        return self.home / name

    def save(self, file: Path) -> None:
        """The text that the worker processes read."""
        file.write_text(json.dumps({**asdict(self), "home": str(self.home)}))

    @classmethod
    def load(cls, file: Path) -> "Shared":
        values = json.loads(file.read_text())
        lists = {name: tuple(values[name]) for name in ("tasks", "jars", "s3_jars")}
        return cls(**{**values, **lists, "home": Path(values["home"])})

    def make(self) -> None:
        """Create the tables that the tasks need, except those of an earlier run with the same sizes."""
        for name in _needed(self.tasks):
            stamp = self.home / f"{name}.json"
            size = {"rows": self.rows} if name in _OF_ROWS else {"files": self._files_of(name)}
            if stamp.exists() and json.loads(stamp.read_text()) == size:
                continue
            shutil.rmtree(self.place(name), ignore_errors=True)
            self._makers()[name](self.place(name))
            stamp.write_text(json.dumps(size))

    def _files_of(self, name: str) -> int:
        return {"few": max(1, self.small_files // 100), "many": self.small_files}.get(name, self.files)

    def _makers(self) -> dict[str, Callable[[Path], object]]:
        return {
            "checkpoint": lambda root: tables.checkpoint_table(root, self.files),
            "json": lambda root: tables.json_table(root, self.files),
            "cold": lambda root: tables.json_table(root, self.files // COLD_SHARE),
            "rows": lambda root: row_tables.row_table(root, self.rows),
            "deleted": lambda root: row_tables.deleted_table(root, self.place("rows")),
            "half": lambda root: row_tables.deleted_table(root, self.place("rows"), 2),
            "vectors": lambda root: row_tables.vectors_table(root, self.rows, min(_VECTORS, self.rows), 100),
            "large_vector": lambda root: row_tables.vectors_table(root, self.rows, 1, 10),
            "changed": lambda root: changed_tables.files_table(root, self.rows, changed_tables.FILES),
            "thousand": lambda root: changed_tables.files_table(root, self.rows // 10, changed_tables.SMALL_FILES),
            "feed": feed_tables.feed_table,
            "history": feed_tables.history_table,
            "long_log": lambda root: feed_tables.history_table(root, feed_tables.LONG_LOG_COMMITS),
            **wide.makers(),
            "few": lambda root: row_tables.small_files_table(root, self._files_of("few")),
            "many": lambda root: row_tables.small_files_table(root, self._files_of("many")),
        }


def _needed(tasks: Iterable[str]) -> list[str]:
    names = {_NEEDED[task] for task in tasks if task in _NEEDED}
    if names.intersection(("deleted", "half")):
        names.add("rows")
    return sorted(names, key=lambda name: (name != "rows", name))
