"""Everything on this machine: SQLite catalog, local files, local Spark. No settings needed.

The tables can be in an object store: the variables of ``resources.environment`` for warehouse, storage options and jars hold.
"""

import os
from pathlib import Path

from pyspark.sql import SparkSession

from cm_delta_dagster import ClientSettings, Connection, connect
from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager, CatalogResource, SparkResource
from resources.environment import STORAGE_OPTIONS, WAREHOUSE, json_object, spark_jars, storage_options
from resources.raw_data import RawData


def home() -> Path:
    """Directory of the demo's catalog and tables: ``CM_DELTA_HOME``, by default ``cm_delta`` in the working directory."""
    return Path(os.environ.get("CM_DELTA_HOME", "cm_delta")).absolute()


def catalog_url() -> str:
    """URL of the demo's catalog."""
    return f"sqlite:///{home()}/catalog.db"


def warehouse() -> str:
    """Where the demo's tables are."""
    return os.environ.get(WAREHOUSE) or f"file://{home()}/warehouse"


def local_resources() -> dict[str, object]:
    """Resources for one machine: SQLite catalog, local files, local Spark."""
    catalog = CatalogResource(
        url=catalog_url(),
        warehouse=warehouse(),
        storage_options=storage_options(),
    )
    spark = local_spark()
    return {
        "catalog": catalog,
        "spark": spark,
        "raw": RawData(directory=str(home() / "raw")),
        "io_manager": CatalogManagedDeltaIOManager(catalog=catalog, spark=spark),
    }


def local_spark() -> SparkResource:
    """Spark in the process of the run."""
    return SparkResource(
        app_name="cm_delta_demo",
        master="local[*]",
        jars=spark_jars(),
        config={
            "spark.driver.memory": "2g",
            # The runs are short: the second compiler of Java would take more time than its code saves.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "4",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
        },
    )


def connect_local(spark: SparkSession | None = None, *, settings: ClientSettings | None = None) -> Connection:
    """Catalog and tables of this deployment for scripts without Dagster; without a session, the running one is used."""
    options = json_object(STORAGE_OPTIONS)
    return connect(catalog_url(), warehouse=warehouse(), storage_options=options, spark=spark, settings=settings)
