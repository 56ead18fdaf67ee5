"""Operations on tables in S3 through Spark: a process of its own, because the jars belong to the session.

The session has one thread, so that the number of requests is the same in each run. Prints one JSON object: for each operation
its requests by client and kind, and the round trips of the log client after the data files are written.
"""

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from cm_delta_dagster import connect
from tests.budgets.measurement import Measurement, count
from tests.budgets.without_spark import MODES
from tests.spark.s3_worker import session
from tests.support.object_stores import s3_options
from tests.support.recording_proxy import Caller, RecordedRequest, RecordingProxy, longest_chain

KEPT_BY_S3A_S = 7.0
"""S3A keeps what it has read for one second, and looks every five seconds for what is older: a read within that time sends fewer
requests. Operations that read files of the one before wait, so that their requests are those of a client that has read nothing.
"""


def after_data(requests: Sequence[RecordedRequest]) -> tuple[RecordedRequest, ...]:
    """The requests of the log client that began after Spark's last one."""
    last = max((request.end_s or 0.0 for request in requests if request.caller is Caller.S3A), default=0.0)
    return tuple(r for r in requests if r.caller is Caller.LOG_CLIENT and r.begin_s >= last)


def main(jars: str, endpoint: str, bucket: str) -> None:
    spark = session(jars, "local[1]")
    one, many = spark.range(0, 1, 1, 1), spark.range(0, 100, 1, 100)
    changes = spark.createDataFrame([(99,), (100,)], "id long").coalesce(1)
    with RecordingProxy(endpoint) as proxy, tempfile.TemporaryDirectory() as home:
        options = s3_options(proxy.url)
        measurement = Measurement(proxy)
        run = measurement.run
        with connect(
            f"sqlite:///{home}/catalog.db", warehouse=f"s3://{bucket}/spark", storage_options=options, spark=spark
        ) as lake:
            lake.maintenance.set_policy("main.s", "DATA_REORGANIZATION", reason="a test")
            for mode in MODES:
                table = lake.create_table(f"main.s.{mode}", one.schema)
                lake.settings.set_commit_mode(f"main.s.{mode}", mode)
                table.append(one)
                run(f"append of 1 row, {mode}", lake, lambda table=table: table.append(one))
            table = lake.create_table("main.s.many", one.schema)
            table.append(one)
            run("append of 100 files, staged", lake, lambda: table.append(many))
            table = run(
                "create a table of 4 files",
                lake,
                lambda: lake.create_table_as("main.s.rows", spark.range(0, 100, 1, 4)),
            )
            run("read of 4 files", lake, lambda: table.to_df().collect())
            for operation, work in {
                "merge of 2 rows into 4 files": lambda: table.upsert(changes, on=["id"]),
                "delete of 1 row of 5 files": lambda: table.delete("id = 3"),
                "optimize of 5 files": table.optimize,
            }.items():
                time.sleep(KEPT_BY_S3A_S)
                run(operation, lake, work)
    found: dict[str, Any] = {}
    for operation, requests in measurement.all.items():
        counts = [[*what, number] for what, number in count(requests).items()]
        trips = longest_chain(after_data(measurement.foreground[operation]))
        found[operation] = {"counts": counts, "round trips": trips}
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
