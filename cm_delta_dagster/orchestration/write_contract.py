"""Asset metadata as the write contract. Room: orchestration; no Spark, no catalog.

The metadata of an asset says where its rows go and how: ``mode``, ``merge_keys``, ``partition_expr`` and so on, each
also accepted as ``cm_delta/<key>``. Values given at run time win: run tags over definition metadata, output metadata
over run tags. Everything is checked here, before a row is computed into a file. Keys of others (``dagster/...``,
``owner``) are left alone.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import dagster as dg

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.writing.merge import MergeMode
from cm_delta_dagster.protocol.predicates.timestamps import parse_timestamp
from cm_delta_dagster.protocol.schema.evolution import SchemaMode

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
    }
)
READ_KEYS = frozenset({"columns", "version", "timestamp", "filter"})
DEFAULT_READ_KEYS = frozenset({"columns"})
"""What an asset may say about its readers; an input's own metadata goes before it."""
RUN_TIME_KEYS = frozenset({"mode", "merge_keys", "merge_mode", "replace_where", "schema_mode"})
"""What a run may change. Not the table and not the partition columns: readers find those in the definition."""

REPORTED_KEYS = frozenset(
    {"commit_version", "table_id", "operation", "outcome", "version_read", "metrics", "files_read", "files_total"}
)
"""Keys after ``cm_delta/`` that this package itself attaches to events."""

_NAMING_KEYS = frozenset({"table", "schema", "catalog", "partition_expr"})
_ALIASES = {
    "mode": "mode",
    "modes": "mode",
    "savemode": "mode",
    "writemode": "mode",
    "mergeon": "merge_keys",
    "mergekey": "merge_keys",
    "mergepredicate": "merge_keys",
    "partitioncolumns": "partition_by",
    "partitionexpression": "partition_expr",
    "tblproperties": "table_properties",
    "tablename": "table",
}


