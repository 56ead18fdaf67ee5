"""What ALTER TABLE can do to a table, one value for each statement. :mod:`~cm_delta_dagster.operations.tables.alter` commits them.

The names of operations and parameters in ``commitInfo`` are those of delta-spark.
"""

import json
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.features import row_tracking, table_changes
from cm_delta_dagster.protocol.features.default_columns import with_default
from cm_delta_dagster.protocol.features.enablement import TableDefinition
from cm_delta_dagster.protocol.features.feature_removal import FilesOfTable, without_feature
from cm_delta_dagster.protocol.features.property_names import canonical_key, canonical_properties
from cm_delta_dagster.protocol.features.protocol_evolution import requested_features
from cm_delta_dagster.protocol.features.table_properties import (
    CONSTRAINT_PREFIX,
    FEATURE_PREFIX,
    check_removable_properties,
    check_user_properties,
    stored_properties,
)
from cm_delta_dagster.protocol.schema import alterations, char_types
from cm_delta_dagster.protocol.schema.alterations import COMMENT, Position, find_column
from cm_delta_dagster.protocol.schema.column_paths import ColumnName, column_path, path_text
from cm_delta_dagster.protocol.schema.types import DataType, StructField, data_type_text
from cm_delta_dagster.remedies import AddConstraint


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredTable:
    """What an alteration wants of a table.

    Attributes:
        definition: the table with the change; ids of columns and lists of features are added later.
        features: features to add to the protocol besides those that the table uses.
        dropped: features that the protocol of ``definition`` no longer lists.
        depends_on_rows: rows that another writer adds meanwhile could make the change wrong.
    """

    definition: TableDefinition
    features: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()
    depends_on_rows: bool = False


class Alteration(typing.Protocol):
    """One statement of ALTER TABLE."""

    @property
    def operation(self) -> str:
        """``commitInfo.operation``."""
        ...

    def parameters(self, table: TableDefinition) -> dict[str, str]:
        """``commitInfo.operationParameters``, given the table after the change."""
        ...

    def apply(self, table: TableDefinition, files: FilesOfTable) -> AlteredTable:
        """The change of ``table``. Raises InvalidArgumentError if it cannot be made."""
        ...


