"""Features that the protocol of a table lists, at creation and after a commit (protocol heading "Protocol Evolution").

What each feature is, and which tables this client reads and writes, is decided by
:mod:`~cm_delta_dagster.protocol.features.table_features`.
"""

from collections.abc import Collection, Iterable, Mapping

from cm_delta_dagster.errors import IllegalCommitError, InvalidArgumentError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.features.property_names import feature_named
from cm_delta_dagster.protocol.features.table_features import (
    CATALOG_MANAGED,
    FEATURES,
    IN_COMMIT_TIMESTAMP,
    MAX_READER_VERSION,
    MAX_WRITER_VERSION,
    MULTI_TABLE_TRANSACTION,
    FeatureKind,
    Support,
    canonical_name,
    feature_list,
    is_catalog_managed,
    reader_features,
    reader_list_fault,
    shape_fault,
    writer_features,
)
from cm_delta_dagster.protocol.features.table_properties import FEATURE_PREFIX, TableProperties
from cm_delta_dagster.protocol.schema.types import StructType, parse_schema
from cm_delta_dagster.remedies import SetClusteringColumns

_CATALOG_MANAGED_BOTH = (CATALOG_MANAGED, "vacuumProtocolCheck")
_OTHER_NAMES: Mapping[str, str] = {
    "typeWidening-preview": "typeWidening",
    "variantType-preview": "variantType",
    "variantShredding": "variantShredding-preview",
}
"""Names that a protocol may list in place of those that this client adds; delta-spark 4.4 calls shredding a preview."""
_CATALOG_MANAGED_WRITER = (IN_COMMIT_TIMESTAMP, "appendOnly", "invariants")


def required_features(schema: StructType, configuration: Mapping[str, str]) -> frozenset[str]:
    """Features that a table with this schema and these properties uses, and the features that those require.

    Of a feature that has two names, the one that this client adds.
    """
    used = (item.name for item in FEATURES.values() if item.is_active(schema, configuration))
    return with_requirements(name for name in used if name not in _OTHER_NAMES)


def listed_by_other_name(protocol: Protocol) -> frozenset[str]:
    """Features that the protocol lists under another name, so that they need not be added."""
    listed = writer_features(protocol)
    return frozenset(name for other, name in _OTHER_NAMES.items() if other in listed)


def requested_features(properties: Mapping[str, str]) -> frozenset[str]:
    """Features that a user requests with properties ``delta.feature.<name> = supported``, or by versions of the protocol.

    The properties ``delta.minReaderVersion`` and ``delta.minWriterVersion`` request the features which these versions imply. They
    must be valid.

    Raises:
        InvalidArgumentError: this client does not know the name of a feature, or the feature comes with clustering columns only.
    """
    names = {feature_named(key.removeprefix(FEATURE_PREFIX)) for key in properties if key.startswith(FEATURE_PREFIX)}
    unknown = names - FEATURES.keys()
    if unknown:
        raise InvalidArgumentError(
            f"The table properties request the features {feature_list(unknown)}, which this client does not know. Check "
            "the spelling."
        )
    if "clustering" in names:
        raise InvalidArgumentError(
            "The feature clustering cannot be requested by itself. Give clustering columns when the table is created, "
            "or set them afterwards."
        ).with_remedy(SetClusteringColumns())
    return frozenset(names) | _implied_features(properties)


def _implied_features(properties: Mapping[str, str]) -> frozenset[str]:
    """Features of the versions of the protocol that the properties name; none for a version that has lists of features."""
    reader, writer = (int(properties.get(key, "1")) for key in ("delta.minReaderVersion", "delta.minWriterVersion"))
    if writer >= MAX_WRITER_VERSION:
        return frozenset()
    implied = writer_features(Protocol(min_reader_version=reader, min_writer_version=writer))
    return frozenset(name for name in implied if (FEATURES[name].legacy_reader or 1) <= reader)


def with_requirements(features: Iterable[str]) -> frozenset[str]:
    """``features`` and all features that they require."""
    all_features: set[str] = set()
    pending = list(map(canonical_name, features))
    while pending:
        name = pending.pop()
        if name not in all_features:
            all_features.add(name)
            pending.extend(FEATURES[name].requires if name in FEATURES else ())
    return frozenset(all_features)


