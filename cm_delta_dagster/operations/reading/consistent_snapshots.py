"""Several tables at versions that were the latest ones at one moment, so that a query over them reads one state of the catalog.

The catalog returns all entries in one query, so that the commits of a transaction over several tables are in all of the states or
in none. A table whose commits are made by creating their file can have a commit that the
catalog has not recorded; with such a table, the versions are read until two readings in a row are equal.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from cm_delta_dagster.catalog.ratification import RatifiedCommits
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.path_table import PathTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import TableNotFoundError, VersionNotFoundError

_MAX_READINGS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestVersion:
    """A table and the version of it that a query reads: the latest one, or the one that the run has pinned.

    Attributes:
        pinned: the pinned version; None to read the latest one.
    """

    table: Table
    ratified: RatifiedCommits
    pinned: int | None = None

    @property
    def identifier(self) -> TableIdentifier:
        return self.table.identifier

    @property
    def version(self) -> int:
        return self.ratified.latest_version if self.pinned is None else self.pinned

    def snapshot(self) -> Snapshot:
        """The table at :attr:`version`. Raises CorruptLogError, UnsupportedFeatureError."""
        if self.version != self.ratified.latest_version:
            return self.table.snapshot(version=self.version)
        return self.table.snapshot_of(self.ratified)

    def as_pinned(self) -> "LatestVersion":
        """The version that the run of the client reads, which is pinned now unless the run has pinned one."""
        pins = self.table.services.read_pins
        if pins is None:
            return self
        return replace(self, pinned=pins.version_to_read(self.table.table_id, lambda: self.version))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredVersion:
    """The latest version of a table that is registered for reading by path. It is read when a query needs it."""

    identifier: TableIdentifier
    table: PathTable
    version: int

    def snapshot(self) -> Snapshot:
        """The table at :attr:`version`. Raises CatalogManagedAccessError, CorruptLogError, UnsupportedFeatureError."""
        return self.table.snapshot(version=self.version)


ReadableVersion: TypeAlias = LatestVersion | RegisteredVersion
"""A table that a query can read."""


def load_together(
    client: DeltaClient, identifiers: Iterable[TableIdentifier]
) -> Mapping[TableIdentifier, LatestVersion]:
    """The tables of these names, at versions that were the latest ones at one moment of the call.

    A name that no table has is left out.

    Raises:
        VersionNotFoundError: commits of a table in put-if-absent mode came too fast to find such a moment.
    """
    names = tuple(identifiers)
    states = _read(client, names)
    if len(states) < 2 or all(state.ratified.commit_policy.through_catalog for state in states.values()):
        return states
    for _ in range(_MAX_READINGS):
        before, states = states, _read(client, names)
        # Versions only grow: equal versions were the latest ones from the end of one reading to the start of the next.
        if _versions(before) == _versions(states):
            return states
    raise VersionNotFoundError(
        f"No common state of {', '.join(sorted(str(name) for name in states))} was found: commits were made during each of "
        f"{_MAX_READINGS} readings. Query explicit versions, or try again while fewer commits are made."
    )


def load_snapshots(client: DeltaClient, identifiers: Iterable[TableIdentifier]) -> Mapping[str, Snapshot]:
    """Snapshots of the tables by name, in the order of ``identifiers``, of versions that were the latest ones at one moment.

    Raises:
        TableNotFoundError: a name that no table has.
        VersionNotFoundError: as :func:`load_together`.
    """
    names = tuple(identifiers)
    latest_by_name = load_together(client, names)
    for name in names:
        if name not in latest_by_name:
            raise TableNotFoundError(
                f"The catalog has no table {name}: check the name, or create the table. Names are case-sensitive."
            )
    return {str(name): latest_by_name[name].snapshot() for name in names}


def _read(client: DeltaClient, names: tuple[TableIdentifier, ...]) -> dict[TableIdentifier, LatestVersion]:
    latest_by_name = {}
    for entry in client.registry.load_tables(names):
        table = client.open(entry)
        answer = entry.ratified if entry.ratified.commit_policy.through_catalog else table.catalog_answer()
        latest_by_name[entry.identifier] = LatestVersion(table=table, ratified=answer)
    return latest_by_name


def _versions(states: Mapping[TableIdentifier, LatestVersion]) -> dict[tuple[TableIdentifier, str], int]:
    return {(name, state.table.table_id): state.version for name, state in states.items()}
