"""Run in a separate process: reads and drops a table as a user without permissions on the directory of the catalog."""

import os
import sys
import tempfile

from cm_delta_dagster.catalog.sql import SqlCatalog  # Imported while the files can be read.
from cm_delta_dagster.catalog.sql.database import (
    migrate,  # noqa: F401  # Imported while the files can be read.
    schema,  # noqa: F401  # Imported while the files can be read.
)
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.storage.stores import Stores

UNPRIVILEGED_ID = 65534

if __name__ == "__main__":
    place, name = sys.argv[1:]
    with tempfile.TemporaryDirectory() as own, SqlCatalog(f"sqlite:///{own}/c.db") as warm_up:
        warm_up.registry.list_tables()  # Runs the imports of the first use.
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(UNPRIVILEGED_ID)
        os.setuid(UNPRIVILEGED_ID)
    client = DeltaClient(SqlCatalog(f"sqlite:///{place}/catalog.db"), stores=Stores())
    print(client.table(name).snapshot().version)
    try:
        drop_table(client, identifier=name)
    except CmDeltaError as error:
        print(type(error).__name__, error)
    client.close()
