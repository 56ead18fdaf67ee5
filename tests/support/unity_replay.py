"""Replays requests that clients sent to Unity Catalog 0.6.0, and compares the answers with the recorded ones.

Ids, locations, etags, times and texts of errors are masked. The recordings have no files: the harness writes the version 0 and the
staged commits that the requests describe, so that sizes are its own. The server publishes what the clients did not, so that the
unpublished commits that it lists may be the newest of the recorded ones. A request whose answer a proxy forged is left out, unless
it reached the recorded server.
"""

import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.older_wire import creation_of, is_described, update_of
from tests.support.unity_wire import UnityWire, commit_bytes, local_path, protocol_action

Record = dict[str, Any]

_MASKED = frozenset(
    {
        *("created-time", "updated-time", "etag", "created_at", "updated_at", "created_by", "updated_by", "schema_id"),
        *("message", "stack", "allowed-maintenance-operations", "delta.rowTracking.rowIdHighWaterMark"),
        *("expiration-time-ms", "type_precision", "type_scale"),
    }
)
"""Fields that are not compared: times, ids, texts for people, what newer servers add, a mark that is out of date by design, and
what Unity Catalog repeats of its clients, which state no precision of a decimal."""


def recording(path: Path) -> list[Record]:
    """The requests of a recording with their answers."""
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


@dataclass
class _Table:
    """What the log of a table says, kept to write the commits that change it."""

    location: Path
    metadata: dict[str, Any]


@dataclass
class Replay:
    """One recording, replayed against one server."""

    wire: UnityWire
    records: Sequence[Record]
    own: dict[str, str] = field(default_factory=dict)
    """The text of this server for each recorded id and location."""
    tables: dict[str, _Table] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """The recorded size of each staged commit."""

    def create_schemas(self) -> None:
        """Create the schemas that the recording uses and does not create."""
        used = {name for record in self.records for name in re.findall(r"/schemas/(?:main\.)?(\w+)", record["path"])}
        of_schemas = [record for record in self.records if record["path"].endswith("/schemas")]
        created = {record["body"]["name"] for record in of_schemas if record["body"]}
        listed = {
            schema["name"]: schema["properties"]
            for record in of_schemas
            for schema in record["response"].get("schemas", ())
        }
        for name in sorted((used | set(listed)) - created | {"s"}):
            properties = listed.get(name, {} if name == "s" else {"owner": "root"})
            self.wire.older("POST", "schemas", {"name": name, "catalog_name": "main", "properties": properties})

    def differences(self) -> Iterator[str]:
        """What is answered differently, a line for each request."""
        for place, record in enumerate(self.records):
            if record["status"] == 429 or (record.get("fault") and not self._reached(place)):
                continue
            answer = self._send(record)
            if record.get("fault"):
                continue
            body = self._answered(answer.text)
            if answer.status_code != record["status"]:
                yield f"{_named(record)}: {answer.status_code} {answer.text[:600]}, recorded {record['status']}"
            elif _compared(body, record["response"]) is not None:
                yield f"{_named(record)}: {_compared(body, record['response'])}"

    def _reached(self, place: int) -> bool:
        """Whether a request whose answer was forged committed: a later answer lists its commit, and it was not sent again."""
        name = _file_name(self.records[place])
        for record in self.records[place + 1 :]:
            if name is None or (_file_name(record) == name and not record.get("fault")):
                return False
            if name in json.dumps(record["response"]):
                return True
        return False

    def _send(self, record: Record) -> Any:
        body = json.loads(self._as_own(json.dumps(record["body"])))
        if record["method"] == "POST" and record["path"].endswith("/tables"):
            self._write_version_0(creation_of(body) if "storage_location" in body else body)
        if isinstance(body, dict) and "updates" in body:
            self._stage(body, accepted=record["status"] < 300 or bool(record.get("fault")))
        if isinstance(body, dict) and "commit_info" in body:
            update = update_of(body, self.tables[body["table_id"]].metadata["configuration"])
            self._stage(update, accepted=record["status"] < 300)
            body["commit_info"]["file_size"] = update["updates"][0]["commit"]["file-size"]
        path = self._as_own(record["path"])
        answer = self.wire.http.request(
            record["method"], path, json=body if record["body"] is not None else None, params=record["query"]
        )
        if path.endswith("/staging-tables"):
            for key in {"table-id", "location", "id", "staging_location"} & set(record["response"]):
                recorded, own = record["response"][key], answer.json()[key]
                self.own[recorded] = own
                if recorded.startswith("file:///"):  # Clients of the older API send the other spelling back.
                    self.own[recorded.replace("file:///", "file:/")] = own.replace("file:///", "file:/")
        return answer

    def _as_own(self, text: str) -> str:
        for recorded, own in sorted(self.own.items(), key=lambda pair: -len(pair[0])):
            text = text.replace(recorded, own)
        return text

    def _answered(self, text: str) -> Any:
        """The answer with the ids, locations and sizes of the recording."""
        for recorded, own in sorted(self.own.items(), key=lambda pair: -len(pair[1])):
            text = text.replace(own, recorded)
        try:
            body = json.loads(text) if text else None
        except ValueError:
            return text
        for commit in body.get("commits", ()) if isinstance(body, dict) else ():
            name, size = ("file-name", "file-size") if "file-name" in commit else ("file_name", "file_size")
            commit[size] = self.sizes.get(commit[name], commit[size])
        return body

    def _write_version_0(self, body: Mapping[str, Any]) -> None:
        metadata = {
            "id": body["properties"]["io.unitycatalog.tableId"],
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(_log_names(body["columns"])),
            "partitionColumns": body.get("partition-columns") or [],
            "configuration": body["properties"],
            "description": body.get("comment"),
            "createdTime": 1,
        }
        location = local_path(body["location"])
        self.tables[metadata["id"]] = _Table(location, metadata)
        domains = [_domain(name, value) for name, value in (body.get("domain-metadata") or {}).items()]
        data = commit_bytes(
            body["last-commit-timestamp-ms"], protocol_action(body["protocol"]), {"metaData": metadata}, *domains
        )
        log = location / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        (log / f"{0:020d}.json").write_bytes(data)

    def _stage(self, body: dict[str, Any], *, accepted: bool) -> None:
        """Write the staged commit of an update, unless it exists, and put its size in the request."""
        updates = {update["action"]: update for update in body["updates"]}
        table = self.tables[body["requirements"][0]["uuid"]]
        commit = updates["add-commit"]["commit"]
        path = table.location / "_delta_log" / "_staged_commits" / commit["file-name"]
        self.sizes[commit["file-name"]] = commit["file-size"]
        metadata, actions = _changed(table.metadata, updates)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(commit_bytes(commit["timestamp"], *actions))
        if accepted:
            table.metadata = metadata
        commit["file-size"] = path.stat().st_size


