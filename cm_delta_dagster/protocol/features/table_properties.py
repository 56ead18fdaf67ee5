"""Table properties: the ``configuration`` of the metadata as typed values, and the rules for properties that users set.

Protocol heading "Table Properties". Unknown keys are kept, and booleans are compared with ``true`` ignoring case. A value that is
not valid raises an error only when it is read. Which feature a property needs is defined in
:mod:`~cm_delta_dagster.protocol.features.table_features`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.errors import InvalidArgumentError

FEATURE_PREFIX = "delta.feature."
CONSTRAINT_PREFIX = "delta.constraints."
APPEND_ONLY_KEY = "delta.appendOnly"
DELETION_VECTORS_KEY = "delta.enableDeletionVectors"
IN_COMMIT_TIMESTAMPS_KEY = "delta.enableInCommitTimestamps"
CHECKPOINT_PROTECTION_KEY = "delta.requireCheckpointProtectionBeforeVersion"
TABLE_ID_KEY = "io.unitycatalog.tableId"
ENABLEMENT_VERSION_KEY = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP_KEY = "delta.inCommitTimestampEnablementTimestamp"

_DAY_MS = 24 * 60 * 60 * 1000


class CheckpointPolicy(StrEnum):
    """``delta.checkpointPolicy``: the kind of checkpoint that writers create."""

    CLASSIC = "classic"
    V2 = "v2"


_UNIT_US: Mapping[str, int] = {
    "week": 7 * _DAY_MS * 1000,
    "day": _DAY_MS * 1000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1000,
    "microsecond": 1,
}
_INTERVAL = re.compile(r"(?:interval\s+)?((?:'?\d+'?\s+[a-z]+\s*)+)", re.ASCII | re.IGNORECASE)
_INTERVAL_PART = re.compile(r"'?(\d+)'?\s+([a-z]+)", re.ASCII | re.IGNORECASE)

_BYTE_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.ASCII | re.IGNORECASE)
_BYTE_POWER: Mapping[str, int] = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_interval_ms(text: str) -> int:
    """Milliseconds of an interval such as ``interval 30 days`` or ``1 week 2 hours``, rounded down.

    Raises:
        InvalidArgumentError: the text is not an interval, or contains months or years, which have no fixed length.
    """
    match = _INTERVAL.fullmatch(text.strip())
    if match is None:
        raise _bad_interval(text)
    total = 0
    for count, unit in _INTERVAL_PART.findall(match[1]):
        length = _UNIT_US.get(unit.lower().removesuffix("s"))
        if length is None:
            raise _bad_interval(text)
        total += int(count) * length
    return total // 1000


def _bad_interval(text: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{text!r} is not an interval of fixed length. Write it like 'interval 30 days', in weeks, days, hours, minutes, "
        "seconds or milliseconds."
    )


# --- the typed view ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableProperties:
    """Typed view of ``configuration``. Each property raises InvalidArgumentError if its value is not valid."""

    configuration: Mapping[str, str]

    @property
    def append_only(self) -> bool:
        """``delta.appendOnly``. It has an effect only if the protocol supports the feature ``appendOnly``."""
        return self._boolean(APPEND_ONLY_KEY, default="false")

    @property
    def checkpoint_interval(self) -> int:
        """Number of commits between two checkpoints, at least 1; default 10."""
        return _positive("delta.checkpointInterval", self._text("delta.checkpointInterval", "10"))

    @property
    def log_retention_ms(self) -> int:
        """How long log files are kept, in milliseconds; default 30 days."""
        return self._interval("delta.logRetentionDuration", "interval 30 days")

    @property
    def deleted_file_retention_ms(self) -> int:
        """How long removed files and their tombstones are kept, in milliseconds; default 7 days."""
        return self._interval("delta.deletedFileRetentionDuration", "interval 7 days")

    @property
    def data_skipping_num_indexed_cols(self) -> int:
        """Number of leading leaf columns with statistics; -1 = all; default 32."""
        key = "delta.dataSkippingNumIndexedCols"
        return _at_least_minus_one(key, self._text(key, "32"))

    @property
    def data_skipping_stats_columns(self) -> str | None:
        """Comma-separated list of the columns with statistics; None = not set."""
        return self.configuration.get("delta.dataSkippingStatsColumns")

    @property
    def isolation_level(self) -> str:
        """``Serializable`` or ``WriteSerializable``; default ``WriteSerializable``."""
        key = "delta.isolationLevel"
        return _isolation_level(key, self._text(key, "WriteSerializable"))

    @property
    def checkpoint_policy(self) -> CheckpointPolicy:
        """Kind of checkpoint that writers create; default classic."""
        return CheckpointPolicy(
            _checkpoint_policy("delta.checkpointPolicy", self._text("delta.checkpointPolicy", "classic"))
        )

    @property
    def write_stats_as_json(self) -> bool:
        """Whether checkpoints contain ``stats``; default true."""
        return self._boolean("delta.checkpoint.writeStatsAsJson", default="true")

    @property
    def write_stats_as_struct(self) -> bool:
        """Whether checkpoints contain ``stats_parsed``; default false."""
        return self._boolean("delta.checkpoint.writeStatsAsStruct", default="false")

    @property
    def in_commit_timestamps_enabled(self) -> bool:
        """``delta.enableInCommitTimestamps``."""
        return self._boolean(IN_COMMIT_TIMESTAMPS_KEY, default="false")

    @property
    def in_commit_timestamp_enablement_version(self) -> int | None:
        """First version with in-commit timestamps; None = enabled since version 0, or never."""
        return self._optional_integer(ENABLEMENT_VERSION_KEY)

    @property
    def in_commit_timestamp_enablement_timestamp(self) -> int | None:
        """In-commit timestamp (epoch milliseconds) of the enablement version; None = enabled since version 0, or never."""
        return self._optional_integer(ENABLEMENT_TIMESTAMP_KEY)

    @property
    def deletion_vectors_enabled(self) -> bool:
        """``delta.enableDeletionVectors``: whether writers may add deletion vectors; default false. Readers always apply them."""
        return self._boolean(DELETION_VECTORS_KEY, default="false")

    @property
    def auto_compact(self) -> bool:
        """``delta.autoOptimize.autoCompact``: whether small files are compacted after a write; default false."""
        return self._boolean("delta.autoOptimize.autoCompact", default="false")

    @property
    def optimize_write(self) -> bool:
        """``delta.autoOptimize.optimizeWrite``: whether rows are shuffled into few files before a write; default false."""
        return self._boolean("delta.autoOptimize.optimizeWrite", default="false")

    @property
    def checkpoints_protected_before(self) -> int:
        """``delta.requireCheckpointProtectionBeforeVersion``: checkpoints of older versions are kept; default 0."""
        return self._optional_integer(CHECKPOINT_PROTECTION_KEY) or 0

    @property
    def change_data_feed_enabled(self) -> bool:
        """``delta.enableChangeDataFeed``."""
        return self._boolean("delta.enableChangeDataFeed", default="false")

    @property
    def column_mapping_mode(self) -> str:
        """``none``, ``name`` or ``id``."""
        key = "delta.columnMapping.mode"
        return _column_mapping_mode(key, self._text(key, "none"))

    @property
    def parquet_compression(self) -> str:
        """Codec of new files in lower case; default ``zstd``."""
        key = "delta.parquet.compression.codec"
        return _codec(key, self._text(key, "zstd"))

    @property
    def target_file_size(self) -> int | None:
        """Target size of data files in bytes; None = not set."""
        value = self.configuration.get("delta.targetFileSize")
        return None if value is None else _byte_size("delta.targetFileSize", value)

    @property
    def table_id(self) -> str | None:
        """The catalog's id of the table (``io.unitycatalog.tableId``)."""
        return self.configuration.get(TABLE_ID_KEY)

    def _text(self, key: str, default: str) -> str:
        return self.configuration.get(key, default)

    def _boolean(self, key: str, *, default: str) -> bool:
        # Every value other than `true` is false.
        return self._text(key, default).lower() == "true"

    def _interval(self, key: str, default: str) -> int:
        return _interval(key, self._text(key, default))

    def _optional_integer(self, key: str) -> int | None:
        value = self.configuration.get(key)
        return None if value is None else _integer(key, value)


