"""Table features: what each one is, and which tables this client can read and write (protocol heading "Table Features").

:data:`FEATURES` defines each feature and how far this client supports it. Which features the protocol of a new or changed table
lists is decided by :mod:`~cm_delta_dagster.protocol.features.protocol_evolution`; whether rows comply with a feature is checked
elsewhere.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.errors import CorruptLogError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.features.table_properties import (
    APPEND_ONLY_KEY,
    CONSTRAINT_PREFIX,
    DELETION_VECTORS_KEY,
    IN_COMMIT_TIMESTAMPS_KEY,
    CheckpointPolicy,
    TableProperties,
)
from cm_delta_dagster.protocol.features.type_widening import TYPE_CHANGES
from cm_delta_dagster.protocol.schema.evolution import CURRENT_DEFAULT, GENERATION_EXPRESSION, IDENTITY_PREFIX
from cm_delta_dagster.protocol.schema.types import (
    TIMESTAMP_NTZ,
    VARIANT,
    DataType,
    StructType,
    parse_schema,
    walk_fields,
    walk_types,
)

MAX_READER_VERSION = 3
MAX_WRITER_VERSION = 7

CATALOG_MANAGED = "catalogManaged"
COLUMN_MAPPING = "columnMapping"
IN_COMMIT_TIMESTAMP = "inCommitTimestamp"
MULTI_TABLE_TRANSACTION = "multiTableTransaction-dev"
"""The name of the RFC until it is accepted. Commits to several tables do not need the feature; it only excludes writers."""

Activity = Callable[[StructType, Mapping[str, str]], bool]


class FeatureKind(StrEnum):
    """Which clients must support the feature: writers, or readers too."""

    WRITER = "writer"
    READER_WRITER = "reader-writer"


class Support(StrEnum):
    """How far this client supports a feature when it reads, or when it writes."""

    FULL = "full"
    NONE = "none"
    """Tables that list the feature are refused."""


def _never(schema: StructType, configuration: Mapping[str, str]) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A table feature, and how far this client supports it.

    ``legacy_reader`` and ``legacy_writer`` are the first protocol versions without feature lists that imply it. ``is_active``
    returns whether a table with the given schema and configuration uses it; always False if listing the feature makes it
    active.
    """

    name: str
    kind: FeatureKind
    read: Support = Support.FULL
    write: Support = Support.FULL
    legacy_reader: int | None = None
    legacy_writer: int | None = None
    requires: tuple[str, ...] = ()
    is_active: Activity = _never


def _property_is_true(key: str) -> Activity:
    return lambda schema, configuration: configuration.get(key, "").lower() == "true"


def _field_has(prefix: str) -> Activity:
    return lambda schema, configuration: any(
        key.startswith(prefix) for _, item in walk_fields(schema) for key in item.metadata
    )


def _has_type(data_type: DataType) -> Activity:
    return lambda schema, configuration: any(item == data_type for item in walk_types(schema))


def _has_constraint(schema: StructType, configuration: Mapping[str, str]) -> bool:
    return any(key.startswith(CONSTRAINT_PREFIX) for key in configuration)


def _maps_columns(schema: StructType, configuration: Mapping[str, str]) -> bool:
    return TableProperties(configuration).column_mapping_mode != "none"


def _has_v2_policy(schema: StructType, configuration: Mapping[str, str]) -> bool:
    return TableProperties(configuration).checkpoint_policy is CheckpointPolicy.V2


def _either(first: Activity, second: Activity) -> Activity:
    return lambda schema, configuration: first(schema, configuration) or second(schema, configuration)


def _writer(
    name: str,
    write: Support,
    *,
    legacy_writer: int | None = None,
    requires: tuple[str, ...] = (),
    is_active: Activity = _never,
) -> Feature:
    return Feature(
        name=name,
        kind=FeatureKind.WRITER,
        write=write,
        legacy_writer=legacy_writer,
        requires=requires,
        is_active=is_active,
    )


def _both(name: str, write: Support, *, requires: tuple[str, ...] = (), is_active: Activity = _never) -> Feature:
    return Feature(
        name=name,
        kind=FeatureKind.READER_WRITER,
        write=write,
        requires=requires,
        is_active=is_active,
    )


_shreds = _property_is_true("delta.enableVariantShredding")
_FULL = Support.FULL
_widens = _either(_property_is_true("delta.enableTypeWidening"), _field_has(TYPE_CHANGES))

FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        _writer("appendOnly", _FULL, legacy_writer=2, is_active=_property_is_true(APPEND_ONLY_KEY)),
        _writer("invariants", _FULL, legacy_writer=2, is_active=_field_has("delta.invariants")),
        _writer("checkConstraints", _FULL, legacy_writer=3, is_active=_has_constraint),
        _writer("changeDataFeed", _FULL, legacy_writer=4, is_active=_property_is_true("delta.enableChangeDataFeed")),
        _writer("generatedColumns", _FULL, legacy_writer=4, is_active=_field_has(GENERATION_EXPRESSION)),
        Feature(
            name=COLUMN_MAPPING,
            kind=FeatureKind.READER_WRITER,
            legacy_reader=2,
            legacy_writer=5,
            is_active=_maps_columns,
        ),
        _writer("identityColumns", _FULL, legacy_writer=6, is_active=_field_has(IDENTITY_PREFIX)),
        _writer("allowColumnDefaults", _FULL, is_active=_field_has(CURRENT_DEFAULT)),
        _both("deletionVectors", _FULL, is_active=_property_is_true(DELETION_VECTORS_KEY)),
        _writer(
            "rowTracking",
            _FULL,
            requires=("domainMetadata",),
            is_active=_property_is_true("delta.enableRowTracking"),
        ),
        _both("timestampNtz", _FULL, is_active=_has_type(TIMESTAMP_NTZ)),
        _writer("domainMetadata", _FULL),
        _both("v2Checkpoint", _FULL, is_active=_has_v2_policy),
        _writer(
            "icebergCompatV1",
            _FULL,
            requires=(COLUMN_MAPPING,),
            is_active=_property_is_true("delta.enableIcebergCompatV1"),
        ),
        _writer(
            "icebergCompatV2",
            _FULL,
            requires=(COLUMN_MAPPING,),
            is_active=_property_is_true("delta.enableIcebergCompatV2"),
        ),
        _writer("clustering", _FULL, requires=("domainMetadata",)),
        _both("vacuumProtocolCheck", _FULL),
        _writer(IN_COMMIT_TIMESTAMP, _FULL, is_active=_property_is_true(IN_COMMIT_TIMESTAMPS_KEY)),
        _both(CATALOG_MANAGED, _FULL, requires=(IN_COMMIT_TIMESTAMP, "vacuumProtocolCheck")),
        *(_both(name, _FULL, is_active=_widens) for name in ("typeWidening", "typeWidening-preview")),
        *(_both(name, _FULL, is_active=_has_type(VARIANT)) for name in ("variantType", "variantType-preview")),
        *(_both(name, _FULL, is_active=_shreds) for name in ("variantShredding", "variantShredding-preview")),
        _writer("checkpointProtection", _FULL),
        _writer(MULTI_TABLE_TRANSACTION, _FULL, requires=(CATALOG_MANAGED,)),
    )
}
"""The features that this client knows, by name. It refuses tables that list other features."""


# --- features of a protocol -------------------------------------------------------------------------------------------


def canonical_name(feature: str) -> str:
    """The name of a feature. ``inCommitTimestamps``, which some writers list, is ``inCommitTimestamp``."""
    return IN_COMMIT_TIMESTAMP if feature == "inCommitTimestamps" else feature


def reader_features(protocol: Protocol) -> frozenset[str]:
    """Features that a reader must support: the list, or the features that the reader version implies."""
    if protocol.reader_features is not None:
        return frozenset(map(canonical_name, protocol.reader_features))
    version = protocol.min_reader_version
    return frozenset(item.name for item in FEATURES.values() if item.legacy_reader and item.legacy_reader <= version)


def writer_features(protocol: Protocol) -> frozenset[str]:
    """Features that a writer must support: the list, or the features that the writer version implies."""
    if protocol.writer_features is not None:
        return frozenset(map(canonical_name, protocol.writer_features))
    version = protocol.min_writer_version
    return frozenset(item.name for item in FEATURES.values() if item.legacy_writer and item.legacy_writer <= version)


def supports(protocol: Protocol, feature: str) -> bool:
    """Whether the table may use ``feature``: the protocol lists it, or its version implies it."""
    return canonical_name(feature) in writer_features(protocol) | reader_features(protocol)


def is_catalog_managed(protocol: Protocol) -> bool:
    """Whether the protocol has versions 3 and 7 and both lists contain ``catalogManaged``."""
    return (
        protocol.min_reader_version == MAX_READER_VERSION
        and protocol.min_writer_version == MAX_WRITER_VERSION
        and CATALOG_MANAGED in (protocol.reader_features or ())
        and CATALOG_MANAGED in (protocol.writer_features or ())
    )


def is_active(feature: str, protocol: Protocol, metadata: Metadata) -> bool:
    """Whether the table supports ``feature`` and uses it, so that clients must follow its rules."""
    name = canonical_name(feature)
    if not supports(protocol, name):
        return False
    known = FEATURES.get(name)
    if known is None or known.is_active is _never:
        return True
    return known.is_active(parse_schema(metadata.schema_string), metadata.configuration)


def check_protocol_shape(protocol: Protocol, table: str) -> None:
    """Refuse a protocol action whose versions and feature lists contradict each other.

    Args:
        protocol: the action.
        table: name of the table in error messages.

    Raises:
        CorruptLogError: names the contradiction.
    """
    fault = shape_fault(protocol)
    if fault is not None:
        raise CorruptLogError(f"The protocol action of table {table} is not valid: {fault}. The log is damaged.")