def catalog_managed_protocol(extra_features: Collection[str] = ()) -> Protocol:
    """Protocol of a new catalog-managed table, with versions 3 and 7, ``extra_features`` and the features that they require.

    Call ``table_features.check_writable`` with the metadata too: it refuses tables that use features which this client accepts only
    while they are unused.

    Raises:
        UnsupportedFeatureError: this client cannot write tables that list one of the features.
    """
    base = Protocol(
        min_reader_version=MAX_READER_VERSION,
        min_writer_version=MAX_WRITER_VERSION,
        reader_features=_CATALOG_MANAGED_BOTH,
        writer_features=(*_CATALOG_MANAGED_BOTH, *_CATALOG_MANAGED_WRITER),
    )
    return with_features(base, extra_features)


def with_features(protocol: Protocol, features: Collection[str]) -> Protocol:
    """``protocol`` with ``features`` and the features that they require; ``protocol`` itself if it supports them all.

    The result has feature lists. They contain all features that an old version implies, because any earlier version of the
    table may have used them.

    Raises:
        UnsupportedFeatureError: this client does not know a feature, or cannot write tables that list it.
    """
    required = with_requirements(features)
    for_readers, for_writers = reader_features(protocol), writer_features(protocol)
    new = required - for_writers
    refused = {name for name in new if name not in FEATURES or FEATURES[name].write is Support.NONE}
    if refused:
        raise UnsupportedFeatureError(
            f"The features {feature_list(refused)} cannot be added: this client does not support them. Leave out the property "
            "or the column that requires them."
        )
    if not new:
        return protocol
    writers = _ordered(protocol.writer_features, for_writers) + tuple(sorted(new))
    needed = [name for name in writers if name in FEATURES and FEATURES[name].kind is FeatureKind.READER_WRITER]
    readers = _ordered(protocol.reader_features, for_readers)
    readers += tuple(name for name in needed if name not in readers)
    if not readers:
        # Writer features alone do not change the reader version.
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
        return tuple(dict.fromkeys(map(canonical_name, listed)))
    return tuple(name for name in FEATURES if name in implied)


def shut_out(before: Protocol, after: Protocol) -> tuple[str, ...]:
    """Which clients cannot use the table any more once its protocol is ``after``, as sentences; empty if all can."""
    sentences = []
    for name in sorted(writer_features(after) - writer_features(before)):
        whom = " No other engine is known to support it." if name == MULTI_TABLE_TRANSACTION else ""
        if name in FEATURES and FEATURES[name].kind is FeatureKind.WRITER:
            sentences.append(f"Clients without the feature {name} can read the table, and no longer write to it.{whom}")
        else:
            sentences.append(f"Clients without the feature {name} can no longer read the table or write to it.{whom}")
    return tuple(sentences)


def check_protocol_change(before: Protocol, after: Protocol, *, dropped: Collection[str] = ()) -> None:
    """Refuse a new protocol that lowers a version, drops a feature, or whose versions and feature lists contradict each other.

    Args:
        dropped: features whose traces were removed from the table, so that the protocol may drop them.

    Raises:
        IllegalCommitError: names the fault.
    """
    fault = shape_fault(after) or reader_list_fault(after)
    if fault is None and (
        after.min_reader_version < before.min_reader_version or after.min_writer_version < before.min_writer_version
    ):
        fault = "protocol versions never decrease"
    missing = (writer_features(before) | reader_features(before)) - (writer_features(after) | reader_features(after))
    missing -= set(dropped)
    if fault is None and missing:
        fault = f"the features {feature_list(missing)} would be dropped"
    if fault is not None:
        raise IllegalCommitError(f"The new protocol action is not valid: {fault}. Nothing was written.")


def check_metadata_supported(protocol: Protocol, metadata: Metadata) -> None:
    """Refuse new metadata that uses features which the protocol does not list, or lacks those of a catalog-managed table.

    Raises:
        IllegalCommitError: names the missing features or the property.
    """
    needed = required_features(parse_schema(metadata.schema_string), metadata.configuration)
    listed = writer_features(protocol) | reader_features(protocol)
    missing = needed - listed - listed_by_other_name(protocol)
    if missing:
        raise IllegalCommitError(
            f"The new metadata uses the features {feature_list(missing)}, which the protocol of the table does not list. "
            "Add them to the protocol in the same commit. Nothing was written."
        )
    if not is_catalog_managed(protocol):
        return
    absent = with_requirements([CATALOG_MANAGED]) - writer_features(protocol)
    if absent or not TableProperties(metadata.configuration).in_commit_timestamps_enabled:
        raise IllegalCommitError(
            "A catalog-managed table needs in-commit timestamps (feature inCommitTimestamp and the property "
            "delta.enableInCommitTimestamps = true) and vacuumProtocolCheck; missing: "
            f"{feature_list(absent) or 'the property'}. Nothing was written."
        )