# --- properties of new tables, and properties that users set ----------------------------------------------------------


_REQUIRED: Mapping[str, str] = {IN_COMMIT_TIMESTAMPS_KEY: "true"}
_DEFAULTS: Mapping[str, str] = {
    DELETION_VECTORS_KEY: "true",
    "delta.checkpointPolicy": "v2",
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.checkpoint.writeStatsAsJson": "true",
}


def default_properties() -> dict[str, str]:
    """The properties of a new catalog-managed table, unless the user sets others. Unity Catalog requires all of them."""
    return {**_DEFAULTS, **_REQUIRED}


def required_properties(table_id: str) -> dict[str, str]:
    """The properties that a catalog-managed table cannot do without."""
    return {**_REQUIRED, TABLE_ID_KEY: table_id}


def stored_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """``properties`` without those that request protocol versions or features, which are not stored."""
    return {key: value for key, value in properties.items() if not _shapes_protocol(key)}


def check_user_properties(properties: Mapping[str, str], *, force: bool = False) -> None:
    """Refuse properties that a user may not set on a catalog-managed table.

    The names after ``delta.feature.`` are checked by
    :func:`~cm_delta_dagster.protocol.features.protocol_evolution.requested_features`.

    Args:
        force: accept keys with the prefix ``delta.`` that this client does not know.

    Raises:
        InvalidArgumentError: a ``delta.`` key is unknown or internal, a value is not valid, or a value differs from the one that
            catalog-managed tables require.
    """
    for key, value in properties.items():
        if not isinstance(value, str):
            raise InvalidArgumentError(f"Table property {key!r} has the value {value!r}; values are strings.")
        if key in _INTERNAL or key.startswith(_INTERNAL_PREFIXES):
            raise InvalidArgumentError(
                f"Table property {key!r} is maintained by the client or the catalog and cannot be set. Leave it out."
            )
        if key in _REQUIRED and value.lower() != _REQUIRED[key]:
            raise InvalidArgumentError(
                f"Table property {key!r} cannot be {value!r}: a catalog-managed table needs {_REQUIRED[key]!r}. Leave "
                "it out."
            )
        if key.lower().startswith("delta."):
            _check_delta_property(key, value, force=force)


