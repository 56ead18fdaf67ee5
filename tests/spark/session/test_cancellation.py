"""A caller that is interrupted during a Spark write: its jobs end, and other jobs of the session go on."""

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec
from cm_delta_dagster.spark.session.cancellation import collected_rows, run_cancellable
from cm_delta_dagster.spark.write.direct_write import write_directly
from cm_delta_dagster.spark.write.write import write_files
from cm_delta_dagster.storage.local_store import LocalStore
from tests.spark.test_connect import ANY_PORT
from tests.support.interrupts import NUM_ROWS, Interrupted, interrupted_once, noted_rows, slow_rows
from tests.support.waiting import until

SCHEMA = StructType(fields=(StructField(name="id", type=PrimitiveType(name="long")),))
TAGS, CALL_SITE, GROUP = "spark.job.tags", "callSite.short", "spark.jobGroup.id"
DESCRIPTION, POOL = "spark.job.description", "spark.scheduler.pool"


def runs(spark: SparkSession, name: str) -> Callable[[], bool]:
    """Whether the job of ``slow_rows`` has reached its first row, which the driver of a local session sees."""
    system: Any = spark.sparkContext._jvm
    return lambda: system.java.lang.System.getProperty(f"{name}0") == "seen"


def has_no_job(spark: SparkSession) -> bool:
    """Whether no job runs; Spark's listeners hear of the end of a job a moment later."""
    return not list(spark.sparkContext.statusTracker().getActiveJobsIds())


def test_an_interrupted_write_cancels_its_job_and_leaves_no_file(spark: SparkSession, tmp_path: Path) -> None:
    layout = TableLayout(location=f"file://{tmp_path}/t", schema=SCHEMA, partition_columns=())
    frame = slow_rows(spark, "committed")
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(slow_rows(spark, "other", 15).count)
        both = [runs(spark, "committed"), runs(spark, "other")]
        with pytest.raises(Interrupted), interrupted_once(lambda: all(each() for each in both)):
            write_files(frame, store=LocalStore(), layout=layout, spec=WriteSpec())
        assert other.result() == 15
    until(lambda: has_no_job(spark))
    assert list(tmp_path.rglob("*.parquet")) == []
    # The connection of this thread still gets its own answers.
    assert spark.range(3).count() == 3 and spark.sparkContext.getLocalProperty(TAGS) is None
    assert 0 < noted_rows(spark, "committed") < NUM_ROWS


def test_an_interrupted_direct_write_cancels_its_job(spark: SparkSession, tmp_path: Path) -> None:
    frame = slow_rows(spark, "direct")

    def write() -> object:
        return write_directly(frame, directory=f"file://{tmp_path}/t", options={}, partition_columns=[])

    with pytest.raises(Interrupted), interrupted_once(runs(spark, "direct")):
        run_cancellable(spark, write)
    until(lambda: has_no_job(spark))
    assert noted_rows(spark, "direct") < NUM_ROWS
    assert spark.range(3).count() == 3


def test_an_interrupted_read_cancels_its_job_and_keeps_the_connection(spark: SparkSession) -> None:
    """As the reads of a merge: later calls of the thread get their own answers."""
    with pytest.raises(Interrupted), interrupted_once(runs(spark, "read")):
        collected_rows(slow_rows(spark, "read"))
    until(lambda: has_no_job(spark))
    assert noted_rows(spark, "read") < NUM_ROWS
    assert spark.range(3).count() == 3 and spark.version.startswith("4.")


def test_a_write_keeps_the_properties_and_tags_of_its_caller(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setLocalProperty(CALL_SITE, "my job")
    context.setJobGroup("mine", "of the user")
    context.addJobTag("of-the-user")
    try:
        seen = run_cancellable(spark, lambda: [context.getLocalProperty(name) for name in (CALL_SITE, GROUP, TAGS)])
        assert seen[:2] == ["my job", "mine"]
        assert "of-the-user" in str(seen[2]) and "cm-delta-" in str(seen[2])
        assert context.getLocalProperty(TAGS) == "of-the-user" and context.getLocalProperty(CALL_SITE) == "my job"
        with pytest.raises(ZeroDivisionError):
            run_cancellable(spark, lambda: 1 // 0)
        assert context.getLocalProperty(TAGS) == "of-the-user"
    finally:
        context.removeJobTag("of-the-user")
        for name in (CALL_SITE, GROUP, DESCRIPTION, "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]  # None removes it.


def test_the_jobs_of_a_write_have_group_pool_and_tags_of_its_caller(spark: SparkSession, tmp_path: Path) -> None:
    layout = TableLayout(location=f"file://{tmp_path}/t", schema=SCHEMA, partition_columns=())
    context: Any = spark.sparkContext
    context.setJobGroup("nightly", "load of the night")
    context.setLocalProperty(POOL, "loads")
    spark.addTag("of-the-session")
    context.addJobTag("of-the-context")
    try:
        write_files(spark.range(2), store=LocalStore(), layout=layout, spec=WriteSpec())
        assert spark.getTags() == {"of-the-session"} and set(context.getJobTags()) == {"of-the-context"}
        assert run_cancellable(spark, lambda: context.getLocalProperty(POOL)) == "loads"
    finally:
        spark.removeTag("of-the-session")
        context.removeJobTag("of-the-context")
        for name in (GROUP, DESCRIPTION, POOL, "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)
    spark.range(1).count()
    jobs = jobs_of(context)
    of_the_write = [user_tags(tags) for group, tags in jobs if group == "nightly"]
    assert of_the_write and all(len(tags) == 2 for tags in of_the_write)
    assert jobs[0][0] is None and not user_tags(jobs[0][1]), "a later job has them too"


def jobs_of(context: Any) -> list[tuple[str | None, str]]:
    """Group and tags of the jobs of the session, newest first."""
    listed = context._jsc.sc().statusStore().jobsList(None)
    jobs = [listed.apply(number) for number in range(listed.size())]
    return [
        (job.jobGroup().get() if job.jobGroup().isDefined() else None, job.jobTags().mkString(","))
        for job in sorted(jobs, key=lambda job: -job.jobId())
    ]


def user_tags(shown: str) -> set[str]:
    """The tags of the test; Spark puts the ids of session and thread before those of a session."""
    return {name for name in ("of-the-session", "of-the-context") for tag in shown.split(",") if tag.endswith(name)}


@pytest.mark.exhaustive
@pytest.mark.slow
def test_an_interrupted_write_over_connect_cancels_its_operation(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="the extra `connect` is not installed")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.connect_interrupt_worker", str(tmp_path)],
        cwd=Path(__file__).parents[3], env=ANY_PORT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:]
    seen = json.loads(run.stdout.strip().splitlines()[-1])
    assert seen["raised"] and 0 < seen["noted"] < seen["rows"] and seen["tags"] == []
    # Ctrl-C before the request that starts the operation, and between the request and its first answer.
    for name in ("sent", "unsent"):
        early = seen[name]
        assert early["error"] == "KeyboardInterrupt" and early["tags"] == [], early
        assert early["reached"][0] == early["reached"][1] < NUM_ROWS, "the operation does not go on"
    assert list(tmp_path.rglob("*.parquet")) == []