# --- columns ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column to add.

    Attributes:
        name: a top-level column, or the path of a field such as ``address.zip``, ``items.element.price``, ``pairs.value.x``.
        type: as SQL text such as ``bigint`` or ``struct<a: int>``, or a type of this package.
        first: place it before its neighbours.
        after: place it after this neighbour; last by default.
    """

    name: ColumnName
    type: DataType | str
    comment: str | None = None
    nullable: bool = True
    first: bool = False
    after: str | None = None


@dataclass(frozen=True, slots=True)
class AddColumns:
    """``ADD COLUMNS``."""

    columns: Sequence[NewColumn]
    operation: typing.ClassVar[str] = "ADD COLUMNS"

    def parameters(self, table: TableDefinition) -> dict[str, str]:
        listed = []
        for column in self.columns:
            described: dict[str, Any] = {"column": _described(column_path(column.name), _field_of(column))}
            position = position_of(first=column.first, after=column.after)
            if position is not None:
                described["position"] = str(position)
            listed.append(described)
        return {"columns": _json(listed)}

    def apply(self, table: TableDefinition, files: FilesOfTable) -> AlteredTable:
        if not self.columns:
            raise InvalidArgumentError("No column to add is given. Name at least one.")
        added = (
            (column_path(column.name), _field_of(column), position_of(first=column.first, after=column.after))
            for column in self.columns
        )
        return AlteredTable(
            definition=_with_declared_columns(table_changes.add_columns(_with_declared_fields(table), added), table)
        )


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """``RENAME COLUMN``."""

    column: ColumnName
    to: str
    operation: typing.ClassVar[str] = "RENAME COLUMN"

    def parameters(self, table: TableDefinition) -> dict[str, str]:
        path = column_path(self.column)
        return {"oldColumnPath": path_text(path), "newColumnPath": path_text((*path[:-1], self.to))}

    def apply(self, table: TableDefinition, files: FilesOfTable) -> AlteredTable:
        definition = table_changes.rename_column(_with_declared_fields(table), column_path(self.column), self.to)
        return AlteredTable(definition=_with_declared_columns(definition, table))


@dataclass(frozen=True, slots=True)
class DropColumns:
    """``DROP COLUMNS``."""

    columns: Sequence[ColumnName]
    operation: typing.ClassVar[str] = "DROP COLUMNS"

    def parameters(self, table: TableDefinition) -> dict[str, str]:
        return {"columns": _json([path_text(column_path(column)) for column in self.columns])}

    def apply(self, table: TableDefinition, files: FilesOfTable) -> AlteredTable:
        if not self.columns:
            raise InvalidArgumentError("No column to drop is given. Name at least one.")
        definition = _with_declared_fields(table)
        for column in self.columns:
            definition = table_changes.drop_column(definition, column_path(column))
        return AlteredTable(definition=_with_declared_columns(definition, table))


@dataclass(frozen=True, slots=True)
class ColumnDefault:
    """The default that a column gets, as SQL text; None drops it. Spark must have checked the text."""

    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeColumn:
    """``CHANGE COLUMN``: the type, the place, the comment, the nullability or the default of one column; None leaves it as it is.

    Attributes:
        comment: the new comment; an empty text is a comment.
    """

    column: ColumnName
    type: DataType | str | None = None
    position: Position | None = None
    comment: str | None = None
    nullable: bool | None = None
    default: ColumnDefault | None = None
    operation: typing.ClassVar[str] = "CHANGE COLUMN"

    def parameters(self, table: TableDefinition) -> dict[str, str]:
        described = {"column": _json(self.described(table))}
        return described if self.position is None else {**described, "position": str(self.position)}

    def described(self, table: TableDefinition) -> dict[str, Any]:
        """The column of the table after the change, for ``commitInfo``."""
        column = find_column(table.schema, column_path(self.column))
        return _described(column.path, replace(column.field, type=column.type))

    def apply(self, table: TableDefinition, files: FilesOfTable) -> AlteredTable:
        path, definition = column_path(self.column), _with_declared_fields(table)
        if self.type is not None:
            definition = table_changes.change_type(definition, path, table_changes.column_type(self.type))
        if self.position is not None:
            definition = definition.with_schema(alterations.move_column(definition.schema, path, self.position))
        if self.comment is not None:
            definition = definition.with_schema(alterations.comment_column(definition.schema, path, self.comment))
        if self.nullable is True:
            definition = definition.with_schema(alterations.set_nullable(definition.schema, path, True))
        if self.nullable is False:
            definition = table_changes.set_not_null(definition, path, has_rows=files.files > 0)
        if self.default is not None:
            definition = definition.with_schema(with_default(definition.schema, self.column, self.default.text))
        return AlteredTable(
            definition=_with_declared_columns(definition, table), depends_on_rows=self.nullable is False
        )


@dataclass(frozen=True, slots=True)
class ChangeColumns:
    """``CHANGE COLUMNS``: changes of several columns, of which each is named once."""

    columns: Sequence[ChangeColumn]
    operation: typing.ClassVar[str] = "CHANGE COLUMNS"

    def parameters(self, table: TableDefinition) -> dict[str, str]:
        listed = []
        for change in self.columns:
            position = {} if change.position is None else {"position": str(change.position)}
            listed.append({**change.described(table), **position})
        return {"columns": _json(listed)}

    def apply(self, table: TableDefinition, files: FilesOfTable) -> AlteredTable:
        paths = [tuple(part.lower() for part in column_path(change.column)) for change in self.columns]
        for number, path in enumerate(paths):
            if any(other[: len(path)] == path for at, other in enumerate(paths) if at != number):
                raise InvalidArgumentError(
                    f"Column {path_text(path)!r}, with its fields, is changed more than once in one statement. Nothing was "
                    "changed. Name each column once, or write one statement for each change."
                )
        definition, depends_on_rows = table, False
        for column in self.columns:
            change = column.apply(definition, files)
            definition, depends_on_rows = change.definition, depends_on_rows or change.depends_on_rows
        return AlteredTable(definition=definition, depends_on_rows=depends_on_rows)


# --- properties and features ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProperties:
    """``SET TBLPROPERTIES``; keys ``delta.feature.<name>`` add features, and ``comment`` is the description of the table.

    Attributes:
        force: accept keys with the prefix ``delta.`` that this client does not know.
    """

    properties: Mapping[str, str]
    force: bool = False
    operation: typing.ClassVar[str] = "SET TBLPROPERTIES"

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", canonical_properties(self.properties))

    def parameters(self, table: TableDefinition) -> dict[str, str]:
        return {"properties": _json(dict(self.properties))}

    def apply(self, table: TableDefinition, files: FilesOfTable) -> AlteredTable:
        check_user_properties(self.properties, force=self.force)
        _refuse_constraints(self.properties)
        stored = dict(stored_properties(self.properties))
        definition = _with_comment(table, stored.pop(COMMENT)) if COMMENT in stored else table
        definition = definition.with_properties(**stored)
        # A file that another writer adds before the feature has no row ids.
        tracked = self.enables_row_tracking and not row_tracking.is_supported(table.protocol)
        return AlteredTable(
            definition=definition, features=requested_features(self.properties), depends_on_rows=tracked
        )

    @property
    def enables_row_tracking(self) -> bool:
        """Whether the properties enable row tracking."""
        return str(self.properties.get(row_tracking.ENABLED, "")).lower() == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsetProperties:
    """``UNSET TBLPROPERTIES``. Properties that the table does not have are ignored, as by delta-spark.

    The property ``delta.constraints.<name>`` is a CHECK constraint, which is dropped.
    """

    names: Sequence[str]
    operation: typing.ClassVar[str] = "UNSET TBLPROPERTIES"

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(map(canonical_key, self.names)))

    def parameters(self, table: TableDefinition) -> dict[str, str]:
        return {"properties": _json(list(self.names)), "ifExists": "true"}

    def apply(self, table: TableDefinition, files: FilesOfTable) -> AlteredTable:
        check_removable_properties(self.names)
        definition = _with_comment(table, None) if COMMENT in self.names else table
        return AlteredTable(definition=definition.with_properties(**dict.fromkeys(self.names)))


@dataclass(frozen=True, slots=True)
class SetComment:
    """``COMMENT ON TABLE``; None removes the comment."""

    comment: str | None
    operation: typing.ClassVar[str] = "SET TBLPROPERTIES"

    def parameters(self, table: TableDefinition) -> dict[str, str]:
        return {"properties": _json({"comment": self.comment})}

    def apply(self, table: TableDefinition, files: FilesOfTable) -> AlteredTable:
        return AlteredTable(definition=_with_comment(table, self.comment))


@dataclass(frozen=True, slots=True)
class EnableFeature:
    """Adds a feature and those that it needs to the protocol."""

    feature: str
    operation: typing.ClassVar[str] = "UPGRADE PROTOCOL"

    def parameters(self, table: TableDefinition) -> dict[str, str]:
        protocol = table.protocol
        described = {
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
            "readerFeatures": protocol.reader_features,
            "writerFeatures": protocol.writer_features,
        }
        return {"newProtocol": _json({key: value for key, value in described.items() if value is not None})}

    def apply(self, table: TableDefinition, files: FilesOfTable) -> AlteredTable:
        return AlteredTable(
            definition=table, features=requested_features({f"{FEATURE_PREFIX}{self.feature}": "supported"})
        )


@dataclass(frozen=True, slots=True)
class DropFeature:
    """``DROP FEATURE``."""

    feature: str
    operation: typing.ClassVar[str] = "DROP FEATURE"

    def parameters(self, table: TableDefinition) -> dict[str, str]:
        return {"featureName": self.feature, "truncateHistory": "false"}

    def apply(self, table: TableDefinition, files: FilesOfTable) -> AlteredTable:
        definition = without_feature(table, self.feature, files)
        return AlteredTable(definition=definition, dropped=frozenset((self.feature,)), depends_on_rows=True)


def position_of(*, first: bool = False, after: str | None = None) -> Position | None:
    """The place that a caller names; None for the default. Raises InvalidArgumentError if both are given."""
    if first and after is not None:
        raise InvalidArgumentError(f"A column is either first or after {after!r}; give one of them.")
    return Position(after=after) if first or after is not None else None


def _with_comment(table: TableDefinition, comment: str | None) -> TableDefinition:
    return replace(table, metadata=replace(table.metadata, description=comment))


def _with_declared_fields(table: TableDefinition) -> TableDefinition:
    """The table with ``char(n)`` and ``varchar(n)`` in the metadata of the fields themselves, as changes of columns need it."""
    return table.with_schema(char_types.with_declared_fields(table.schema))


def _with_declared_columns(changed: TableDefinition, before: TableDefinition) -> TableDefinition:
    """The table with ``char(n)`` and ``varchar(n)`` in the metadata of the columns, as it is stored."""
    return changed.with_schema(char_types.with_declared_columns(changed.schema, before.schema))


def _field_of(column: NewColumn) -> StructField:
    """The column as a field of its struct."""
    declared = table_changes.column_type(column.type)
    comment = {} if column.comment is None else {COMMENT: column.comment}
    return StructField(column_path(column.name)[-1], declared.type, column.nullable, {**declared.metadata, **comment})


def _refuse_constraints(properties: Mapping[str, str]) -> None:
    for key in properties:
        if key.startswith(CONSTRAINT_PREFIX):
            raise InvalidArgumentError(
                f"The property {key!r} is a constraint and is not added as a property, because the rows that exist must be "
                "checked. Nothing was changed."
            ).with_remedy(AddConstraint())


def _described(path: Sequence[str], item: StructField) -> dict[str, Any]:
    return {
        "name": path_text(path),
        "type": data_type_text(item.type),
        "nullable": item.nullable,
        "metadata": dict(item.metadata),
    }


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
