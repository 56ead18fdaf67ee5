"""Delta tables whose commits a catalog ratifies, for PySpark and Dagster. This module is the public API.

``connect`` opens a catalog from scripts and notebooks; ``cm_delta_dagster.orchestration`` holds what Dagster needs. The module
exports everything that the methods of ``Connection``, ``DeltaTable``, ``PathDeltaTable`` and ``DeltaClient`` take, and everything
that the methods of exported classes return and raise. A name is imported on first use, so that importing one module of the
package loads neither Spark nor Dagster.

``SqlCatalog`` and ``Stores`` are exported to construct a ``DeltaClient``, ``Table`` as the type of what it opens. Their methods
are for the operations of this package: they are not part of the public API, return values that are not exported, and can change
in any release.
"""

import importlib
import typing

from cm_delta_dagster.version import __version__

if typing.TYPE_CHECKING:
    from cm_delta_dagster.api.connection import Connection, connect
    from cm_delta_dagster.api.delta_table import DeltaTable
    from cm_delta_dagster.api.merge_builder import MergeBuilder
    from cm_delta_dagster.api.multi_table_transaction import MultiTableTransaction, TransactionTable
    from cm_delta_dagster.api.path_delta_table import PathDeltaTable
    from cm_delta_dagster.api.table_alterer import TableAlterer
    from cm_delta_dagster.arrow.dataset import DeltaDataset
    from cm_delta_dagster.catalog.access import Caller, CallerSource, Grant, Privilege, Role
    from cm_delta_dagster.catalog.approvals import Approval, ApprovalState
    from cm_delta_dagster.catalog.audit import AuditEntry, AuditOutcome
    from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy, CommitPolicyKind, CommitPolicyRule
    from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
    from cm_delta_dagster.catalog.event_feed import FeedEvent
    from cm_delta_dagster.catalog.feed_kinds import FeedKind
    from cm_delta_dagster.catalog.leases import Lease
    from cm_delta_dagster.catalog.maintenance import (
        MaintenanceConditions,
        MaintenanceDecision,
        MaintenanceKind,
        MaintenanceRule,
    )
    from cm_delta_dagster.catalog.maintenance_windows import MaintenanceWindow
    from cm_delta_dagster.catalog.recovery import AdoptedState
    from cm_delta_dagster.catalog.sql import SqlCatalog
    from cm_delta_dagster.catalog.tables import InactiveState, InactiveTable, TableEntry, TableIdentifier
    from cm_delta_dagster.catalog.webhooks import Webhook, WebhookFailure
    from cm_delta_dagster.client.client import ClientSpec, DeltaClient
    from cm_delta_dagster.client.commits.context import CommitContext, Idempotency, IdempotencyRule
    from cm_delta_dagster.client.settings import ClientSettings, OnCatalogBehind
    from cm_delta_dagster.client.snapshots.history import HistoryEntry
    from cm_delta_dagster.client.snapshots.snapshot import Snapshot
    from cm_delta_dagster.client.table import Table
    from cm_delta_dagster.errors import (
        ApprovalClosedError,
        ApprovalRequiredError,
        CatalogBehindStorageError,
        CatalogError,
        CatalogManagedAccessError,
        CatalogNotFoundError,
        CatalogUnavailableError,
        CatalogVersionError,
        CmDeltaError,
        CommitConflictError,
        CommitError,
        CommitRefusedError,
        CommitRejectedError,
        CommitRetriesExceededError,
        CommitStateUnknownError,
        CorruptLogError,
        DirectoryNotFoundError,
        EngineError,
        EngineStoppedError,
        FeedGapError,
        IllegalCommitError,
        InvalidArgumentError,
        InvalidDataError,
        JavaNotFoundError,
        LeaseNotHeldError,
        MaintenanceError,
        MaintenanceInProgressError,
        MaintenanceNotPermittedError,
        NotCatalogManagedError,
        ObjectAlreadyExistsError,
        ObjectNotFoundError,
        OperationRefusedError,
        PartitionMismatchError,
        PartitionNotFoundError,
        PermissionDeniedError,
        ProtocolError,
        PurgeRefusedError,
        RecoveryError,
        Refusal,
        RetentionTooShortError,
        SchemaMismatchError,
        StorageError,
        StoreNotSupportedError,
        StreamSourceChangedError,
        TableAlreadyExistsError,
        TableError,
        TableNotFoundError,
        TableStorageMissingError,
        UnpublishedVersionError,
        UnsupportedFeatureError,
        VacuumRefusedError,
        VersionNotFoundError,
        WarehouseMismatchError,
        WebhookNotFoundError,
        WriteRefusedError,
    )
    from cm_delta_dagster.operations.doctor.doctor import DoctorReport
    from cm_delta_dagster.operations.doctor.findings import Depth, Finding, Problem, Repair, Severity
    from cm_delta_dagster.operations.doctor.repair_plan import RepairPlan, RepairStep
    from cm_delta_dagster.operations.events.clean_feed import CleanFeedResult
    from cm_delta_dagster.operations.events.deliver_webhooks import DeliveryReport, DeliverySettings
    from cm_delta_dagster.operations.events.event_reader import EventReader
    from cm_delta_dagster.operations.events.webhook_signature import is_authentic_webhook
    from cm_delta_dagster.operations.maintenance.arrangement import Arrangement
    from cm_delta_dagster.operations.maintenance.checkpoint import CheckpointResult
    from cm_delta_dagster.operations.maintenance.clean_log import CleanLogPlan, CleanLogResult
    from cm_delta_dagster.operations.maintenance.clean_staged_commits import (
        CleanStagedCommitsPlan,
        CleanStagedCommitsResult,
    )
    from cm_delta_dagster.operations.maintenance.compact_log import CompactLogResult
    from cm_delta_dagster.operations.maintenance.log_obstacles import KeptLog, LogObstacle
    from cm_delta_dagster.operations.maintenance.optimize import OptimizeOutcome, OptimizePlan, OptimizeResult
    from cm_delta_dagster.operations.maintenance.publish import PublishResult
    from cm_delta_dagster.operations.maintenance.vacuum import RetentionCheck, VacuumPlan, VacuumResult
    from cm_delta_dagster.operations.onboarding.adopt_plan import AdoptPlan, AdoptState
    from cm_delta_dagster.operations.onboarding.export import ExportPlan
    from cm_delta_dagster.operations.onboarding.register import RegisteredPath
    from cm_delta_dagster.operations.onboarding.release import ReleasePlan, ReleaseResult
    from cm_delta_dagster.operations.reading.duckdb_connection import DuckDBConnection
    from cm_delta_dagster.operations.reading.read import ReadPlan
    from cm_delta_dagster.operations.reading.read_stream_arrow import TableStream
    from cm_delta_dagster.operations.recovery.plan import (
        FoundCommit,
        KeptHistory,
        LostCommit,
        OvertakenCommit,
        RecoveredTable,
        RecoveryPlan,
        RecoveryResult,
        RejectedCommit,
        StagedCandidate,
        TableRecoveryPlan,
    )
    from cm_delta_dagster.operations.recovery.relocate import MoveState, RelocationPlan, TableMove
    from cm_delta_dagster.operations.recovery.warehouse_plan import (
        AdoptionPlan,
        AdoptionResult,
        SkippedLog,
        WarehousePlan,
    )
    from cm_delta_dagster.operations.tables.alter import AlterResult
    from cm_delta_dagster.operations.tables.alterations import NewColumn
    from cm_delta_dagster.operations.tables.approve_commit import ApprovedCommit
    from cm_delta_dagster.operations.tables.clone import CloneMode, CloneResult
    from cm_delta_dagster.operations.tables.purge import PurgeCandidate, PurgePlan, PurgeResult
    from cm_delta_dagster.operations.tables.replace import CreationMode
    from cm_delta_dagster.operations.tables.restore import MissingFiles, RestoreOutcome, RestorePlan, RestoreResult
    from cm_delta_dagster.operations.writing.merge import MergeMode
    from cm_delta_dagster.operations.writing.write import PartitionOverwrite
    from cm_delta_dagster.operations.writing.write_result import WriteOutcome, WriteResult
    from cm_delta_dagster.operations.writing.write_stream import OutputMode
    from cm_delta_dagster.protocol.actions.actions import CommitInfo, DomainMetadata, Metadata, Protocol, SetTransaction
    from cm_delta_dagster.protocol.changes.batch_planning import ChangeHandling
    from cm_delta_dagster.protocol.changes.stream_offset import StreamOffset
    from cm_delta_dagster.protocol.features.column_specs import Column
    from cm_delta_dagster.protocol.features.identity_columns import Identity
    from cm_delta_dagster.protocol.log.restoration import FileDifference
    from cm_delta_dagster.protocol.predicates.predicates import (
        AlwaysTrue,
        And,
        Comparison,
        ComparisonOperator,
        In,
        IsNotNull,
        IsNull,
        Not,
        Opaque,
        Or,
        StartsWith,
        raw_sql,
    )
    from cm_delta_dagster.protocol.schema.evolution import SchemaMode
    from cm_delta_dagster.protocol.schema.types import (
        ArrayType,
        DecimalType,
        MapType,
        PrimitiveType,
        StructField,
        StructType,
    )
    from cm_delta_dagster.protocol.statistics.metadata_aggregates import MetadataAggregates
    from cm_delta_dagster.storage.stores import Stores

