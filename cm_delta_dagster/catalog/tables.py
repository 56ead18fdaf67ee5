"""Values of :class:`~cm_delta_dagster.catalog.table_registry.TableRegistry`: names, entries, definitions, inactive tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.ratification import RatifiedCommits
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.schema.types import StructType, parse_schema


@dataclass(frozen=True, slots=True, order=True)
class TableIdentifier:
    """A three-level name. ``str()`` returns ``catalog.schema.table``."""

    catalog: str
    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.table}"

    @classmethod
    def parse(cls, text: str) -> "TableIdentifier":
        """The name ``catalog.schema.table``. Raises InvalidArgumentError unless it has three non-empty parts."""
        parts = text.split(".")
        if len(parts) != 3 or not all(part.strip() == part and part for part in parts):
            raise InvalidArgumentError(
                f"{text!r} is not a table name: write it as catalog.schema.table, three non-empty parts without dots."
            )
        return cls(*parts)

    @classmethod
    def of(cls, name: "TableIdentifier | str") -> "TableIdentifier":
        """The identifier of a name in either form. Raises InvalidArgumentError for any other type, e.g. an open table."""
        if isinstance(name, cls):
            return name
        if isinstance(name, str):
            return cls.parse(name)
        raise InvalidArgumentError(
            f"{name!r} is not a table name but a {type(name).__name__}: give the text catalog.schema.table, or a TableIdentifier."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogIdentity:
    """Which catalog this is, and where it places new tables.

    Attributes:
        catalog_id: never changes in the life of a catalog; a copy of its database has the same.
        warehouse: absolute location without trailing slash; None for a client that creates no tables.
        checks_warehouse: whether the catalog itself verifies the marker of the warehouse before it reserves a table there, as a
            server does, whose clients may have no access to the warehouse but to their tables.
    """

    catalog_id: str
    warehouse: str | None
    checks_warehouse: bool = False


LEVELS_BELOW_WAREHOUSE = 3
"""Directories between the warehouse and the files of a table: catalog, schema, table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingTable:
    """A reserved id and location; the name does not resolve yet.

    Attributes:
        location: no trailing slash.
        is_external: the creator chose the location.
    """

    table_id: str
    location: str
    is_external: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDefinition:
    """Metadata and protocol of a table at its latest version, equal to those of log replay.

    Attributes:
        version: the commit that set them, or the version at which they were reported to the catalog.
        in_commit_timestamp: of ``version``, epoch milliseconds.
    """

    metadata: Metadata
    protocol: Protocol
    version: int
    in_commit_timestamp: int

    @property
    def columns(self) -> StructType:
        return parse_schema(self.metadata.schema_string)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.metadata.partition_columns

    @property
    def properties(self) -> Mapping[str, str]:
        """Table properties as in the log."""
        return self.metadata.configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """A registered table with its ratified commits and its definition, from one catalog call.

    Attributes:
        etag: changes if and only if name, metadata or protocol change.
        definition: at ``ratified.latest_version``; None if metadata or protocol were never reported to the catalog.
    """

    identifier: TableIdentifier
    table_id: str
    location: str
    ratified: RatifiedCommits
    created_ms: int
    etag: str = ""
    definition: RecordedDefinition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePage:
    """A part of the tables of a scope, in the order of their names.

    Attributes:
        entries: the tables that the caller may read.
        last: the name after which the next part begins, whether the caller may read that table or not; None at the end.
    """

    entries: tuple[TableEntry, ...]
    last: TableIdentifier | None


class InactiveState(StrEnum):
    """State of a table without a name.

    STAGING: reserved and not registered. DROPPED: dropped, and restorable. PURGING: its files are being deleted, or a run that
    was interrupted deleted some of them; it cannot be restored.
    """

    STAGING = "staging"
    DROPPED = "dropped"
    PURGING = "purging"


@dataclass(frozen=True, slots=True, kw_only=True)
class InactiveTable:
    """A table without a name.

    Attributes:
        identifier: the name that it had, or that was reserved for it.
        since_ms: when it was dropped, or reserved if it was never ``registered``; epoch milliseconds.
        latest_version: the newest ratified version, -1 for a table that was never registered.
        is_external: the table was adopted or created at a given location. A purge leaves it out.
    """

    identifier: TableIdentifier
    table_id: str
    location: str
    state: InactiveState
    since_ms: int
    registered: bool
    latest_version: int = -1
    is_external: bool = False

    @property
    def purge_kind(self) -> "MaintenanceKind":
        """The kind of maintenance that must be permitted before the files are deleted."""
        return MaintenanceKind.TABLE_PURGE if self.registered else MaintenanceKind.CREATION_PURGE


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedTable:
    """A shallow clone of a table, or a table whose files a shallow clone reads.

    Attributes:
        state: None for a table that has its name.
        ratified: head and served commits of a clone; None for a clone that is being created, and for a source.
    """

    identifier: TableIdentifier
    table_id: str
    location: str
    state: InactiveState | None
    ratified: RatifiedCommits | None = None
