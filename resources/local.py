"""Everything on this machine: SQLite catalog, local files, local Spark. No settings needed."""

import os
from pathlib import Path

from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager, CatalogResource, SparkResource
from resources.raw_data import RawData


def home() -> Path:
    """Folder of the demo's catalog and tables: ``CM_DELTA_HOME``, by default ``cm_delta`` in the working directory."""
    return Path(os.environ.get("CM_DELTA_HOME", "cm_delta")).absolute()


def local_resources() -> dict[str, object]:
    """Resources for one machine: SQLite catalog, local files, local Spark."""
    catalog = CatalogResource(url=f"sqlite:///{home()}/catalog.db", warehouse=f"file://{home()}/warehouse")
    spark = SparkResource(
        app_name="cm_delta_demo",
        master="local[*]",
        config={
            "spark.driver.memory": "2g",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "8",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
        },
    )
    return {
        "catalog": catalog,
        "spark": spark,
        "raw": RawData(directory=str(home() / "raw")),
        "io_manager": CatalogManagedDeltaIOManager(catalog=catalog, spark=spark),
    }
