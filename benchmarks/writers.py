"""How each engine carries out the tasks of ``changes``."""

import importlib
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import changed_tables
from benchmarks.changes import CHECKS, GENERATED, ORDER, Answer, Design, Source
from benchmarks.row_tables import logged_adds
from benchmarks.shared import Shared

_COLUMNS = {
    "id": "id", "customer": "cast(id % 1000 as int)", "amount": "cast(id * 7 % 100003 as double)",
    "paid": "cast(id % 2 = 0 as boolean)", "label": "concat('order-', cast(id % 100000 as string))",
    "at": "timestamp_micros(1700000000000000 + id * 1000)", "day": "date_add(date'2024-01-01', cast(id % 365 as int))",
}  # fmt: skip
_CHANGED = {**_COLUMNS, "amount": "cast(id * 7 % 100003 as double) + 1", "label": "'changed'"}
_ANSWER = ("count(*)", "sum(id)", "cast(sum(amount) as bigint)")


def _selected(columns: dict[str, str]) -> list[str]:
    return [f"{text} AS {name}" for name, text in columns.items()]


def source_frame(session: Any, source: Source) -> Any:
    """The source of a merge as a DataFrame of two partitions, or of those of a shuffle."""
    rows = session.range(source.first, source.end, source.step, 2).selectExpr(*_selected(_CHANGED))
    if not source.is_shuffled:
        return rows
    numbered = rows.selectExpr("*", "row_number() OVER (PARTITION BY id % 997 ORDER BY id) AS number")
    return numbered.where("number > 0").drop("number")


def appended(session: Any, shared: Shared) -> Any:
    """The rows that an append writes, without the generated column."""
    return session.range(0, shared.rows, 1, 8).selectExpr(*_selected(_COLUMNS))


def _first(frame: Any) -> Answer:
    (row,) = frame.selectExpr(*_ANSWER).collect()
    return row[0], row[1], row[2]


class SparkWriter:
    """Plain Spark: every change reads the same files as the other engines and writes all of their rows again."""

    def __init__(self, session: Any, home: Path, shared: Shared) -> None:
        self._session, self._home, self._shared = session, home, shared
        self._target = home / "rewritten"
        self._kept: list[str] = []

    def fresh(self, design: Design) -> None:
        shutil.rmtree(self._target, ignore_errors=True)
        self._root = None if design.source is None else self._shared.place(design.source)

    def delete(self, where: str) -> None:
        self._write(self._read().where(f"NOT coalesce({where}, false)"))

    def update(self, assignments: Mapping[str, str], where: str) -> None:
        values = [
            f"CASE WHEN {where} THEN {assignments[n]} ELSE {n} END AS {n}" if n in assignments else n for n in _COLUMNS
        ]
        self._write(self._read().selectExpr(*values))

    def merge(self, source: Source) -> None:
        self._kept = []
        rows = self._read(source if source.step == 1 else None).alias("t")
        changed = source_frame(self._session, source).alias("s")
        inserts = source.end > self._shared.rows
        joined = rows.join(changed, rows["id"] == changed["id"], "full_outer" if inserts else "left")
        values = [f"CASE WHEN s.id IS NOT NULL THEN s.{name} ELSE t.{name} END AS {name}" for name in _COLUMNS]
        self._write(joined.selectExpr(*values))

    def optimize(self) -> None:
        self._write(self._read().coalesce(1))

    def z_order(self, columns: tuple[str, ...]) -> None:
        self._write(self._read().repartitionByRange(changed_tables.FILES, *columns).sortWithinPartitions(*columns))

    def cluster(self) -> None:
        self.z_order(ORDER)

    def append(self) -> None:
        self._write(appended(self._session, self._shared).selectExpr("*", f"{GENERATED} AS region"))

    def num_files(self) -> int:
        return len(list(self._target.glob("*.parquet"))) + len(self._kept)

    def answer(self) -> Answer:
        return _first(self._session.read.parquet(str(self._target), *self._kept))

    def _read(self, within: Source | None = None) -> Any:
        """The rows of all files, or of those that a condition on a range of ids needs."""
        files = sorted(map(str, self._root.glob("*.parquet"))) if self._root is not None else []
        if within is not None:
            first, last = (
                changed_tables.FILES * place // self._shared.rows for place in (within.first, within.end - 1)
            )
            self._kept = files[:first] + files[last + 1 :]
            files = files[first : last + 1]
        return self._session.read.parquet(*files)

    def _write(self, frame: Any) -> None:
        frame.write.parquet(str(self._target))


