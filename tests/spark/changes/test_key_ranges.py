"""The pass over the source of a merge."""

import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.protocol.predicates.predicates import to_sql
from cm_delta_dagster.protocol.schema.types import LONG, StructField
from cm_delta_dagster.spark.changes.key_ranges import SourceRange, source_range
from tests.support.waiting import until

_ADAPTIVE = "spark.sql.adaptive.enabled"


def test_settings_of_the_session_stay_while_a_source_is_computed(spark: SparkSession, tmp_path: Path) -> None:
    """Other threads may plan queries of the session meanwhile; the range is found by one job."""
    started, go = tmp_path / "started", tmp_path / "go"

    def waiting(number: int) -> int:
        started.touch()
        end = time.monotonic() + 60
        while not go.exists() and time.monotonic() < end:
            time.sleep(0.05)
        return number

    source = spark.range(3).coalesce(1).select(F.udf(waiting, "long", useArrow=False)("id").alias("k")).persist()
    found: list[SourceRange] = []
    before = spark.conf.get(_ADAPTIVE)
    tracker = spark.sparkContext.statusTracker()

    def work() -> None:
        spark.sparkContext.setJobGroup("source range", "")
        found.append(source_range(source, [("k", StructField("k", LONG))], partition_columns=()))

    worker = threading.Thread(target=work)
    try:
        spark.conf.set(_ADAPTIVE, "true")
        worker.start()
        until(lambda: started.exists() or not worker.is_alive())
        assert started.exists() and spark.conf.get(_ADAPTIVE) == "true"
    finally:
        go.touch()
        worker.join()
        source.unpersist()
        spark.conf.set(_ADAPTIVE, str(before))
    assert [(each.num_rows, to_sql(each.key_range)) for each in found] == [(3, "(`k` >= 0) AND (`k` <= 2)")]
    assert len(tracker.getJobIdsForGroup("source range")) == 1
