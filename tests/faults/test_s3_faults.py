"""Faults of an S3 store between the steps of a commit: nothing acknowledged is lost, nothing else appears."""

import datetime
import logging
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.client.snapshots.history import iterate_history
from cm_delta_dagster.errors import (
    CmDeltaError,
    CommitStateUnknownError,
    ObjectNotFoundError,
    StorageError,
    WriteRefusedError,
)
from cm_delta_dagster.operations.doctor import doctor
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.maintenance.vacuum import plan_vacuum, vacuum
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.storage.fsspec_store import FsspecStore
from tests.support.creation import create_table
from tests.support.fault_proxy import Effect, Fault, FaultProxy, fault_proxy
from tests.support.lake import SCHEMA
from tests.support.s3_lake import S3Lake, commit, paths, store_behind
from tests.support.waiting import until

NAME = "main.test.t"
MODES = ("staged", "inline", "put_if_absent")
PASSING = (
    Fault(effect=Effect.ANSWER_BEFORE),
    Fault(effect=Effect.RESET_AFTER),
    Fault(effect=Effect.ANSWER_AFTER, status=500, code="InternalError"),
    Fault(effect=Effect.RESET_BEFORE),
)
ALLOWED = MaintenanceRule(scope="main", kind=MaintenanceKind.DATA_CLEANUP, allowed=True)
EXPIRED = Fault(effect=Effect.ANSWER_BEFORE, status=400, code="ExpiredToken", times=10**6)


@pytest.fixture(scope="module")
def proxy(s3_endpoint: str) -> Iterator[FaultProxy]:
    with fault_proxy(s3_endpoint) as proxy:
        proxy.seconds = 1.5  # Longer than the store waits for an answer.
        yield proxy


@pytest.fixture(scope="module")
def store(proxy: FaultProxy) -> FsspecStore:
    return store_behind(proxy)


@pytest.fixture
def lake(proxy: FaultProxy, store: FsspecStore, tmp_path: Path) -> Iterator[S3Lake]:
    yield S3Lake.new(proxy, store, tmp_path)
    proxy.inject()
    proxy.hides_missing = False


def at(fault: Fault, number: int) -> Fault:
    """The fault at the request of that number, counted from 1."""
    return Fault(effect=fault.effect, times=fault.times, skip=number - 1, status=fault.status, code=fault.code)


def committed(lake: S3Lake, path: str) -> CmDeltaError | None:
    """Commit with an empty cache; return the error, or None if the commit was acknowledged."""
    with lake.client() as client:
        try:
            commit(client.table(NAME), path)
        except CmDeltaError as error:
            return error
    return None


@pytest.mark.requirements("CM-C15")
@pytest.mark.parametrize("is_answered", [True, False])
def test_a_refused_creation_of_a_commit_is_definite_unless_an_answer_was_lost(lake: S3Lake, is_answered: bool) -> None:
    """put_if_absent with credentials that expire before the request that makes the commit."""
    lake.create(NAME, "put_if_absent")
    assert committed(lake, "first.parquet") is None
    expired = Fault(
        effect=EXPIRED.effect, method="PUT", path="_delta_log/", status=403, code="ExpiredToken", times=10**6
    )
    lost = () if is_answered else (Fault(effect=Effect.ANSWER_AFTER, method="PUT", path="_delta_log/"),)
    lake.proxy.inject(*lost, expired)
    error = committed(lake, "second.parquet")
    assert type(error) is (WriteRefusedError if is_answered else CommitStateUnknownError)
    assert "credentials have expired" in str(error)
    check(lake, ["first.parquet"] if is_answered else ["first.parquet", "second.parquet"])


def requests_of_a_commit(lake: S3Lake) -> int:
    lake.proxy.inject()
    assert committed(lake, "first.parquet") is None
    return len(lake.proxy.requests)


