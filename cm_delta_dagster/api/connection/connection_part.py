"""The base of the namespaces of a connection, such as ``lake.access``."""

import typing
from collections.abc import Iterable

from cm_delta_dagster.api.absent_methods import AbsentMethods
from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.operations.tables.scopes import in_scope

_Listed = typing.TypeVar("_Listed")


class ConnectionPart(AbsentMethods):
    """Methods for one subject. Each method calls one operation; all namespaces and tables of a connection share its session."""

    def __init_subclass__(cls, **arguments: typing.Any) -> None:
        super().__init_subclass__(**arguments)
        cls._absent = f"its methods are {', '.join(name for name in dir(cls) if not name.startswith('_'))}"

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._client = session.client

    def _in_scope(self, entries: Iterable[_Listed], scope: str) -> tuple[_Listed, ...]:
        return in_scope(entries, self._client.registry, self._client.namespaces, scope)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._client.registry!r})"