class OurWriter:
    """This package: tables of a SQLite catalog."""

    def __init__(self, session: Any, home: Path, shared: Shared) -> None:
        self._package = importlib.import_module("cm_delta_dagster")
        self._actions = importlib.import_module("cm_delta_dagster.protocol.actions.actions")
        self._session, self._shared = session, shared
        self._lake = self._package.connect(
            f"sqlite:///{home}/changes.db", warehouse=f"file://{home}/changes", spark=session
        )
        self._lake.maintenance.set_policy("main", "DATA_REORGANIZATION")
        self._table: Any = None

    def fresh(self, design: Design) -> None:
        if self._table is not None:
            # The checksum of the last commit may still be written.
            shutil.rmtree(_local(self._table), ignore_errors=True)
        column = self._package.Column
        columns = [
            column(name, kind, nullable=not (design.checked and name == "label"))
            for name, kind in changed_tables.COLUMNS.items()
        ]
        if design.checked:
            columns.append(column("region", "int", generated=GENERATED))
        self._table = self._lake.create_table(
            f"main.bench.t{uuid.uuid4().hex}", columns, properties=design.properties, cluster_by=design.cluster_by
        )
        for name, check in CHECKS.items() if design.checked else ():
            self._table.alter.add_constraint(name, check)
        if design.source is not None:
            self._add(self._shared.place(design.source))
        self._table.to_df().where("id = -1").count()

    def _add(self, place: Path) -> None:
        changed_tables.link_files(place, _local(self._table))
        adds = [
            self._actions.AddFile(
                path=add["path"], partition_values={}, size=add["size"], modification_time=1, stats=add["stats"]
            )
            for add in logged_adds(place)
        ]
        transaction = self._table.table.start_transaction(self._table.table.snapshot(), operation="WRITE")
        transaction.add_files(adds)
        transaction.commit()

    def delete(self, where: str) -> None:
        self._table.delete(where)

    def update(self, assignments: Mapping[str, str], where: str) -> None:
        self._table.update(assignments, where=where)

    def merge(self, source: Source) -> None:
        ids = range(source.first, source.end, source.step)
        rows = changed_tables.changed_rows(ids) if source.is_arrow else source_frame(self._session, source)
        merge = self._table.merge(rows, on="target.id = source.id", source_alias="source")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def optimize(self) -> None:
        self._table.optimize()

    def z_order(self, columns: tuple[str, ...]) -> None:
        self._table.optimize(
            z_order_by=columns, target_size=self._table.table.snapshot().size_bytes // changed_tables.FILES
        )

    def cluster(self) -> None:
        self._table.optimize(target_size=self._table.table.snapshot().size_bytes // changed_tables.FILES)

    def append(self) -> None:
        self._table.append(appended(self._session, self._shared))

    def num_files(self) -> int:
        return self._table.table.snapshot().num_files

    def answer(self) -> Answer:
        return _first(self._table.to_df())

    def close(self) -> None:
        self._lake.close()


class DeltaSparkWriter:
    """delta-spark: tables by path."""

    def __init__(self, session: Any, home: Path, shared: Shared) -> None:
        self._session, self._home, self._shared = session, home, shared
        self._root: Path | None = None

    def fresh(self, design: Design) -> None:
        if self._root is not None:
            shutil.rmtree(self._root)
        self._root = self._home / f"t{uuid.uuid4().hex}"
        if design.source is None:
            self._create(design)
        else:
            changed_tables.linked_table(
                self._root, self._shared.place(design.source), design.properties, design.cluster_by
            )
        self._session.read.format("delta").load(str(self._root)).where("id = -1").count()

    def _create(self, design: Design) -> None:
        columns = [
            f"{name} {kind}" + (" NOT NULL" if name == "label" else "") for name, kind in changed_tables.COLUMNS.items()
        ]
        columns.append(f"region int GENERATED ALWAYS AS ({GENERATED})")
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in design.properties.items())
        self._sql(f"CREATE TABLE {self._name} ({', '.join(columns)}) USING delta TBLPROPERTIES ({properties})")
        for name, check in CHECKS.items():
            self._sql(f"ALTER TABLE {self._name} ADD CONSTRAINT {name} CHECK ({check})")

    @property
    def _name(self) -> str:
        return f"delta.`{self._root}`"

    def _sql(self, text: str) -> None:
        self._session.sql(text).collect()

    def delete(self, where: str) -> None:
        self._sql(f"DELETE FROM {self._name} WHERE {where}")

    def update(self, assignments: Mapping[str, str], where: str) -> None:
        values = ", ".join(f"{name} = {value}" for name, value in assignments.items())
        self._sql(f"UPDATE {self._name} SET {values} WHERE {where}")

    def merge(self, source: Source) -> None:
        source_frame(self._session, source).createOrReplaceTempView("source")
        self._sql(
            f"MERGE INTO {self._name} AS target USING source ON target.id = source.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def optimize(self) -> None:
        self._sql(f"OPTIMIZE {self._name}")

    def z_order(self, columns: tuple[str, ...]) -> None:
        self._with_file_size(f"OPTIMIZE {self._name} ZORDER BY ({', '.join(columns)})")

    def cluster(self) -> None:
        self._with_file_size(f"OPTIMIZE {self._name}")

    def _with_file_size(self, text: str) -> None:
        size = (
            sum(file.stat().st_size for file in self._root.glob("*.parquet")) // changed_tables.FILES
            if self._root
            else 0
        )
        self._session.conf.set("spark.databricks.delta.optimize.maxFileSize", str(size))
        try:
            self._sql(text)
        finally:
            self._session.conf.unset("spark.databricks.delta.optimize.maxFileSize")

    def append(self) -> None:
        appended(self._session, self._shared).write.format("delta").mode("append").save(str(self._root))

    def num_files(self) -> int:
        return len(self._session.read.format("delta").load(str(self._root)).inputFiles())

    def answer(self) -> Answer:
        return _first(self._session.read.format("delta").load(str(self._root)))


class DeltalakeWriter:
    """deltalake: tables by path, without deletion vectors."""

    def __init__(self, package: Any, home: Path, shared: Shared) -> None:
        self._package, self._home, self._shared = package, home, shared
        self._root: Path | None = None

    def fresh(self, design: Design) -> None:
        if self._root is not None:
            shutil.rmtree(self._root)
        assert design.source is not None
        self._root = self._home / f"t{uuid.uuid4().hex}"
        without = Design(source=design.source, feed=design.feed)
        changed_tables.linked_table(self._root, self._shared.place(design.source), without.properties, ())
        self._table = self._package.DeltaTable(str(self._root))

    def delete(self, where: str) -> None:
        self._table.delete(where)

    def update(self, assignments: Mapping[str, str], where: str) -> None:
        self._table.update(updates=dict(assignments), predicate=where)

    def merge(self, source: Source) -> None:
        rows = changed_tables.changed_rows(range(source.first, source.end, source.step))
        merge = self._table.merge(rows, "target.id = source.id", source_alias="source", target_alias="target")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def optimize(self) -> None:
        self._table.optimize.compact()

    def z_order(self, columns: tuple[str, ...]) -> None:
        size = (
            sum(file.stat().st_size for file in self._root.glob("*.parquet")) // changed_tables.FILES
            if self._root
            else 0
        )
        self._table.optimize.z_order(list(columns), target_size=size)

    def cluster(self) -> None:
        raise NotImplementedError("deltalake has no clustered tables; changes.WITHOUT_SPARK leaves the task out")

    def append(self) -> None:
        raise NotImplementedError("deltalake computes no generated columns; changes.WITHOUT_SPARK leaves the task out")

    def num_files(self) -> int:
        return len(self._table.file_uris())

    def answer(self) -> Answer:
        rows = self._table.to_pyarrow_table(columns=["id", "amount"])
        return rows.num_rows, *(int(sum(rows[name].combine_chunks().to_numpy())) for name in ("id", "amount"))


def _local(table: Any) -> Path:
    return Path(str(table.location).removeprefix("file://"))