def check(lake: S3Lake, expected: Sequence[str], perhaps: str = "") -> list[str]:
    """Through a working store: versions are contiguous, each file is there once, the doctor finds nothing."""
    lake.proxy.inject()
    with lake.client() as client:
        table = client.table(NAME)
        found = paths(table)
        assert found in (sorted(expected), sorted([*expected, perhaps]))
        assert [entry.version for entry in iterate_history(table)] == list(range(len(found), -1, -1))
        publish(table)
        report = doctor(table)
        assert report.healthy, report.findings
    return found


def try_each(lake: S3Lake, mode: str, numbers: Sequence[int], fault: Fault | None) -> None:
    """Commits, each with a fault at another request; where ``fault`` is None, those that pass, one after the other."""
    acknowledged = ["first.parquet"]
    for number in numbers:
        chosen = fault or PASSING[number % len(PASSING)]
        lake.proxy.inject(at(chosen, number))
        path = f"{mode}-{number}.parquet"
        error = committed(lake, path)
        where = f"{mode}, request {number}, {chosen.effect}: {error}"
        if fault is None:
            assert error is None, where
        if error is None:
            acknowledged.append(path)
            continue
        assert "credentials have expired" in str(error) or "credentials that have expired" in str(error), where
        assert lake.bucket in str(error), where
        if isinstance(error, CommitStateUnknownError):
            acknowledged = check(lake, acknowledged, perhaps=path)
        elif number % 4 == 0:
            check(lake, acknowledged)
    check(lake, acknowledged)


@pytest.mark.requirements("CM-C1", "CM-C5", "CM-C15", "CM-W5")
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", [None, EXPIRED], ids=["passing", "expired"])
def test_a_fault_at_any_request_of_a_commit_loses_nothing(lake: S3Lake, mode: str, fault: Fault | None) -> None:
    """A fault that passes is not noticed; with expired credentials a commit is made or not."""
    lake.create(NAME, mode)
    number = requests_of_a_commit(lake)
    assert number > 4
    try_each(lake, mode, range(1, number + 1), fault)


@pytest.mark.requirements("CM-C1", "CM-C15")
@pytest.mark.parametrize("fault", [None, EXPIRED], ids=["passing", "expired"])
def test_a_fault_at_some_request_of_a_commit_loses_nothing(lake: S3Lake, fault: Fault | None) -> None:
    """Mode and requests chosen by the day; the slow test tries each."""
    chance = random.Random(str(datetime.date.today()))
    mode = chance.choice(MODES)
    lake.create(NAME, mode)
    try_each(lake, mode, chance.sample(range(1, requests_of_a_commit(lake) + 1), 2), fault)


