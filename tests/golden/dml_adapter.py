"""Replays the recorded sequences of ``check_dml.py`` on catalog-managed tables, through the public API."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster import (
    CmDeltaError,
    Column,
    CommitConflictError,
    Connection,
    DeltaTable,
    Idempotency,
    Identity,
    InvalidArgumentError,
    InvalidDataError,
    MaintenanceKind,
    NewColumn,
    ObjectNotFoundError,
    SchemaMismatchError,
    SchemaMode,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
    connect,
)
from cm_delta_dagster.arrow.variant import variant_to_json
from cm_delta_dagster.protocol.features.table_properties import CONSTRAINT_PREFIX
from cm_delta_dagster.protocol.schema.column_paths import path_text

SCHEMA = "main.dml"

# What this package sets on each new table and delta-spark does not. The sequences compare properties and features.
_BARE = {"delta.enableDeletionVectors": "false", "delta.checkpointPolicy": "classic"}
_DEFAULTS = (*_BARE, "delta.checkpoint.writeStatsAsStruct", "delta.checkpoint.writeStatsAsJson")

_CLASSES: tuple[tuple[type[Exception], str], ...] = (
    (CommitConflictError, "conflict"),
    (UnsupportedFeatureError, "unsupported"),
    (SchemaMismatchError, "schema"),
    (InvalidDataError, "constraint"),
    (TableNotFoundError, "not_found"),
    (VersionNotFoundError, "not_found"),
    (ObjectNotFoundError, "not_found"),
    (InvalidArgumentError, "parse"),
)


def _without_own_metadata(schema: str) -> str:
    """The schema without the metadata of fields that only this package writes, such as former names."""

    def kept(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {key: value for key, value in pairs if not key.startswith("cm_delta.")}

    return json.dumps(json.loads(schema, object_pairs_hook=kept))


def classify(error: Exception) -> str:
    return next((name for kind, name in _CLASSES if isinstance(error, kind)), "other")


def open(root: str) -> "Session":
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    lake = connect(f"sqlite:///{root}/catalog.db", warehouse=str(Path(root, "warehouse")), spark=spark)
    for kind in MaintenanceKind:
        lake.maintenance.set_policy(SCHEMA, kind, reason="recorded sequences")
    return Session(lake)


def _checker() -> Any:
    """The checker's module: the process that replays sequences runs it as its main program."""
    return sys.modules["__main__"]


