"""The write contract of an asset and the read contract of an input, parsed from metadata.

Output metadata has priority over run tags, and run tags over the metadata of the definition. Every value and combination is
checked before a data file is written. ``metadata_keys`` decides which keys belong to the contract.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.tables.declaration import TableDeclaration
from cm_delta_dagster.operations.writing.merge import MergeMode
from cm_delta_dagster.orchestration.metadata.audit_mode import AuditMode
from cm_delta_dagster.orchestration.metadata.frame_types import DtypeBackend
from cm_delta_dagster.orchestration.metadata.merge_clauses import (
    MergeClause,
    check_partition_values,
    conditions_on_others,
    parse_merge_clauses,
)
from cm_delta_dagster.orchestration.metadata.metadata_keys import (
    DEFAULT_READ_KEYS,
    NAMING_KEYS,
    READ_KEYS,
    RUN_TIME_KEYS,
    WRITE_KEYS,
    own_entries,
)
from cm_delta_dagster.orchestration.metadata.metadata_values import (
    choice,
    column_names,
    keys_or_condition,
    switch,
    text_or_none,
)
from cm_delta_dagster.orchestration.metadata.table_declaration import parse_declaration
from cm_delta_dagster.protocol.predicates.timestamps import parse_timestamp
from cm_delta_dagster.protocol.schema.evolution import SchemaMode


class WriteMode(StrEnum):
    """What happens to the existing rows of the table, or, for a partitioned asset, of the written partitions."""

    APPEND = "append"
    """The existing rows stay, and the new rows are added."""

    OVERWRITE = "overwrite"
    """The new rows replace them."""

    REPLACE_WHERE = "replace_where"
    """The new rows replace those for which ``where`` holds."""

    MERGE = "merge"
    """They are matched with the new rows by ``on``."""

    ERROR_IF_EXISTS = "error_if_exists"
    """Existing rows are an error."""


class OnConflict(StrEnum):
    """What an overwrite of a whole table does if another writer commits to the table meanwhile."""

    FAIL = "fail"
    """It fails, because it would undo the other commit unseen."""

    LAST_WINS = "last_wins"
    """It replaces the rows of the other commit too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteContract:
    """How one output is written; the parsed form of its metadata.

    Attributes:
        on: what matches rows of a merge: key columns, or the text of a condition over ``target`` and ``source``.
        where: the rows that the mode ``replace_where`` replaces.
        partition_expr: table column of each partition dimension; the key is ``""`` for a single dimension.
        partition_by: partition columns of the table; an existing one must have them. None: derived from ``partition_expr``, if the
            write creates the table.
        named_after: parts of the asset key that determine the table's name; empty if the metadata names the table.
        commit_together: whether the output is committed together with the others of its step that say so.
        audit: what an audit of the output does about rows of other writers.
        declaration: what the owner declares of the table; the write brings the table in line with it.
    """

    identifier: TableIdentifier
    mode: WriteMode
    schema_mode: SchemaMode = SchemaMode.STRICT
    on: tuple[str, ...] | str = ()
    merge_mode: MergeMode = MergeMode.UPSERT
    merge_clauses: tuple[MergeClause, ...] = ()
    where: str | None = None
    partition_expr: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] | None = None
    named_after: tuple[str, ...] = ()
    on_conflict: OnConflict = OnConflict.FAIL
    commit_together: bool = False
    audit: AuditMode | None = None
    declaration: TableDeclaration = field(default_factory=TableDeclaration)

    @property
    def replaces_rows(self) -> bool:
        """Whether the write changes or removes rows that the output does not have."""
        return bool(self.replaced_conditions)

    @property
    def replaced_conditions(self) -> frozenset[str | None]:
        """The conditions of the rows that the write changes or removes beside those of the output; None for all."""
        if self.mode is WriteMode.MERGE and self.merge_mode is not MergeMode.DELETE_UNMATCHED:
            return conditions_on_others(self.merge_clauses)
        replaces = self.mode in (WriteMode.OVERWRITE, WriteMode.REPLACE_WHERE, WriteMode.MERGE)
        return frozenset((self.where,)) if replaces else frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesFrom:
    """Where the changes of a first materialization begin: a version or a time, or after the version that is read."""

    version: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadContract:
    """How one input is read; the parsed form of the metadata of the input and of the upstream asset.

    Attributes:
        changes: read the changes since the last materialization of the asset that has the input.
        changes_from: where the first materialization begins; None for all rows as inserts.
        reports_reads: whether the read becomes an observation of the upstream asset.
        allows_missing_partitions: whether upstream partitions that do not exist are read as no rows.
        dtype_backend: the types of the columns of a pandas DataFrame; None for those of the IO manager.
    """

    identifier: TableIdentifier
    columns: tuple[str, ...] | None = None
    version: int | None = None
    timestamp_ms: int | None = None
    where: str | None = None
    partition_expr: Mapping[str, str] = field(default_factory=dict)
    changes: bool = False
    changes_from: ChangesFrom | None = None
    reports_reads: bool = True
    allows_missing_partitions: bool = False
    dtype_backend: DtypeBackend | None = None

    @property
    def reads_latest(self) -> bool:
        """Whether the version that the run pins is read, and not one that the metadata names."""
        return self.version is None and self.timestamp_ms is None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamingDefaults:
    """Default catalog and schema of a table."""

    catalog: str = "main"
    schema: str = "default"


