"""The classes whose methods users call, with the namespaces of the connection."""

import typing

from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.api.connection.connection_part import ConnectionPart

NAMESPACES: dict[str, type] = {
    name: kind
    for name, member in vars(Connection).items()
    if isinstance(member, property) and member.fget is not None
    if isinstance(kind := typing.get_type_hints(member.fget)["return"], type) and issubclass(kind, ConnectionPart)
}
"""The class of each namespace, as in ``lake.access``."""
