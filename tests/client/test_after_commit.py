"""Work that is put off until after a commit: where threads cannot be had, and in processes that fork."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cm_delta_dagster.client.after_commit import BackgroundWork

_FORKING = """
import os, signal, sys, threading

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.commit_mode import set_commit_policy
from cm_delta_dagster.operations.create import create_table
from cm_delta_dagster.protocol.actions import AddFile
from cm_delta_dagster.storage.stores import Stores
from tests.client.conftest import SCHEMA

root, mode = sys.argv[1:]
client = DeltaClient(SqlCatalog(f"sqlite:///{root}/catalog.db", warehouse=f"{root}/lake"), stores=Stores())
table = create_table(client, identifier="main.test.t", schema=SCHEMA)
set_commit_policy(table, CommitPolicy.parse(mode))

def append(path):
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([AddFile(path=path, partition_values={}, size=1, modification_time=1)])
    return transaction.commit().version

append("before.parquet")
child = os.fork()
if child == 0:
    signal.alarm(30)
    append("child.parquet")
    client.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0, "the child did not come to its end"
append("parent.parquet")
client.close()
"""


@pytest.mark.parametrize("mode", ["staged", "inline"])
def test_a_forked_child_commits_and_closes_without_the_threads_of_its_parent(tmp_path: Path, mode: str) -> None:
    """CM-C15, CM-P4"""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", _FORKING, str(tmp_path), mode]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    names = sorted(path.name for path in tmp_path.glob("lake/*/*/*/_delta_log/*.json"))
    assert names == [f"{version:020d}.json" for version in range(4)]


def test_work_that_no_thread_could_be_had_for_does_not_stand_in_the_way_of_later_work() -> None:
    """CM-P4"""
    work, done = BackgroundWork(), list[str]()
    before = threading.stack_size(2**46)  # More than there is: no thread starts.
    try:
        with pytest.raises(RuntimeError, match="thread"):
            work.soon("table", 1, "publication", lambda: done.append("first"), seconds=1000)
    finally:
        threading.stack_size(before)
    work.soon("table", 1, "publication", lambda: done.append("second"), seconds=1000)
    work.close()
    assert done == ["second"]
