"""Tables in Azure and Google storage through Spark's clients of them, against emulators."""

import json
import subprocess
import sys
import uuid
from collections.abc import Mapping

import pytest

from cm_delta_dagster.storage.fsspec_store import FsspecStore
from tests.spark.test_s3 import ROOT, environment
from tests.support.object_stores import gcs_options, make_bucket
from tests.support.spark_jars import store_jars

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def check(jars: str, scheme: str, warehouse: str, options: Mapping[str, object], session: Mapping[str, str]) -> None:
    """Create, merge, delete and read a table in a session that has only the jars of the store.

    Then a write fails. The client of the store makes empty objects with the names of directories, and vacuum deletes them.
    """
    arguments = [",".join(map(str, store_jars(jars))), warehouse, json.dumps(options), json.dumps(session)]
    worker = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.store_worker", *arguments],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert worker.returncode == 0, worker.stderr[-4000:]
    rows, merged, first, by_arrow, schemes, settings, left, remaining = json.loads(
        worker.stdout.strip().splitlines()[-1]
    )
    assert rows == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]
    assert merged == [9, 10] and first == [*range(10)]
    assert by_arrow and schemes == [scheme] and settings
    assert left > 0 and remaining == 0


@pytest.mark.requirements("DV-4", "DML-4", "DML-7", "VAC-1")
@pytest.mark.exhaustive
def test_rows_in_google_storage(gcs_endpoint: str) -> None:
    bucket = f"spark-{uuid.uuid4().hex[:12]}"
    options = gcs_options(gcs_endpoint)
    make_bucket(FsspecStore("gs", options=options), bucket)
    # The server does not have the request that moves an object; it copies and deletes instead.
    check("gcs", "gs", f"gcs://{bucket}/a b", options, {"spark.hadoop.fs.gs.operation.move.enable": "false"})


@pytest.mark.requirements("DV-4", "DML-4", "DML-7", "VAC-1")
def test_rows_in_azure(azurite: str) -> None:
    """Over the blob endpoint and without encryption, since Azurite has no other."""
    container = f"spark-{uuid.uuid4().hex[:12]}"
    options = {"connection_string": azurite}
    make_bucket(FsspecStore("abfss", options=options), container)
    port = azurite.partition("127.0.0.1:")[2].partition("/")[0]
    session = {
        "abfs.endpoint": f"127.0.0.1:{port}",
        "fns.account.service.type": "BLOB",
        "account.hns.enabled": "false",
        "always.use.https": "false",
        "networking.library": "JDK_HTTP_URL_CONNECTION",
    }
    settings = {f"spark.hadoop.fs.azure.{name}": value for name, value in session.items()}
    check("azure", "abfs", f"abfs://{container}@devstoreaccount1.dfs.core.windows.net/w", options, settings)
