"""Tables in S3 through Spark's own S3 client, against an emulator: in one process, and on a cluster of processes."""

import functools
import json
import os
import shutil
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.support.peer_environments import peer_environment
from tests.support.s3_server import S3Server, s3_server
from tests.support.server_process import free_port
from tests.support.spark_jars import s3_jars
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
KEPT = [*range(3), *range(4, 62)]


@pytest.fixture(scope="module")
def jars() -> list[Path]:
    return s3_jars()


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    pytest.importorskip("s3fs")
    with s3_server() as running:
        yield running


def run(
    server: S3Server,
    jars: list[Path],
    *,
    master: str = "local[2,2]",
    steps: str = "stream",
    worker: str = "s3_worker",
    **variables: str,
) -> dict[str, Any]:
    bucket = f"spark-{uuid.uuid4().hex[:12]}"
    request = urllib.request.Request(f"{server.endpoint}/{bucket}", method="PUT")
    urllib.request.urlopen(request).close()
    server.requests.clear()
    arguments = [",".join(map(str, jars)), server.endpoint, bucket, master, steps]
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", f"tests.spark.{worker}", *arguments],
        cwd=ROOT, env=environment(**variables), capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-4000:]
    seen: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return seen


def environment(**more: str) -> dict[str, str]:
    paths = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return {**os.environ, "SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": paths, **more}


def check_rows(seen: dict[str, Any]) -> None:
    assert seen["appended"] == [*range(60), *range(1000, 1010)]
    assert seen["filtered"] == [58, 59, 1000, 1001]
    assert seen["late"] == [[58, 59, 1000, 1001], True]
    assert seen["damaged"] == [True, True]
    assert seen["merged"] == [58, 59, 60, 61]
    assert seen["deleted"] == KEPT
    assert seen["time travel"] == [[*range(60)], [*range(60), *range(1000, 1010)]]
    assert seen["new column"] == [[0, None], [1, None], [2, None], [3, "d0"]]
    assert seen["days"] == [["d0", 20], ["d1", 10], ["d2", 20]]
    assert seen["input files"] == ["s3a"]
    assert seen["arrow agrees"]
    assert seen["live"] == len(KEPT) - seen["files"]
    assert seen["optimized"] == [True, [*KEPT, 2000, 2001]]
    local_feed, feed, local_rows, rows = seen["feeds"]
    assert feed == local_feed and rows == local_rows and feed and rows
    assert seen["vacuumed"] == [True, [*KEPT, 2000, 2001]]


@pytest.fixture(scope="module")
def seen(server: S3Server, jars: list[Path]) -> dict[str, Any]:
    """All steps in a session without spark-hadoop-cloud: direct writes need no committer."""
    found = run(server, [jar for jar in jars if "hadoop-cloud" not in jar.name])
    return {**found, "copies": server.copies(), "created": [key for method, key in server.requests if method == "PUT"]}


@pytest.mark.requirements("DV-4", "DML-4", "DML-7", "CDF-3")
def test_rows_are_written_and_read(seen: dict[str, Any]) -> None:
    """On S3 as on a local disk."""
    check_rows(seen)
    assert seen["stream"] == [*KEPT, 2000, 2001]


def test_data_files_are_not_copied(seen: dict[str, Any]) -> None:
    assert seen["copies"] == []
    assert not seen["warned"]


def test_a_write_leaves_nothing_but_data_files(seen: dict[str, Any]) -> None:
    """A committer would leave an empty object with the name of each directory, and create objects that it deletes later."""
    # Hadoop creates such an object itself when it deletes the files of a failed attempt.
    created = [key for key in seen["created"] if "/repeated-" not in key]
    assert created and [key for key in created if key.endswith("/") or "__magic" in key or "_temporary" in key] == []


@pytest.mark.requirements("VAC-1")
def test_files_of_failed_attempts_are_not_committed(seen: dict[str, Any]) -> None:
    """Each row is there once, though the first attempt of each task has failed; its files are deleted."""
    rows, num_files, num_stored, num_directories, num_kept, num_after_delete = seen["repeated"]
    assert rows == list(range(8)) and num_files == num_stored == 8
    assert num_kept == num_directories > 0, "vacuum keeps the empty object of a directory in which files stay"
    assert num_after_delete == 0, "vacuum deletes the empty objects that S3A leaves"


def test_secrets_are_not_shown(seen: dict[str, Any]) -> None:
    assert seen["secrets"] == []


def test_settings_of_the_session_stay(seen: dict[str, Any]) -> None:
    assert seen["settings"]


