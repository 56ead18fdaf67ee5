"""A shared deployment: every setting comes from the environment, read where the run happens.

``CM_DELTA_CATALOG_URL`` (e.g. ``postgresql+psycopg://user:password@host/db``), ``CM_DELTA_WAREHOUSE`` (e.g. ``s3://bucket/tables``),
``SPARK_REMOTE_URL`` (e.g. ``sc://host:15002``).
"""

import dagster as dg

from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager, CatalogResource, SparkResource
from resources.raw_data import RawData


def production_resources() -> dict[str, object]:
    """Resources from environment variables: shared catalog and warehouse, Spark Connect."""
    catalog = CatalogResource(url=dg.EnvVar("CM_DELTA_CATALOG_URL"), warehouse=dg.EnvVar("CM_DELTA_WAREHOUSE"))
    spark = SparkResource(app_name="cm_delta", remote=dg.EnvVar("SPARK_REMOTE_URL"))
    return {
        "catalog": catalog,
        "spark": spark,
        "raw": RawData(directory="/tmp/cm_delta_raw"),
        "io_manager": CatalogManagedDeltaIOManager(catalog=catalog, spark=spark),
    }
