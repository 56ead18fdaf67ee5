"""The number of requests of each operation to the object store.

``python -m tests.budgets.write`` measures again and writes budgets and documentation.
"""

import pytest

from cm_delta_dagster.storage.fsspec_store import FsspecStore
from tests.budgets.measurement import Measurement, budgets, deviations
from tests.budgets.without_spark import BUCKET, Operations
from tests.support.object_stores import make_bucket, s3_options
from tests.support.recording_proxy import RecordingProxy

_LATENCY_S = 0.05
_MAX_ROUND_TRIPS = 4


@pytest.fixture(scope="module")
def measured(s3_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Measurement:
    make_bucket(FsspecStore("s3", options=s3_options(s3_endpoint)), BUCKET)
    with RecordingProxy(s3_endpoint) as proxy:
        measurement = Measurement(proxy)
        operations = Operations(measurement, url=proxy.url, home=tmp_path_factory.mktemp("budgets"))
        operations.run_all()
    return measurement


def test_operations_without_spark_send_the_requests_of_their_budgets(measured: Measurement) -> None:
    assert deviations(measured.counts(), budgets()) == []
