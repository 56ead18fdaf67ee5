"""Which table features can be dropped, and what the table loses with them (protocol heading "Table Features").

The rules are those of delta-spark, except that a catalog-managed table keeps what it needs to be one. A feature that readers must
support leaves traces in older commits. So the table gets the feature ``checkpointProtection``, with which cleanup keeps the
checkpoints of these versions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import Protocol
from cm_delta_dagster.protocol.features import clustering, row_tracking, type_widening
from cm_delta_dagster.protocol.features.column_ids import MAPPING_PREFIX, MAX_COLUMN_ID, strip_metadata
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode
from cm_delta_dagster.protocol.features.enablement import COLUMN_MAPPING_MODE, TableDefinition
from cm_delta_dagster.protocol.features.protocol_evolution import with_features
from cm_delta_dagster.protocol.features.table_features import (
    CATALOG_MANAGED,
    FEATURES,
    IN_COMMIT_TIMESTAMP,
    MULTI_TABLE_TRANSACTION,
    FeatureKind,
    canonical_name,
    feature_list,
    reader_features,
    supports,
    writer_features,
)
from cm_delta_dagster.protocol.features.table_properties import CONSTRAINT_PREFIX, DELETION_VECTORS_KEY, TABLE_ID_KEY
from cm_delta_dagster.protocol.schema.evolution import CURRENT_DEFAULT
from cm_delta_dagster.protocol.schema.types import walk_fields
from cm_delta_dagster.remedies import DropTableFeature, Remedy, RemoveClusteringColumns

CHECKPOINT_PROTECTION = "checkpointProtection"
DOMAIN_METADATA = "domainMetadata"
REMOVABLE_DOMAINS = (clustering.DOMAIN,)
"""Domains of Delta's features that mean nothing once the feature was dropped. Those of users can be removed too."""

OF_CATALOG_MANAGED = (CATALOG_MANAGED, "vacuumProtocolCheck")
"""Features of each catalog-managed table. They leave nothing behind, and other engines refuse them."""

LOST_WITHOUT_CATALOG = (*OF_CATALOG_MANAGED, MULTI_TABLE_TRANSACTION)
"""Features that a table loses when no catalog manages it any more."""

