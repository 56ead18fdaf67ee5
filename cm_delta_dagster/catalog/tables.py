"""Tables as a catalog knows them: names, entries, definitions, and those that have no name (any more).

Values alone.
"""

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
    """A three-level name. ``str()`` gives ``catalog.schema.table``."""

    catalog: str
    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.table}"

    @classmethod
    def parse(cls, text: str) -> "TableIdentifier":
        """``catalog.schema.table``. Raises InvalidArgumentError for another number of parts or an empty one."""
        parts = text.split(".")
        if len(parts) != 3 or not all(part.strip() == part and part for part in parts):
            raise InvalidArgumentError(
                f"{text!r} is not a table name: write it as catalog.schema.table, three non-empty parts without dots."
            )
        return cls(*parts)

    @classmethod
    def of(cls, name: "TableIdentifier | str") -> "TableIdentifier":
        """A name in either form. Raises InvalidArgumentError for anything else, such as an open table."""
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
    """

    catalog_id: str
    warehouse: str | None


LEVELS_BELOW_WAREHOUSE = 3
"""Directories between the warehouse and the files of a table: catalog, schema, table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingTable:
    """Phase 1 of a creation: a reserved id and location, no name yet. ``location`` has no trailing slash."""

    table_id: str
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """Metadata and protocol of a table at its latest version, as its commits said them: those of log replay (CM-C13).

    Attributes:
        version: they hold from this version on; the commit that set them, where the catalog has seen it.
        in_commit_timestamp: of that version, epoch milliseconds.
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
        """Table properties as the log has them."""
        return self.metadata.configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """A registered table and, from the same catalog call, its ratified commits (CM-R1) and its definition.

    Attributes:
        etag: another text whenever name, metadata or protocol change, and only then.
        definition: of ``ratified.latest_version``; None where the catalog was never told all of it.
    """

    identifier: TableIdentifier
    table_id: str
    location: str
    ratified: RatifiedCommits
    created_ms: int
    etag: str = ""
    definition: TableDefinition | None = None


class InactiveState(StrEnum):
    """Why a table that the catalog knows has no name.

    STAGING: reserved and not registered. DROPPED: its name was taken away. PURGING: its files are being deleted, or
    were partly deleted by a run that died; nothing brings it back.
    """

    STAGING = "staging"
    DROPPED = "dropped"
    PURGING = "purging"


@dataclass(frozen=True, slots=True, kw_only=True)
class InactiveTable:
    """A table that no name resolves to. ``identifier`` is the name that it had or was to have.

    ``since_ms`` is when it was dropped, or reserved if it never was ``registered``; epoch milliseconds.
    ``latest_version`` is the newest that the catalog ratified, -1 for a table that never was registered.
    """

    identifier: TableIdentifier
    table_id: str
    location: str
    state: InactiveState
    since_ms: int
    registered: bool
    latest_version: int = -1

    @property
    def purge_kind(self) -> "MaintenanceKind":
        """What the policy must allow before the files may be deleted: nobody has ever seen those of a creation."""
        return MaintenanceKind.TABLE_PURGE if self.registered else MaintenanceKind.CREATION_PURGE
