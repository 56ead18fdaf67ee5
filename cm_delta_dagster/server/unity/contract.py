"""What a table that is created through Unity Catalog's API must have: protocol features and properties.

Unity Catalog's managed table contract. The answer to ``POST staging-tables`` states it, and ``POST tables`` is held to it. The
properties that are suggested are not checked; a null lets the engine choose the value. The older API states no contract: a table
that is created through it must have what a catalog-managed table needs, and no more.

A later commit must leave the protocol as the contract requires it, if it was so before: tables that this package creates need not
keep the contract. Properties are not compared then, because ``delta.checkpointPolicy`` may be stated at the creation alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cm_delta_dagster.catalog.tables import RecordedDefinition
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.features.table_properties import TABLE_ID_KEY

_DELETION_VECTORS = "deletionVectors"
_ENABLE_DELETION_VECTORS = "delta.enableDeletionVectors"
_IN_COMMIT_TIMESTAMPS = {"delta.enableInCommitTimestamps": "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What a new table must have, besides its id among the properties."""

    reader_features: tuple[str, ...]
    writer_features: tuple[str, ...]
    properties: Mapping[str, str]


STATED = Contract(
    reader_features=("catalogManaged", "v2Checkpoint", "vacuumProtocolCheck", _DELETION_VECTORS),
    writer_features=("catalogManaged", "v2Checkpoint", "vacuumProtocolCheck", _DELETION_VECTORS, "inCommitTimestamp"),
    properties={
        **_IN_COMMIT_TIMESTAMPS,
        "delta.checkpoint.writeStatsAsJson": "true",
        "delta.checkpointPolicy": "v2",
        "delta.checkpoint.writeStatsAsStruct": "true",
        _ENABLE_DELETION_VECTORS: "true",
    },
)
"""For the Delta API, which states it."""

UNSTATED = Contract(
    reader_features=("catalogManaged", "vacuumProtocolCheck"),
    writer_features=("catalogManaged", "vacuumProtocolCheck", "inCommitTimestamp"),
    properties=_IN_COMMIT_TIMESTAMPS,
)
"""For the older API."""

_SUGGESTED_PROPERTIES: Mapping[str, str | None] = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": None,
    "delta.rowTracking.materializedRowCommitVersionColumnName": None,
    "delta.columnMapping.mode": "name",
    "delta.columnMapping.maxColumnId": None,
    "delta.randomizeFilePrefixes": "true",
    "delta.parquet.compression.codec": "zstd",
}
_WITHOUT_VECTORS = "delta.enableIcebergCompatV2"
"""Iceberg's readers know no deletion vectors of Delta, so a table with this property needs none."""


def stated_contract(table_id: str) -> dict[str, Any]:
    """The contract in the answer to ``POST staging-tables``."""
    return {
        "required-protocol": {
            "min-reader-version": 3,
            "min-writer-version": 7,
            "reader-features": list(STATED.reader_features),
            "writer-features": list(STATED.writer_features),
        },
        "suggested-protocol": {
            "reader-features": ["columnMapping"],
            "writer-features": ["columnMapping", "domainMetadata", "rowTracking"],
        },
        "required-properties": {**STATED.properties, TABLE_ID_KEY: table_id},
        "suggested-properties": dict(_SUGGESTED_PROPERTIES),
    }


def check_contract(contract: Contract, table_id: str, *, protocol: Protocol, properties: Mapping[str, str]) -> None:
    """Refuse a new table that does not have what the contract requires.

    Args:
        properties: those of the request and of version 0.

    Raises:
        InvalidArgumentError: names the first feature or property that is missing or has another value.
    """
    exempt = _is_exempt(properties)
    wrong = _flaw_of_protocol(contract, protocol, exempt=exempt)
    if wrong is not None:
        raise _broken(wrong)
    for name, value in {**contract.properties, TABLE_ID_KEY: table_id}.items():
        if properties.get(name) != value and not (exempt and name == _ENABLE_DELETION_VECTORS):
            raise _broken(f"the property {name} must be {value!r}, and it is {properties.get(name)!r}")


def check_changed_protocol(before: RecordedDefinition, metadata: Metadata, protocol: Protocol) -> None:
    """Refuse a commit that ends the contract for the protocol of a table that keeps it.

    Args:
        before: the definition of the table before the commit.
        metadata, protocol: those after it.

    Raises:
        InvalidArgumentError: names the feature.
    """
    if _flaw_of_protocol(STATED, before.protocol, exempt=_is_exempt(before.properties)) is not None:
        return
    wrong = _flaw_of_protocol(STATED, protocol, exempt=_is_exempt(metadata.configuration))
    if wrong is not None:
        raise InvalidArgumentError(
            f"The protocol of the commit was refused: {wrong}. Nothing was committed. Keep the features that the table was created "
            "with."
        )


def _is_exempt(properties: Mapping[str, str]) -> bool:
    """Whether the table needs no deletion vectors."""
    return properties.get(_WITHOUT_VECTORS) == "true"


def _flaw_of_protocol(contract: Contract, protocol: Protocol, *, exempt: bool) -> str | None:
    """What of the contract the protocol does not have; None if it has all."""
    if protocol.min_reader_version < 3 or protocol.min_writer_version < 7:
        return f"its protocol is ({protocol.min_reader_version}, {protocol.min_writer_version}), at least (3, 7) is required"
    for kind, required, listed in (
        ("reader", contract.reader_features, protocol.reader_features or ()),
        ("writer", contract.writer_features, protocol.writer_features or ()),
    ):
        for feature in required:
            if feature not in listed and not (exempt and feature == _DELETION_VECTORS):
                return f"the {kind} feature {feature} is required and not in its protocol"
    only_readers = sorted(set(protocol.reader_features or ()) - set(protocol.writer_features or ()))
    return f"its protocol lists {', '.join(only_readers)} for readers and not for writers" if only_readers else None


def _broken(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The table was not created: {what}. Write version 0 with it. The Delta API states what a table must have in its answer "
        "to the request for a staging table."
    )
