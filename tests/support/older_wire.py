"""Requests of Unity Catalog's older API in the form of the Delta API, and the other way round."""

import json
from collections.abc import Mapping
from typing import Any

_DESCRIBED = ("delta.feature.", "delta.minReaderVersion", "delta.minWriterVersion", "delta.last", "clusteringColumns")
"""Beginnings of the names of properties that describe a table and are not in the metadata of its log."""
_OF_READERS = ("catalogManaged", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors", "columnMapping")


def is_described(name: str) -> bool:
    """Whether a property describes protocol, clustering or the last change of a table."""
    return name.startswith(_DESCRIBED)


def creation_of(older: Mapping[str, Any]) -> dict[str, Any]:
    """The request of the Delta API that creates the same table."""
    properties = older["properties"]
    features = [name.removeprefix("delta.feature.") for name in properties if name.startswith("delta.feature.")]
    partitions = [column for column in older["columns"] if column.get("partition_index") is not None]
    clustering = properties.get("clusteringColumns")
    return {
        "name": older["name"],
        "location": "file:///" + older["storage_location"].removeprefix("file:").lstrip("/"),
        "table-type": older["table_type"],
        "columns": {"type": "struct", "fields": [json.loads(column["type_json"]) for column in older["columns"]]},
        "partition-columns": [column["name"] for column in partitions],
        "protocol": {
            "min-reader-version": int(properties["delta.minReaderVersion"]),
            "min-writer-version": int(properties["delta.minWriterVersion"]),
            "reader-features": [feature for feature in features if feature in _OF_READERS],
            "writer-features": features,
        },
        "properties": {name: value for name, value in properties.items() if not is_described(name)},
        "last-commit-timestamp-ms": int(properties["delta.lastCommitTimestamp"]),
        "domain-metadata": clustering and {"delta.clustering": {"clusteringColumns": json.loads(clustering)}},
        "comment": older.get("comment"),
    }


def older_creation_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request of the older API that creates the same table in the schema ``main.s``."""
    protocol, partitions = request["protocol"], request["partition-columns"]
    return {
        "name": request["name"],
        "catalog_name": "main",
        "schema_name": "s",
        "table_type": request["table-type"],
        "data_source_format": "DELTA",
        "columns": [
            {
                "name": field["name"],
                "type_json": json.dumps(field),
                "nullable": field["nullable"],
                "position": position,
                "partition_index": partitions.index(field["name"]) if field["name"] in partitions else None,
            }
            for position, field in enumerate(request["columns"]["fields"])
        ],
        "storage_location": request["location"].replace("file:///", "file:/"),
        "properties": {
            **request["properties"],
            "delta.minReaderVersion": str(protocol["min-reader-version"]),
            "delta.minWriterVersion": str(protocol["min-writer-version"]),
            **{f"delta.feature.{feature}": "supported" for feature in protocol["writer-features"]},
            "delta.lastUpdateVersion": "0",
            "delta.lastCommitTimestamp": str(request["last-commit-timestamp-ms"]),
        },
    }


def update_of(older: Mapping[str, Any], configuration: Mapping[str, str]) -> dict[str, Any]:
    """The request of the Delta API that makes the same commit to a table with that configuration."""
    updates: list[dict[str, Any]] = [{"action": "add-commit", "commit": with_hyphens(older["commit_info"])}]
    stated = older.get("metadata", {}).get("properties", {}).get("properties")
    if stated is not None:
        updates.append({"action": "set-properties", "updates": stated})
        updates.append({"action": "remove-properties", "removals": sorted(set(configuration) - set(stated))})
    return {"requirements": [{"type": "assert-table-uuid", "uuid": older["table_id"]}], "updates": updates}


def with_hyphens(commit: Mapping[str, Any]) -> dict[str, Any]:
    """A staged commit as the Delta API spells it."""
    return {name.replace("_", "-"): value for name, value in commit.items()}


def with_underscores(commit: Mapping[str, Any]) -> dict[str, Any]:
    """A staged commit as the older API spells it."""
    return {name.replace("-", "_"): value for name, value in commit.items()}