class WriteMode(StrEnum):
    """What happens to the rows that are already there. A partitioned asset touches only the rows of its partitions."""

    APPEND = "append"
    """They stay; the new rows are added."""

    OVERWRITE = "overwrite"
    """They go: all of them, or those of the partitions being materialized."""

    REPLACE_WHERE = "replace_where"
    """Those for which ``replace_where`` holds go."""

    MERGE = "merge"
    """They are matched with the new rows by ``merge_keys``."""

    ERROR_IF_EXISTS = "error_if_exists"
    """There may be none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteContract:
    """How one output is written; the parsed form of its metadata.

    Attributes:
        partition_expr: table column of each partition dimension; a single-dimension asset has the key ``""``.
        partition_by: partition columns of a table that has to be created; None: derived from ``partition_expr``.
        named_after: parts of the asset key from which the table's name follows; empty if the metadata names the table.
    """

    identifier: TableIdentifier
    mode: WriteMode
    schema_mode: SchemaMode = SchemaMode.STRICT
    merge_keys: tuple[str, ...] = ()
    merge_mode: MergeMode = MergeMode.UPSERT
    replace_where: str | None = None
    partition_expr: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] | None = None
    named_after: tuple[str, ...] = ()
    table_properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadContract:
    """How one input is read; the parsed form of the metadata of the input and of the upstream asset."""

    identifier: TableIdentifier
    columns: tuple[str, ...] | None = None
    version: int | None = None
    timestamp_ms: int | None = None
    filter: str | None = None
    partition_expr: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNames:
    """Where a table lives when the metadata does not say."""

    catalog: str = "main"
    schema: str = "default"


def own_entries(metadata: Mapping[str, Any], *, known: frozenset[str], where: str) -> dict[str, Any]:
    """The entries of ``metadata`` that belong to the contract, without prefix and unwrapped from ``MetadataValue``.

    Args:
        known: keys that have a meaning in this place.
        where: the place, as the subject of a message.

    Raises:
        InvalidArgumentError: a key after ``cm_delta/`` that has no meaning here, a misspelt key of ours, or one given
            twice.
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
    """The entries ``cm_delta/<key>`` of a run's tags. JSON where it begins with ``[`` or ``{``, else text.

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


def parse_write_contract(
    *,
    definition: Mapping[str, Any],
    run: Mapping[str, Any],
    output: Mapping[str, Any],
    asset_path: Sequence[str],
    partitioned: bool,
    names: TableNames,
) -> WriteContract:
    """The contract of one output.

    Args:
        definition: asset metadata; ``run``: entries of :func:`own_run_tags`; ``output``: metadata set at run time.
        asset_path: parts of the asset key, empty for the output of an op that is no asset.

    Raises:
        InvalidArgumentError: an unknown key or value, or a combination that has no meaning.
    """
    entries = _overridden(
        own_entries(definition, known=WRITE_KEYS | DEFAULT_READ_KEYS, where="The asset's metadata"),
        run,
        own_entries(output, known=RUN_TIME_KEYS, where="The output's metadata"),
    )
    mode, schema_mode = _modes(entries)
    contract = WriteContract(
        identifier=table_identifier(entries, asset_path=asset_path, names=names),
        mode=mode,
        schema_mode=schema_mode,
        merge_keys=_texts(entries.get("merge_keys"), "merge_keys"),
        merge_mode=_choice(entries.get("merge_mode", MergeMode.UPSERT.value), MergeMode, "merge_mode"),
        replace_where=_text(entries.get("replace_where"), "replace_where"),
        partition_expr=parse_partition_expr(entries.get("partition_expr")),
        named_after=() if "table" in entries else tuple(asset_path),
        partition_by=None if "partition_by" not in entries else _texts(entries["partition_by"], "partition_by"),
        table_properties=_properties(entries.get("table_properties")),
    )
    _check_combinations(contract, entries, partitioned=partitioned)
    return contract


_KEYS_OF_MODE = {
    WriteMode.MERGE.value: frozenset({"merge_keys", "merge_mode"}),
    WriteMode.REPLACE_WHERE.value: frozenset({"replace_where"}),
}


def _overridden(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Later layers over earlier ones; a layer that sets another mode leaves behind what only the earlier mode needs."""
    entries: dict[str, Any] = {}
    for layer in layers:
        if "mode" in layer:
            needed = _KEYS_OF_MODE.get(str(layer["mode"]), frozenset())
            special = frozenset().union(*_KEYS_OF_MODE.values()) - needed
            entries = {key: value for key, value in entries.items() if key not in special}
        entries.update(layer)
    return entries


def parse_read_contract(
    *,
    upstream: Mapping[str, Any],
    own: Mapping[str, Any],
    asset_path: Sequence[str],
    names: TableNames,
) -> ReadContract:
    """The contract of one input: the upstream asset's metadata names the table, the input's (``dg.AssetIn(metadata=)``)
    says which rows, columns and version.

    Raises:
        InvalidArgumentError: an unknown key or value, or both ``version`` and ``timestamp``.
    """
    naming = own_entries(upstream, known=WRITE_KEYS | DEFAULT_READ_KEYS, where="The upstream asset's metadata")
    given = own_entries(own, known=READ_KEYS | _NAMING_KEYS, where="The input's metadata")
    inherited = _NAMING_KEYS | DEFAULT_READ_KEYS
    entries = {**{key: value for key, value in naming.items() if key in inherited}, **given}
    if entries.get("version") is not None and entries.get("timestamp") is not None:
        raise InvalidArgumentError("The input's metadata gives both 'version' and 'timestamp'. Keep one of the two.")
    columns = entries.get("columns")
    return ReadContract(
        identifier=table_identifier(entries, asset_path=asset_path, names=names),
        columns=None if columns is None else _texts(columns, "columns"),
        version=_version(entries.get("version")),
        timestamp_ms=_timestamp_ms(entries.get("timestamp")),
        filter=_text(entries.get("filter"), "filter"),
        partition_expr=parse_partition_expr(entries.get("partition_expr")),
    )