def check_removable_properties(names: Iterable[str]) -> None:
    """Refuse to remove properties that a catalog-managed table needs, or that the client or the catalog maintains.

    Raises:
        InvalidArgumentError: names the property.
    """
    for key in names:
        if key in _REQUIRED:
            raise InvalidArgumentError(f"Table property {key!r} cannot be removed: a catalog-managed table needs it.")
        if (key in _INTERNAL and key != _ROW_TRACKING_SUSPENDED) or key.startswith(_INTERNAL_PREFIXES):
            raise InvalidArgumentError(
                f"Table property {key!r} is maintained by the client or the catalog and cannot be removed."
            )


def _check_delta_property(key: str, value: str, *, force: bool) -> None:
    if key.startswith(FEATURE_PREFIX):
        if value.lower() not in ("supported", "enabled"):
            raise InvalidArgumentError(f"Table property {key!r} can only be 'supported', not {value!r}.")
    elif key.startswith(CONSTRAINT_PREFIX):
        if not value.strip() or key == CONSTRAINT_PREFIX:
            raise InvalidArgumentError(f"Table property {key!r} needs a name and an SQL expression.")
    elif key in VALUE_CHECKS:
        VALUE_CHECKS[key](key, value)
    elif not force:
        near = next((known for known in VALUE_CHECKS if known.lower() == key.lower()), None)
        hint = f"Did you mean {near!r}?" if near else "Check the spelling, or use a key without the prefix 'delta.'."
        raise InvalidArgumentError(f"Table property {key!r} is not known to this client. {hint}")


def _shapes_protocol(key: str) -> bool:
    return key.startswith(FEATURE_PREFIX) or key in ("delta.minReaderVersion", "delta.minWriterVersion")


# --- checks of single values: each returns the typed value, or raises -------------------------------------------------


def _refuse(key: str, value: str, valid: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Table property {key!r} has the value {value!r}, which is not valid; it must be {valid}."
    )


def _boolean(key: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise _refuse(key, value, "'true' or 'false'")
    return value.lower() == "true"


def _integer(key: str, value: str) -> int:
    if not re.fullmatch(r"\s*[+-]?\d+\s*", value, re.ASCII):
        raise _refuse(key, value, "an integer")
    return int(value)


def _positive(key: str, value: str) -> int:
    number = _integer(key, value)
    if number < 1:
        raise _refuse(key, value, "an integer of at least 1")
    return number


def _at_least_minus_one(key: str, value: str) -> int:
    number = _integer(key, value)
    if number < -1:
        raise _refuse(key, value, "-1 (all columns) or the number of columns")
    return number


def _interval(key: str, value: str) -> int:
    try:
        return parse_interval_ms(value)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"Table property {key!r}: {error}") from error


