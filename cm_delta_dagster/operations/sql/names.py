"""Names of SQL texts as tables of the catalog, and the errors for names that no table has."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple

from cm_delta_dagster.catalog.similar_names import MAX_SHOWN, did_you_mean, similar_names
from cm_delta_dagster.catalog.tables import InactiveState, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.errors import InvalidArgumentError, TableNotFoundError
from cm_delta_dagster.operations.reading.consistent_snapshots import (
    LatestVersion,
    ReadableVersion,
    RegisteredVersion,
    load_together,
)
from cm_delta_dagster.protocol.predicates.timestamps import as_zone

Name = tuple[str, ...]
"""The parts of a name as written."""


def resolve(client: DeltaClient, names: Iterable[Name]) -> Mapping[Name, LatestVersion]:
    """The tables of the catalog among ``names``, at versions of one moment.

    Only names of three parts are those of tables. The spelling decides; if no table has it, a table whose name differs only in
    upper and lower case is found.

    Raises:
        InvalidArgumentError: several tables differ from a name only in case.
    """
    identifiers = {name: TableIdentifier(*name) for name in names if len(name) == 3 and all(name)}
    latest_by_identifier = resolve_identifiers(client, identifiers.values())
    return {
        name: latest_by_identifier[identifier]
        for name, identifier in identifiers.items()
        if identifier in latest_by_identifier
    }


def resolve_identifiers(
    client: DeltaClient, identifiers: Iterable[TableIdentifier]
) -> Mapping[TableIdentifier, LatestVersion]:
    """As :func:`resolve`, for names of three parts."""
    spellings = {identifier: identifier for identifier in identifiers}
    if not spellings:
        return {}
    latest_by_identifier = load_together(client, spellings)
    others = [identifier for identifier in spellings if identifier not in latest_by_identifier]
    if others and (respelled := _ignoring_case(client, others)):
        spellings |= respelled
        latest_by_identifier = load_together(client, dict.fromkeys(spellings.values()))
    return {
        written: latest_by_identifier[identifier]
        for written, identifier in spellings.items()
        if identifier in latest_by_identifier
    }


def resolve_readable(client: DeltaClient, names: Iterable[Name]) -> Mapping[Name, ReadableVersion]:
    """As :func:`resolve`, and the tables that are registered for reading by path; a table of the catalog comes first.

    Raises:
        InvalidArgumentError: several names differ from a name only in case.
        TableNotFoundError: the table at a registered location is gone.
    """
    all_names = tuple(names)
    latest_by_name: dict[Name, ReadableVersion] = {**resolve(client, all_names)}
    for name, (identifier, location) in registered(
        client, (name for name in all_names if name not in latest_by_name)
    ).items():
        table = open_path_table(client.stores, location, time_zone=as_zone(client.settings.time_zone))
        latest_by_name[name] = RegisteredVersion(identifier=identifier, table=table, version=table.latest_version())
    return latest_by_name


def resolve_for_query(
    client: DeltaClient, names: Iterable[Name], *, target: Name | None = None
) -> Mapping[Name, ReadableVersion]:
    """As :func:`resolve_readable`, at the versions that the run of the client has pinned, if it pins versions.

    Args:
        target: the table that the statement writes, which is read at its latest version: the write builds on that.
    """
    tables = resolve_readable(client, names)
    latest = tables.get(target) if target is not None else None
    written = None if latest is None else latest.table.location
    return {
        name: table.as_pinned() if isinstance(table, LatestVersion) and table.table.location != written else table
        for name, table in tables.items()
    }


def readable_table(client: DeltaClient, name: str) -> ReadableTable:
    """The table ``catalog.schema.table``, of the catalog or registered for reading by path.

    Raises:
        TableNotFoundError: neither has the name; the message has similar names.
        InvalidArgumentError: the name does not have three parts, or several names differ from it only in case.
    """
    parts = astuple(TableIdentifier.parse(name))
    latest = resolve_readable(client, (parts,)).get(parts)
    if latest is None:
        raise unknown_name(client, parts, engine=None)
    return latest.table


def readable_versions(
    client: DeltaClient, identifiers: Iterable[TableIdentifier]
) -> Mapping[TableIdentifier, ReadableVersion]:
    """As :func:`resolve_for_query`, for names of three parts."""
    latest_by_name = resolve_for_query(client, map(astuple, identifiers))
    return {TableIdentifier(*name): latest for name, latest in latest_by_name.items()}


def registered(client: DeltaClient, names: Iterable[Name]) -> Mapping[Name, tuple[TableIdentifier, str]]:
    """Of each of ``names`` that is registered for reading by path: the name as it was registered, and the location.

    Raises:
        InvalidArgumentError: several names differ from a name only in case.
    """
    identifiers = {name: TableIdentifier(*name) for name in names if len(name) == 3 and all(name)}
    if not identifiers:
        return {}
    known = client.registry.registered_paths()
    others = _respelled((identifier for identifier in identifiers.values() if identifier not in known), known)
    respelled = {name: others.get(identifier, identifier) for name, identifier in identifiers.items()}
    return {name: (identifier, known[identifier]) for name, identifier in respelled.items() if identifier in known}


def _ignoring_case(client: DeltaClient, names: Iterable[TableIdentifier]) -> dict[TableIdentifier, TableIdentifier]:
    return _respelled(names, client.registry.list_tables())


def _respelled(
    names: Iterable[TableIdentifier], known: Iterable[TableIdentifier]
) -> dict[TableIdentifier, TableIdentifier]:
    existing: dict[str, list[TableIdentifier]] = {}
    for identifier in known:
        existing.setdefault(str(identifier).lower(), []).append(identifier)
    respelled = {}
    for name in names:
        same = existing.get(str(name).lower(), [])
        if len(same) > 1:
            raise InvalidArgumentError(
                f"The name {name} is ambiguous: {', '.join(map(str, same))} differ only in upper and lower case. Write the name of "
                "the table exactly."
            )
        if same:
            respelled[name] = same[0]
    return respelled


def resolve_one(client: DeltaClient, name: Name) -> ReadableVersion:
    """The table of one name, which may be registered. Raises TableNotFoundError with similar names."""
    latest_by_name = resolve_readable(client, (name,))
    if name not in latest_by_name:
        raise unknown_name(client, name)
    return latest_by_name[name]


def unknown_name(
    client: DeltaClient, name: Name, *, views: Sequence[str] = (), engine: str | None = "the Spark session"
) -> TableNotFoundError:
    """The error for a name that neither the catalog nor the engine has.

    Args:
        views: other names that could be meant.
        engine: what runs the statement, as the message calls it; None if only tables of the catalog can be meant.
    """
    identifiers = [*client.registry.list_tables(), *client.registry.registered_paths()]
    text = ".".join(name)
    ends = [str(identifier) for identifier in identifiers if str(identifier).lower().endswith(f".{text.lower()}")]
    known = [str(identifier) for identifier in identifiers] + list(views)
    near = similar_names(text, known)
    same_table = [str(identifier) for identifier in identifiers if identifier.table.lower() == name[-1].lower()]
    proposed = list(dict.fromkeys((*ends, *near, *same_table)))[:MAX_SHOWN]
    hint = did_you_mean(proposed)
    rule = "" if len(name) == 3 else " Tables of the catalog are named catalog.schema.table."
    other = "" if engine is None else f", and {engine} has no table or view of that name"
    return TableNotFoundError(f"The catalog has no table {text}{other}.{rule}{_dropped_hint(client, text)}{hint}")


def _dropped_hint(client: DeltaClient, text: str) -> str:
    """How a dropped table of that name is restored; "" if there is none."""
    for table in client.registry.inactive_tables():
        name = str(table.identifier)
        if table.state is InactiveState.DROPPED and name.lower() == text.lower():
            return f" A table of that name was dropped; UNDROP TABLE {name} restores it."
    return ""