def table_identifier(entries: Mapping[str, Any], *, asset_path: Sequence[str], names: TableNames) -> TableIdentifier:
    """Name of the table: ``table`` (one to three parts), ``schema`` and ``catalog`` first, then the last two key parts.

    Raises:
        InvalidArgumentError: no name can be formed, or two keys contradict each other.
    """
    given = _text(entries.get("table"), "table")
    parts = given.split(".") if given else []
    if len(parts) > 3:
        raise InvalidArgumentError(
            f"The metadata key 'table' is {given!r}; write table, schema.table or catalog.schema.table."
        )
    path = list(parts) or list(asset_path[-2:])
    if not path:
        raise InvalidArgumentError(
            "This output belongs to no asset, so no table name follows from it. Give the metadata key 'table', e.g. "
            "dg.Out(metadata={'table': 'main.sales.orders'})."
        )
    found = dict(zip(("table", "schema", "catalog"), reversed(path), strict=False))
    for level in ("schema", "catalog"):
        override = _text(entries.get(level), level)
        if override is None:
            continue
        if parts and level in found and found[level] != override:
            raise InvalidArgumentError(
                f"The metadata says {level}={override!r} and table={given!r}, which contradict each other. Keep one of "
                "the two."
            )
        found[level] = override
    return TableIdentifier.parse(
        ".".join((found.get("catalog", names.catalog), found.get("schema", names.schema), found["table"]))
    )


def names_one_table(table: str, one: str, other: str) -> InvalidArgumentError:
    """The error for two asset keys from which one table name follows."""
    return InvalidArgumentError(
        f"The assets {one} and {other} both mean the table {table}, because only the last two parts of an asset key make "
        "its name; each would overwrite the other. Nothing was written. Give one of them another name by the metadata "
        "key 'table', e.g. 'table': 'sales_eu.orders'; or, if they shall share the table, name it in both."
    )


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
            f"{where} cannot hold the key {key!r}: it has no meaning there. Known after {PREFIX!r}: "
            f"{', '.join(sorted(known))}."
        )
    if re.match(r"cm[-_ ]?delta[-_:./ ]", key, flags=re.IGNORECASE):
        raise InvalidArgumentError(
            f"{where} holds the key {key!r}; keys of this package begin with {PREFIX!r} exactly."
        )
    meant = _meant(key, known)
    if meant is not None:
        raise InvalidArgumentError(
            f"{where} holds the key {key!r}; probably {meant!r} is meant. A misspelt key would silently change how the "
            "table is written, so it is refused."
        )
    return None


