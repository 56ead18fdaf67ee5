"""What the properties and the columns of a table demand of its metadata and its protocol (protocol headings "Table Features",
"Column Mapping", "Row Tracking", "Type Widening").

Used where metadata are made: at the creation of a table, when a write changes the schema, and when a table is altered. The result
has the ids and physical names of columns, the names of the row tracking columns, the record of changed types, and a protocol that
lists every feature that is used.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.features.change_feed_columns import CHANGE_COLUMNS
from cm_delta_dagster.protocol.features.column_ids import (
    MAPPING_PREFIX,
    MAX_COLUMN_ID,
    ColumnIds,
    assign_column_ids,
    highest_column_id,
    strip_metadata,
)
from cm_delta_dagster.protocol.features.column_mapping import (
    PHYSICAL_NAME,
    ColumnMappingMode,
    physical_schema,
    stored_names,
)
from cm_delta_dagster.protocol.features.iceberg_compat import (
    active_versions,
    check_iceberg_compat,
    check_partitioning_kept,
    with_nested_ids,
)
from cm_delta_dagster.protocol.features.protocol_evolution import (
    listed_by_other_name,
    required_features,
    with_features,
)
from cm_delta_dagster.protocol.features.table_features import feature_list, supports
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.features.type_widening import TYPE_CHANGES
from cm_delta_dagster.protocol.schema.former_names import FORMER_NAMES
from cm_delta_dagster.protocol.schema.types import StructField, StructType, parse_schema, schema_to_json, walk_fields
from cm_delta_dagster.remedies import DropOrRenameColumn, EnableTableFeature, SetTableProperty

COLUMN_MAPPING_MODE = "delta.columnMapping.mode"

_ENABLED_BY_HAND = frozenset(("timestampNtz", "allowColumnDefaults"))
"""Features that a change of a table does not add by itself, because they exclude older readers or writers for one column."""

NewName = Callable[[str], str]
"""Returns a name that begins with the given prefix and that no other column has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """The protocol and the metadata of a table."""

    protocol: Protocol
    metadata: Metadata

    @property
    def schema(self) -> StructType:
        return parse_schema(self.metadata.schema_string)

    @property
    def properties(self) -> TableProperties:
        return TableProperties(self.metadata.configuration)

    @property
    def mapping(self) -> ColumnMappingMode:
        """The mode that the property asks for. It holds once the protocol lists the feature."""
        return ColumnMappingMode(self.properties.column_mapping_mode)

    def with_schema(self, schema: StructType) -> "TableDefinition":
        return replace(self, metadata=replace(self.metadata, schema_string=schema_to_json(schema)))

    def with_properties(self, **changes: str | None) -> "TableDefinition":
        """The definition with other properties; None removes one."""
        configuration = {**self.metadata.configuration, **changes}
        kept = {key: value for key, value in configuration.items() if value is not None}
        return replace(self, metadata=replace(self.metadata, configuration=kept))


def without_own_metadata(schema: StructType) -> StructType:
    """Offered columns without what only the log of a table may say of them: ids, physical and former names and changes of types.

    Rows that were read from a Delta table may carry it.
    """
    return strip_metadata(schema, (MAPPING_PREFIX, TYPE_CHANGES, FORMER_NAMES))


def new_definition(requested: TableDefinition, *, new_name: NewName, features: Collection[str] = ()) -> TableDefinition:
    """The definition of a new table.

    Args:
        requested: the schema, the properties and the protocol without what they demand.
        new_name: gives the physical names of columns and the names of row tracking columns.
        features: features to list besides those that are used.

    Raises:
        InvalidArgumentError: properties contradict each other, or a column has a name that the change data feed needs.
        UnsupportedFeatureError: a feature is needed that this client does not support.
    """
    plain = requested.with_schema(without_own_metadata(requested.schema))
    result = _listed(_with_row_tracking(_with_ids(plain, new_name), new_name), features)
    _check_change_feed_names(result)
    _check_iceberg(result)
    return result


