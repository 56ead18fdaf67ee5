"""The base of the methods of the registry, which know where the client places new tables."""

from cm_delta_dagster.catalog.sql.database.caller_database import CallerDatabase
from cm_delta_dagster.catalog.sql.database.parts import Part


class WarehousePart(Part):
    """A part of the catalog with a warehouse.

    Args:
        warehouse: location without trailing slash below which new tables are placed; None for a client that creates no tables.
    """

    def __init__(self, database: CallerDatabase, *, warehouse: str | None) -> None:
        super().__init__(database)
        self._warehouse = warehouse
