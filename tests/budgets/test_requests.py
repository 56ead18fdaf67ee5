"""The number of requests of each operation to S3 is its budget in ``requests.tsv``, neither more nor less.

A budget is raised on purpose only: ``python -m tests.budgets.measure --write`` measures again and writes budgets and page.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.budgets.measure import (
    SparkMeasurement,
    measure_with_spark,
    measure_without_spark,
    new_bucket,
)
from tests.budgets.measurement import Measurement, budgets, deviations
from tests.budgets.page import PAGE, page
from tests.budgets.without_spark import MODES, Operations
from tests.support.recording_proxy import Caller, Kind, RecordedRequest, RecordingProxy, longest_chain
from tests.support.s3_server import S3Server, s3_server
from tests.support.spark_jars import s3_jars

LATENCY_S = 0.05
MAX_ROUND_TRIPS = 4

pytest.importorskip("s3fs")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(scope="module")
def measured(server: S3Server) -> Measurement:
    return measure_without_spark(server, long=False)


def kinds(requests: tuple[RecordedRequest, ...]) -> list[tuple[Kind, str]]:
    """Kind and file of each request, versions and unique ids left out."""
    return [(request.kind, request.key.rpartition("/")[2].partition(".")[2][-4:]) for request in requests]


def test_operations_without_spark_send_what_their_budgets_say(measured: Measurement) -> None:
    assert deviations(measured.counts(), budgets()) == []


@pytest.mark.requirements("LOG-5")
def test_commits_and_refreshes_list_nothing_and_publish_by_one_creation(measured: Measurement) -> None:
    named = [name for name in measured.all if name.startswith(("commit", "refresh", "publish"))]
    assert len(named) > 15
    for name in named:
        requests = measured.all[name]
        assert not [request for request in requests if request.kind is Kind.LIST], name
        published = Counter(request.key for request in requests if is_published_commit(request))
        assert sum(published.values()) == (0 if name.startswith("refresh") else 1), name


def is_published_commit(request: RecordedRequest) -> bool:
    directory, _, name = request.key.rpartition("/")
    return request.kind is Kind.CONDITIONAL_PUT and directory.endswith("/_delta_log") and name.endswith(".json")


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("staged", [(Kind.HEAD, "json"), (Kind.CONDITIONAL_PUT, "json"), (Kind.CONDITIONAL_PUT, "json")]),
        ("inline", [(Kind.HEAD, "json")]),
        ("put_if_absent", [(Kind.GET, "json"), (Kind.HEAD, "json"), (Kind.CONDITIONAL_PUT, "json")]),
    ],
)
def test_a_commit_waits_for_few_requests_one_after_the_other(
    mode: str, expected: list[tuple[Kind, str]], measured: Measurement
) -> None:
    """Everything between the snapshot and the return of the commit, in order; the data files are written between."""
    assert mode in MODES and len(expected) <= MAX_ROUND_TRIPS
    requests = measured.foreground[f"commit 1 file, {mode}"]
    assert kinds(requests) == expected
    assert kinds(measured.foreground[f"commit 100 files, {mode}"]) == expected


def test_with_latency_a_commit_takes_at_most_four_round_trips(server: S3Server, tmp_path: Path) -> None:
    """Round trips are requests of which each begins after the one before was answered; no time is compared."""
    with RecordingProxy(server.endpoint, latency_s=LATENCY_S) as proxy:
        measurement = Measurement(proxy)
        operations = Operations(measurement, url=proxy.url, bucket=new_bucket(server), home=tmp_path)
        operations.commit_twice("staged")
    requests = measurement.foreground["second commit"]
    assert 0 < longest_chain(requests) <= len(requests) <= MAX_ROUND_TRIPS


def test_the_page_shows_the_budgets() -> None:
    assert PAGE.read_text() == page(), "run python -m tests.budgets.measure --write, or correct the budgets"


def test_more_requests_and_larger_budgets_are_found() -> None:
    put = (Caller.LOG_CLIENT.value, Kind.PUT.value)
    assert deviations({"x": Counter({put: 2})}, {"x": Counter({put: 1})}) == [
        "x: 2 PUT requests of log client, and its budget is 1"
    ]
    assert deviations({"x": Counter({put: 1})}, {"x": Counter({put: 2})}) == [
        "x: only 1 PUT requests of log client: lower its budget of 2"
    ]
    assert deviations({"y": Counter()}, {"x": Counter()}) == ["y: has no budget"]


@pytest.mark.slow
def test_a_vacuum_plan_of_20_000_files_lists_each_thousand_once(server: S3Server) -> None:
    assert deviations(measure_without_spark(server, long=True).counts(), budgets()) == []


@pytest.fixture(scope="module")
def with_spark(server: S3Server) -> SparkMeasurement:
    return measure_with_spark(server, s3_jars())


@pytest.mark.exhaustive
@pytest.mark.slow
def test_operations_through_spark_send_what_their_budgets_say(with_spark: SparkMeasurement) -> None:
    assert deviations(with_spark.counts, budgets()) == []


@pytest.mark.exhaustive
def test_after_the_data_files_few_round_trips_follow(with_spark: SparkMeasurement) -> None:
    few = {name: trips for name, trips in with_spark.round_trips.items() if name.startswith("append of 1 row")}
    assert len(few) == len(MODES) and max(few.values()) <= MAX_ROUND_TRIPS, few


def test_every_operation_of_the_table_is_measured(measured: Measurement) -> None:
    through_spark = {name for name, counts in budgets().items() if any(client == "S3A" for client, _ in counts)}
    assert budgets().keys() - through_spark - measured.all.keys() == {
        "vacuum plan of 20,000 files",
        "delete of 1 row of 5 files",  # Measured with Spark, which has nothing to read in it.
    }