class Session:
    """One catalog; a table of a sequence is ``main.dml.<table>``. ``engine`` writes rows; None for either."""

    def __init__(self, lake: Connection) -> None:
        self.lake = lake
        self.engine: str | None = None

    def close(self) -> None:
        self.lake.close()
        self.lake.spark.stop()

    def table(self, name: str) -> DeltaTable:
        return self.lake.table(f"{SCHEMA}.{name}")

    def version(self, name: str) -> int:
        return self.table(name).version()

    def apply(self, name: str, act: Mapping[str, Any]) -> None:
        getattr(self, f"_{act['act']}")(name, act)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _frame(self, act: Mapping[str, Any]) -> DataFrame:
        return self.lake.spark.sql(_checker().source_sql(act)).coalesce(1)

    def _rows(self, act: Mapping[str, Any]) -> Any:
        """The rows of an append, an overwrite, a merge or a creation."""
        return self._frame(act)

    def _append(self, name: str, act: Mapping[str, Any]) -> None:
        if act.get("via") == "insert":
            self._insert(name, act)
            return
        mode = SchemaMode.MERGE if act.get("merge_schema") else SchemaMode.STRICT
        if f"{SCHEMA}.{name}" not in self.lake.tables(SCHEMA):
            # delta-spark makes a table of an append to a path without one, e.g. after CREATE TABLE was refused.
            self._create(name, {"schema": act["schema"], "rows": act["rows"]})
            return
        self.table(name).append(self._rows(act), schema_mode=mode, engine=self.engine)

    def _insert(self, name: str, act: Mapping[str, Any]) -> None:
        columns = ", ".join(_checker().name(column) for column, _ in act["schema"])
        evolution = "WITH SCHEMA EVOLUTION " if act.get("merge_schema") else ""
        self.lake.sql(f"INSERT {evolution}INTO {SCHEMA}.{name} ({columns}) {_checker().source_sql(act)}")

    def _write_stream(self, name: str, act: Mapping[str, Any]) -> None:
        once = Idempotency(app_id=act["app_id"], version=act["batch"])
        self.table(name).append(self._rows(act), idempotency=once, engine=self.engine)

    def _overwrite(self, name: str, act: Mapping[str, Any]) -> None:
        mode = SchemaMode.STRICT
        if act.get("overwrite_schema"):
            mode = SchemaMode.OVERWRITE
        elif act.get("merge_schema"):
            mode = SchemaMode.MERGE
        arguments: dict[str, Any] = {"engine": self.engine, **({"partitions": "dynamic"} if act.get("dynamic") else {})}
        if act.get("overwrite_schema") or "partition_by" in act:
            arguments["partition_by"] = act.get("partition_by", ())
        self.table(name).overwrite(self._rows(act), where=act.get("where"), schema_mode=mode, **arguments)

    def _update(self, name: str, act: Mapping[str, Any]) -> None:
        self.table(name).update(act["set"], act.get("where"), engine=self.engine)

    def _delete(self, name: str, act: Mapping[str, Any]) -> None:
        self.table(name).delete(act.get("where") or "TRUE", engine=self.engine)

    def _merge(self, name: str, act: Mapping[str, Any]) -> None:
        table, rows = self.table(name), self._rows(act)
        builder = table.merge(rows, act["on"], source_alias="s", target_alias="t", engine=self.engine)
        for clause in act["clauses"]:
            builder = _with_clause(builder, clause)
        if act.get("schema_evolution"):
            builder = builder.with_schema_evolution()
        builder.execute()

    # --- tables -------------------------------------------------------------------------------------------------------

    def _create(self, name: str, act: Mapping[str, Any]) -> None:
        stated = dict(act.get("properties") or {})
        properties = {**_BARE, **stated}
        full = f"{SCHEMA}.{name}"
        by = act.get("partition_by", ())
        more = {"description": act.get("comment"), "cluster_by": act.get("cluster_by", ())}
        if act.get("replace"):
            more["mode"] = "create_or_replace"
        if "columns" in act:
            columns = [_column(column) for column in act["columns"]]
            table = self.lake.create_table(full, columns, by, properties=properties, **more)
        else:
            table = self.lake.create_table_as(full, self._rows(act), by, properties=properties, **more)
        table.alter.unset_properties([key for key in _DEFAULTS if key not in stated])

    def _alter(self, name: str, act: Mapping[str, Any]) -> None:
        _ALTERATIONS[act["do"]](self.table(name).alter, act)

    def _optimize(self, name: str, act: Mapping[str, Any]) -> None:
        table = self.table(name)
        table.optimize(where=act.get("where"), z_order_by=act.get("zorder_by", ()), full=act.get("full", False))

    def _reorg_purge(self, name: str, act: Mapping[str, Any]) -> None:
        self.table(name).maintenance.reorg(where=act.get("where"))

    def _restore(self, name: str, act: Mapping[str, Any]) -> None:
        self.table(name).restore(version=act["version"])

    def _clone(self, name: str, act: Mapping[str, Any]) -> None:
        self.lake.onboarding.clone(
            f"{SCHEMA}.{act['source']}",
            f"{SCHEMA}.{name}",
            mode=act.get("mode", "shallow"),
            version=act.get("version"),
            properties=act.get("properties"),
            creation="create_or_replace" if act.get("replace") else "create",
        )

    # --- state --------------------------------------------------------------------------------------------------------

    def state(self, name: str, since: int | None) -> dict[str, Any]:
        table = self.table(name)
        snapshot = table.snapshot()
        metadata, protocol = snapshot.metadata, snapshot.protocol
        configuration = dict(metadata.configuration)
        types = [_json_type(item) for item in json.loads(metadata.schema_string)["fields"]]
        # An act that made no commit has no metrics; those of the commit before it are of another act.
        info = table.history(limit=1)[0].commit_info if snapshot.version != since else None
        found: dict[str, Any] = {
            "version": snapshot.version,
            "rows": _encoded(table.to_arrow(), types),
            "schema": _without_own_metadata(metadata.schema_string),
            "partition_columns": list(metadata.partition_columns),
            "clustering_columns": [path_text(path) for path in snapshot.clustering_columns],
            "properties": {k: v for k, v in configuration.items() if not k.startswith(CONSTRAINT_PREFIX)},
            "constraints": {
                k.removeprefix(CONSTRAINT_PREFIX): v
                for k, v in configuration.items()
                if k.startswith(CONSTRAINT_PREFIX)
            },
            "features": {
                "minReaderVersion": protocol.min_reader_version,
                "minWriterVersion": protocol.min_writer_version,
                "readerFeatures": list(protocol.reader_features or ()),
                "writerFeatures": list(protocol.writer_features or ()),
            },
            "metrics": {"operation": info.operation, **(info.operation_metrics or {})} if info else None,
            "num_rows": snapshot.num_rows,
        }
        if configuration.get("delta.enableChangeDataFeed") == "true":
            found["changes"] = self._changes(table, -1 if since is None else since, snapshot.version, types)
        if configuration.get("delta.enableRowTracking") == "true":
            names = [*snapshot.schema.names, "_row_id", "_row_commit_version"]
            numbered = table.to_arrow(names)
            found["rows"] = _encoded(numbered.drop_columns(["_row_id", "_row_commit_version"]), types)
            found["row_ids"] = [
                list(row.values()) for row in numbered.select(["_row_id", "_row_commit_version"]).to_pylist()
            ]
        return found

    def _changes(self, table: DeltaTable, since: int, version: int, types: Sequence[Any]) -> dict[str, Any]:
        names = [*table.schema().names, "_change_type"]
        if since >= version:
            return {"columns": names, "rows": []}
        try:
            changed = table.changes(starting_version=since + 1, ending_version=version).to_arrow()
        except CmDeltaError as error:
            return {"error": str(error)}
        return {"columns": names, "rows": _encoded(changed.select(names), [*types, "string"])}


