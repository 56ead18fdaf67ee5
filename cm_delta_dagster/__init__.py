"""Delta tables whose commits a catalog ratifies, for PySpark and Dagster. This module is the public surface.

``connect`` is the way in for scripts and notebooks; ``cm_delta_dagster.orchestration`` holds what Dagster needs. Names
are looked up when they are first used: importing a single room of the package loads neither Spark nor Dagster.
"""

import importlib
import typing

from cm_delta_dagster.version import __version__

if typing.TYPE_CHECKING:
    from cm_delta_dagster.api.connection import Connection, connect
    from cm_delta_dagster.api.delta_table import DeltaTable
    from cm_delta_dagster.api.table_reads import PathDeltaTable
    from cm_delta_dagster.catalog.maintenance import MaintenanceDecision, MaintenanceKind, MaintenanceRule
    from cm_delta_dagster.catalog.sql import SqlCatalog
    from cm_delta_dagster.catalog.tables import TableIdentifier
    from cm_delta_dagster.client.client import DeltaClient
    from cm_delta_dagster.client.commits.context import CommitContext, Idempotency, IdempotencyRule
    from cm_delta_dagster.client.settings import ClientSettings
    from cm_delta_dagster.client.snapshots.snapshot import Snapshot
    from cm_delta_dagster.errors import (
        CmDeltaError,
        CommitConflictError,
        CommitStateUnknownError,
        InvalidArgumentError,
        InvalidDataError,
        MaintenanceNotPermittedError,
        PartitionMismatchError,
        SchemaMismatchError,
        TableAlreadyExistsError,
        TableNotFoundError,
        VersionNotFoundError,
    )
    from cm_delta_dagster.operations.maintenance.vacuum import RetentionCheck
    from cm_delta_dagster.operations.writing.merge import MergeMode
    from cm_delta_dagster.operations.writing.write_transaction import WriteOutcome, WriteResult
    from cm_delta_dagster.protocol.changes.stream_planning import ChangeHandling
    from cm_delta_dagster.protocol.predicates.predicates import raw_sql
    from cm_delta_dagster.protocol.schema.evolution import SchemaMode
    from cm_delta_dagster.protocol.schema.types import (
        ArrayType,
        DecimalType,
        MapType,
        PrimitiveType,
        StructField,
        StructType,
    )
    from cm_delta_dagster.storage.stores import Stores

__all__ = [
    "ArrayType",
    "ChangeHandling",
    "ClientSettings",
    "CmDeltaError",
    "CommitConflictError",
    "CommitContext",
    "CommitStateUnknownError",
    "Connection",
    "DecimalType",
    "DeltaClient",
    "DeltaTable",
    "Idempotency",
    "IdempotencyRule",
    "InvalidArgumentError",
    "InvalidDataError",
    "MaintenanceDecision",
    "MaintenanceKind",
    "MaintenanceNotPermittedError",
    "MaintenanceRule",
    "MapType",
    "MergeMode",
    "PartitionMismatchError",
    "PathDeltaTable",
    "PrimitiveType",
    "RetentionCheck",
    "SchemaMismatchError",
    "SchemaMode",
    "Snapshot",
    "SqlCatalog",
    "Stores",
    "StructField",
    "StructType",
    "TableAlreadyExistsError",
    "TableIdentifier",
    "TableNotFoundError",
    "VersionNotFoundError",
    "WriteOutcome",
    "WriteResult",
    "__version__",
    "connect",
    "raw_sql",
]

_ERRORS = "cm_delta_dagster.errors"
_SCHEMA = "cm_delta_dagster.protocol.schema.types"
_HOMES = {
    "ArrayType": _SCHEMA,
    "ChangeHandling": "cm_delta_dagster.protocol.changes.stream_planning",
    "ClientSettings": "cm_delta_dagster.client.settings",
    "CommitContext": "cm_delta_dagster.client.commits.context",
    "Connection": "cm_delta_dagster.api.connection",
    "DecimalType": _SCHEMA,
    "DeltaClient": "cm_delta_dagster.client.client",
    "DeltaTable": "cm_delta_dagster.api.delta_table",
    "Idempotency": "cm_delta_dagster.client.commits.context",
    "IdempotencyRule": "cm_delta_dagster.client.commits.context",
    "MaintenanceDecision": "cm_delta_dagster.catalog.maintenance",
    "MaintenanceKind": "cm_delta_dagster.catalog.maintenance",
    "MaintenanceRule": "cm_delta_dagster.catalog.maintenance",
    "MapType": _SCHEMA,
    "MergeMode": "cm_delta_dagster.operations.writing.merge",
    "PrimitiveType": _SCHEMA,
    "PathDeltaTable": "cm_delta_dagster.api.table_reads",
    "RetentionCheck": "cm_delta_dagster.operations.maintenance.vacuum",
    "SchemaMode": "cm_delta_dagster.protocol.schema.evolution",
    "Snapshot": "cm_delta_dagster.client.snapshots.snapshot",
    "SqlCatalog": "cm_delta_dagster.catalog.sql",
    "Stores": "cm_delta_dagster.storage.stores",
    "StructField": _SCHEMA,
    "StructType": _SCHEMA,
    "TableIdentifier": "cm_delta_dagster.catalog.tables",
    "WriteOutcome": "cm_delta_dagster.operations.writing.write_transaction",
    "WriteResult": "cm_delta_dagster.operations.writing.write_transaction",
    "connect": "cm_delta_dagster.api.connection",
    "raw_sql": "cm_delta_dagster.protocol.predicates.predicates",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, _ERRORS)), name)


def __dir__() -> list[str]:
    return sorted(__all__)
