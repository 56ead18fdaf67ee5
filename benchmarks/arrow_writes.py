"""Appends of Arrow tables without Spark: one row, all rows, all rows in fifty partitions, and the first row of a process."""

import importlib
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.shared import Shared

TASKS = ("arrow_append", "arrow_append_partitioned", "arrow_append_one_row", "arrow_first_row")
PARTITION = "region"
_TABLES = {"arrow_append": "plain", "arrow_append_partitioned": "partitioned", "arrow_append_one_row": "one"}

Task = Callable[[], dict[str, Any]]


def is_wanted(shared: Shared) -> bool:
    """Whether the run has a task of this module."""
    return bool(set(TASKS).intersection(shared.tasks))


def rows(count: int) -> Any:
    """Rows as the appends by Spark write them, as an Arrow table."""
    pa, np = importlib.import_module("pyarrow"), importlib.import_module("numpy")
    ids = np.arange(count)
    return pa.table(
        {
            "id": ids,
            "customer": pa.array(ids % 1000, pa.int32()),
            PARTITION: pa.array(ids % 50, pa.int32()),
            "amount": (ids * 7 % 100003).astype("float64"),
            "paid": ids % 2 == 0,
            "label": pa.array([f"order-{number}" for number in (ids % 100000).tolist()]),
            "at": pa.array(1_700_000_000_000_000 + ids * 1000, pa.timestamp("us", "UTC")),
            "day": pa.array(19723 + ids % 365, pa.int32()).cast(pa.date32()),
        }
    )


class ArrowWriter:
    """The tasks of one engine: ``ours``, with a SQLite catalog, or ``deltalake``, with tables by path."""

    def __init__(self, engine: str, home: Path, shared: Shared) -> None:
        self._engine, self._home = engine, home / "arrow-writes"
        self._home.mkdir()
        self._rows = {"plain": rows(shared.rows), "one": rows(1)}
        self._rows["partitioned"] = self._rows["plain"]
        self._lake = _lake(self._home) if engine == "ours" else None
        for name, table in self._rows.items():
            partition_by = [PARTITION] if name == "partitioned" else []
            if self._lake is not None:
                self._lake.open_or_create(f"main.bench.{name}", like=table.slice(0, 0), partition_by=partition_by)
            else:
                deltalake = importlib.import_module("deltalake")
                deltalake.write_deltalake(str(self._home / name), table.slice(0, 0), partition_by=partition_by or None)

    def tasks(self) -> dict[str, Task]:
        appends: dict[str, Task] = {task: self._append(name) for task, name in _TABLES.items()}
        return {**appends, "arrow_first_row": self._first_row}

    def close(self) -> None:
        if self._lake is not None:
            self._lake.close()

    def _append(self, name: str) -> Task:
        table = self._rows[name]
        if self._lake is not None:
            lake = self._lake
            return lambda: {"answer": lake.table(f"main.bench.{name}").append(table).num_output_rows}
        write = importlib.import_module("deltalake").write_deltalake
        place = str(self._home / name)

        def append() -> dict[str, Any]:
            write(place, table, mode="append")
            return {"answer": table.num_rows}

        return append

    def _first_row(self) -> dict[str, Any]:
        """A process that imports the package, makes a table and writes a row."""
        place = self._home / uuid.uuid4().hex
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.arrow_writes", self._engine, str(place)], check=True, capture_output=True
        )
        return {"answer": int(done.stdout)}


def _lake(place: Path) -> Any:
    return importlib.import_module("cm_delta_dagster").connect(
        f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}/tables"
    )


def main() -> None:
    """Write the first row of a process. Prints the number of rows."""
    engine, place = sys.argv[1], Path(sys.argv[2])
    place.mkdir()
    table = importlib.import_module("pyarrow").table({"id": [1], "label": ["first"]})
    if engine == "ours":
        with _lake(place) as lake:
            print(lake.create_table_as("main.bench.first", table).to_arrow().num_rows)
    else:
        deltalake = importlib.import_module("deltalake")
        deltalake.write_deltalake(str(place / "first"), table)
        print(deltalake.DeltaTable(str(place / "first")).to_pyarrow_table().num_rows, flush=True)
        os._exit(
            0
        )  # A thread that deltalake started can abort the process while the interpreter ends, after the answer.


if __name__ == "__main__":
    main()