def shape_fault(protocol: Protocol) -> str | None:
    """The contradiction between versions and feature lists, as part of an error message; None if there is none."""
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if reader < 1 or writer < 1:
        return f"versions start at 1, found {reader}/{writer}"
    if reader == MAX_READER_VERSION and writer < MAX_WRITER_VERSION:
        return f"reader version 3 needs writer version 7, found {writer}"
    # Higher versions, which are refused as unsupported, may have other rules for their lists.
    if reader <= MAX_READER_VERSION and (protocol.reader_features is not None) != (reader == MAX_READER_VERSION):
        return f"readerFeatures must be present exactly at reader version 3, which is {reader}"
    if writer <= MAX_WRITER_VERSION and (protocol.writer_features is not None) != (writer == MAX_WRITER_VERSION):
        return f"writerFeatures must be present exactly at writer version 7, which is {writer}"
    listed_for_readers = frozenset(map(canonical_name, protocol.reader_features or ()))
    listed_for_writers = frozenset(map(canonical_name, protocol.writer_features or ()))
    only_readers = listed_for_readers - listed_for_writers
    if only_readers:
        return f"readerFeatures contains {feature_list(only_readers)}, which writerFeatures lacks"
    unlisted = _unlisted_for_readers(protocol)
    if reader == MAX_READER_VERSION:
        # "A feature is supported by a table when its name is in readerFeatures and/or writerFeatures." A catalog-managed table
        # without its catalog shows old versions or none, and other readers of this table would not ask the catalog.
        unlisted &= {CATALOG_MANAGED}
    elif reader >= 2:
        unlisted -= {COLUMN_MAPPING}
    return _unlisted_fault(unlisted) if unlisted else None


def reader_list_fault(protocol: Protocol) -> str | None:
    """Features of ``writerFeatures`` that ``readerFeatures`` must list in a table that is written, as part of an error message.

    None if there are none. delta-spark 3.1 kept column mapping out of readerFeatures when it raised a table from reader version
    2, which implies it, to version 3. Readers find the mode in the metadata, so such tables are written too.
    """
    unlisted = _unlisted_for_readers(protocol) - {COLUMN_MAPPING}
    return _unlisted_fault(unlisted) if unlisted else None


def _unlisted_for_readers(protocol: Protocol) -> frozenset[str]:
    unlisted = set(map(canonical_name, protocol.writer_features or ())) - set(
        map(canonical_name, protocol.reader_features or ())
    )
    return frozenset(name for name in unlisted if name in FEATURES and FEATURES[name].kind is FeatureKind.READER_WRITER)


def _unlisted_fault(unlisted: frozenset[str]) -> str:
    return f"writerFeatures contains {feature_list(unlisted)}, which readers must support too"


# --- which tables this client can read and write ----------------------------------------------------------------------


def check_readable(protocol: Protocol, table: str) -> None:
    """Refuse a table that this client cannot read correctly.

    Args:
        protocol: protocol of the table.
        table: name of the table in error messages.

    Raises:
        CorruptLogError: the versions and feature lists of the protocol contradict each other.
        UnsupportedFeatureError: names the version or the features that are not supported.
    """
    check_protocol_shape(protocol, table)
    if protocol.min_reader_version > MAX_READER_VERSION:
        raise UnsupportedFeatureError(
            f"Table {table} needs reader version {protocol.min_reader_version}; this client reads up to "
            f"{MAX_READER_VERSION}. Upgrade the client."
        )
    refused = {
        name
        for name in reader_features(protocol) | _unlisted_for_readers(protocol)
        if name not in FEATURES or FEATURES[name].kind is FeatureKind.WRITER or FEATURES[name].read is Support.NONE
    }
    if refused:
        raise UnsupportedFeatureError(
            f"Table {table} cannot be read: it uses the features {feature_list(refused)}, which this client does not "
            "support. Use a version of the client that does."
        )


def check_writable(protocol: Protocol, table: str) -> None:
    """Refuse a table that this client cannot read or write correctly.

    Args:
        protocol: protocol of the table.
        table: name of the table in error messages.

    Raises:
        CorruptLogError: the versions and feature lists of the protocol contradict each other.
        UnsupportedFeatureError: names the version or the features that are not supported.
    """
    check_readable(protocol, table)
    fault = reader_list_fault(protocol)
    if fault is not None:
        raise UnsupportedFeatureError(
            f"Table {table} cannot be written: {fault}, but readerFeatures does not. This client reads such a table, and does not "
            "write it, because other readers may refuse it or ignore the features. Nothing was written. Copy its rows into a new "
            "table, or write with the client that made it."
        )
    if protocol.min_writer_version > MAX_WRITER_VERSION:
        raise UnsupportedFeatureError(
            f"Table {table} needs writer version {protocol.min_writer_version}; this client writes up to "
            f"{MAX_WRITER_VERSION}. Upgrade the client."
        )
    refused = {
        name for name in writer_features(protocol) if name not in FEATURES or FEATURES[name].write is Support.NONE
    }
    if refused:
        raise UnsupportedFeatureError(
            f"Table {table} cannot be written: it uses the features {feature_list(refused)}, which this client does not "
            "support for writing. Nothing was written. Use a client that supports them."
        )


def feature_list(features: Iterable[str]) -> str:
    """The sorted names for an error message."""
    return ", ".join(sorted(features))