def _meant(key: str, known: frozenset[str]) -> str | None:
    """The key of ours that ``key`` is a slip of: other case, separator or number, or the word of another library.

    Only keys of two words count: ``Version`` or ``tables`` is more likely the metadata of somebody else.
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


def _modes(entries: Mapping[str, Any]) -> tuple[WriteMode, SchemaMode]:
    text = str(entries.get("mode", WriteMode.OVERWRITE.value))
    text = {"error": WriteMode.ERROR_IF_EXISTS.value}.get(text, text)
    schema_mode = _choice(entries.get("schema_mode", SchemaMode.STRICT.value), SchemaMode, "schema_mode")
    if text == "create_or_replace":
        if entries.get("schema_mode") not in (None, SchemaMode.OVERWRITE.value):
            raise InvalidArgumentError("The mode create_or_replace replaces the schema too; leave 'schema_mode' out.")
        return WriteMode.OVERWRITE, SchemaMode.OVERWRITE
    return _choice(text, WriteMode, "mode"), schema_mode


def _check_combinations(contract: WriteContract, entries: Mapping[str, Any], *, partitioned: bool) -> None:
    def refuse(why: str) -> None:
        raise InvalidArgumentError(
            f"The write contract of {contract.identifier} makes no sense: {why} Nothing was written."
        )

    if contract.mode is WriteMode.MERGE and not contract.merge_keys:
        refuse("mode 'merge' needs 'merge_keys', the columns by which rows are matched.")
    if contract.mode is not WriteMode.MERGE and ("merge_keys" in entries or "merge_mode" in entries):
        refuse(f"'merge_keys' and 'merge_mode' belong to mode 'merge', and the mode is {contract.mode.value!r}.")
    if contract.mode is WriteMode.REPLACE_WHERE and not contract.replace_where:
        refuse("mode 'replace_where' needs the key 'replace_where', the predicate of the rows to replace.")
    if contract.mode is not WriteMode.REPLACE_WHERE and contract.replace_where is not None:
        refuse(f"'replace_where' belongs to mode 'replace_where', and the mode is {contract.mode.value!r}.")
    if contract.schema_mode is SchemaMode.OVERWRITE and (partitioned or contract.mode is not WriteMode.OVERWRITE):
        refuse(
            "'schema_mode' overwrite replaces the schema of all rows, but this write keeps some of them; use 'merge'."
        )
    if partitioned and not contract.partition_expr:
        refuse(
            "the asset is partitioned, so 'partition_expr' must name the column (or one for each dimension) of its "
            "partitions."
        )


def _choice(value: Any, kind: type[StrEnum], key: str) -> Any:
    text = value.value if isinstance(value, StrEnum) else value
    if text not in [member.value for member in kind]:
        raise InvalidArgumentError(
            f"The metadata key {key!r} is {value!r}; it must be one of {', '.join(member.value for member in kind)}."
        )
    return kind(text)


def _text(value: Any, key: str) -> str | None:
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise InvalidArgumentError(f"The metadata key {key!r} is {value!r}; it must be a non-empty text.")


def _texts(value: Any, key: str) -> tuple[str, ...]:
    if value is None:
        return ()
    items = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(items, Sequence) or not items or not all(isinstance(item, str) and item for item in items):
        raise InvalidArgumentError(
            f"The metadata key {key!r} is {value!r}; it must be a column name or a list of them."
        )
    if len({item.lower() for item in items}) < len(items):
        raise InvalidArgumentError(f"The metadata key {key!r} names a column twice: {', '.join(items)}.")
    return tuple(items)


def parse_partition_expr(value: Any) -> Mapping[str, str]:
    """Column of each dimension, ``""`` for the only one; empty for None. Raises InvalidArgumentError."""
    if value is None:
        return {}
    if isinstance(value, str) and value.strip():
        return {"": value}
    if (
        isinstance(value, Mapping)
        and value
        and all(isinstance(item, str) and item for pair in value.items() for item in pair)
    ):
        if len({column.lower() for column in value.values()}) < len(value):
            raise InvalidArgumentError(f"'partition_expr' gives one column to two dimensions: {dict(value)}.")
        return dict(value)
    raise InvalidArgumentError(
        f"The metadata key 'partition_expr' is {value!r}; it must be a column name, or for several dimensions a dict "
        "of dimension name to column name."
    )


def _properties(value: Any) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(item, str) for pair in value.items() for item in pair):
        raise InvalidArgumentError(f"The metadata key 'table_properties' is {value!r}; it must be a dict of texts.")
    return dict(value)


def _version(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not str(value).isdigit():
        raise InvalidArgumentError(f"The metadata key 'version' is {value!r}; it must be a table version, 0 or more.")
    return int(value)


def _timestamp_ms(value: Any) -> int | None:
    if value is None:
        return None
    moment: Any = parse_timestamp(value) if isinstance(value, str) else value
    if isinstance(moment, (int, float)) and not isinstance(moment, bool):
        return round(moment * 1000)  # MetadataValue.timestamp holds seconds
    offset = getattr(moment, "tzinfo", None)
    if offset is None:
        raise InvalidArgumentError(
            f"The metadata key 'timestamp' is {value!r}; give a time with a zone, e.g. 2026-01-31T12:00:00Z."
        )
    return round(float(moment.timestamp()) * 1000)
