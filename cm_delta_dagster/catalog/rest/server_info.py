"""What a server says of itself, at ``/api/cm/v1/info``."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """The server.

    Attributes:
        release: version of this package at the server.
        catalog_id: of the catalog that it serves.
        warehouse: location of new tables; None if the server is configured without one, so that no tables are created.
    """

    api_version: int
    release: str
    catalog_id: str
    warehouse: str | None
