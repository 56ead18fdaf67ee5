"""Tables in Google Cloud Storage through Google's connector for Spark, against fake-gcs-server."""

import json
import subprocess
import sys
import uuid

import pytest

from cm_delta_dagster.storage.fsspec_store import FsspecStore
from tests.spark.test_s3 import ROOT, environment
from tests.support.object_stores import gcs_options, make_bucket
from tests.support.spark_jars import store_jars

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_rows_are_written_merged_and_read(gcs_endpoint: str) -> None:
    """DV-4, DML-4, DML-7: in a session that has only the connector's jar."""
    bucket = f"spark-{uuid.uuid4().hex[:12]}"
    make_bucket(FsspecStore("gs", options=gcs_options(gcs_endpoint)), bucket)
    arguments = [",".join(map(str, store_jars("gcs"))), gcs_endpoint, bucket]
    worker = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.gcs_worker", *arguments],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert worker.returncode == 0, worker.stderr[-4000:]
    rows, merged, first, by_arrow, schemes, settings = json.loads(worker.stdout.strip().splitlines()[-1])
    assert rows == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]
    assert merged == [9, 10] and first == [*range(10)]
    assert by_arrow and schemes == ["gs"] and settings
