"""Which principal set an application id of a table last (protocol heading "Transaction Identifiers").

Functions over an open connection. A commit whose content the catalog does not know leaves the rows as they are.
"""

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.sql.database.callers import caller_of, now_of
from cm_delta_dagster.catalog.sql.database.json_texts import texts, texts_of
from cm_delta_dagster.catalog.sql.database.prepared import Call, Prepared
from cm_delta_dagster.catalog.sql.database.schema import APPLICATION_IDS, HELD_COMMITS
from cm_delta_dagster.catalog.texts import is_storable

_MAX_BYTES = 200
"""PostgreSQL has no index over texts of any length."""
_KEYS_PER_QUERY = 500

_THE_KEY = (APPLICATION_IDS.c.table_id, APPLICATION_IDS.c.app_id)
_OWNERS = sa.select(APPLICATION_IDS.c.app_id, APPLICATION_IDS.c.principal).where(
    APPLICATION_IDS.c.table_id == sa.bindparam("of_table"),
    APPLICATION_IDS.c.app_id.in_(sa.bindparam("app_ids", expanding=True)),
)
_REQUESTED_BY = sa.select(HELD_COMMITS.c.requested_by).where(HELD_COMMITS.c.hold_id == sa.bindparam("of_hold")).limit(1)


_NEW: Mapping[str, sa.BindParameter[Any]] = {
    name: sa.bindparam(f"new_{name}") for name in ("table_id", "principal", "since_ms")
}


def _set(insert: Any) -> Prepared:
    """The insertion of rows for all ids in ``new_app_ids``; a row that exists gets the new principal if that is another one.

    One statement, however many ids a commit sets: the row of the table is locked while it runs.
    """
    typed = [sa.cast(_NEW[name], APPLICATION_IDS.c[name].type) for name in _NEW]
    rows = sa.select(texts_of("new_app_ids").c.value, *typed).where(
        sa.true()
    )  # SQLite takes ON CONFLICT for a join without WHERE.
    new = insert.excluded
    return Prepared(
        insert.from_select(["app_id", *_NEW], rows).on_conflict_do_update(
            index_elements=_THE_KEY,
            set_={"principal": new.principal, "since_ms": new.since_ms},
            where=APPLICATION_IDS.c.principal.is_distinct_from(new.principal),
        )
    )


_SET: Mapping[str, Prepared] = MappingProxyType(
    {
        "sqlite": _set(sqlite.insert(APPLICATION_IDS)),
        "postgresql": _set(postgresql.insert(APPLICATION_IDS)),
    }
)


def stored_id(app_id: str) -> str:
    """The application id as the catalog stores it, which a database can hold and index."""
    if is_storable(app_id) and len(app_id.encode()) <= _MAX_BYTES:
        return app_id
    return f"sha256:{hashlib.sha256(app_id.encode(errors='surrogatepass')).hexdigest()}"


def stored_ids(app_ids: Sequence[str]) -> tuple[str, ...]:
    """As :func:`stored_id`, without repetitions."""
    return tuple(dict.fromkeys(map(stored_id, app_ids)))


def of_another(
    connection: sa.Connection, table_id: str, app_ids: Sequence[str], caller: str | None
) -> tuple[str, str] | None:
    """The first of the application ids that another principal than ``caller`` set last, with that principal."""
    keys = stored_ids(app_ids)
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        some = keys[start : start + _KEYS_PER_QUERY]
        rows = connection.execute(_OWNERS, {"of_table": table_id, "app_ids": some}).all()
        principals = {row.app_id: row.principal for row in rows}
        for app_id in some:
            principal = principals.get(app_id)
            if principal is not None and principal != caller:
                return app_id, str(principal)
    return None


def writes(connection: sa.Connection, table_id: str, proposal: CommitProposal) -> list[Call]:
    """The statement that records who has set the application ids of the proposal."""
    app_ids = () if proposal.checked is None else stored_ids(proposal.checked.app_ids)
    if not app_ids:
        return []
    values = {
        "new_app_ids": texts(app_ids),
        "new_table_id": table_id,
        "new_principal": _principal(connection, proposal),
        "new_since_ms": now_of(connection),
    }
    return [(_SET[connection.dialect.name], values)]


def _principal(connection: sa.Connection, proposal: CommitProposal) -> str | None:
    """Who made the commit. Who approves or ratifies a hold proposes the commit of who made it."""
    if proposal.hold_id is None:
        return caller_of(connection)
    requester = connection.execute(_REQUESTED_BY, {"of_hold": proposal.hold_id}).scalar_one_or_none()
    return None if requester is None else str(requester)
