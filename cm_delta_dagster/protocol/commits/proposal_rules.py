"""What each field of an action in a new commit must be (protocol heading "Actions").

The rules are stricter than readers: a commit that a reader of any implementation might not understand is not proposed. Fields that
the protocol does not define may have any value that every JSON parser reads in the same way. A ``remove`` may repeat what the
``add`` of another writer has, if readers understand it: that file could not be removed otherwise.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from cm_delta_dagster.errors import CorruptLogError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.action_fields import deletion_vector_of, domain_of, metadata_of
from cm_delta_dagster.protocol.actions.file_columns import LAST_MS
from cm_delta_dagster.protocol.actions.json_fields import FieldError
from cm_delta_dagster.protocol.actions.json_text import MAX_DEPTH
from cm_delta_dagster.protocol.actions.paths import decode_path, flaw_of_log_path
from cm_delta_dagster.protocol.actions.stats_text import MAX_DIGITS, flaw_of_stats
from cm_delta_dagster.protocol.features import clustering, row_tracking
from cm_delta_dagster.protocol.features.deletion_vectors import dv_location, z85_decode
from cm_delta_dagster.protocol.features.metadata_validation import check_metadata
from cm_delta_dagster.protocol.features.table_features import canonical_name

_LOG_DIRECTORY = "_delta_log/"
_TOO_LARGE = 10**MAX_DIGITS

ValueRule = Callable[[Any], str | None]
"""Returns what is wrong with a value, as the predicate of a sentence; None if nothing is."""


def flaw_of_value(value: Any) -> str | None:
    """What parsers would read differently in a value of a field that the protocol does not define."""
    pending = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if isinstance(item, Mapping | list | tuple):
            if depth > MAX_DEPTH:
                return f"nests more than {MAX_DEPTH} objects and arrays"
            if isinstance(item, Mapping):
                wrong = next((flaw for key in item if (flaw := _text(key)) is not None), None)
                if wrong is not None:
                    return f"has a key that {wrong}"
                pending += [(member, depth + 1) for member in item.values()]
            else:
                pending += [(member, depth + 1) for member in item]
        elif isinstance(item, str):
            if (wrong := _text(item)) is not None:
                return wrong
        elif isinstance(item, float) and not math.isfinite(item):
            return "is a number that JSON does not have, or beyond the range of a double"
        elif isinstance(item, int) and not isinstance(item, bool) and abs(item) >= _TOO_LARGE:
            return f"has more than {MAX_DIGITS} digits"
    return None


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return "is not a string"
    if value.isascii():
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return "contains half of a surrogate pair, which is not a character"
    return None


def _name(value: Any) -> str | None:
    return _text(value) if value else "is empty" if isinstance(value, str) else "is not a string"


def _boolean(value: Any) -> str | None:
    return None if isinstance(value, bool) else "is not true or false"


def _false(value: Any) -> str | None:
    return None if value is False else "is not false"


def _whole(low: int, high: int) -> ValueRule:
    def rule(value: Any) -> str | None:
        if type(value) is not int:
            return "is not a whole number"
        return None if low <= value <= high else f"is not between {low} and {high}"

    return rule


_long = _whole(-(2**63), 2**63 - 1)
_count = _whole(0, 2**63 - 1)
_time = _whole(-LAST_MS, LAST_MS)
_commit_time = _whole(0, LAST_MS)
_version = _whole(1, 2**31 - 1)
_int = _whole(0, 2**31 - 1)
_any_int = _whole(-(2**31), 2**31 - 1)


def _map(*, nullable: bool) -> ValueRule:
    def rule(value: Any) -> str | None:
        if not isinstance(value, Mapping):
            return "is not an object"
        for key, item in value.items():
            if (wrong := _text(key)) is not None:
                return f"has a key that {wrong}"
            if not (item is None and nullable) and (wrong := _text(item)) is not None:
                return f"has a value of {key!r} that {wrong}"
        return None

    return rule


_texts, _nullable_texts = _map(nullable=False), _map(nullable=True)


def _object(value: Any) -> str | None:
    return flaw_of_value(value) if isinstance(value, Mapping) else "is not an object"


def _names(value: Any) -> str | None:
    if not isinstance(value, list | tuple):
        return "is not an array"
    if any(_text(item) is not None for item in value):
        return "has an item that is not a string"
    return "names an item twice" if len(set(value)) < len(value) else None


def _participants(value: Any) -> str | None:
    if not isinstance(value, list | tuple):
        return "is not an array"
    for item in value:
        if (wrong := _participant(item) or flaw_of_value(item)) is not None:
            return f"has an item that {wrong}"
    if len(value) < 2:
        return "names fewer than two tables, which are no transaction over several tables"
    return "names a table twice" if len({item["tableId"] for item in value}) < len(value) else None


def _removed_path(value: Any) -> str | None:
    if (wrong := _text(value)) is not None:
        return wrong
    flaw = flaw_of_log_path(value)
    return None if flaw is None else f"names no file. {flaw.removesuffix('.')}"


def _path(value: Any) -> str | None:
    if (wrong := _removed_path(value)) is not None:
        return wrong
    if "%00" in value or "\0" in value:
        return "contains the character U+0000, which no file name has"
    if value.endswith("/"):
        return f"names a directory: {value!r}"
    if decode_path(value).lstrip("./").startswith(_LOG_DIRECTORY):
        return f"names a file of the log: {value!r}"
    return None


def _stats(value: Any) -> str | None:
    return _text(value) or flaw_of_stats(value)


def _foreign_stats(value: Any) -> str | None:
    return _text(value) or flaw_of_stats(value, is_foreign=True)


def _removed_stats(value: Any) -> str | None:
    return _text(value) or flaw_of_stats(value, is_foreign=True, is_removed=True)


def _members(fields: Mapping[str, tuple[bool, ValueRule]]) -> ValueRule:
    def rule(value: Any) -> str | None:
        if not isinstance(value, Mapping):
            return "is not an object"
        for name, (is_required, rule_of_member) in fields.items():
            item = value.get(name)
            if item is None:
                if is_required:
                    return f"has no {name}"
            elif (wrong := rule_of_member(item)) is not None:
                return f"has a {name} that {wrong}"
        return None

    return rule


def _vector(value: Any) -> str | None:
    if (wrong := _vector_fields(value)) is not None:
        return wrong
    vector = deletion_vector_of(value)
    try:
        if dv_location("file:///table", vector) is None:
            z85_decode(vector.path_or_inline_dv)
    except CorruptLogError as error:
        return f"cannot be found. {str(error).removesuffix('.')}"
    return None


_participant = _members({"tableId": (True, _name), "proposedVersion": (True, _count)})
_vector_fields = _members(
    {
        "storageType": (True, _text),
        "pathOrInlineDv": (True, _text),
        "offset": (False, _int),
        "sizeInBytes": (True, _int),
        "cardinality": (True, _count),
    }
)
_removed_vector = _members(
    {
        "storageType": (True, _text),
        "pathOrInlineDv": (True, _text),
        "offset": (False, _any_int),
        "sizeInBytes": (True, _any_int),
        "cardinality": (True, _long),
    }
)

_FILE: Mapping[str, tuple[bool, ValueRule]] = {
    "path": (True, _path),
    "dataChange": (True, _boolean),
    "tags": (False, _nullable_texts),
    "stats": (False, _stats),
    "deletionVector": (False, _vector),
    "baseRowId": (False, _count),
    "defaultRowCommitVersion": (False, _count),
}

ActionRules: TypeAlias = Mapping[str, Mapping[str, tuple[bool, ValueRule]]]

RULES: ActionRules = MappingProxyType(
    {
        "add": {
            **_FILE,
            "partitionValues": (True, _nullable_texts),
            "size": (True, _count),
            "modificationTime": (True, _time),
            "clusteringProvider": (False, _text),
        },
        "remove": {
            **_FILE,
            "path": (True, _removed_path),
            "deletionVector": (False, _removed_vector),
            "baseRowId": (False, _long),
            "defaultRowCommitVersion": (False, _long),
            "deletionTimestamp": (False, _time),
            "extendedFileMetadata": (False, _boolean),
            "partitionValues": (False, _nullable_texts),
            "size": (False, _long),
        },
        "cdc": {
            "path": (True, _path),
            "partitionValues": (True, _nullable_texts),
            "size": (True, _count),
            "dataChange": (False, _false),
            "tags": (False, _nullable_texts),
        },
        "txn": {"appId": (True, _name), "version": (True, _long), "lastUpdated": (False, _time)},
        "domainMetadata": {"domain": (True, _name), "configuration": (True, _text), "removed": (True, _boolean)},
        "transactionGroup": {
            "transactionId": (True, _name),
            "participants": (True, _participants),
            "coordinatingCatalog": (True, _name),
        },
        "metaData": {
            "id": (True, _name),
            "name": (False, _text),
            "description": (False, _text),
            "format": (True, _object),
            "schemaString": (True, _text),
            "partitionColumns": (True, _names),
            "configuration": (True, _texts),
            "createdTime": (False, _long),
        },
        "protocol": {
            "minReaderVersion": (True, _version),
            "minWriterVersion": (True, _version),
            "readerFeatures": (False, _names),
            "writerFeatures": (False, _names),
        },
        "commitInfo": {
            "inCommitTimestamp": (False, _commit_time),
            "timestamp": (False, _time),
            "txnId": (False, _name),
            "operation": (False, _text),
            "operationParameters": (False, _object),
            "operationMetrics": (False, _object),
            "readVersion": (False, _long),
            "isolationLevel": (False, _text),
            "isBlindAppend": (False, _boolean),
            "engineInfo": (False, _text),
            "userId": (False, _text),
            "userName": (False, _text),
            "userMetadata": (False, _text),
            "tags": (False, _nullable_texts),
        },
    }
)
"""The rules of the fields of each action by their names, and whether a field is required, for what this package writes."""

FOREIGN_RULES: ActionRules = MappingProxyType(
    {
        **RULES,
        "add": {**RULES["add"], "stats": (False, _foreign_stats)},
        "remove": {**RULES["remove"], "stats": (False, _removed_stats)},
    }
)
"""The rules for what other implementations propose: they permit whatever every reader understands or ignores."""

NOT_IN_COMMITS = frozenset({"checkpointMetadata", "sidecar"})
"""Actions of checkpoints."""


def flaw_of_action(action: str, fields: Mapping[str, Any], rules_of: ActionRules = RULES) -> tuple[str, str] | None:
    """The first field of an action that breaks its rule, and what is wrong with it; None if all fields are right.

    The field is empty if the whole action is wrong.
    """
    if action in NOT_IN_COMMITS:
        return "", "is an action of checkpoints, which a commit must not contain"
    rules = rules_of.get(action, {})
    for name, (is_required, rule) in rules.items():
        value = fields.get(name)
        if value is None:
            if is_required:
                return name, "is missing"
        elif (wrong := rule(value)) is not None:
            return name, wrong
    for name in fields.keys() - rules.keys():
        wrong = _text(name) or flaw_of_value(fields[name])
        if wrong is not None:
            return str(name).encode(errors="replace").decode(), wrong
    return _MEANING[action](fields) if action in _MEANING else None


def _flaw_of_metadata(fields: Mapping[str, Any]) -> tuple[str, str] | None:
    try:
        metadata = metadata_of(fields)
    except FieldError as error:
        return error.field, error.why
    try:
        check_metadata(metadata, metadata.id)
    except CorruptLogError as error:
        return error.field or "schemaString", f"is damaged. {str(error).removesuffix('.')}"
    except UnsupportedFeatureError as error:
        return "format", f"is not supported. {str(error).removesuffix('.')}"
    return None


def _flaw_of_protocol(fields: Mapping[str, Any]) -> tuple[str, str] | None:
    for version, features, first in (
        ("minReaderVersion", "readerFeatures", 3),
        ("minWriterVersion", "writerFeatures", 7),
    ):
        if (fields[version] == first) != (fields.get(features) is not None):
            return features, f"must be present if {version} is {first}, and only then"
    listed = set(map(canonical_name, fields.get("writerFeatures") or ()))
    unlisted = sorted(name for name in fields.get("readerFeatures") or () if canonical_name(name) not in listed)
    return ("readerFeatures", f"names {unlisted[0]!r}, which writerFeatures lacks") if unlisted else None


def _flaw_of_domain(fields: Mapping[str, Any]) -> tuple[str, str] | None:
    domain = domain_of(fields)
    try:
        row_tracking.high_water_mark({domain.domain: domain})
        clustering.stored_clustering_columns({domain.domain: domain})
    except CorruptLogError as error:
        return "configuration", f"is damaged. {str(error).removesuffix('.')}"
    return None


_MEANING: Mapping[str, Callable[[Mapping[str, Any]], tuple[str, str] | None]] = MappingProxyType(
    {"metaData": _flaw_of_metadata, "protocol": _flaw_of_protocol, "domainMetadata": _flaw_of_domain}
)
"""What the fields of an action must be together. Called if each of them is right."""