def _changed(metadata: Mapping[str, Any], updates: Mapping[str, Any]) -> tuple[dict[str, Any], list[Mapping[str, Any]]]:
    """The metadata after an update, and the actions of its commit."""
    after = dict(metadata)
    after["configuration"] = {
        **{
            name: value
            for name, value in metadata["configuration"].items()
            if name not in updates.get("remove-properties", {}).get("removals", ())
        },
        **updates.get("set-properties", {}).get("updates", {}),
    }
    if "set-columns" in updates:
        after["schemaString"] = json.dumps(_log_names(updates["set-columns"]["columns"]))
    if "set-table-comment" in updates:
        after["description"] = updates["set-table-comment"]["comment"]
    actions: list[Mapping[str, Any]] = [] if after == metadata else [{"metaData": after}]
    if "set-protocol" in updates:
        actions.append(protocol_action(updates["set-protocol"]["protocol"]))
    domains = updates.get("set-domain-metadata", {}).get("updates", {})
    return after, [*actions, *(_domain(name, value) for name, value in domains.items())]


def _domain(name: str, configuration: Any) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": json.dumps(configuration), "removed": False}}


def _log_names(columns: Any) -> Any:
    """Columns with the names of the log for the parts of nested types."""
    names = ("element-type", "contains-null", "key-type", "value-type", "value-contains-null")
    text = json.dumps(columns)
    for name in names:
        head, *rest = name.split("-")
        text = text.replace(f'"{name}"', f'"{head}{"".join(part.title() for part in rest)}"')
    return json.loads(text)


def _file_name(record: Record) -> str | None:
    body = record["body"]
    updates = body.get("updates", ()) if isinstance(body, dict) else ()
    return next((update["commit"]["file-name"] for update in updates if update["action"] == "add-commit"), None)


def _named(record: Record) -> str:
    return f"{record['seq']} ({record['step']}) {record['method']} {record['path']}"


def _compared(own: Any, recorded: Any, place: str = "") -> str | None:
    """The first difference of two answers; None without one."""
    if place.endswith(".commits") and isinstance(own, list) and isinstance(recorded, list):
        recorded = recorded[: len(own)]  # The server has published the others.
    if isinstance(own, dict) and isinstance(recorded, dict):
        if place.endswith(".properties") and not any(map(is_described, recorded)):
            own = {name: value for name, value in own.items() if not is_described(name)}  # The older API forgets them.
        for key in sorted({*own, *recorded} - _MASKED):
            if key not in own or key not in recorded:
                missing = "here" if key not in own else "in the recording"
                return f"{place}.{key} is missing {missing}"
            if (difference := _compared(own[key], recorded[key], f"{place}.{key}")) is not None:
                return difference
        return None
    if isinstance(own, list) and isinstance(recorded, list) and len(own) == len(recorded):
        differences = (
            _compared(a, b, f"{place}[{number}]") for number, (a, b) in enumerate(zip(own, recorded, strict=True))
        )
        return next((difference for difference in differences if difference is not None), None)
    return None if own == recorded else f"{place} is {str(own)[:300]}, recorded {str(recorded)[:300]}"
