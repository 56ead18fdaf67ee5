"""Which metadata keys and run tags belong to this package, and which are misspelt."""

import json
import re
from collections.abc import Mapping
from typing import Any

import dagster as dg

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration.metadata.moved_keys import ASSET_KEYS, INPUT_KEYS
from cm_delta_dagster.orchestration.metadata.peer_keys import peer_hint
from cm_delta_dagster.orchestration.metadata.similar_keys import edit_distance, letters, similar_key

PREFIX = "cm_delta/"

WRITE_KEYS = frozenset(
    {
        "mode",
        "on",
        "merge_mode",
        "where",
        "schema_mode",
        "partition_expr",
        "partition_by",
        "table",
        "schema",
        "catalog",
        "table_properties",
        "merge_clauses",
        "on_conflict",
        "commit_together",
        "audit",
        "cluster_by",
        "constraints",
        "generated",
        "defaults",
        "identity",
    }
)
READ_KEYS = frozenset(
    {
        "columns",
        "version",
        "timestamp",
        "where",
        "changes",
        "changes_from",
        "report_reads",
        "allow_missing_partitions",
        "dtype_backend",
    }
)
DEFAULT_READ_KEYS = frozenset({"columns"})
"""Read keys that an asset may set as defaults; the metadata of an input has priority."""
RUN_TIME_KEYS = frozenset({"mode", "on", "merge_mode", "merge_clauses", "where", "schema_mode", "on_conflict"})
"""Keys that can be set at run time. Readers take table and partition columns from the definition, so these cannot."""

REPORTED_KEYS = frozenset(
    {
        "commit_version",
        "table_id",
        "operation",
        "outcome",
        "version_read",
        "metrics",
        "files_read",
        "files_total",
        "changes_read",
        "versions_read",
        "audited_by",
    }
)
"""Keys after ``cm_delta/`` that this package adds to events; own_entries ignores them."""

NAMING_KEYS = frozenset({"table", "schema", "catalog", "partition_expr"})
"""Keys that an input inherits from the upstream asset."""

_ALIASES = {
    "savemode": "mode",
    "writemode": "mode",
    "mergeon": "on",
    "mergekey": "on",
    "mergekeys": "on",
    "mergepredicate": "on",
    "mergecondition": "on",
    "replacewhere": "where",
    "whenmatched": "merge_clauses",
    "clusteredby": "cluster_by",
    "clusteringcolumns": "cluster_by",
    "checkconstraints": "constraints",
    "generatedcolumns": "generated",
    "identitycolumns": "identity",
    "columndefaults": "defaults",
    "partitioncolumns": "partition_by",
    "partitionedby": "partition_by",
    "partitionexpression": "partition_expr",
    "tblproperties": "table_properties",
    "tablename": "table",
    "catalogue": "catalog",
}
"""Names of other libraries for a key, without separators."""
_PREFIX_ERRORS = 2
"""Errors in the prefix with which it is still recognized, if a known key follows."""


def own_entries(metadata: Mapping[str, Any], *, known: frozenset[str], place: str) -> dict[str, Any]:
    """The entries of ``metadata`` with a known key, without prefix and unwrapped from ``MetadataValue``.

    Args:
        known: keys that are valid in this place.
        place: where the metadata is, as the subject of an error message.

    Raises:
        InvalidArgumentError: a key after ``cm_delta/`` that is not valid here, a misspelt key, a key of an earlier
            release or of another writer, or a key that is given with and without prefix.
    """
    entries: dict[str, Any] = {}
    for key, raw in metadata.items():
        name = _own_name(key, known=known, place=place)
        if name is None:
            continue
        if name in entries:
            raise InvalidArgumentError(
                f"{place} gives {name!r} with and without the prefix {PREFIX!r}. Keep one of the two."
            )
        entries[name] = raw.value if isinstance(raw, dg.MetadataValue) else raw
    return entries


def own_run_tags(tags: Mapping[str, str]) -> dict[str, Any]:
    """The entries ``cm_delta/<key>`` of a run's tags. A value that starts with ``[`` or ``{`` is parsed as JSON.

    Raises:
        InvalidArgumentError: a key after ``cm_delta/`` that cannot be set at run time, a misspelt prefix, or broken JSON.
    """
    prefixed = {
        key: text for key, text in tags.items() if key.startswith(PREFIX) or _has_wrong_prefix(key, RUN_TIME_KEYS)
    }
    entries = own_entries(prefixed, known=RUN_TIME_KEYS, place="The run's tags")
    for name, text in entries.items():
        try:
            entries[name] = json.loads(text) if text[:1] in ("[", "{") else text
        except ValueError as error:
            raise InvalidArgumentError(f"The run tag {PREFIX}{name}={text!r} is not valid JSON: {error}.") from error
    return entries


def _own_name(key: str, *, known: frozenset[str], place: str) -> str | None:
    if key in known:
        return key
    moved = INPUT_KEYS if known >= READ_KEYS else ASSET_KEYS
    if moved.get(key.removeprefix(PREFIX)) in known:
        raise InvalidArgumentError(
            f"{place} contains the key {key!r}, which is now {moved[key.removeprefix(PREFIX)]!r}. Rename it."
        )
    if key.startswith(PREFIX):
        name = key.removeprefix(PREFIX)
        if name in known:
            return name
        if name in REPORTED_KEYS:
            return None
        raise InvalidArgumentError(
            f"{place} cannot contain the key {key!r}: it is not valid there. Valid keys after {PREFIX!r}: "
            f"{', '.join(sorted(known))}."
        )
    if re.match(r"cm[-_ ]?delta[-_:./ ]", key, flags=re.IGNORECASE) or _has_wrong_prefix(key, known):
        raise InvalidArgumentError(
            f"{place} contains the key {key!r}; keys of this package start with {PREFIX!r}. Correct the key."
        )
    if "/" not in key:
        _refuse_similar(key, known=known, place=place)
    return None


def _has_wrong_prefix(key: str, known: frozenset[str]) -> bool:
    """Whether the key is one of ours after a misspelt ``cm_delta/``."""
    prefix, separator, name = key.partition("/")
    return (
        bool(separator)
        and edit_distance(letters(prefix), letters(PREFIX.removesuffix("/"))) <= _PREFIX_ERRORS
        and _meant(name, known) is not None
    )


def _refuse_similar(key: str, *, known: frozenset[str], place: str) -> None:
    """Refuse the key of another writer, and a misspelt key; without it the write would replace other rows than meant."""
    own = f"A key of your own that means something else can have a prefix, such as 'team/{key}'."
    meant = _meant(key, known)
    if meant is not None:
        raise InvalidArgumentError(
            f"{place} contains the key {key!r}; probably {meant!r} is meant. A misspelt key would change what is written or read, "
            f"so it is refused. Correct the key. {own}"
        )
    hint = peer_hint(key, known)
    if hint is not None:
        raise InvalidArgumentError(
            f"{place} contains the key {key!r}, which only other writers and readers have: {hint}. {own}"
        )


def _meant(key: str, known: frozenset[str]) -> str | None:
    """The known key that ``key`` misspells, or that another library or an earlier release calls so."""
    moved = INPUT_KEYS if known >= READ_KEYS else ASSET_KEYS
    meanings = {letters(old): new for old, new in moved.items()} | _ALIASES
    meanings = {name: meaning for name, meaning in meanings.items() if meaning in known}
    return similar_key(key, meanings | {letters(name): name for name in known})
