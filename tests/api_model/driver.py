"""The public API as the model calls it: the only module of these tests that names it."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster import (
    ApprovalRequiredError,
    ClientSettings,
    CmDeltaError,
    Column,
    CommitConflictError,
    Connection,
    DeltaTable,
    Identity,
    MergeMode,
    SchemaMode,
)
from cm_delta_dagster.api.multi_table_transaction import MultiTableTransaction
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.doctor.findings import Severity
from cm_delta_dagster.storage.stores import Stores
from tests.api_model.conditions import Condition, Types, quoted
from tests.api_model.steps import Assign, Clause, ColumnSpec, Rows
from tests.api_model.values import Value, arguments, base_type, literal
from tests.support.lake import Clock

__all__ = ["ApprovalRequiredError", "CmDeltaError", "CommitConflictError", "Driver"]

SCHEMA = "main.model"
_ARROW: Mapping[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar": pa.string(),
    "char": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}
_TRACKED = ("_row_id", "_row_commit_version")


def _arrow_type(kind: str) -> pa.DataType:
    return pa.decimal128(*arguments(kind)) if base_type(kind) == "decimal" else _ARROW[base_type(kind)]


def arrow_table(rows: Rows) -> pa.Table:
    schema = pa.schema([(name, _arrow_type(kind)) for name, kind in rows.columns])
    columns = zip(*rows.values, strict=True) if rows.values else [()] * len(rows.columns)
    return pa.Table.from_arrays(
        [pa.array(list(values), item.type) for values, item in zip(columns, schema, strict=True)], schema=schema
    )


def full_name(table: str) -> str:
    return f"{SCHEMA}.{table}"


@dataclass(slots=True)
class OpenTransaction:
    """A transaction over several tables whose writes are staged."""

    transaction: MultiTableTransaction


class Driver:
    """Clients of one catalog that share a clock.

    Args:
        home: an empty directory for the catalog and the files.
    """

    def __init__(self, home: Path, spark: SparkSession, *, clients: int = 2) -> None:
        self.home = home
        self.spark = spark
        self.clock = Clock()
        self._stamped: set[str] = set()
        self._made_by_path = 0
        self._clients = [self._open() for _ in range(clients)]
        for kind in ("data_reorganization", "data_cleanup", "metadata_cleanup"):
            self._clients[0].maintenance.set_policy("main", kind, future=True)

    def _open(self) -> Connection:
        catalog = SqlCatalog(
            f"sqlite:///{self.home}/catalog.db", warehouse=f"file://{self.home}/warehouse", now_ms=self.clock
        )
        settings = ClientSettings(publish_delay=timedelta(0), retry_initial_delay=timedelta(seconds=0.001))
        client = DeltaClient(catalog, stores=Stores(), settings=settings, now_ms=self.clock)
        return Connection(client, spark=self.spark)

    def reopen(self, client: int) -> None:
        """Replace a client by one that has seen nothing."""
        self._clients[client].close()
        self._clients[client] = self._open()

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def table(self, table: str, client: int = 0) -> DeltaTable:
        return self._clients[client].table(full_name(table))

    def finish_files(self) -> None:
        """Wait for background work, and give new files the time of the clock, so that ages follow the clock."""
        for client in self._clients:
            client.client.wait_for_background()
        seconds = self.clock() / 1000
        for directory, _, names in os.walk(self.home):
            for name in names:
                path = os.path.join(directory, name)
                if path not in self._stamped and not name.startswith("catalog.db"):
                    os.utime(path, (seconds, seconds))
                    self._stamped.add(path)

    # --- tables -------------------------------------------------------------------------------------------------------

    def create(
        self,
        table: str,
        columns: Sequence[ColumnSpec],
        *,
        partition_by: Sequence[str],
        cluster_by: Sequence[str],
        properties: Mapping[str, str],
        mode: str,
        client: int,
    ) -> None:
        self._clients[client].create_table(
            full_name(table),
            [_column(item) for item in columns],
            partition_by=partition_by,
            cluster_by=cluster_by,
            properties=properties,
            mode=mode,
        )

    def rename(self, table: str, to: str, client: int) -> None:
        self._clients[client].rename(full_name(table), full_name(to))

    def drop(self, table: str, client: int) -> None:
        self._clients[client].drop(full_name(table))

    def undrop(self, table: str, table_id: str, client: int) -> None:
        self._clients[client].undrop(full_name(table), table_id=table_id)

    def table_id(self, table: str) -> str:
        return self.table(table).snapshot().table_id

    def clone(self, table: str, to: str, *, mode: str, version: int, client: int) -> None:
        self.table(table, client).clone(full_name(to), mode, version=version)

    def release(self, table: str, client: int) -> str:
        """The path of the released table."""
        location = self.table(table, client).location
        self._clients[client].onboarding.release(full_name(table))
        return location.removeprefix("file://")

    def adopt(self, path: str, to: str, client: int) -> None:
        self._clients[client].onboarding.adopt(path, full_name(to))

    def create_by_path(self, table: str, rows: Rows, partition_by: Sequence[str]) -> str:
        """The path of a table of two versions that another library wrote; each adds the rows."""
        self._made_by_path += 1
        path = str(self.home / "elsewhere" / f"{table}{self._made_by_path}")
        for _ in range(2):
            deltalake.write_deltalake(path, arrow_table(rows), mode="append", partition_by=list(partition_by) or None)
        return path

    def path_version(self, path: str) -> int:
        return self._clients[0].path_table(path).version()

    def path_rows(self, path: str) -> list[dict[str, Value]]:
        return self._clients[0].path_table(path).to_arrow().to_pylist()

    def names(self, client: int = 0) -> set[str]:
        try:
            return {name.rpartition(".")[2] for name in self._clients[client].tables()}
        except CmDeltaError:
            return set()

    # --- rows ---------------------------------------------------------------------------------------------------------

    def frame(self, rows: Rows, parts: int = 1) -> DataFrame:
        kinds = [(name, "string" if base_type(kind) in ("varchar", "char") else kind) for name, kind in rows.columns]
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in kinds)
        return self.spark.createDataFrame(arrow_table(rows), columns).coalesce(parts)

    def append(self, table: Any, rows: Rows, *, schema_mode: str, parts: int) -> None:
        table.append(self.frame(rows, parts), schema_mode=SchemaMode(schema_mode))

    def overwrite(
        self, table: Any, rows: Rows, *, where: str | None, dynamic: bool, replace_using: Sequence[str]
    ) -> None:
        partitions = {"partitions": "dynamic"} if dynamic else {}
        table.overwrite(self.frame(rows), where=where, keys=list(replace_using), **partitions)

    def delete(self, table: Any, where: str) -> None:
        table.delete(where)

    def update(self, table: Any, assignments: Sequence[Assign], where: str | None, types: Types) -> None:
        table.update(_assignments(assignments, types, "", ""), where)

    def merge_keys(self, table: Any, rows: Rows, *, keys: Sequence[str], mode: str, where: str | None) -> None:
        table.upsert(self.frame(rows), on=list(keys), mode=MergeMode(mode), where=where)

    def merge(
        self,
        table: Any,
        rows: Rows,
        *,
        keys: Sequence[str],
        clauses: Sequence[Clause],
        null_safe: bool,
        and_target: Condition | None,
        types: Types,
    ) -> None:
        equal = "<=>" if null_safe else "="
        parts = [f"t.{quoted(key)} {equal} s.{quoted(key)}" for key in keys]
        if and_target is not None:
            parts.append(f"({and_target.sql(types, 't.')})")
        builder = table.merge(self.frame(rows), " AND ".join(parts), source_alias="s", target_alias="t")
        for clause in clauses:
            alias = "s." if clause.on_source else "t."
            condition = None if clause.condition is None else clause.condition.sql(types, alias)
            method: Callable[..., Any] = getattr(builder, f"when_{clause.kind}_{clause.action}")
            origin = "t." if clause.kind == "not_matched_by_source" else "s."
            if clause.assignments:
                builder = method(_assignments(clause.assignments, types, origin, "t."), condition)
            else:
                builder = method(condition)
        builder.execute()

    def begin(self, client: int) -> OpenTransaction:
        return OpenTransaction(self._clients[client].transaction().__enter__())

    def in_transaction(self, transaction: OpenTransaction, table: str) -> Any:
        return transaction.transaction.table(full_name(table))

    def commit(self, transaction: OpenTransaction) -> None:
        transaction.transaction.__exit__(None, None, None)

    def abandon(self, transaction: OpenTransaction) -> None:
        transaction.transaction.__exit__(RuntimeError, RuntimeError("abandoned"), None)

    # --- columns and properties ---------------------------------------------------------------------------------------

    def add_column(self, table: str, name: str, kind: str, client: int) -> None:
        self.table(table, client).alter.add_columns({quoted(name): kind})

    def rename_column(self, table: str, name: str, to: str, client: int) -> None:
        self.table(table, client).alter.rename_column([name], to)

    def drop_column(self, table: str, name: str, client: int) -> None:
        self.table(table, client).alter.drop_column([name])

    def widen_column(self, table: str, name: str, kind: str, client: int) -> None:
        self.table(table, client).alter.change_type([name], kind)

    def set_property(self, table: str, key: str, value: str, client: int) -> None:
        self.table(table, client).alter.set_properties({key: value})

    def restore(self, table: str, version: int, client: int) -> None:
        self.table(table, client).restore(version)

    # --- maintenance --------------------------------------------------------------------------------------------------

    def optimize(self, table: str, how: str, order_by: Sequence[str], client: int) -> None:
        handle = self.table(table, client)
        match how:
            case "compact":
                handle.optimize()
            case "zorder":
                handle.optimize(z_order_by=list(order_by))
            case "full":
                handle.optimize(full=True)
            case "reorg":
                handle.maintenance.reorg()

    def vacuum(self, table: str, hours: int | None, client: int) -> None:
        retention = None if hours is None else timedelta(hours=hours)
        self.table(table, client).vacuum(retention, force=True)

    def log_step(self, table: str, what: str, client: int) -> None:
        handle = self.table(table, client)
        match what:
            case "checkpoint":
                handle.maintenance.checkpoint()
            case "publish":
                handle.maintenance.publish()
            case "clean_log":
                handle.maintenance.clean_log()
            case "clean_staged":
                handle.maintenance.clean_staged_commits()
            case "compact_log":
                latest = handle.version()
                handle.maintenance.compact_log(max(0, latest - 3), latest)

    def doctor(self, table: str, *, deep: bool = False) -> list[str]:
        """The findings, without notes on files that can be cleaned up."""
        report = self.table(table).doctor(depth="footers" if deep else "listing")
        return [str(finding) for finding in report.findings if finding.severity is not Severity.NOTE]

    # --- rules --------------------------------------------------------------------------------------------------------

    def add_rule(self, table: str, kind: str, approval: bool, client: int) -> None:
        arguments: dict[str, Any] = {"rows": 0} if kind == "max_removed_rows" else {}
        self._clients[client].rules.set_commit_rule(
            full_name(table), kind, on_violation="approval" if approval else "refuse", **arguments
        )

    def remove_rule(self, table: str, kind: str, client: int) -> None:
        self._clients[client].rules.remove_commit_rule(full_name(table), kind)

    def approve(self, approval_id: str, client: int) -> None:
        self._clients[client].rules.approve(approval_id)

    def reject(self, approval_id: str, client: int) -> None:
        self._clients[client].rules.reject(approval_id, "not wanted")

    # --- reads --------------------------------------------------------------------------------------------------------

    def version(self, table: str, client: int = 0) -> int:
        return self.table(table, client).version()

    def schema(self, table: str, version: int, client: int = 0) -> list[str]:
        return list(self.table(table, client).snapshot(version=version).schema.names)

    def operations(self, table: str) -> dict[int, str]:
        history = self.table(table).history()
        return {
            entry.version: "" if entry.commit_info is None else str(entry.commit_info.operation) for entry in history
        }

    def rows(
        self, table: str, reader: str, *, version: int, where: str | None = None, names: Sequence[str] | None = None,
        client: int = 0,
    ) -> list[dict[str, Value]]:  # fmt: skip
        """The rows as ``arrow``, ``spark``, ``duckdb`` or ``polars`` reads them."""
        handle = self.table(table, client)
        columns = None if names is None else list(names)
        match reader:
            case "arrow":
                found = handle.to_arrow(columns, where=where, version=version)
            case "spark":
                found = handle.to_df(columns, where=where, version=version).toArrow()
            case "duckdb":
                relation = handle.scan(columns, where, version).duckdb()
                try:
                    found = relation.to_arrow_table()
                except duckdb.Error as error:  # DuckDB reads the files of its relation now, and raises its own errors.
                    raise CmDeltaError(str(error)) from error
            case "polars":
                found = handle.to_polars(columns, where=where, version=version).to_arrow()
            case _:
                raise ValueError(reader)
        return list(found.to_pylist())

    def count(self, table: str, where: str | None = None) -> int:
        """The number of rows of the latest version, from statistics where they say it."""
        return self.table(table).scan(where=where).count()

    def tracked_rows(self, table: str, version: int, reader: str) -> list[dict[str, Value]]:
        """The rows with ``_row_id`` and ``_row_commit_version``."""
        names = [*self.schema(table, version), *_TRACKED]
        return self.rows(table, reader, version=version, names=names)

    def stream(self, table: str, offset: str | None, client: int = 0) -> tuple[list[dict[str, Value]], str]:
        """The rows after an offset, and the offset after them. Commits that change rows are skipped."""
        found: list[dict[str, Value]] = []
        stream = self.table(table, client).stream(offset, changes="skipChangeCommits", max_files=2).to_batches()
        for batch in stream:
            found += batch.to_arrow().to_pylist()
        return found, stream.offset.to_json()

    def changes(self, table: str, first: int, last: int, reader: str) -> list[dict[str, Value]]:
        handle = self.table(table)
        if reader == "spark":
            return list(handle.changes(starting_version=first, ending_version=last).to_df().toArrow().to_pylist())
        return list(handle.changes(starting_version=first, ending_version=last).to_arrow().to_pylist())


def _column(item: ColumnSpec) -> Column:
    return Column(
        item.name,
        item.kind,
        nullable=item.nullable,
        default=None if item.default is None else literal(item.default, item.kind),
        generated=None if item.twice is None else f"{quoted(item.twice)} * 2",
        identity=Identity() if item.numbered else None,
    )


def _assignments(assignments: Sequence[Assign], types: Types, origin: str, target: str) -> dict[str, str]:
    """Values by column as SQL text. ``origin`` is the alias of the columns that are copied."""
    texts = {}
    for assign in assignments:
        kind = types[assign.target]
        match assign.how:
            case "literal":
                text = literal(assign.value, kind)
            case "column":
                text = f"{origin}{quoted(assign.value)}"
            case _:
                text = f"{target}{quoted(assign.target)} + {assign.value}"
        texts[quoted(assign.target)] = text
    return texts
