"""Table features and protocol versions (protocol headings "Protocol Evolution", "Table Features", "Catalog-managed
tables").

One table, :data:`FEATURES`, says what each feature is and how far this client goes with it; a feature that becomes
supported flips its entry there. Whether rows obey a feature is checked elsewhere.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.errors import CorruptLogError, IllegalCommitError, InvalidArgumentError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.features.table_properties import FEATURE_PREFIX, CheckpointPolicy, TableProperties
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
IN_COMMIT_TIMESTAMP = "inCommitTimestamp"

Activity = Callable[[StructType, Mapping[str, str]], bool]


class FeatureKind(StrEnum):
    """Who must know the feature."""

    WRITER = "writer"
    READER_WRITER = "reader-writer"


class Support(StrEnum):
    """How far this client goes with a feature when it reads, or when it writes."""

    FULL = "full"
    WHILE_INACTIVE = "while-inactive"
    """A table that merely lists it is fine; one that uses it is refused (TF-10)."""
    NONE = "none"
    """Listing it creates duties that this client does not do."""


def _never(schema: StructType, configuration: Mapping[str, str]) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One row of the table of features.

    ``legacy_reader`` and ``legacy_writer`` are the first old protocol versions that imply it. ``is_active`` tells from
    schema and configuration whether a table that may use it does use it; where listing alone makes it active it is
    always False.
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


def _has_type(wanted: DataType) -> Activity:
    return lambda schema, configuration: any(item == wanted for item in walk_types(schema))


def _has_constraint(schema: StructType, configuration: Mapping[str, str]) -> bool:
    return any(key.startswith("delta.constraints.") for key in configuration)


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


_shreds = _either(_property_is_true("delta.enableVariantShredding"), _has_type(VARIANT))
_FULL, _IDLE, _NONE = Support.FULL, Support.WHILE_INACTIVE, Support.NONE
_widens = _either(_property_is_true("delta.enableTypeWidening"), _field_has("delta.typeChanges"))

FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        _writer("appendOnly", _FULL, legacy_writer=2, is_active=_property_is_true("delta.appendOnly")),
        _writer("invariants", _IDLE, legacy_writer=2, is_active=_field_has("delta.invariants")),
        _writer("checkConstraints", _IDLE, legacy_writer=3, is_active=_has_constraint),
        _writer("changeDataFeed", _IDLE, legacy_writer=4, is_active=_property_is_true("delta.enableChangeDataFeed")),
        _writer("generatedColumns", _IDLE, legacy_writer=4, is_active=_field_has("delta.generationExpression")),
        Feature(
            name="columnMapping",
            kind=FeatureKind.READER_WRITER,
            write=_IDLE,
            legacy_reader=2,
            legacy_writer=5,
            is_active=_maps_columns,
        ),
        _writer("identityColumns", _IDLE, legacy_writer=6, is_active=_field_has("delta.identity.")),
        _writer("allowColumnDefaults", _IDLE, is_active=_field_has("CURRENT_DEFAULT")),
        _both("deletionVectors", _FULL, is_active=_property_is_true("delta.enableDeletionVectors")),
        # Files get row ids as soon as the feature is listed; to keep them when rows move is asked only where it is enabled.
        _writer(
            "rowTracking", _IDLE, requires=("domainMetadata",), is_active=_property_is_true("delta.enableRowTracking")
        ),
        _both("timestampNtz", _FULL, is_active=_has_type(TIMESTAMP_NTZ)),
        _writer("domainMetadata", _FULL),
        _both("v2Checkpoint", _FULL, is_active=_has_v2_policy),
        _writer(
            "icebergCompatV1",
            _IDLE,
            requires=("columnMapping",),
            is_active=_property_is_true("delta.enableIcebergCompatV1"),
        ),
        _writer(
            "icebergCompatV2",
            _IDLE,
            requires=("columnMapping",),
            is_active=_property_is_true("delta.enableIcebergCompatV2"),
        ),
        _writer("clustering", _NONE, requires=("domainMetadata",)),
        _both("vacuumProtocolCheck", _FULL),
        _writer(IN_COMMIT_TIMESTAMP, _FULL, is_active=_property_is_true("delta.enableInCommitTimestamps")),
        _both(CATALOG_MANAGED, _FULL, requires=(IN_COMMIT_TIMESTAMP, "vacuumProtocolCheck")),
        *(_both(name, _IDLE, is_active=_widens) for name in ("typeWidening", "typeWidening-preview")),
        *(_both(name, _IDLE, is_active=_has_type(VARIANT)) for name in ("variantType", "variantType-preview")),
        *(_both(name, _IDLE, is_active=_shreds) for name in ("variantShredding", "variantShredding-preview")),
        _writer("checkpointProtection", _NONE),
    )
}
"""Every feature this client knows by name (TF-1); everything else is unknown and refused."""

SUPPORTED_READER_FEATURES = frozenset(
    item.name for item in FEATURES.values() if item.kind is FeatureKind.READER_WRITER and item.read is Support.FULL
)
SUPPORTED_WRITER_FEATURES = frozenset(item.name for item in FEATURES.values() if item.write is Support.FULL)

_CATALOG_MANAGED_BOTH = (CATALOG_MANAGED, "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors")
_CATALOG_MANAGED_WRITER = (IN_COMMIT_TIMESTAMP, "appendOnly", "invariants")


# --- what a protocol says ---------------------------------------------------------------------------------------------


def _name(feature: str) -> str:
    # Ruling X1: both spellings occur; they are one feature.
    return IN_COMMIT_TIMESTAMP if feature == "inCommitTimestamps" else feature


def reader_features(protocol: Protocol) -> frozenset[str]:
    """Features a reader must honour: the list, or what the old version implies (TF-2, TF-7)."""
    if protocol.reader_features is not None:
        return frozenset(map(_name, protocol.reader_features))
    version = protocol.min_reader_version
    return frozenset(item.name for item in FEATURES.values() if item.legacy_reader and item.legacy_reader <= version)


def writer_features(protocol: Protocol) -> frozenset[str]:
    """Features a writer must honour: the list, or what the old version implies (TF-2, TF-3)."""
    if protocol.writer_features is not None:
        return frozenset(map(_name, protocol.writer_features))
    version = protocol.min_writer_version
    return frozenset(item.name for item in FEATURES.values() if item.legacy_writer and item.legacy_writer <= version)


def supports(protocol: Protocol, feature: str) -> bool:
    """Whether the table may use ``feature``: listed, or implied by an old version."""
    return _name(feature) in writer_features(protocol) | reader_features(protocol)


def is_catalog_managed(protocol: Protocol) -> bool:
    """Exactly when the protocol is 3/7 and both lists have ``catalogManaged`` (CM-1)."""
    return (
        protocol.min_reader_version == MAX_READER_VERSION
        and protocol.min_writer_version == MAX_WRITER_VERSION
        and CATALOG_MANAGED in (protocol.reader_features or ())
        and CATALOG_MANAGED in (protocol.writer_features or ())
    )


def is_active(feature: str, protocol: Protocol, metadata: Metadata) -> bool:
    """Whether ``feature`` is supported *and* used, so that its rules bind (TF-3, TF-10)."""
    name = _name(feature)
    if not supports(protocol, name):
        return False
    known = FEATURES.get(name)
    if known is None or known.is_active is _never:
        return True
    return known.is_active(parse_schema(metadata.schema_string), metadata.configuration)


def check_protocol_shape(protocol: Protocol) -> None:
    """Refuse a protocol action that contradicts itself (PROT-1, PROT-2, PROT-6, TF-5, TF-4).

    Raises:
        CorruptLogError: what is wrong with it.
    """
    fault = _shape_fault(protocol)
    if fault is not None:
        raise CorruptLogError(f"The protocol action of the table is not valid: {fault}. The log is damaged.")


def _shape_fault(protocol: Protocol) -> str | None:
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if reader < 1 or writer < 1:
        return f"versions start at 1, found {reader}/{writer}"
    if reader == MAX_READER_VERSION and writer < MAX_WRITER_VERSION:
        return f"reader version 3 needs writer version 7, found {writer}"
    # Later versions, if there ever are any, may shape their lists otherwise; they are refused as unsupported.
    if reader <= MAX_READER_VERSION and (protocol.reader_features is not None) != (reader == MAX_READER_VERSION):
        return f"readerFeatures must be present exactly at reader version 3, which is {reader}"
    if writer <= MAX_WRITER_VERSION and (protocol.writer_features is not None) != (writer == MAX_WRITER_VERSION):
        return f"writerFeatures must be present exactly at writer version 7, which is {writer}"
    listed_for_readers = frozenset(map(_name, protocol.reader_features or ()))
    listed_for_writers = frozenset(map(_name, protocol.writer_features or ()))
    only_readers = listed_for_readers - listed_for_writers
    if only_readers:
        return f"readerFeatures has {_names(only_readers)}, which writerFeatures lacks"
    only_writers = {
        name
        for name in listed_for_writers - listed_for_readers
        if name in FEATURES and FEATURES[name].kind is FeatureKind.READER_WRITER
    }
    if reader == 2:
        only_writers.discard("columnMapping")  # TF-7
    return f"writerFeatures has {_names(only_writers)}, which readers must know too" if only_writers else None


# --- may this client read or write ------------------------------------------------------------------------------------


def check_readable(protocol: Protocol, table: str, *, metadata: Metadata | None = None) -> None:
    """Refuse a table that this client cannot read correctly (PROT-3, PROT-4).

    Args:
        table: what messages call the table.
        metadata: with it, a feature that is listed but not used is no obstacle; without it, such a feature is refused.

    Raises:
        CorruptLogError: the protocol contradicts itself.
        UnsupportedFeatureError: a version or features that are not supported, by name.
    """
    fault = _shape_fault(protocol)
    if fault is not None:
        raise CorruptLogError(f"The protocol action of table {table} is not valid: {fault}. The log is damaged.")
    if protocol.min_reader_version > MAX_READER_VERSION:
        raise UnsupportedFeatureError(
            f"Table {table} needs reader version {protocol.min_reader_version}; this client reads up to "
            f"{MAX_READER_VERSION}. Upgrade the client."
        )
    refused = {
        name
        for name in reader_features(protocol)
        if name not in FEATURES
        or FEATURES[name].kind is FeatureKind.WRITER
        or _refuses(FEATURES[name], FEATURES[name].read, metadata)
    }
    if refused:
        raise UnsupportedFeatureError(
            f"Table {table} cannot be read: it uses the features {_names(refused)}, which this client does not "
            "support. Use a version of the client that does."
        )


def check_writable(protocol: Protocol, table: str, *, metadata: Metadata | None = None) -> None:
    """Refuse a table that this client cannot write correctly; whoever writes must be able to read (PROT-3, PROT-5).

    Args:
        table: what messages call the table.
        metadata: schema and configuration that the commit builds on or makes. Always hand it in before writing data:
            only with it are column invariants found. Without it, every other feature that is listed and not fully done
            is refused.

    Raises:
        CorruptLogError: the protocol contradicts itself.
        UnsupportedFeatureError: a version or features that are not supported, by name.
    """
    check_readable(protocol, table, metadata=metadata)
    if protocol.min_writer_version > MAX_WRITER_VERSION:
        raise UnsupportedFeatureError(
            f"Table {table} needs writer version {protocol.min_writer_version}; this client writes up to "
            f"{MAX_WRITER_VERSION}. Upgrade the client."
        )
    refused = {
        name
        for name in writer_features(protocol)
        if name not in FEATURES or _refuses(FEATURES[name], FEATURES[name].write, metadata)
    }
    if metadata is None:
        # Every table lists `invariants` and hardly any has one: a protocol alone cannot tell.
        refused.discard("invariants")
    if refused:
        raise UnsupportedFeatureError(
            f"Table {table} cannot be written: it uses the features {_names(refused)}, whose rules this client does "
            "not keep. Nothing was written. Use a client that supports them."
        )


def _refuses(feature: Feature, support: Support, metadata: Metadata | None) -> bool:
    if support is not Support.WHILE_INACTIVE:
        return support is Support.NONE
    if metadata is None:
        return True
    return feature.is_active(parse_schema(metadata.schema_string), metadata.configuration)


def _names(features: Iterable[str]) -> str:
    return ", ".join(sorted(features))


# --- making protocols -------------------------------------------------------------------------------------------------


def required_features(schema: StructType, configuration: Mapping[str, str]) -> frozenset[str]:
    """Features that the schema and the properties use, with what those require (TF-11, TF-12, NTZ-1)."""
    return with_requirements(item.name for item in FEATURES.values() if item.is_active(schema, configuration))


def requested_features(properties: Mapping[str, str]) -> frozenset[str]:
    """Features asked for by ``delta.feature.<name> = supported`` (TF-13).

    Raises:
        InvalidArgumentError: a name that this client does not know.
    """
    names = {key.removeprefix(FEATURE_PREFIX) for key in properties if key.startswith(FEATURE_PREFIX)}
    unknown = {name for name in names if _name(name) not in FEATURES}
    if unknown:
        raise InvalidArgumentError(
            f"The table properties ask for the features {_names(unknown)}, which this client does not know. Names are "
            "case-sensitive; check the spelling."
        )
    return frozenset(map(_name, names))


def with_requirements(features: Iterable[str]) -> frozenset[str]:
    """``features`` and everything they require (TF-11)."""
    found: set[str] = set()
    waiting = list(map(_name, features))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(FEATURES[name].requires if name in FEATURES else ())
    return frozenset(found)


def catalog_managed_protocol(extra_features: Collection[str] = ()) -> Protocol:
    """Protocol 3/7 of a new catalog-managed table, with ``extra_features`` and what they require (TF-4, TF-6, CM-1,
    CM-2).

    Whether a feature that is fine while unused is in use is not visible here: call :func:`check_writable` with the
    metadata.

    Raises:
        UnsupportedFeatureError: an extra feature whose mere listing creates duties that this client does not do.
    """
    base = Protocol(
        min_reader_version=MAX_READER_VERSION,
        min_writer_version=MAX_WRITER_VERSION,
        reader_features=_CATALOG_MANAGED_BOTH,
        writer_features=(*_CATALOG_MANAGED_BOTH, *_CATALOG_MANAGED_WRITER),
    )
    return with_features(base, extra_features)


def with_features(protocol: Protocol, features: Collection[str]) -> Protocol:
    """``protocol`` with ``features`` added, as table features 3/7 (TF-4, TF-8, TF-11); an equal protocol if it has them
    all.

    What an old version implies is listed in full: leaving a feature out would need proof that no version ever used it.

    Raises:
        UnsupportedFeatureError: a feature to be added is unknown or cannot be written by this client.
    """
    wanted = with_requirements(features)
    present_readers, present_writers = reader_features(protocol), writer_features(protocol)
    new = {name for name in wanted if name not in present_writers}
    refused = {name for name in new if name not in FEATURES or FEATURES[name].write is Support.NONE}
    if refused:
        raise UnsupportedFeatureError(
            f"The features {_names(refused)} cannot be added: this client does not keep their rules. Leave out the "
            "property or the column that asks for them."
        )
    if not new:
        return protocol
    writers = _ordered(protocol.writer_features, present_writers) + tuple(sorted(new))
    needed = [name for name in writers if name in FEATURES and FEATURES[name].kind is FeatureKind.READER_WRITER]
    readers = _ordered(protocol.reader_features, present_readers)
    readers += tuple(name for name in needed if name not in readers)
    if not readers:
        # TF-6: writer features alone do not ask anything of readers.
        return Protocol(
            min_reader_version=protocol.min_reader_version,
            min_writer_version=MAX_WRITER_VERSION,
            reader_features=protocol.reader_features,
            writer_features=writers,
        )
    return Protocol(
        min_reader_version=MAX_READER_VERSION,
        min_writer_version=MAX_WRITER_VERSION,
        reader_features=readers,
        writer_features=writers,
    )


def _ordered(listed: tuple[str, ...] | None, implied: frozenset[str]) -> tuple[str, ...]:
    if listed is not None:
        return tuple(dict.fromkeys(map(_name, listed)))
    return tuple(name for name in FEATURES if name in implied)


# --- what a commit may change -----------------------------------------------------------------------------------------


def check_protocol_change(before: Protocol, after: Protocol) -> None:
    """Refuse a protocol that takes something away or contradicts itself (TF-14, PROT-6, TF-5).

    Raises:
        IllegalCommitError: naming the fault.
    """
    fault = _shape_fault(after)
    if fault is None and (
        after.min_reader_version < before.min_reader_version or after.min_writer_version < before.min_writer_version
    ):
        fault = "protocol versions never decrease"
    lost = (writer_features(before) | reader_features(before)) - (writer_features(after) | reader_features(after))
    if fault is None and lost:
        fault = f"the features {_names(lost)} would be dropped"
    if fault is not None:
        raise IllegalCommitError(f"The new protocol action is not valid: {fault}. Nothing was written.")


def check_metadata_supported(protocol: Protocol, metadata: Metadata) -> None:
    """Refuse new metadata that uses what the protocol does not list, or that breaks catalog management (TF-12, NTZ-1,
    CM-2).

    Raises:
        IllegalCommitError: naming the missing features or the property.
    """
    needed = required_features(parse_schema(metadata.schema_string), metadata.configuration)
    missing = needed - writer_features(protocol) - reader_features(protocol)
    if missing:
        raise IllegalCommitError(
            f"The new metadata uses the features {_names(missing)}, which the protocol of the table does not list. "
            "Add them to the protocol in the same commit. Nothing was written."
        )
    if not is_catalog_managed(protocol):
        return
    absent = with_requirements([CATALOG_MANAGED]) - writer_features(protocol)
    if absent or not TableProperties(metadata.configuration).in_commit_timestamps_enabled:
        raise IllegalCommitError(
            "A catalog-managed table needs in-commit timestamps (feature inCommitTimestamp and "
            "delta.enableInCommitTimestamps = "
            f"true) and vacuumProtocolCheck; missing: {_names(absent) or 'the property'}. Nothing was written."
        )
