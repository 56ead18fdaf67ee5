"""A shared deployment: every setting comes from the environment, see ``resources.environment``.

A missing or malformed variable is an error when the definitions are loaded. Secrets are read where the run happens and are not
shown in the UI.
"""

import os

import dagster as dg

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager, CatalogResource, SparkResource
from resources.environment import (
    CATALOG_URL,
    RAW,
    SPARK,
    SPARK_JARS,
    WAREHOUSE,
    check_required,
    spark_config,
    spark_jars,
    storage_options,
)
from resources.raw_data import RawData


def production_resources() -> dict[str, object]:
    """Resources from environment variables: shared catalog and warehouse; Spark local, on a cluster or through Connect.

    Raises:
        InvalidArgumentError: a variable is missing or malformed; the message has its name.
    """
    check_required((CATALOG_URL, WAREHOUSE, SPARK))
    catalog = CatalogResource(
        url=dg.EnvVar(CATALOG_URL),
        warehouse=dg.EnvVar(WAREHOUSE),
        storage_options=storage_options(),
    )
    spark = _spark(os.environ[SPARK])
    return {
        "catalog": catalog,
        "spark": spark,
        "raw": RawData(directory=os.environ.get(RAW, "/tmp/cm_delta_raw")),
        "io_manager": CatalogManagedDeltaIOManager(catalog=catalog, spark=spark),
    }


def _spark(place: str) -> SparkResource:
    # References: the address of a Connect server can have a token, and settings can be keys of stores.
    config, jars = spark_config(), spark_jars()
    defaults = {"spark.sql.session.timeZone": "UTC"}
    if not place.startswith("sc://"):
        # Each run has a session of its own. Spark gives up after 16 ports that other sessions use.
        any_port = {"spark.ui.port": "0"}
        return SparkResource(
            app_name="cm_delta", master=dg.EnvVar(SPARK), jars=jars, config=config, defaults={**any_port, **defaults}
        )
    if jars:
        raise InvalidArgumentError(
            f"{SPARK_JARS} is set, and {SPARK} is a Spark Connect server, which has jars of its own. Start the server with "
            f"the jars, and unset {SPARK_JARS}."
        )
    return SparkResource(app_name="cm_delta", remote=dg.EnvVar(SPARK), config=config, defaults=defaults)