@pytest.mark.requirements("CM-C1", "CM-P3")
@pytest.mark.parametrize("mode", ["staged", pytest.param("inline", marks=pytest.mark.slow)])
def test_a_commit_whose_publication_meets_expired_credentials_stays(
    lake: S3Lake, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The staged file is written and the commit is ratified; then the credentials expire."""
    lake.create(NAME, mode)
    published = f"_delta_log/{1:020d}.json"
    lake.proxy.inject(
        Fault(effect=Effect.ANSWER_BEFORE, method="PUT", path=published, status=400, code="ExpiredToken", times=10**6)
    )
    with caplog.at_level(logging.WARNING):
        assert committed(lake, "a.parquet") is None
    shown = "\n".join(logging.Formatter().format(record) for record in caplog.records)
    assert NAME in shown and published in shown and "the credentials have expired" in shown
    assert lake.proxy.count("PUT", published) > 0
    lake.proxy.inject()
    with lake.client() as client:
        assert paths(client.table(NAME)) == ["a.parquet"]
    check(lake, ["a.parquet"])


@pytest.mark.requirements("CM-W5")
@pytest.mark.parametrize("mode", ["staged", pytest.param("put_if_absent", marks=pytest.mark.slow)])
def test_credentials_that_expire_before_the_commit_leave_the_table_unchanged(lake: S3Lake, mode: str) -> None:
    """The data file is there and the log cannot be written."""
    lake.create(NAME, mode)
    log = Fault(effect=EXPIRED.effect, method="PUT", path="_delta_log/", status=400, code="ExpiredToken", times=10**6)
    lake.proxy.inject(log)
    error = committed(lake, "a.parquet")
    assert isinstance(error, StorageError | CommitStateUnknownError) and "the credentials have expired" in str(error)
    assert lake.warehouse in str(error)
    check(lake, [])


@pytest.mark.requirements("CM-P1", "CM-P3")
@pytest.mark.parametrize(
    "effect",
    [
        Effect.RESET_AFTER,
        pytest.param(Effect.ANSWER_AFTER, marks=pytest.mark.slow),
        pytest.param(Effect.SILENT_AFTER, marks=pytest.mark.slow),
    ],
)
def test_a_publication_without_an_answer_is_found_to_be_its_own(lake: S3Lake, effect: Effect) -> None:
    lake.create(NAME, "staged")
    published = f"_delta_log/{1:020d}.json"
    lake.proxy.inject(Fault(effect=effect, method="PUT", path=published))
    with lake.client() as client:
        table = client.table(NAME)
        commit(table, "a.parquet")
        client.wait_for_background()
        assert lake.proxy.count("PUT", published) == 2
        assert table.snapshot().published_version == 1
        (record,) = client.coordinator.commit_records(table.table_id, start=1, end=1)
        log = f"{table.location}/_delta_log"
        assert table.store.read(f"{log}/{1:020d}.json") == table.store.read(f"{log}/_staged_commits/{record.file_name}")
    check(lake, ["a.parquet"])


def service(lake: S3Lake) -> Any:
    """An S3 client that does not belong to this package."""
    return boto3.client(
        "s3", endpoint_url=lake.proxy.url, aws_access_key_id="k", aws_secret_access_key="s", region_name="us-east-1"
    )


def test_a_bucket_that_vanishes_is_an_error_and_not_an_empty_table(lake: S3Lake) -> None:
    lake.create(NAME, "staged")
    missing = f"the bucket {lake.bucket} does not exist"
    with lake.client() as client:
        client.catalog.maintenance_policies.set_maintenance_rule(ALLOWED)
        table = client.table(NAME)
        commit(table, "a.parquet")
        client.wait_for_background()
        s3 = service(lake)
        kept = {
            item["Key"]: s3.get_object(Bucket=lake.bucket, Key=item["Key"])["Body"].read()
            for item in s3.list_objects_v2(Bucket=lake.bucket)["Contents"]
        }
        for key in kept:
            s3.delete_object(Bucket=lake.bucket, Key=key)
        s3.delete_bucket(Bucket=lake.bucket)
        for act in (
            lambda: commit(table, "b.parquet"),
            lambda: table.store.read(f"{table.location}/a.parquet"),
            lambda: vacuum(table, retention_ms=0, force=True),
        ):
            with pytest.raises(StorageError, match=missing) as raised:
                act()
            assert not isinstance(raised.value, ObjectNotFoundError)
        assert client.coordinator.get_ratified_commits(table.table_id).latest_version == 1
    with lake.client() as fresh:
        for act in (
            lambda: fresh.table(NAME).snapshot(),
            lambda: create_table(fresh, identifier="main.test.new", schema=SCHEMA),
        ):
            with pytest.raises(StorageError, match=missing):
                act()
        assert [str(name) for name in fresh.catalog.registry.list_tables()] == [NAME]
    s3.create_bucket(Bucket=lake.bucket)
    for key, data in kept.items():
        s3.put_object(Bucket=lake.bucket, Key=key, Body=data)
    check(lake, ["a.parquet"])


@pytest.mark.requirements("VAC-1")
def test_vacuum_deletes_the_empty_object_of_an_interrupted_write(lake: S3Lake) -> None:
    """S3A leaves an object with the name of the directory and a slash, which s3fs neither shows nor deletes."""
    lake.create(NAME, "staged")
    with lake.client() as client:
        client.catalog.maintenance_policies.set_maintenance_rule(ALLOWED)
        table = client.table(NAME)
        commit(table, "a.parquet")
        root = table.location.removeprefix(f"s3://{lake.bucket}/")
        for name in ("delta.txn=0f/", "delta.txn=0f/day=1/", "of a user/"):
            service(lake).put_object(Bucket=lake.bucket, Key=f"{root}/{name}", Body=b"")
        until(lambda: plan_vacuum(table, retention_ms=0, force=True).num_files == 2)
        assert vacuum(table, retention_ms=0, force=True).num_files == 2
        left = [status.name for status in table.store.list_recursive(table.location, with_directories=True)]
        assert left.count("") == 1 and "a.parquet" in left, "the object of a user stays"
    check(lake, ["a.parquet"])


@pytest.mark.requirements("VAC-1")
@pytest.mark.slow
def test_vacuum_in_a_versioned_bucket_leaves_old_versions_that_can_be_restored(lake: S3Lake) -> None:
    """S3 keeps what is deleted or replaced as a version, and only a rule of the bucket removes it."""
    s3 = service(lake)
    s3.put_bucket_versioning(Bucket=lake.bucket, VersioningConfiguration={"Status": "Enabled"})
    lake.create(NAME, "staged")
    with lake.client() as client:
        client.catalog.maintenance_policies.set_maintenance_rule(ALLOWED)
        table = client.table(NAME)
        commit(table, "a.parquet")
        commit(table, "b.parquet")
        snapshot = table.snapshot()
        first = snapshot.files.filter([path == "a.parquet" for path in snapshot.files["path"].to_pylist()])
        transaction = table.start_transaction(snapshot, operation="DELETE")
        transaction.remove_files(removes_of(first, data_change=True))
        transaction.commit()
        assert vacuum(table, retention_ms=0, force=True).num_files == 1
        with pytest.raises(ObjectNotFoundError, match=r"a\.parquet"):
            table.store.read(f"{table.location}/a.parquet")
        assert paths(table) == ["b.parquet"] and doctor(table).healthy
        key = f"{table.location.removeprefix(f's3://{lake.bucket}/')}/a.parquet"
        found = s3.list_object_versions(Bucket=lake.bucket, Prefix=key)
        assert len(found["Versions"]) == 1 and found["DeleteMarkers"][0]["IsLatest"]
        s3.delete_object(Bucket=lake.bucket, Key=key, VersionId=found["DeleteMarkers"][0]["VersionId"])
        assert table.store.read(f"{table.location}/a.parquet") == b"x" * 100
        table.store.delete(f"{table.location}/a.parquet")
        table.store.write_if_absent(f"{table.location}/a.parquet", b"new")
        assert table.store.read(f"{table.location}/a.parquet") == b"new"
    everything = s3.list_object_versions(Bucket=lake.bucket)
    assert not [one for one in everything["Versions"] if ".cm-delta-probe-" in one["Key"] and one["IsLatest"]]


def test_without_permission_to_list_a_table_is_right_or_an_error(lake: S3Lake) -> None:
    """It is never read as empty or as an older version, and nothing is committed that is not acknowledged."""
    lake.create(NAME, "staged")
    assert committed(lake, "a.parquet") is None
    lake.proxy.hides_missing = True
    with lake.client() as client:
        try:
            assert paths(client.table(NAME)) == ["a.parquet"]
        except StorageError as error:
            assert "s3:ListBucket" in str(error) and not isinstance(error, ObjectNotFoundError)
    error = committed(lake, "b.parquet")
    assert error is None or "s3:ListBucket" in str(error)
    with lake.client() as client, pytest.raises(StorageError, match="s3:ListBucket"):
        client.catalog.maintenance_policies.set_maintenance_rule(ALLOWED)
        vacuum(client.table(NAME), retention_ms=0, force=True)
    lake.proxy.hides_missing = False
    check(lake, ["a.parquet"] if error else ["a.parquet", "b.parquet"])