def changed_definition(
    before: TableDefinition, requested: TableDefinition, *, new_name: NewName, features: Collection[str] = ()
) -> TableDefinition:
    """The definition of a table after a change; ``before`` itself if nothing changes.

    Args:
        before: the table before the change.
        requested: ``before`` with another schema or other properties. Columns that exist carry their metadata, new columns have no
            ids.
        new_name, features: as for :func:`new_definition`.

    Raises:
        InvalidArgumentError: the mode of column mapping cannot change in that way, or a column takes the name of a row
            tracking column or of one of the change data feed.
        UnsupportedFeatureError: a feature is needed that this client does not support.
    """
    check_mapping_change(before, requested)
    is_upgrade = before.mapping is not requested.mapping
    # Mode `none` ignores ids and physical names that the schema may have.
    plain = requested.with_schema(strip_metadata(requested.schema, (MAPPING_PREFIX,))) if is_upgrade else requested
    mapped = _with_ids(plain, new_name, files_exist=is_upgrade)
    result = _listed(_with_row_tracking(mapped, new_name), features)
    _check_row_tracking_names(result)
    if not _change_feed_names(before):
        _check_change_feed_names(result)
    _check_iceberg(result)
    _check_partitioning(before, result)
    return before if (result.protocol, result.metadata) == (before.protocol, before.metadata) else result


def check_mapping_change(before: TableDefinition, after: TableDefinition) -> None:
    """Refuse changes of ``delta.columnMapping.mode`` that existing files do not permit; only ``none`` to ``name`` is possible.

    Raises:
        InvalidArgumentError: another change.
    """
    old, new = before.mapping, after.mapping
    if old is new or (old, new) == (ColumnMappingMode.NONE, ColumnMappingMode.NAME):
        return
    if new is ColumnMappingMode.NONE:
        raise InvalidArgumentError(
            f"{COLUMN_MAPPING_MODE} cannot change from {old.value!r} to 'none' without Spark: the data files have physical names "
            "and must be rewritten. Nothing was changed."
        ).with_remedy(SetTableProperty(key=COLUMN_MAPPING_MODE, value="none", rewrites_files=True))
    raise InvalidArgumentError(
        f"{COLUMN_MAPPING_MODE} cannot change from {old.value!r} to {new.value!r}: the data files of the table lack what the new "
        "mode needs. Nothing was changed. Set 'name' on a table without column mapping; set 'id' at creation."
    )


def check_change_feed_columns(before: TableDefinition, after: TableDefinition) -> None:
    """Refuse a commit of rows that also drops or renames columns, or introduces column mapping, while the change data feed is on.

    A range of versions of the feed has one schema, so such a commit could not be read together with earlier ones. The rule is that
    of delta-spark.

    Raises:
        InvalidArgumentError: the commit is such a change.
    """
    if not after.properties.change_data_feed_enabled or after.mapping is ColumnMappingMode.NONE:
        return
    if before.mapping is ColumnMappingMode.NONE:
        raise InvalidArgumentError(
            f"Rows cannot be written in the commit that sets {COLUMN_MAPPING_MODE} = {after.mapping.value!r}, because the change "
            "data feed of the table is enabled. Nothing was written. Make the change without rows, then append them."
        )
    kept = _names_by_stored_path(after)
    lost = [name for path, name in _names_by_stored_path(before).items() if kept.get(path) != name]
    if lost:
        raise InvalidArgumentError(
            f"Rows cannot be written in the commit that drops or renames the column {lost[0]!r}, because the change data feed of "
            "the table is enabled. Nothing was written. Change the column in a commit of its own, or disable the feed "
            "(delta.enableChangeDataFeed)."
        ).with_remedy(DropOrRenameColumn(column=lost[0]))


def _names_by_stored_path(table: TableDefinition) -> dict[tuple[str, ...], str]:
    logical = (item.name for _, item in walk_fields(table.schema))
    stored = (path for path, _ in walk_fields(physical_schema(table.schema, table.mapping)))
    return dict(zip(stored, logical, strict=True))


def check_enabled_by_hand(before: Protocol, after: Protocol) -> None:
    """Refuse a change of columns that needs a feature which a user must enable first, as delta-spark does.

    Raises:
        InvalidArgumentError: names the features.
    """
    added = {name for name in _ENABLED_BY_HAND if supports(after, name) and not supports(before, name)}
    if added:
        raise InvalidArgumentError(
            f"The change needs the table features {feature_list(added)}, which the table does not have; clients that lack them "
            f"could not open the table any more. Nothing was changed."
        ).with_remedy(EnableTableFeature(feature=min(added)))