_NEEDED = frozenset((CATALOG_MANAGED, IN_COMMIT_TIMESTAMP, "vacuumProtocolCheck", "v2Checkpoint"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesOfTable:
    """What the removal of a feature needs to know of the table besides its definition.

    Attributes:
        files: number of live files.
        deletion_vectors: how many of them have a deletion vector.
        is_clustered: whether the table has clustering columns.
        domains: names of the metadata domains.
    """

    files: int
    deletion_vectors: int
    is_clustered: bool = False
    domains: tuple[str, ...] = ()


_Removal = Callable[[TableDefinition, FilesOfTable], TableDefinition]


def without_feature(table: TableDefinition, feature: str, files: FilesOfTable) -> TableDefinition:
    """The definition without ``feature`` and without its properties.

    Args:
        feature: name of the feature, as the protocol lists it.
        files: the live files.

    Raises:
        InvalidArgumentError: the table does not have the feature, it cannot be dropped, another feature needs it, or the table
            uses it; says what to do.
    """
    name = canonical_name(feature)
    if name not in FEATURES:
        raise _refused(name, "this client does not know it; names are case-sensitive", "Check the spelling.")
    if not supports(table.protocol, name):
        raise _refused(name, "the table does not have it", f"It has {feature_list(_listed(table.protocol))}.")
    if name in _NEEDED:
        raise _refused(name, "a catalog-managed table needs it", "Copy the rows to another kind of table.")
    needing = [other for other in _listed(table.protocol) if other in FEATURES and name in FEATURES[other].requires]
    if needing:
        raise _refused(name, f"the features {feature_list(needing)} need it", "Drop them first.")
    removal = _REMOVALS.get(name)
    if removal is None:
        raise _refused(name, "dropping this feature is not supported", "Copy the rows to a table without it.")
    changed = removal(table, files)
    protocol = _protocol_without(changed.protocol, name)
    if FEATURES[name].kind is FeatureKind.READER_WRITER:
        protocol = with_features(protocol, (CHECKPOINT_PROTECTION,))
    return replace(changed, protocol=protocol)


def without_catalog_managed(table: TableDefinition) -> TableDefinition:
    """The definition of a table that no catalog manages any more, without :data:`LOST_WITHOUT_CATALOG`.

    Older commits have in-commit timestamps, which stay enabled.
    """
    plain = table.with_properties(**{TABLE_ID_KEY: None})
    protocol = plain.protocol
    for name in LOST_WITHOUT_CATALOG:
        protocol = _protocol_without(protocol, name)
    return replace(plain, protocol=protocol)


def _listed(protocol: Protocol) -> frozenset[str]:
    return writer_features(protocol) | reader_features(protocol)


def _protocol_without(protocol: Protocol, name: str) -> Protocol:
    def kept(features: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if features is None else tuple(item for item in features if canonical_name(item) != name)

    return replace(
        protocol, reader_features=kept(protocol.reader_features), writer_features=kept(protocol.writer_features)
    )


# --- what each feature leaves behind ----------------------------------------------------------------------------------


def _check_constraints(table: TableDefinition, files: FilesOfTable) -> TableDefinition:
    names = [
        key.removeprefix(CONSTRAINT_PREFIX) for key in table.metadata.configuration if key.startswith(CONSTRAINT_PREFIX)
    ]
    if names:
        raise _refused(
            "checkConstraints", f"the table has the constraints {', '.join(sorted(names))}", "Drop them first."
        )
    return table


def _column_defaults(table: TableDefinition, files: FilesOfTable) -> TableDefinition:
    columns = [".".join(path) for path, item in walk_fields(table.schema) if CURRENT_DEFAULT in item.metadata]
    if columns:
        raise _refused(
            "allowColumnDefaults", f"the columns {', '.join(columns)} have defaults", "Drop the defaults first."
        )
    return table


def _row_tracking(table: TableDefinition, files: FilesOfTable) -> TableDefinition:
    # The domain with the highest row id stays: if the feature is added again, no id is given twice.
    return table.with_properties(
        **{
            row_tracking.ENABLED: None,
            row_tracking.MATERIALIZED_ROW_ID: None,
            row_tracking.MATERIALIZED_ROW_COMMIT_VERSION: None,
            row_tracking.SUSPENDED: None,
        }
    )


def _deletion_vectors(table: TableDefinition, files: FilesOfTable) -> TableDefinition:
    if files.deletion_vectors:
        raise _refused(
            "deletionVectors",
            f"{files.deletion_vectors} files have a deletion vector",
            remedy=DropTableFeature(feature="deletionVectors"),
        )
    # delta-spark unsets the property, which means the same; new tables have it as "true", so that "false" is clearer.
    return table.with_properties(**{DELETION_VECTORS_KEY: "false"})


def _type_widening(table: TableDefinition, files: FilesOfTable) -> TableDefinition:
    changed = [
        ".".join(path) for path, item in walk_fields(table.schema) if type_widening.TYPE_CHANGES in item.metadata
    ]
    if changed and files.files:
        raise _refused(
            "typeWidening",
            f"files may hold values of the earlier types of {', '.join(changed)}",
            remedy=DropTableFeature(feature="typeWidening"),
        )
    plain = table.with_schema(strip_metadata(table.schema, (type_widening.TYPE_CHANGES,))) if changed else table
    return plain.with_properties(**{type_widening.ENABLED: None})


def _column_mapping(table: TableDefinition, files: FilesOfTable) -> TableDefinition:
    if table.mapping is not ColumnMappingMode.NONE:
        raise _refused(
            "columnMapping",
            f"{COLUMN_MAPPING_MODE} is {table.mapping.value!r}, and the data files have physical names",
            remedy=DropTableFeature(feature="columnMapping"),
        )
    plain = table.with_schema(strip_metadata(table.schema, (MAPPING_PREFIX,)))
    return plain.with_properties(**{COLUMN_MAPPING_MODE: None, MAX_COLUMN_ID: None})


def _clustering(table: TableDefinition, files: FilesOfTable) -> TableDefinition:
    if files.is_clustered:
        raise _refused("clustering", "the table has clustering columns", remedy=RemoveClusteringColumns())
    return table


def _domain_metadata(table: TableDefinition, files: FilesOfTable) -> TableDefinition:
    if row_tracking.DOMAIN in files.domains:
        raise _refused(
            DOMAIN_METADATA,
            f"the domain {row_tracking.DOMAIN} holds the highest row id of the table, without which ids would be given twice",
            "Copy the rows to a table without it.",
        )
    unknown = [name for name in files.domains if name.startswith("delta.") and name not in REMOVABLE_DOMAINS]
    if unknown:
        raise _refused(
            DOMAIN_METADATA,
            f"the metadata domains {', '.join(sorted(unknown))} belong to features that this client does not know",
            "Copy the rows to a table without it.",
        )
    if files.domains:
        raise _refused(
            DOMAIN_METADATA,
            f"the table has the metadata domains {', '.join(sorted(files.domains))}",
            remedy=DropTableFeature(feature=DOMAIN_METADATA),
        )
    return table


def _multi_table_transaction(table: TableDefinition, files: FilesOfTable) -> TableDefinition:
    # Commits to several tables do not need the feature, and readers ignore what they leave in the log.
    return table


_REMOVALS: Mapping[str, _Removal] = {
    "allowColumnDefaults": _column_defaults,
    "checkConstraints": _check_constraints,
    "clustering": _clustering,
    "columnMapping": _column_mapping,
    "deletionVectors": _deletion_vectors,
    DOMAIN_METADATA: _domain_metadata,
    MULTI_TABLE_TRANSACTION: _multi_table_transaction,
    "rowTracking": _row_tracking,
    "typeWidening": _type_widening,
    "typeWidening-preview": _type_widening,
}


def _refused(feature: str, reason: str, advice: str = "", *, remedy: Remedy | None = None) -> InvalidArgumentError:
    text = f"The feature {feature!r} cannot be dropped: {reason}. Nothing was changed. {advice}"
    return InvalidArgumentError(text.rstrip()).with_remedy(remedy)