__all__ = [
    "AdoptPlan",
    "AdoptState",
    "AdoptedState",
    "AdoptionPlan",
    "AdoptionResult",
    "AlterResult",
    "AlwaysTrue",
    "And",
    "Approval",
    "ApprovalClosedError",
    "ApprovalRequiredError",
    "ApprovalState",
    "ApprovedCommit",
    "Arrangement",
    "ArrayType",
    "AuditEntry",
    "AuditOutcome",
    "Caller",
    "CallerSource",
    "CatalogBehindStorageError",
    "CatalogError",
    "CatalogManagedAccessError",
    "CatalogNotFoundError",
    "CatalogUnavailableError",
    "CatalogVersionError",
    "ChangeHandling",
    "CheckpointResult",
    "CleanFeedResult",
    "CleanLogPlan",
    "CleanLogResult",
    "CleanStagedCommitsPlan",
    "CleanStagedCommitsResult",
    "ClientSettings",
    "ClientSpec",
    "CloneMode",
    "CloneResult",
    "CmDeltaError",
    "Column",
    "CommitConflictError",
    "CommitContext",
    "CommitError",
    "CommitInfo",
    "CommitMode",
    "CommitPolicy",
    "CommitPolicyKind",
    "CommitPolicyRule",
    "CommitRefusedError",
    "CommitRejectedError",
    "CommitRetriesExceededError",
    "CommitRule",
    "CommitRuleKind",
    "CommitStateUnknownError",
    "CompactLogResult",
    "Comparison",
    "ComparisonOperator",
    "Connection",
    "CorruptLogError",
    "CreationMode",
    "DecimalType",
    "DeliveryReport",
    "DeliverySettings",
    "DeltaClient",
    "DeltaDataset",
    "DeltaTable",
    "Depth",
    "DirectoryNotFoundError",
    "DoctorReport",
    "DomainMetadata",
    "DuckDBConnection",
    "EngineError",
    "EngineStoppedError",
    "EventReader",
    "ExportPlan",
    "FeedEvent",
    "FeedGapError",
    "FeedKind",
    "FileDifference",
    "Finding",
    "FoundCommit",
    "Grant",
    "HistoryEntry",
    "Idempotency",
    "IdempotencyRule",
    "Identity",
    "IllegalCommitError",
    "In",
    "InactiveState",
    "InactiveTable",
    "InvalidArgumentError",
    "InvalidDataError",
    "IsNotNull",
    "IsNull",
    "JavaNotFoundError",
    "KeptHistory",
    "KeptLog",
    "Lease",
    "LeaseNotHeldError",
    "LogObstacle",
    "LostCommit",
    "MaintenanceConditions",
    "MaintenanceDecision",
    "MaintenanceError",
    "MaintenanceInProgressError",
    "MaintenanceKind",
    "MaintenanceNotPermittedError",
    "MaintenanceRule",
    "MaintenanceWindow",
    "MapType",
    "MergeBuilder",
    "MergeMode",
    "Metadata",
    "MetadataAggregates",
    "MissingFiles",
    "MoveState",
    "MultiTableTransaction",
    "NewColumn",
    "Not",
    "NotCatalogManagedError",
    "ObjectAlreadyExistsError",
    "ObjectNotFoundError",
    "OnCatalogBehind",
    "OnViolation",
    "Opaque",
    "OperationRefusedError",
    "OptimizeOutcome",
    "OptimizePlan",
    "OptimizeResult",
    "Or",
    "OutputMode",
    "OvertakenCommit",
    "PartitionMismatchError",
    "PartitionNotFoundError",
    "PartitionOverwrite",
    "PathDeltaTable",
    "PermissionDeniedError",
    "PrimitiveType",
    "Privilege",
    "Problem",
    "Protocol",
    "ProtocolError",
    "PublishResult",
    "PurgeCandidate",
    "PurgePlan",
    "PurgeRefusedError",
    "PurgeResult",
    "ReadPlan",
    "RecoveredTable",
    "RecoveryError",
    "RecoveryPlan",
    "RecoveryResult",
    "Refusal",
    "RegisteredPath",
    "RejectedCommit",
    "ReleasePlan",
    "ReleaseResult",
    "RelocationPlan",
    "Repair",
    "RepairPlan",
    "RepairStep",
    "RestoreOutcome",
    "RestorePlan",
    "RestoreResult",
    "RetentionCheck",
    "RetentionTooShortError",
    "Role",
    "SchemaMismatchError",
    "SchemaMode",
    "SetTransaction",
    "Severity",
    "SkippedLog",
    "Snapshot",
    "SqlCatalog",
    "StagedCandidate",
    "StartsWith",
    "StorageError",
    "StoreNotSupportedError",
    "Stores",
    "StreamOffset",
    "StreamSourceChangedError",
    "StructField",
    "StructType",
    "Table",
    "TableAlreadyExistsError",
    "TableAlterer",
    "TableEntry",
    "TableError",
    "TableIdentifier",
    "TableMove",
    "TableNotFoundError",
    "TableRecoveryPlan",
    "TableStorageMissingError",
    "TableStream",
    "TransactionTable",
    "UnpublishedVersionError",
    "UnsupportedFeatureError",
    "VacuumPlan",
    "VacuumRefusedError",
    "VacuumResult",
    "VersionNotFoundError",
    "WarehouseMismatchError",
    "WarehousePlan",
    "Webhook",
    "WebhookFailure",
    "WebhookNotFoundError",
    "WriteOutcome",
    "WriteRefusedError",
    "WriteResult",
    "__version__",
    "connect",
    "is_authentic_webhook",
    "raw_sql",
]

