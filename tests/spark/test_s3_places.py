"""Tables in S3 through Spark at unusual places: odd names, the root of a bucket, two servers, keys that expire."""

import json
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.s3_places_worker import VALUES
from tests.spark.test_s3 import ROOT, environment
from tests.support.s3_server import S3Server, s3_server
from tests.support.short_lived_keys import KEY_PREFIX, short_lived_keys
from tests.support.spark_jars import s3_jars

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[S3Server, S3Server]]:
    pytest.importorskip("s3fs")
    with s3_server() as first, s3_server() as second:
        yield first, second


@pytest.fixture(scope="module")
def bucket() -> str:
    return f"places-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def seen(servers: tuple[S3Server, S3Server], bucket: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    first, second = servers
    for name in (bucket, f"{bucket}-root", f"{bucket}-other", f"{bucket}-renewed"):
        urllib.request.urlopen(urllib.request.Request(f"{first.endpoint}/{name}", method="PUT")).close()
    first.requests.clear()
    keys = short_lived_keys(tmp_path_factory.mktemp("keys"), seconds=17)
    arguments = [",".join(map(str, s3_jars())), first.endpoint, second.endpoint, bucket]
    worker = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.s3_places_worker", *arguments],
        cwd=ROOT, env=environment(**keys), capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert worker.returncode == 0, worker.stderr[-4000:]
    found: dict[str, Any] = json.loads(worker.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.requirements("DV-4")
def test_names_with_any_characters_work(seen: dict[str, Any]) -> None:
    """In the path of the warehouse, in the table's name and in partition values; all spellings of a path are one."""
    rows, agree, one_place = seen["odd names"]
    assert rows == [
        *([number, value] for number, value in enumerate(VALUES)),
        *([n + 200, VALUES[n]] for n in range(3)),
    ]
    assert agree and one_place


def test_a_warehouse_can_be_a_whole_bucket(seen: dict[str, Any], bucket: str) -> None:
    location, rows = seen["root"]
    assert location.startswith(f"s3://{bucket}-root/main/sales/t") and rows == [0, 0, 1, 1, 2, 2]


def test_one_session_reaches_two_servers_with_their_own_keys(
    seen: dict[str, Any], servers: tuple[S3Server, S3Server], bucket: str
) -> None:
    one, other, joined, places = seen["two stores"]
    assert one == [*range(5), 7, 8] and other == [*range(5), 7, 8] and joined == 7
    assert places == [f"s3://{bucket}/two".removesuffix("/two"), f"s3://{bucket}-other"]
    first, second = servers
    assert second.signers == {(f"{bucket}-other", "AKIDSECOND")}
    assert {key for name, key in first.signers if name == bucket} == {"AKIDFIRST"}
    assert f"{bucket}-other" not in {name for name, _ in first.signers}


def test_keys_that_expire_are_renewed_by_spark(
    seen: dict[str, Any], servers: tuple[S3Server, S3Server], bucket: str
) -> None:
    assert seen["renewed"] == [0, 1, 2, 3, 4]
    keys = {key for name, key in servers[0].signers if name == f"{bucket}-renewed"}
    assert len(keys) > 2 and all(key.startswith(KEY_PREFIX) for key in keys)


def test_a_key_that_only_spark_has_wrong_is_one_clear_error(seen: dict[str, Any]) -> None:
    assert seen["wrong key"].startswith("StorageError: The store refuses Spark's requests while reading rows: ")
    assert "\n" not in seen["wrong key"] and "Check Spark's credentials" in seen["wrong key"]