def _with_ids(table: TableDefinition, new_name: NewName, *, files_exist: bool = False) -> TableDefinition:
    """With an id and a physical name for each column; with ``files_exist``, the physical name is the name in these files."""
    if table.mapping is ColumnMappingMode.NONE:
        return table

    def name_of(item: StructField) -> str:
        return item.name if files_exist else new_name("col")

    schema = table.schema
    ids = ColumnIds(highest=highest_column_id(schema, table.metadata.configuration), new_name=name_of)
    mapped = assign_column_ids(schema, ids)
    if 2 in active_versions(table.metadata.configuration):
        mapped = with_nested_ids(mapped, ids, table.mapping)
    return table.with_schema(mapped).with_properties(**{MAX_COLUMN_ID: str(ids.highest)})


def _with_row_tracking(table: TableDefinition, new_name: NewName) -> TableDefinition:
    """With the names of the hidden columns, which a table gets once when row tracking is enabled."""
    configuration = table.metadata.configuration
    if configuration.get(row_tracking.ENABLED, "").lower() != "true":
        return table
    if configuration.get(row_tracking.SUSPENDED, "").lower() == "true":
        raise InvalidArgumentError(
            f"{row_tracking.ENABLED} cannot be true while {row_tracking.SUSPENDED} is true: the files that were added "
            f"meanwhile have no row ids. Nothing was changed. Unset {row_tracking.SUSPENDED} first."
        )
    names = {
        row_tracking.MATERIALIZED_ROW_ID: "_row-id-col",
        row_tracking.MATERIALIZED_ROW_COMMIT_VERSION: "_row-commit-version-col",
    }
    missing = {key: new_name(prefix) for key, prefix in names.items() if key not in configuration}
    return table.with_properties(**missing)


def _check_iceberg(result: TableDefinition) -> None:
    check_iceberg_compat(
        result.schema,
        result.metadata.configuration,
        mapping=result.mapping,
        lists_vectors=supports(result.protocol, "deletionVectors"),
        writes_vectors=result.properties.deletion_vectors_enabled,
    )


def _check_partitioning(before: TableDefinition, result: TableDefinition) -> None:
    """A renamed partition column is the same one."""
    old, new = (stored_names(item.metadata.partition_columns, item.schema, item.mapping) for item in (before, result))
    if old != new:
        check_partitioning_kept(
            before.metadata.partition_columns, result.metadata.partition_columns, result.metadata.configuration
        )


def _check_row_tracking_names(result: TableDefinition) -> None:
    reserved = {
        result.metadata.configuration.get(key)
        for key in (row_tracking.MATERIALIZED_ROW_ID, row_tracking.MATERIALIZED_ROW_COMMIT_VERSION)
    } - {None}
    for item in result.schema.fields if reserved else ():
        for name in (item.name, item.metadata.get(PHYSICAL_NAME)):
            if name in reserved:
                raise InvalidArgumentError(
                    f"No column can be named {name!r}: data files store row ids under that name. Nothing was changed. Choose "
                    "another name."
                )


def _change_feed_names(table: TableDefinition) -> list[str]:
    """The columns that have the names of columns of the change data feed, if the feed is enabled."""
    if not table.properties.change_data_feed_enabled:
        return []
    return [name for name in table.schema.names if name.lower() in CHANGE_COLUMNS]


def _check_change_feed_names(result: TableDefinition) -> None:
    """Raises InvalidArgumentError if the change data feed is enabled and a column has the name of one of its own."""
    for name in _change_feed_names(result):
        raise InvalidArgumentError(
            f"A table with the change data feed cannot have the column {name!r}: the feed has a column of that name. Nothing was "
            "changed. Choose another name for the column, or leave delta.enableChangeDataFeed off."
        )


def _listed(table: TableDefinition, features: Collection[str]) -> TableDefinition:
    used = required_features(table.schema, table.metadata.configuration) - listed_by_other_name(table.protocol)
    return replace(table, protocol=with_features(table.protocol, used | frozenset(features)))
