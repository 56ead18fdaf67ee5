"""A process that runs one operation with Spark, and kills itself at the n-th changing call to storage or catalog.

Arguments: directory of the catalog and the warehouse, name of the operation in ``test_nth_spark_call.VERBS``, number of the call,
``before`` or ``after`` that call. Prints ``committed`` once the operation has returned.
"""

import sys
from typing import Any

from pyspark.sql import SparkSession

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.storage.stores import Stores
from tests.faults.crashing_writer import Killing
from tests.faults.test_nth_spark_call import VERBS


def main() -> None:
    directory, name, die_at, when = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    catalog: Any = Killing(
        SqlCatalog(f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}/warehouse"), int(die_at), when
    )
    stores: Any = Killing(Stores(), int(die_at), when)
    client = DeltaClient(catalog, stores=stores)
    VERBS[name].act(client, spark)
    print("committed", flush=True)
    client.close()


if __name__ == "__main__":
    main()
