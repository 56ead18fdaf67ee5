"""Whether a scope names something, and the error with what could be meant; the same in Python, SQL and the command line.

A list of the tables in a mistyped scope would be empty, and a rule or a grant for it would apply to nothing, without a message.
Grants, rules, holds and entries of the audit may be older or younger than their tables, so that only an empty list of them in a
scope that names nothing is an error. A reader of events may wait for those of a table that is not created yet.
"""

from collections.abc import Iterable
from typing import TypeVar

from cm_delta_dagster.catalog.access import WHOLE_CATALOG
from cm_delta_dagster.catalog.namespaces import NamespaceRegistry
from cm_delta_dagster.catalog.similar_names import did_you_mean, similar_names
from cm_delta_dagster.catalog.table_registry import TableRegistry
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError, TableNotFoundError
from cm_delta_dagster.remedies import Remedy, RepeatWithOption

_Listed = TypeVar("_Listed")

_MAX_SCHEMAS = 20
IF_MEANT = RepeatWithOption(option="future")
"""What to do if the scope of a rule or a grant has no table yet."""


def check_scope(
    registry: TableRegistry,
    namespaces: NamespaceRegistry,
    scope: str,
    *,
    remedy: Remedy | None = None,
    with_tables: bool = True,
) -> None:
    """Return if ``scope`` is ``*``, or a catalog, a schema or a table with a name that the catalog has.

    Schemas without tables, of dropped tables and of registered paths count. A catalog without any name has none to compare with.

    Args:
        remedy: what to do if the scope is meant.
        with_tables: False if the catalog itself refuses a table that does not exist.

    Raises:
        InvalidArgumentError: nothing has that name; the message says which names are similar.
    """
    known = _names(registry, namespaces)
    if scope == WHOLE_CATALOG or not known or not isinstance(scope, str):
        return
    levels = scope.count(".") + 1
    if levels > 2 + with_tables or scope in known:
        return
    kind = ("catalog", "schema", "table")[levels - 1]
    hint = did_you_mean(similar_names(scope, _of_level(known, levels))) or _schemas(known)
    raise InvalidArgumentError(
        f"The catalog has no {kind} {scope}.{hint} Names are case-sensitive. Nothing was changed."
    ).with_remedy(remedy)


def in_scope(
    entries: Iterable[_Listed], registry: TableRegistry, namespaces: NamespaceRegistry, scope: str
) -> tuple[_Listed, ...]:
    """The entries that were selected by ``scope``. Raises InvalidArgumentError if there is none and the scope names nothing."""
    selected = tuple(entries)
    if scope and not selected:
        check_scope(registry, namespaces, scope)
    return selected


def unknown_table(
    registry: TableRegistry, identifier: TableIdentifier, error: TableNotFoundError
) -> TableNotFoundError:
    """``error`` with the tables that could be meant, if there are any."""
    names = [*registry.list_tables(), *registry.registered_paths()]
    same_table = (str(name) for name in names if name.table.lower() == identifier.table.lower())
    near = dict.fromkeys((*similar_names(str(identifier), map(str, names)), *same_table))
    return TableNotFoundError(f"{error}{did_you_mean(list(near)[:3])}") if near else error


def _names(registry: TableRegistry, namespaces: NamespaceRegistry) -> frozenset[str]:
    """The names of all catalogs, schemas and tables, with dropped tables and registered paths."""
    inactive = (table.identifier for table in registry.inactive_tables())
    names = {namespace.name for namespace in (*namespaces.list_catalogs(), *namespaces.list_schemas())}
    for table in (*registry.list_tables(), *registry.registered_paths(), *inactive):
        names |= {table.catalog, f"{table.catalog}.{table.schema}", str(table)}
    return frozenset(names)


def _of_level(names: Iterable[str], levels: int) -> list[str]:
    return sorted(name for name in names if name.count(".") == levels - 1)


def _schemas(known: Iterable[str]) -> str:
    schemas = _of_level(known, 2)
    return f" Its schemas are {', '.join(schemas[:_MAX_SCHEMAS])}{', ...' if len(schemas) > _MAX_SCHEMAS else ''}."
