"""Which metadata keys and run tags belong to this package, and which are misspelt."""

import json
import re
from collections.abc import Mapping
from typing import Any

import dagster as dg

from cm_delta_dagster.errors import InvalidArgumentError

PREFIX = "cm_delta/"

WRITE_KEYS = frozenset(
    {
        "mode",
        "merge_keys",
        "merge_mode",
        "replace_where",
        "schema_mode",
        "partition_expr",
        "partition_by",
        "table",
        "schema",
        "catalog",
        "table_properties",
        "merge_on",
        "merge_clauses",
        "on_conflict",
        "commit_together",
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
        "filter",
        "changes",
        "changes_from",
        "report_reads",
        "allow_missing_partitions",
        "dtype_backend",
    }
)
DEFAULT_READ_KEYS = frozenset({"columns"})
"""Read keys that an asset may set as defaults; the metadata of an input has priority."""
RUN_TIME_KEYS = frozenset(
    {"mode", "merge_keys", "merge_mode", "merge_on", "merge_clauses", "replace_where", "schema_mode", "on_conflict"}
)
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
    }
)
"""Keys after ``cm_delta/`` that this package adds to events; own_entries ignores them."""

NAMING_KEYS = frozenset({"table", "schema", "catalog", "partition_expr"})
"""Keys that an input inherits from the upstream asset."""

_ALIASES = {
    "mode": "mode",
    "modes": "mode",
    "savemode": "mode",
    "writemode": "mode",
    "mergeon": "merge_keys",
    "mergekey": "merge_keys",
    "mergepredicate": "merge_on",
    "mergecondition": "merge_on",
    "whenmatched": "merge_clauses",
    "clusterby": "cluster_by",
    "clusteringcolumns": "cluster_by",
    "checkconstraints": "constraints",
    "generatedcolumns": "generated",
    "identitycolumns": "identity",
    "columndefaults": "defaults",
    "partitioncolumns": "partition_by",
    "partitionexpression": "partition_expr",
    "tblproperties": "table_properties",
    "tablename": "table",
}


def own_entries(metadata: Mapping[str, Any], *, known: frozenset[str], where: str) -> dict[str, Any]:
    """The entries of ``metadata`` with a known key, without prefix and unwrapped from ``MetadataValue``.

    Args:
        known: keys that are valid in this place.
        where: the place, as the subject of an error message.

    Raises:
        InvalidArgumentError: a key after ``cm_delta/`` that is not valid here, a misspelt key, or a key that is given
            with and without prefix.
    """
    entries: dict[str, Any] = {}
    for key, raw in metadata.items():
        name = _own_name(key, known=known, where=where)
        if name is None:
            continue
        if name in entries:
            raise InvalidArgumentError(
                f"{where} gives {name!r} with and without the prefix {PREFIX!r}. Keep one of the two."
            )
        entries[name] = raw.value if isinstance(raw, dg.MetadataValue) else raw
    return entries


def own_run_tags(tags: Mapping[str, str]) -> dict[str, Any]:
    """The entries ``cm_delta/<key>`` of a run's tags. A value that starts with ``[`` or ``{`` is parsed as JSON.

    Raises:
        InvalidArgumentError: a key after ``cm_delta/`` that cannot be set at run time, or broken JSON.
    """
    prefixed = {key: text for key, text in tags.items() if key.startswith(PREFIX)}
    entries = own_entries(prefixed, known=RUN_TIME_KEYS, where="The run's tags")
    for name, text in entries.items():
        try:
            entries[name] = json.loads(text) if text[:1] in ("[", "{") else text
        except ValueError as error:
            raise InvalidArgumentError(f"The run tag {PREFIX}{name}={text!r} is not valid JSON: {error}.") from error
    return entries


def _own_name(key: str, *, known: frozenset[str], where: str) -> str | None:
    if key in known:
        return key
    if key.startswith(PREFIX):
        name = key.removeprefix(PREFIX)
        if name in known:
            return name
        if name in REPORTED_KEYS:
            return None
        raise InvalidArgumentError(
            f"{where} cannot contain the key {key!r}: it is not valid there. Valid keys after {PREFIX!r}: "
            f"{', '.join(sorted(known))}."
        )
    if re.match(r"cm[-_ ]?delta[-_:./ ]", key, flags=re.IGNORECASE):
        raise InvalidArgumentError(
            f"{where} contains the key {key!r}; keys of this package start with {PREFIX!r}. Correct the key."
        )
    meant = _meant(key, known)
    if meant is not None:
        raise InvalidArgumentError(
            f"{where} contains the key {key!r}; probably {meant!r} is meant. A misspelt key would change how the table is "
            "written, so it is refused. Correct the key."
        )
    return None


def _meant(key: str, known: frozenset[str]) -> str | None:
    """The known key that ``key`` misspells: other case, separator or plural, or the name in another library.

    Only keys of two words are compared: ``Version`` or ``tables`` is more likely metadata of another package.
    """
    bare = re.sub(r"^(cm[-_]?delta[-_:.]*)", "", key.lower())
    if "/" in bare:
        return None
    plain = re.sub(r"[^a-z]", "", bare)
    if _ALIASES.get(plain) in known:
        return _ALIASES[plain]
    for name in sorted(known):
        letters = name.replace("_", "")
        if "_" in name and plain in (letters, letters + "s", letters.removesuffix("s")):
            return name
    return None