_ERRORS = "cm_delta_dagster.errors"
_MODULES = {
    "AdoptPlan": "cm_delta_dagster.operations.onboarding.adopt_plan",
    "AdoptState": "cm_delta_dagster.operations.onboarding.adopt_plan",
    "AdoptedState": "cm_delta_dagster.catalog.recovery",
    "AdoptionPlan": "cm_delta_dagster.operations.recovery.warehouse_plan",
    "AdoptionResult": "cm_delta_dagster.operations.recovery.warehouse_plan",
    "AlterResult": "cm_delta_dagster.operations.tables.alter",
    "AlwaysTrue": "cm_delta_dagster.protocol.predicates.predicates",
    "And": "cm_delta_dagster.protocol.predicates.predicates",
    "Approval": "cm_delta_dagster.catalog.approvals",
    "ApprovalState": "cm_delta_dagster.catalog.approvals",
    "ApprovedCommit": "cm_delta_dagster.operations.tables.approve_commit",
    "Arrangement": "cm_delta_dagster.operations.maintenance.arrangement",
    "ArrayType": "cm_delta_dagster.protocol.schema.types",
    "AuditEntry": "cm_delta_dagster.catalog.audit",
    "AuditOutcome": "cm_delta_dagster.catalog.audit",
    "Caller": "cm_delta_dagster.catalog.access",
    "CallerSource": "cm_delta_dagster.catalog.access",
    "ChangeHandling": "cm_delta_dagster.protocol.changes.batch_planning",
    "CheckpointResult": "cm_delta_dagster.operations.maintenance.checkpoint",
    "CleanFeedResult": "cm_delta_dagster.operations.events.clean_feed",
    "CleanLogPlan": "cm_delta_dagster.operations.maintenance.clean_log",
    "CleanLogResult": "cm_delta_dagster.operations.maintenance.clean_log",
    "CleanStagedCommitsPlan": "cm_delta_dagster.operations.maintenance.clean_staged_commits",
    "CleanStagedCommitsResult": "cm_delta_dagster.operations.maintenance.clean_staged_commits",
    "ClientSettings": "cm_delta_dagster.client.settings",
    "ClientSpec": "cm_delta_dagster.client.client",
    "CloneMode": "cm_delta_dagster.operations.tables.clone",
    "CloneResult": "cm_delta_dagster.operations.tables.clone",
    "Column": "cm_delta_dagster.protocol.features.column_specs",
    "CommitContext": "cm_delta_dagster.client.commits.context",
    "CommitInfo": "cm_delta_dagster.protocol.actions.actions",
    "CommitMode": "cm_delta_dagster.catalog.commit_policy",
    "CommitPolicy": "cm_delta_dagster.catalog.commit_policy",
    "CommitPolicyKind": "cm_delta_dagster.catalog.commit_policy",
    "CommitPolicyRule": "cm_delta_dagster.catalog.commit_policy",
    "CommitRule": "cm_delta_dagster.catalog.commit_rules",
    "CommitRuleKind": "cm_delta_dagster.catalog.commit_rules",
    "CompactLogResult": "cm_delta_dagster.operations.maintenance.compact_log",
    "Comparison": "cm_delta_dagster.protocol.predicates.predicates",
    "ComparisonOperator": "cm_delta_dagster.protocol.predicates.predicates",
    "Connection": "cm_delta_dagster.api.connection",
    "CreationMode": "cm_delta_dagster.operations.tables.replace",
    "DecimalType": "cm_delta_dagster.protocol.schema.types",
    "DeliveryReport": "cm_delta_dagster.operations.events.deliver_webhooks",
    "DeliverySettings": "cm_delta_dagster.operations.events.deliver_webhooks",
    "DeltaClient": "cm_delta_dagster.client.client",
    "DeltaDataset": "cm_delta_dagster.arrow.dataset",
    "DeltaTable": "cm_delta_dagster.api.delta_table",
    "Depth": "cm_delta_dagster.operations.doctor.findings",
    "DoctorReport": "cm_delta_dagster.operations.doctor.doctor",
    "DomainMetadata": "cm_delta_dagster.protocol.actions.actions",
    "DuckDBConnection": "cm_delta_dagster.operations.reading.duckdb_connection",
    "EventReader": "cm_delta_dagster.operations.events.event_reader",
    "ExportPlan": "cm_delta_dagster.operations.onboarding.export",
    "FeedEvent": "cm_delta_dagster.catalog.event_feed",
    "FeedKind": "cm_delta_dagster.catalog.feed_kinds",
    "FileDifference": "cm_delta_dagster.protocol.log.restoration",
    "Finding": "cm_delta_dagster.operations.doctor.findings",
    "FoundCommit": "cm_delta_dagster.operations.recovery.plan",
    "Grant": "cm_delta_dagster.catalog.access",
    "HistoryEntry": "cm_delta_dagster.client.snapshots.history",
    "Idempotency": "cm_delta_dagster.client.commits.context",
    "IdempotencyRule": "cm_delta_dagster.client.commits.context",
    "Identity": "cm_delta_dagster.protocol.features.identity_columns",
    "In": "cm_delta_dagster.protocol.predicates.predicates",
    "InactiveState": "cm_delta_dagster.catalog.tables",
    "InactiveTable": "cm_delta_dagster.catalog.tables",
    "IsNotNull": "cm_delta_dagster.protocol.predicates.predicates",
    "IsNull": "cm_delta_dagster.protocol.predicates.predicates",
    "KeptHistory": "cm_delta_dagster.operations.recovery.plan",
    "KeptLog": "cm_delta_dagster.operations.maintenance.log_obstacles",
    "Lease": "cm_delta_dagster.catalog.leases",
    "LogObstacle": "cm_delta_dagster.operations.maintenance.log_obstacles",
    "LostCommit": "cm_delta_dagster.operations.recovery.plan",
    "MaintenanceConditions": "cm_delta_dagster.catalog.maintenance",
    "MaintenanceDecision": "cm_delta_dagster.catalog.maintenance",
    "MaintenanceKind": "cm_delta_dagster.catalog.maintenance",
    "MaintenanceRule": "cm_delta_dagster.catalog.maintenance",
    "MaintenanceWindow": "cm_delta_dagster.catalog.maintenance_windows",
    "MapType": "cm_delta_dagster.protocol.schema.types",
    "MergeBuilder": "cm_delta_dagster.api.merge_builder",
    "MergeMode": "cm_delta_dagster.operations.writing.merge",
    "Metadata": "cm_delta_dagster.protocol.actions.actions",
    "MetadataAggregates": "cm_delta_dagster.protocol.statistics.metadata_aggregates",
    "MissingFiles": "cm_delta_dagster.operations.tables.restore",
    "MoveState": "cm_delta_dagster.operations.recovery.relocate",
    "MultiTableTransaction": "cm_delta_dagster.api.multi_table_transaction",
    "NewColumn": "cm_delta_dagster.operations.tables.alterations",
    "Not": "cm_delta_dagster.protocol.predicates.predicates",
    "OnCatalogBehind": "cm_delta_dagster.client.settings",
    "OnViolation": "cm_delta_dagster.catalog.commit_rules",
    "Opaque": "cm_delta_dagster.protocol.predicates.predicates",
    "OptimizeOutcome": "cm_delta_dagster.operations.maintenance.optimize",
    "OptimizePlan": "cm_delta_dagster.operations.maintenance.optimize",
    "OptimizeResult": "cm_delta_dagster.operations.maintenance.optimize",
    "Or": "cm_delta_dagster.protocol.predicates.predicates",
    "OutputMode": "cm_delta_dagster.operations.writing.write_stream",
    "OvertakenCommit": "cm_delta_dagster.operations.recovery.plan",
    "PartitionOverwrite": "cm_delta_dagster.operations.writing.write",
    "PathDeltaTable": "cm_delta_dagster.api.path_delta_table",
    "PrimitiveType": "cm_delta_dagster.protocol.schema.types",
    "Privilege": "cm_delta_dagster.catalog.access",
    "Problem": "cm_delta_dagster.operations.doctor.findings",
    "Protocol": "cm_delta_dagster.protocol.actions.actions",
    "PublishResult": "cm_delta_dagster.operations.maintenance.publish",
    "PurgeCandidate": "cm_delta_dagster.operations.tables.purge",
    "PurgePlan": "cm_delta_dagster.operations.tables.purge",
    "PurgeResult": "cm_delta_dagster.operations.tables.purge",
    "ReadPlan": "cm_delta_dagster.operations.reading.read",
    "RecoveredTable": "cm_delta_dagster.operations.recovery.plan",
    "RecoveryPlan": "cm_delta_dagster.operations.recovery.plan",
    "RecoveryResult": "cm_delta_dagster.operations.recovery.plan",
    "RegisteredPath": "cm_delta_dagster.operations.onboarding.register",
    "RejectedCommit": "cm_delta_dagster.operations.recovery.plan",
    "ReleasePlan": "cm_delta_dagster.operations.onboarding.release",
    "ReleaseResult": "cm_delta_dagster.operations.onboarding.release",
    "RelocationPlan": "cm_delta_dagster.operations.recovery.relocate",
    "Repair": "cm_delta_dagster.operations.doctor.findings",
    "RepairPlan": "cm_delta_dagster.operations.doctor.repair_plan",
    "RepairStep": "cm_delta_dagster.operations.doctor.repair_plan",
    "RestoreOutcome": "cm_delta_dagster.operations.tables.restore",
    "RestorePlan": "cm_delta_dagster.operations.tables.restore",
    "RestoreResult": "cm_delta_dagster.operations.tables.restore",
    "RetentionCheck": "cm_delta_dagster.operations.maintenance.vacuum",
    "Role": "cm_delta_dagster.catalog.access",
    "SchemaMode": "cm_delta_dagster.protocol.schema.evolution",
    "SetTransaction": "cm_delta_dagster.protocol.actions.actions",
    "Severity": "cm_delta_dagster.operations.doctor.findings",
    "SkippedLog": "cm_delta_dagster.operations.recovery.warehouse_plan",
    "Snapshot": "cm_delta_dagster.client.snapshots.snapshot",
    "SqlCatalog": "cm_delta_dagster.catalog.sql",
    "StagedCandidate": "cm_delta_dagster.operations.recovery.plan",
    "StartsWith": "cm_delta_dagster.protocol.predicates.predicates",
    "Stores": "cm_delta_dagster.storage.stores",
    "StreamOffset": "cm_delta_dagster.protocol.changes.stream_offset",
    "StructField": "cm_delta_dagster.protocol.schema.types",
    "StructType": "cm_delta_dagster.protocol.schema.types",
    "Table": "cm_delta_dagster.client.table",
    "TableAlterer": "cm_delta_dagster.api.table_alterer",
    "TableEntry": "cm_delta_dagster.catalog.tables",
    "TableIdentifier": "cm_delta_dagster.catalog.tables",
    "TableMove": "cm_delta_dagster.operations.recovery.relocate",
    "TableRecoveryPlan": "cm_delta_dagster.operations.recovery.plan",
    "TableStream": "cm_delta_dagster.operations.reading.read_stream_arrow",
    "TransactionTable": "cm_delta_dagster.api.multi_table_transaction",
    "VacuumPlan": "cm_delta_dagster.operations.maintenance.vacuum",
    "VacuumResult": "cm_delta_dagster.operations.maintenance.vacuum",
    "WarehousePlan": "cm_delta_dagster.operations.recovery.warehouse_plan",
    "Webhook": "cm_delta_dagster.catalog.webhooks",
    "WebhookFailure": "cm_delta_dagster.catalog.webhooks",
    "WriteOutcome": "cm_delta_dagster.operations.writing.write_result",
    "WriteResult": "cm_delta_dagster.operations.writing.write_result",
    "connect": "cm_delta_dagster.api.connection",
    "is_authentic_webhook": "cm_delta_dagster.operations.events.webhook_signature",
    "raw_sql": "cm_delta_dagster.protocol.predicates.predicates",
}
"""The module of each exported name; names that are absent here are in ``cm_delta_dagster.errors``."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES.get(name, _ERRORS)), name)


def __dir__() -> list[str]:
    return sorted(__all__)