def _json_type(item: Mapping[str, Any]) -> Any:
    return item["type"]


def _encoded(rows: pa.Table, types: Sequence[Any]) -> list[list[Any]]:
    encode = _checker().encode
    columns = [
        [encode(_shown(value, of), of) for value in column.to_pylist()]
        for column, of in zip(rows.columns, types, strict=True)
    ]
    return [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in range(rows.num_rows)]


def _shown(value: Any, of: Any) -> Any:
    """The value with variants at any depth as JSON text."""
    if value is None or "variant" not in json.dumps(of):
        return value
    if of == "variant":
        return variant_to_json(value["metadata"], value["value"])
    match of["type"]:
        case "struct":
            return {item["name"]: _shown(value[item["name"]], item["type"]) for item in of["fields"]}
        case "array":
            return [_shown(item, of["elementType"]) for item in value]
        case _:
            return [(key, _shown(item, of["valueType"])) for key, item in value]


def _column(column: Mapping[str, Any]) -> Column:
    identity = column.get("identity")
    return Column(
        column["name"],
        column["type"],
        nullable=column.get("nullable", True),
        comment=column.get("comment"),
        default=column.get("default"),
        generated=column.get("generated"),
        identity=None if identity is None else Identity(**identity),
    )


def _with_clause(builder: Any, clause: Mapping[str, Any]) -> Any:
    condition = clause.get("condition")
    method = getattr(builder, f"when_{clause['kind']}_{clause['action']}")
    if clause["action"] == "update":
        return method(clause["set"], condition)
    if clause["action"] == "insert":
        return method(clause["values"], condition)
    return method(condition)


def _add_columns(alter: Any, act: Mapping[str, Any]) -> None:
    added = []
    for column in act["columns"]:
        if "identity" in column or "generated" in column or "default" in column:
            raise UnsupportedFeatureError("A column that is added has no identity, generation expression or default.")
        first, after = _position(column.get("position"))
        added.append(
            NewColumn(
                column["name"],
                column["type"],
                comment=column.get("comment"),
                nullable=column.get("nullable", True),
                first=first,
                after=after,
            )
        )
    alter.add_columns(added)


def _reorder(alter: Any, act: Mapping[str, Any]) -> None:
    first, after = _position(act["position"])
    alter.reorder_column(act["column"], first=first, after=after)


def _position(text: str | None) -> tuple[bool, str | None]:
    if text is None or text == "first":
        return text == "first", None
    return False, text.removeprefix("after ").strip("`")


_ALTERATIONS: Mapping[str, Any] = {
    "cluster_by": lambda alter, act: alter.cluster_by(act["columns"]),
    "add_columns": _add_columns,
    "rename_column": lambda alter, act: alter.rename_column(act["column"], act["to"]),
    "drop_column": lambda alter, act: alter.drop_column(act["column"]),
    "change_type": lambda alter, act: alter.change_type(act["column"], act["type"]),
    "set_not_null": lambda alter, act: alter.set_not_null(act["column"]),
    "drop_not_null": lambda alter, act: alter.drop_not_null(act["column"]),
    "comment": lambda alter, act: alter.comment_column(act["column"], act["comment"]),
    "reorder": _reorder,
    "set_default": lambda alter, act: alter.set_default(act["column"], act["default"]),
    "drop_default": lambda alter, act: alter.drop_default(act["column"]),
    "sync_identity": lambda alter, act: alter.sync_identity(act["column"]),
    "set_properties": lambda alter, act: alter.set_properties(act["properties"]),
    "unset_properties": lambda alter, act: alter.unset_properties(act["names"]),
    "add_constraint": lambda alter, act: alter.add_constraint(act["name"], act["check"]),
    "drop_constraint": lambda alter, act: alter.drop_constraint(act["name"], if_exists=act.get("if_exists", False)),
    "enable_feature": lambda alter, act: alter.enable_feature(act["feature"]),
    "drop_feature": lambda alter, act: alter.drop_feature(act["feature"]),
}
