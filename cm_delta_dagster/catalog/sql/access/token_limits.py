"""The limits of a token: one check before each operation of a catalog that serves a read-only token, or one limited to a scope.

What an operation concerns follows from its arguments, by the names that the interfaces of ``catalog`` give them. An operation that
is not known to read is a change, and one whose arguments name no place concerns the whole catalog: a new operation is refused
until it is listed here.
"""

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import WHOLE_CATALOG
from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.database.caller_database import CallerDatabase
from cm_delta_dagster.catalog.sql.database.schema import HELD_COMMITS
from cm_delta_dagster.catalog.sql.rows.locations import table_of_files
from cm_delta_dagster.catalog.tables import TablePage
from cm_delta_dagster.catalog.tokens import AccessToken
from cm_delta_dagster.errors import CommitRefusedError, OperationRefusedError
from cm_delta_dagster.refusals import Refusal

RULE = "token"
"""Name of the rule in refusals."""

FOR_EVERYBODY = frozenset(
    {
        "registry.identity",
        "registry.list_tables",
        "registry.registered_paths",
        "registry.inactive_tables",
        "coordinator.now_ms",
        "namespaces.list_catalogs",
        "namespaces.list_schemas",
        "commit_policies.commit_policies",
        "commit_rules.commit_rules",
        "holds.holds",
        "maintenance_policies.maintenance_rules",
        "leases.leases",
        "feed.feed",
        "feed.feed_page",
        "feed.latest_feed_position",
        "feed.newest_deleted_commits",
        "events.events",
        "events.wait_for_events",
        "access.whoami",
        "access.grants",
        "access.roles",
    }
)
"""Lists of names, rules and commits, which the catalog shows to callers without privileges too."""

FILTERED = frozenset({"registry.readable_tables"})
"""Lists whose answer a token limits: what it does not permit to read is left out."""

READS = (
    FOR_EVERYBODY
    | FILTERED
    | frozenset(
        {
            "registry.load_table",
            "registry.load_tables",
            "registry.load_table_by_id",
            "registry.registered_path",
            "registry.clones_of",
            "registry.sources_of",
            "storage_credentials.read_credentials",
            "coordinator.get_ratified_commits",
            "coordinator.commit_records",
            "coordinator.commit_digests",
            "recovery.overlapping_tables",
            "recovery.tables_with_files_elsewhere",
            "holds.find_hold",
            "holds.held_proposals",
            "holds.protected_commits",
            "maintenance_policies.maintenance_decision",
            "leases.check_lease",
            "pins.pin_version",  # What a run reads; a pin changes no table.
            "pins.pinned_version",
            "access.table_owner",
            "tokens.tokens",
            "application_ids.application_ids",
            "audit_log.audit",
            "overview.table_overviews",
            "overview.newest_commits",
            "overview.table_commits",
        }
    )
)
"""What a read-only token may do."""

_COMMITS = frozenset({"coordinator.commit", "coordinator.commit_together", "coordinator.hold"})


def is_limited(token: AccessToken) -> bool:
    """Whether the token permits less than its principal may do."""
    return token.read_only or token.scope != WHOLE_CATALOG or token.table_id is not None


@cache
def interfaces() -> Mapping[str, type]:
    """The interface of each part of a catalog."""
    parts = {name: member for name, member in vars(Catalog).items() if isinstance(member, property)}
    return {name: typing.get_type_hints(member.fget)["return"] for name, member in parts.items()}


@cache
def _signature(part: str, operation: str) -> inspect.Signature:
    return inspect.signature(getattr(interfaces()[part], operation))