def test_a_missing_bucket_is_one_clear_error(seen: dict[str, Any]) -> None:
    assert "no-such-bucket-here" in seen["missing bucket"]
    assert "\n" not in seen["missing bucket"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("with_cloud", [True, False])
def test_a_committer_writes_where_direct_writes_are_off(server: S3Server, jars: list[Path], with_cloud: bool) -> None:
    """Without spark-hadoop-cloud each file is copied, and a warning says so."""
    chosen = jars if with_cloud else [jar for jar in jars if "hadoop-cloud" not in jar.name]
    seen = run(server, chosen, steps="committer")
    assert seen["rows"] == list(range(6))
    assert (server.copies() == []) is with_cloud and seen["warned"] is not with_cloud


HIDING = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']
"""Starts a program for which the next argument is an empty directory."""


def can_hide(folder: Path) -> bool:
    return shutil.which("unshare") is not None and subprocess.run([*HIDING, str(folder), "true"]).returncode == 0


def _has_started(process: "subprocess.Popen[bytes]", log: Path) -> bool:
    """Whether a master serves its workers, or a worker has found its master."""
    text = log.read_text()
    assert process.poll() is None, text
    return "I have been elected leader" in text or "Successfully registered with master" in text


@contextmanager
def cluster(home: Path, hiding: list[str], hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1")) -> Iterator[str]:
    """Spark standalone with a worker process for each of the addresses of this machine."""
    spark_home = Path(pyspark.__file__).parent
    port = free_port()
    daemons = "org.apache.spark.deploy"
    master = f"spark://127.0.0.1:{port}"
    variables = {**os.environ, "SPARK_HOME": str(spark_home), "SPARK_LOCAL_IP": "127.0.0.1"}
    variables["SPARK_SCALA_VERSION"] = "2.13"
    variables.pop("PYTHONPATH", None)
    program = str(spark_home / "bin" / "spark-class")
    commands = [[program, f"{daemons}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    for number, host in enumerate(hosts):
        folder = home / f"worker{number}"
        folder.mkdir()
        options = ["--host", host, "--cores", "1", "--memory", "1g", "--work-dir", str(folder), "--webui-port", "0"]
        commands.append([*hiding, program, f"{daemons}.worker.Worker", "--host", "127.0.0.1", *options, master])
    processes = []
    try:
        for number, command in enumerate(commands):
            log = home / f"daemon{number}.log"
            with log.open("w") as written:
                process = subprocess.Popen(command, cwd=home, env=variables, stdout=written, stderr=written)
            processes.append(process)
            until(functools.partial(_has_started, process, log), failure=log.read_text)
        yield master
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """A running cluster of two workers.

    Attributes:
        home: its directory.
        hides: whether the workers do not see the files in ``home/hidden``.
    """

    master: str
    home: Path
    hides: bool


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    home = tmp_path_factory.mktemp("cluster")
    hidden = home / "hidden"
    hidden.mkdir()
    (home / "seen").mkdir()
    hides = can_hide(hidden)
    with cluster(home, [*HIDING, str(hidden)] if hides else []) as master:
        yield Workers(master=master, home=home, hides=hides)


@pytest.fixture(scope="module")
def seen_on_cluster(server: S3Server, jars: list[Path], workers: Workers) -> dict[str, Any]:
    # The driver chooses the Python program of the executors: one that has no packages.
    bare = str(peer_environment("no-packages").python)
    found = run(server, jars, master=workers.master, steps=f"python,disk={workers.home}", PYSPARK_PYTHON=bare)
    return {**found, "bare": bare, "copies": server.copies()}


@pytest.mark.exhaustive
def test_executors_do_not_need_this_package(seen_on_cluster: dict[str, Any]) -> None:
    """Executors are other processes, which read and write S3 with the settings of each read and write."""
    check_rows(seen_on_cluster)
    assert seen_on_cluster["python"] == [[seen_on_cluster["bare"], False]]
    assert seen_on_cluster["executors"] == 2
    assert seen_on_cluster["copies"] == []
    assert seen_on_cluster["disk"][0] == "3 rows"


@pytest.mark.exhaustive
def test_a_disk_that_the_executors_do_not_see_is_refused(seen_on_cluster: dict[str, Any], workers: Workers) -> None:
    if not workers.hides:
        pytest.skip("no directory can be hidden from the workers: unshare is not there, or may not mount")
    refused = seen_on_cluster["disk"][1]
    assert "do not see the files of this machine" in refused and refused.endswith(" []")


@pytest.mark.exhaustive
def test_streams_read_and_write_on_executors_that_have_this_package(
    server: S3Server, jars: list[Path], workers: Workers
) -> None:
    """A stream of one table into another, in two runs of the query, both tables in S3."""
    found = run(
        server, jars, master=workers.master, worker="s3_stream_worker", steps=str(workers.home / "streams"),
        PYSPARK_PYTHON=sys.executable,
    )  # fmt: skip
    assert found["rows"] == [[*range(20)], [*range(25)]]
    assert found["batches"] == [2, 3], "at most two files of a batch of four, then one of a file"
    assert found["read by"] == [[sys.executable, True]] and found["executors"] == 2
    assert found["secrets"] == []
