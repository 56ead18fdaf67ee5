"""DROP TABLE: the name goes, log and data stay (protocol "Dropping catalog-managed tables"). Room: operations.

Physical deletion is the catalog's own, later business and is not done here (CM-D7).
"""

from cm_delta_dagster.catalog.catalog import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient


def drop_table(client: DeltaClient, *, identifier: TableIdentifier | str) -> None:
    """Remove the name of a table from the catalog; no Delta commit is made and no file is touched (CM-D6).

    Raises:
        TableNotFoundError: no table has that name.
        InvalidArgumentError: ``identifier`` is not ``catalog.schema.table``.
    """
    name = TableIdentifier.parse(identifier) if isinstance(identifier, str) else identifier
    client.catalog.drop_table(name)
