"""A client of Unity Catalog's API that writes logs and requests by hand, so that a test decides each byte."""

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from cm_delta_dagster.server.wires import UNITY_DELTA_PATH, UNITY_PATH
from tests.support.live_server import LiveServer

FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long", "nullable": True, "metadata": {}},
    {"name": "v", "type": "string", "nullable": True, "metadata": {}},
]


def add_action(path: str, **fields: Any) -> dict[str, Any]:
    """An action that adds a file of one byte."""
    return {"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True} | fields}


@dataclass(frozen=True)
class Staged:
    """A staged commit file, and what a client says of it."""

    path: Path
    commit: dict[str, Any]


class UnityWire:
    """Requests of one principal to a server."""

    def __init__(self, server: LiveServer, principal: str = "ana") -> None:
        self.server = server
        self.http = httpx.Client(base_url=server.url, headers=server.headers_of(principal), timeout=60)

    def delta(self, method: str, path: str, body: object = None, **parameters: str) -> httpx.Response:
        """A request to the Delta API; ``path`` begins below ``delta/v1/``."""
        return self.http.request(method, f"{UNITY_DELTA_PATH}/{path}", json=body, params=parameters)

    def older(self, method: str, path: str, body: object = None, **parameters: str) -> httpx.Response:
        """A request to the older API."""
        return self.http.request(method, f"{UNITY_PATH}/{path}", json=body, params=parameters)

    def table(self, method: str, name: str, body: object = None, **parameters: str) -> httpx.Response:
        """A request for the table ``main.s.<name>``, or for what is below it: ``t/rename``."""
        return self.delta(method, f"catalogs/main/schemas/s/tables/{name}", body, **parameters)

    def load(self, name: str) -> dict[str, Any]:
        """The answer to loadTable of a table that exists."""
        answer = self.table("GET", name)
        assert answer.status_code == 200, answer.text
        loaded: dict[str, Any] = answer.json()
        return loaded

    def staging(self, name: str) -> dict[str, Any]:
        """A new staging table; its schema is created if it is missing."""
        self.older("POST", "schemas", {"name": "s", "catalog_name": "main"})
        answer = self.delta("POST", "catalogs/main/schemas/s/staging-tables", {"name": name})
        assert answer.status_code == 200, answer.text
        staging: dict[str, Any] = answer.json()
        return staging

    def creation(self, name: str, staging: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
        """The request that creates a table as the contract demands; ``changes`` replace parts of it."""
        required = staging["required-protocol"]
        return {
            "name": name,
            "location": staging["location"],
            "table-type": "MANAGED",
            "columns": {"type": "struct", "fields": FIELDS},
            "partition-columns": [],
            "protocol": required,
            "properties": dict(staging["required-properties"]),
            "last-commit-timestamp-ms": now_ms(),
        } | changes

    def create(self, name: str, **changes: Any) -> dict[str, Any]:
        """Create the table with version 0, and load it."""
        request = self.creation(name, self.staging(name), **changes)
        write_version_0(request)
        answer = self.delta("POST", "catalogs/main/schemas/s/tables", request)
        assert answer.status_code == 200, answer.text
        loaded: dict[str, Any] = answer.json()
        return loaded

    def commit(self, name: str, staged: Staged, *updates: Mapping[str, Any], **changes: Any) -> httpx.Response:
        """Propose a staged commit; ``changes`` replace what is said of it."""
        return self.table("POST", name, self.proposal(name, staged, *updates, **changes))

    def proposal(self, name: str, staged: Staged, *updates: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
        """The request of :meth:`commit`."""
        table_id = self.load(name)["metadata"]["table-uuid"]
        commit = {key.replace("_", "-"): value for key, value in changes.items()}
        return {
            "requirements": [{"type": "assert-table-uuid", "uuid": table_id}],
            "updates": [{"action": "add-commit", "commit": staged.commit | commit}, *updates],
        }

    def append(self, name: str, *actions: Mapping[str, Any]) -> httpx.Response:
        """Stage and propose the next version."""
        loaded = self.load(name)
        return self.commit(name, stage(loaded, *(actions or (add_action(f"{uuid.uuid4()}.parquet"),))))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def stage(loaded: Mapping[str, Any], *actions: Mapping[str, Any], version: int | None = None) -> Staged:
    """Write a staged commit for the version after a loaded table, or for another one."""
    number = loaded["latest-table-version"] + 1 if version is None else version
    times = [commit["timestamp"] for commit in loaded["commits"]]
    timestamp = max(now_ms(), loaded["metadata"]["last-commit-timestamp-ms"] + 1, *(time + 1 for time in times))
    name = f"{number:020d}.{uuid.uuid4()}.json"
    path = local_path(loaded["metadata"]["location"]) / "_delta_log" / "_staged_commits" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(commit_bytes(timestamp, *actions))
    commit = {
        "version": number,
        "timestamp": timestamp,
        "file-name": name,
        "file-size": path.stat().st_size,
        "file-modification-timestamp": timestamp,
    }
    return Staged(path=path, commit=commit)


def commit_bytes(timestamp: int, *actions: Mapping[str, Any]) -> bytes:
    """A commit with commitInfo and ``actions``."""
    info = {
        "inCommitTimestamp": timestamp,
        "timestamp": timestamp,
        "operation": "WRITE",
        "operationParameters": {},
        "txnId": str(uuid.uuid4()),
        "engineInfo": "by hand",
    }
    return b"".join(json.dumps(action).encode() + b"\n" for action in ({"commitInfo": info}, *actions))


def metadata_action(request: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The action ``metaData`` of a request that creates a table."""
    return {
        "metaData": {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(request["columns"]),
            "partitionColumns": request["partition-columns"],
            "configuration": request["properties"],
            "createdTime": 1,
        }
        | changes
    }


def protocol_action(protocol: Mapping[str, Any]) -> dict[str, Any]:
    """The action ``protocol`` of a protocol of the API."""
    names = {
        "min-reader-version": "minReaderVersion",
        "min-writer-version": "minWriterVersion",
        "reader-features": "readerFeatures",
        "writer-features": "writerFeatures",
    }
    return {"protocol": {names[name]: value for name, value in protocol.items()}}


def write_version_0(request: Mapping[str, Any], *actions: Mapping[str, Any]) -> Path:
    """Write version 0 as a request that creates a table describes it, or with other actions."""
    path = local_path(request["location"]) / "_delta_log" / f"{0:020d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    default = (protocol_action(request["protocol"]), metadata_action(request))
    path.write_bytes(commit_bytes(request["last-commit-timestamp-ms"], *(actions or default)))
    return path


def local_path(location: str) -> Path:
    """The path of a local location."""
    return Path(location.removeprefix("file://"))