def parse_write_contract(
    *,
    definition: Mapping[str, Any],
    run: Mapping[str, Any],
    output: Mapping[str, Any],
    asset_path: Sequence[str],
    partitioned: bool,
    names: NamingDefaults,
) -> WriteContract:
    """The contract of one output.

    Args:
        definition: asset metadata; ``run``: entries of :func:`own_run_tags`; ``output``: metadata set at run time.
        asset_path: parts of the asset key, empty for the output of an op without an asset.

    Raises:
        InvalidArgumentError: an unknown key or value, or an invalid combination.
    """
    entries = _overridden(
        own_entries(definition, known=WRITE_KEYS | DEFAULT_READ_KEYS, place="The asset's metadata"),
        run,
        own_entries(output, known=RUN_TIME_KEYS, place="The output's metadata"),
    )
    mode, schema_mode = _modes(entries)
    contract = WriteContract(
        identifier=table_identifier(entries, asset_path=asset_path, names=names),
        mode=mode,
        schema_mode=schema_mode,
        on=keys_or_condition(entries.get("on"), "on"),
        merge_mode=choice(entries.get("merge_mode", MergeMode.UPSERT.value), MergeMode, "merge_mode"),
        merge_clauses=parse_merge_clauses(entries.get("merge_clauses")),
        where=text_or_none(entries.get("where"), "where"),
        partition_expr=parse_partition_expr(entries.get("partition_expr")),
        named_after=() if "table" in entries else tuple(asset_path),
        partition_by=None if "partition_by" not in entries else column_names(entries["partition_by"], "partition_by"),
        on_conflict=choice(entries.get("on_conflict", OnConflict.FAIL.value), OnConflict, "on_conflict"),
        commit_together=switch(entries.get("commit_together"), "commit_together"),
        audit=choice(entries["audit"], AuditMode, "audit") if "audit" in entries else None,
        declaration=parse_declaration(entries),
    )
    _check_combinations(contract, entries, partitioned=partitioned)
    return contract


_KEYS_OF_MODE = {
    WriteMode.MERGE.value: frozenset({"on", "merge_mode", "merge_clauses"}),
    WriteMode.REPLACE_WHERE.value: frozenset({"where"}),
}


_EXCLUDES = {"merge_mode": "merge_clauses", "merge_clauses": "merge_mode"}
"""Keys that say the same thing in another way; a layer that sets the first drops the second of the layers before."""