class LimitedPart:
    """A part of a catalog for the calls of a token: the operations of its interface, each after a check.

    Args:
        name: of the attribute of the catalog.
        part: the part for the calls of the token's principal.
    """

    def __init__(self, name: str, part: object, token: AccessToken, database: CallerDatabase) -> None:
        self._name, self._part, self._token, self._database = name, part, token, database

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._part, operation)
        signature = _signature(self._name, operation)  # Raises AttributeError for what is not of the interface.
        if f"{self._name}.{operation}" in FOR_EVERYBODY:
            return method
        if f"{self._name}.{operation}" in FILTERED:
            return lambda *arguments, **named: _permitted(method(*arguments, **named), self._token)

        def limited(*arguments: Any, **named: Any) -> Any:
            bound = signature.bind(None, *arguments, **named)
            if "identifiers" in bound.arguments and bound.arguments["identifiers"] is not None:
                bound.arguments["identifiers"] = tuple(bound.arguments["identifiers"])  # An iterator can be read once.
            self.check(operation, bound.arguments)
            return method(*bound.args[1:], **bound.kwargs)

        return limited

    def check(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """Refuse a call that the token does not permit. Raises as the function :func:`check`."""
        name = f"{self._name}.{operation}"
        if name not in FOR_EVERYBODY | FILTERED:
            self._database.read(lambda connection: check(connection, self._token, name, arguments))


def check(connection: sa.Connection, token: AccessToken, operation: str, arguments: Mapping[str, Any]) -> None:
    """Refuse what the token does not permit.

    Args:
        operation: the part and its method, e.g. ``registry.load_table``.
        arguments: by the names of the interface.

    Raises:
        CommitRefusedError: for a proposal.
        OperationRefusedError: for another operation.
    """
    places = [*_places(connection, operation, arguments)]
    if token.read_only and operation not in READS:
        place = next(iter(places), WHOLE_CATALOG)
        raise _refused(connection, operation, place, f"the token {token.token_id} is read-only")
    for place in places:
        if not _is_within(connection, place, token):
            reason = f"the token {token.token_id} is limited to {token.scope}"
            raise _refused(connection, operation, place, reason)


def _refused(
    connection: sa.Connection, operation: str, place: str, reason: str
) -> CommitRefusedError | OperationRefusedError:
    shown = str(guard.identifier_of_table(connection, place.removeprefix("id:"))) if place.startswith("id:") else place
    refusal = Refusal(
        what=f"The operation {operation.partition('.')[2].replace('_', ' ')} on {shown}",
        reason=reason,
        rule=RULE,
        scope=shown,
        ask=guard.owners(connection, WHOLE_CATALOG, None),
    )
    error = CommitRefusedError if operation in _COMMITS else OperationRefusedError
    return error(str(refusal), refusal=refusal)


def _is_within(connection: sa.Connection, place: str, token: AccessToken) -> bool:
    """Whether the place, a scope or ``id:`` with the id of a table, is in the scope of the token."""
    if token.table_id is not None:
        table_id = place.removeprefix("id:") if place.startswith("id:") else guard.table_id_of(connection, place)
        return table_id == token.table_id
    if token.scope != WHOLE_CATALOG and place.startswith("id:"):
        identifier = guard.identifier_of_table(connection, place.removeprefix("id:"))
        if identifier is None:
            return True  # The operation refuses an unknown table.
        place = str(identifier)
    return _contains(token.scope, place)


def _permitted(page: TablePage, token: AccessToken) -> TablePage:
    """The tables of the page that are in the scope of the token."""
    if token.table_id is not None:
        entries = tuple(entry for entry in page.entries if entry.table_id == token.table_id)
    else:
        entries = tuple(entry for entry in page.entries if _contains(token.scope, str(entry.identifier)))
    return replace(page, entries=entries)


def _contains(scope: str, place: str) -> bool:
    return scope == WHOLE_CATALOG or f"{place}.".startswith(f"{scope}.")


def _places(connection: sa.Connection, operation: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Every place that the arguments name; the whole catalog if they name none."""
    is_empty = "identifiers" not in arguments
    for name, value in arguments.items():
        for place in _places_in(connection, operation, name, value):
            is_empty = False
            yield place
    if is_empty:
        yield WHOLE_CATALOG


def _places_in(connection: sa.Connection, operation: str, name: str, value: Any) -> Iterator[str]:
    match name:
        case "table_id" | "clone_of":
            yield from () if value is None else (f"id:{value}",)
        case "proposals":
            yield from (f"id:{table_id}" for table_id in value)
        case "identifier":
            yield str(value)
        case "identifiers":
            yield from map(str, value)
        case "table":
            yield str(value.identifier)
        case "rule":
            yield value.scope
        case "scope":
            yield value or WHOLE_CATALOG
        case "name" if operation.startswith("namespaces."):
            yield value
        case "location" if operation.startswith("storage_credentials."):
            table = table_of_files(connection, value)
            yield from () if table is None else (f"id:{table.table_id}",)
        case "hold_id":
            of_hold = sa.select(HELD_COMMITS.c.table_id).where(HELD_COMMITS.c.hold_id == value)
            yield from (f"id:{table_id}" for table_id in connection.execute(of_hold).scalars())
