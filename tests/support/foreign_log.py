"""Logs written byte by byte, as by other writers, in a memory store with the clock of the test."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.log_reader import load_state
from cm_delta_dagster.client.snapshots.path_table import PathTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.protocol.log import checkpoints, log_files
from cm_delta_dagster.protocol.log.action_reconciliation import TableState
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.parquet import encode_parquet

Action = Mapping[str, Any]

SCHEMA = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"day","type":"date","nullable":true,"metadata":{}}]}'
)


def protocol(*features: str, reader: int = 3, writer: int = 7) -> Action:
    """A ``protocol`` action; reader-writer features are also listed as reader features."""
    fields: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": writer}
    if reader == 3:
        for_readers = ("deletionVectors", "v2Checkpoint", "catalogManaged", "vacuumProtocolCheck")
        fields["readerFeatures"] = [name for name in features if name in for_readers]
    if writer == 7:
        fields["writerFeatures"] = list(features)
    return {"protocol": fields}


def metadata(**configuration: str) -> Action:
    return {
        "metaData": {
            "id": "0b3f0e1c-6f5f-4a56-9b3c-6a3c6f2b1e11",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": SCHEMA,
            "partitionColumns": [],
            "configuration": {key.replace("__", "."): value for key, value in configuration.items()},
        }
    }


def add(path: str, **fields: Any) -> Action:
    return {
        "add": {"path": path, "partitionValues": {}, "size": 10, "modificationTime": 1, "dataChange": True, **fields}
    }


def remove(path: str, **fields: Any) -> Action:
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True, **fields}}


def info(**fields: Any) -> Action:
    return {"commitInfo": {"operation": "WRITE", **fields}}


def vector(text: str) -> dict[str, Any]:
    """An inline deletion vector descriptor; only its identity matters here."""
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": 4, "cardinality": 1}


def lines(*actions: Action) -> bytes:
    return "".join(json.dumps(action) + "\n" for action in actions).encode()


class ForeignLog:
    """The log of one table. ``now`` is the modification time, in epoch milliseconds, of what is written next."""

    def __init__(self, name: str = "t") -> None:
        self.now = 1_700_000_000_000
        self.store = MemoryStore(now_ms=lambda: self.now)
        self.location = f"memory://foreign/{name}"
        self.directory = f"{self.location}/_delta_log"

    @property
    def table(self) -> PathTable:
        return PathTable(location=self.location, store=self.store)

    def write(self, name: str, data: bytes) -> None:
        self.store.write(f"{self.directory}/{name}", data)

    def delete(self, name: str) -> None:
        self.store.delete(f"{self.directory}/{name}")

    def names(self) -> list[str]:
        return [status.name for status in self.store.list_from(self.directory)]

    def commit(self, version: int, *actions: Action) -> None:
        self.write(log_files.commit_file_name(version), lines(*actions))

    def create(self, *features: str, **configuration: str) -> None:
        """Version 0: protocol and metadata."""
        self.commit(0, info(operation="CREATE TABLE"), protocol(*features), metadata(**configuration))

    def state(self, version: int) -> TableState:
        return load_state(CommitReader(self.store, self.location, threads=1), version=version).state

    def classic_checkpoint(self, version: int) -> None:
        top = checkpoints.build_checkpoint(self.state(version), now_ms=0, max_inline=10**9).top
        self.write(log_files.classic_checkpoint_file_name(version), encode_parquet(top))

    def multi_part_checkpoint(self, version: int, parts: int) -> None:
        top = checkpoints.build_checkpoint(self.state(version), now_ms=0, max_inline=10**9).top
        if "checkpointMetadata" in top.column_names:
            top = top.filter(top["checkpointMetadata"].is_null()).drop_columns(["checkpointMetadata"])
        for part in range(parts):
            rows = top.take(pa.array(range(part, top.num_rows, parts), pa.int64()))
            self.write(f"{version:020d}.checkpoint.{part + 1:010d}.{parts:010d}.parquet", encode_parquet(rows))

    def v2_checkpoint(
        self,
        version: int,
        *,
        file_format: str = "parquet",
        sidecars: bool = True,
        classic_name: bool = False,
        prefix: str = "",
    ) -> None:
        """A V2 checkpoint; the table needs the feature and ``delta.checkpointPolicy=v2``. ``prefix``: before sidecar names."""
        state = self.state(version)
        tables = checkpoints.build_checkpoint(state, now_ms=0, max_inline=0 if sidecars else 10**9, rows_per_sidecar=2)
        references = []
        for number, rows in enumerate(tables.sidecars):
            name = f"{version:08d}-0000-4000-8000-{number:012d}.parquet"
            data = encode_parquet(rows)
            self.write(f"_sidecars/{name}", data)
            references.append(
                checkpoints.sidecar_action(f"{prefix}{name}", size_in_bytes=len(data), modification_time=self.now)
            )
        top = checkpoints.with_sidecars(tables.top, references)
        uuid = f"{version:08d}-1111-4111-8111-111111111111"
        if file_format == "json":
            self.write(f"{version:020d}.checkpoint.{uuid}.json", json_rows(top))
            return
        name = f"{version:020d}.checkpoint.parquet" if classic_name else f"{version:020d}.checkpoint.{uuid}.parquet"
        self.write(name, encode_parquet(top))


def json_rows(top: pa.Table) -> bytes:
    """Rows of a checkpoint as JSON lines."""
    rows = []
    for row in top.to_pylist(maps_as_pydicts="strict"):
        rows.append({name: _present(value) for name, value in row.items() if value is not None})
    return lines(*rows)


def _present(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _present(item) for name, item in value.items() if item is not None}
    return value


def contents(state: TableState | Snapshot) -> dict[str, Any]:
    """The part of a state that does not depend on how it was loaded; tombstones without fields that checkpoints drop."""
    files = state.state.files if isinstance(state, Snapshot) else state.files
    columns = ["path", "size", "deletionVector", "baseRowId"]
    return {
        "version": state.version,
        "protocol": state.protocol,
        "metadata": state.metadata,
        "transactions": dict(state.transactions),
        "domains": dict(state.domains),
        "adds": _sorted(files.adds.select(columns).to_pylist()),
        "removes": _sorted(files.removes.select(["path", "deletionVector"]).to_pylist()),
    }


def _sorted(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