def _overridden(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge layers; later ones have priority. A layer that sets the mode drops keys that only other modes use."""
    entries: dict[str, Any] = {}
    for layer in layers:
        if "mode" in layer:
            needed = _KEYS_OF_MODE.get(str(layer["mode"]), frozenset())
            special = frozenset().union(*_KEYS_OF_MODE.values()) - needed
            entries = {key: value for key, value in entries.items() if key not in special}
        for key in layer:
            entries.pop(_EXCLUDES.get(key, ""), None)
        entries.update(layer)
    return entries


def parse_read_contract(
    *,
    upstream: Mapping[str, Any],
    own: Mapping[str, Any],
    asset_path: Sequence[str],
    names: NamingDefaults,
) -> ReadContract:
    """The contract of one input. The metadata of the upstream asset names the table; the metadata of the input
    (``dg.AssetIn(metadata=)``) selects rows, columns and version.

    Raises:
        InvalidArgumentError: an unknown key or value, or both ``version`` and ``timestamp``.
    """
    naming = own_entries(upstream, known=WRITE_KEYS | DEFAULT_READ_KEYS, place="The upstream asset's metadata")
    input_entries = own_entries(own, known=READ_KEYS | NAMING_KEYS, place="The input's metadata")
    inherited = NAMING_KEYS | DEFAULT_READ_KEYS
    entries = {**{key: value for key, value in naming.items() if key in inherited}, **input_entries}
    if entries.get("version") is not None and entries.get("timestamp") is not None:
        raise InvalidArgumentError("The input's metadata sets both 'version' and 'timestamp'. Keep one of the two.")
    columns = entries.get("columns")
    changes = switch(entries.get("changes"), "changes")
    misplaced = {"version", "timestamp"} if changes else {"changes_from"}
    for key in sorted(misplaced & {name for name, value in entries.items() if value is not None}):
        raise InvalidArgumentError(
            f"The input's metadata sets {key!r}, which "
            + (
                "selects one version, and 'changes', which reads a range. Keep one of the two."
                if changes
                else "needs 'changes'."
            )
        )
    backend = entries.get("dtype_backend")
    return ReadContract(
        identifier=table_identifier(entries, asset_path=asset_path, names=names),
        columns=None if columns is None else column_names(columns, "columns"),
        version=_version(entries.get("version")),
        timestamp_ms=_timestamp_ms(entries.get("timestamp")),
        where=text_or_none(entries.get("where"), "where"),
        partition_expr=parse_partition_expr(entries.get("partition_expr")),
        changes=changes,
        changes_from=_changes_from(entries.get("changes_from")),
        reports_reads=switch(entries.get("report_reads"), "report_reads", default=True),
        allows_missing_partitions=switch(entries.get("allow_missing_partitions"), "allow_missing_partitions"),
        dtype_backend=None if backend is None else choice(backend, DtypeBackend, "dtype_backend"),
    )


def _changes_from(value: Any) -> ChangesFrom | None:
    """Where the first changes begin: ``latest``, a version, or a time; None for all rows."""
    if value is None:
        return None
    if value == "latest":
        return ChangesFrom()
    if isinstance(value, int) or (isinstance(value, str) and value.isdigit()):
        return ChangesFrom(version=_version(value))
    return ChangesFrom(timestamp_ms=_timestamp_ms(value, "changes_from"))


def table_identifier(
    entries: Mapping[str, Any], *, asset_path: Sequence[str], names: NamingDefaults
) -> TableIdentifier:
    """Name of the table from ``table`` (one to three parts), ``schema`` and ``catalog``, or from the last two key parts.

    Raises:
        InvalidArgumentError: no name can be formed, or two keys contradict each other.
    """
    table_text = text_or_none(entries.get("table"), "table")
    parts = table_text.split(".") if table_text else []
    if len(parts) > 3:
        raise InvalidArgumentError(
            f"The metadata key 'table' is {table_text!r}; write table, schema.table or catalog.schema.table."
        )
    path = list(parts) or list(asset_path[-2:])
    if not path:
        raise InvalidArgumentError(
            "This output belongs to no asset, so it has no table name. Set the metadata key 'table', e.g. "
            "dg.Out(metadata={'table': 'main.sales.orders'}), or give the output another IO manager, e.g. "
            "dg.Out(io_manager_key='mem_io_manager')."
        )
    levels = dict(zip(("table", "schema", "catalog"), reversed(path), strict=False))
    for level in ("schema", "catalog"):
        override = text_or_none(entries.get(level), level)
        if override is None:
            continue
        if parts and level in levels and levels[level] != override:
            raise InvalidArgumentError(
                f"The metadata sets {level}={override!r} and table={table_text!r}, which contradict each other. Keep one of "
                "the two."
            )
        levels[level] = override
    return TableIdentifier.parse(
        ".".join((levels.get("catalog", names.catalog), levels.get("schema", names.schema), levels["table"]))
    )


def ambiguous_table(table: str, first: str, second: str) -> InvalidArgumentError:
    """The error for two asset keys with the same table name."""
    return InvalidArgumentError(
        f"The assets {first} and {second} have the same table {table}, because its name is made of the last two parts of the "
        "asset key; each would overwrite the other. Nothing was written. Set the metadata key 'table' in one of them, e.g. "
        "'table': 'sales_eu.orders'; or set it in both to share the table."
    )


def _modes(entries: Mapping[str, Any]) -> tuple[WriteMode, SchemaMode]:
    text = str(entries.get("mode", WriteMode.OVERWRITE.value))
    text = {"error": WriteMode.ERROR_IF_EXISTS.value}.get(text, text)
    schema_mode = choice(entries.get("schema_mode", SchemaMode.STRICT.value), SchemaMode, "schema_mode")
    if text == "create_or_replace":
        if entries.get("schema_mode") not in (None, SchemaMode.OVERWRITE.value):
            raise InvalidArgumentError("The mode create_or_replace replaces the schema too; remove 'schema_mode'.")
        return WriteMode.OVERWRITE, SchemaMode.OVERWRITE
    return choice(text, WriteMode, "mode"), schema_mode


def _check_combinations(contract: WriteContract, entries: Mapping[str, Any], *, partitioned: bool) -> None:
    def refuse(why: str) -> None:
        raise InvalidArgumentError(
            f"The write contract of {contract.identifier} is invalid: {why} Nothing was written."
        )

    _check_merge(contract, entries, refuse)
    if contract.mode is WriteMode.REPLACE_WHERE and not contract.where:
        refuse("mode 'replace_where' needs the key 'where', the condition of the rows to replace.")
    if contract.mode is not WriteMode.REPLACE_WHERE and contract.where is not None:
        refuse(f"'where' belongs to mode 'replace_where', and the mode is {contract.mode.value!r}.")
    if contract.schema_mode is SchemaMode.OVERWRITE and (partitioned or contract.mode is not WriteMode.OVERWRITE):
        refuse("'schema_mode' overwrite replaces the schema of all rows, but this write keeps some rows; use 'merge'.")
    if partitioned and not contract.partition_expr:
        refuse(
            "the asset is partitioned, so 'partition_expr' must name the column (or one for each dimension) of its "
            "partitions."
        )
    if contract.partition_expr and not partitioned:
        refuse(
            "'partition_expr' names the columns of the asset's partitions, and the asset has none, so that the write would not be "
            "limited to a partition. Give the asset a partitions_def, or write 'partition_by' for partition columns of the table."
        )
    if contract.schema_mode is SchemaMode.OVERWRITE and contract.declaration.fills_columns:
        refuse(
            "'defaults', 'generated' and 'identity' belong to columns that stay, and 'schema_mode' overwrite replaces them."
        )
    if contract.on_conflict is OnConflict.LAST_WINS and (partitioned or contract.mode is not WriteMode.OVERWRITE):
        refuse(
            "'on_conflict' last_wins belongs to mode 'overwrite' of an asset without partitions, which replaces all rows."
        )
    if contract.declaration.clustering_columns and contract.partition_by:
        refuse("a table is clustered ('cluster_by') or has partition columns ('partition_by'), not both.")


def _check_merge(contract: WriteContract, entries: Mapping[str, Any], refuse: Callable[[str], None]) -> None:
    keys = sorted(_KEYS_OF_MODE[WriteMode.MERGE.value] & entries.keys())
    if contract.mode is not WriteMode.MERGE:
        if keys:
            listed = ", ".join(repr(key) for key in keys)
            refuse(f"{listed} belong to mode 'merge', and the mode is {contract.mode.value!r}.")
        return
    if not contract.on:
        refuse("mode 'merge' needs 'on', the key columns by which rows are matched.")
    if {"merge_mode", "merge_clauses"}.issubset(keys):
        refuse("'merge_mode' and 'merge_clauses' say the same thing in two ways. Keep one of the two.")
    if isinstance(contract.on, str) and not contract.merge_clauses:
        refuse(
            f"'on' is the condition {contract.on!r}, which needs 'merge_clauses'. With 'merge_mode', rows are matched by key "
            "columns; give a list of their names."
        )
    check_partition_values(contract.merge_clauses, tuple(contract.partition_expr.values()))


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


def _version(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not str(value).isdigit():
        raise InvalidArgumentError(f"The metadata key 'version' is {value!r}; it must be a table version, 0 or more.")
    return int(value)


def _timestamp_ms(value: Any, key: str = "timestamp") -> int | None:
    if value is None:
        return None
    moment: Any = parse_timestamp(value) if isinstance(value, str) else value
    if isinstance(moment, (int, float)) and not isinstance(moment, bool):
        return round(moment * 1000)  # MetadataValue.timestamp holds seconds
    offset = getattr(moment, "tzinfo", None)
    if offset is None:
        raise InvalidArgumentError(
            f"The metadata key {key!r} is {value!r}; give a time with a zone, e.g. 2026-01-31T12:00:00Z."
        )
    return round(float(moment.timestamp()) * 1000)