def _byte_size(key: str, value: str) -> int:
    match = _BYTE_SIZE.fullmatch(value.strip())
    size = 0 if match is None else int(match[1]) << 10 * _BYTE_POWER[match[2].lower()]
    if size == 0:
        raise _refuse(key, value, "a number of bytes such as '134217728' or '128mb'")
    return size


def _one_of(*allowed: str) -> Callable[[str, str], str]:
    def check(key: str, value: str) -> str:
        for item in allowed:
            if item.lower() == value.lower():
                return item
        raise _refuse(key, value, "one of " + ", ".join(allowed))

    return check


def _version_up_to(highest: int) -> Callable[[str, str], None]:
    def check(key: str, value: str) -> None:
        if not 1 <= _integer(key, value) <= highest:
            raise _refuse(key, value, f"an integer from 1 to {highest}")

    return check


def _text(key: str, value: str) -> str:
    return value


_isolation_level = _one_of("Serializable", "WriteSerializable")
_checkpoint_policy = _one_of("classic", "v2")
_codec = _one_of("uncompressed", "none", "snappy", "gzip", "lz4", "lz4_raw", "zstd")
_column_mapping_mode = _one_of("none", "name", "id")


def _parquet_version(key: str, value: str) -> str:
    if not re.fullmatch(r"1\.0\.0|2\.\d+\.\d+", value, re.ASCII):
        raise _refuse(key, value, "'1.0.0' or '2.<minor>.<patch>'")
    return value


VALUE_CHECKS: Mapping[str, Callable[[str, str], object]] = {
    APPEND_ONLY_KEY: _boolean,
    "delta.autoOptimize.autoCompact": _boolean,
    "delta.autoOptimize.optimizeWrite": _boolean,
    "delta.checkpoint.writeStatsAsJson": _boolean,
    "delta.checkpoint.writeStatsAsStruct": _boolean,
    "delta.checkpointInterval": _positive,
    "delta.checkpointPolicy": _checkpoint_policy,
    "delta.columnMapping.mode": _column_mapping_mode,
    "delta.dataSkippingNumIndexedCols": _at_least_minus_one,
    "delta.dataSkippingStatsColumns": _text,
    "delta.deletedFileRetentionDuration": _interval,
    "delta.enableChangeDataFeed": _boolean,
    DELETION_VECTORS_KEY: _boolean,
    "delta.enableExpiredLogCleanup": _boolean,
    "delta.enableIcebergCompatV1": _boolean,
    "delta.enableIcebergCompatV2": _boolean,
    IN_COMMIT_TIMESTAMPS_KEY: _boolean,
    "delta.enableRowTracking": _boolean,
    "delta.enableTypeWidening": _boolean,
    "delta.enableVariantShredding": _boolean,
    "delta.isolationLevel": _isolation_level,
    "delta.logRetentionDuration": _interval,
    "delta.minReaderVersion": _version_up_to(3),
    "delta.minWriterVersion": _version_up_to(7),
    "delta.parquet.compression.codec": _codec,
    "delta.parquet.format.version": _parquet_version,
    "delta.randomizeFilePrefixes": _boolean,
    "delta.setTransactionRetentionDuration": _interval,
    "delta.targetFileSize": _byte_size,
    "delta.writePartitionColumnsToParquet": _boolean,
    CHECKPOINT_PROTECTION_KEY: _integer,
    ENABLEMENT_TIMESTAMP_KEY: _integer,
    ENABLEMENT_VERSION_KEY: _integer,
}
"""The check of the value of each property: it raises InvalidArgumentError."""
_ROW_TRACKING_SUSPENDED = "delta.rowTrackingSuspended"
_INTERNAL = frozenset(
    {
        TABLE_ID_KEY,
        "ucTableId",
        "is_managed_location",
        "delta.columnMapping.hasDroppedOrRenamed",
        "delta.columnMapping.maxColumnId",
        "delta.lastCommitTimestamp",
        "delta.lastUpdateVersion",
        CHECKPOINT_PROTECTION_KEY,
        "delta.rowTracking.rowIdHighWaterMark",
        _ROW_TRACKING_SUSPENDED,
    }
)
KNOWN_KEYS = frozenset(VALUE_CHECKS) | _INTERNAL
_INTERNAL_PREFIXES = ("delta.rowTracking.materialized", "delta.inCommitTimestampEnablement", "io.unitycatalog.")
