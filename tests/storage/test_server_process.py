"""The servers that the tests start end with the test run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server_process import free_port, is_running, server_process
from tests.support.waiting import until

STARTS_AND_DIES = """
import os, signal, sys
from pathlib import Path
from tests.support.server_process import free_port, server_process
port = free_port()
with server_process([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)], port=port) as pid:
    print(pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_server_ends_when_the_process_that_started_it_is_killed() -> None:
    starter = subprocess.run(
        [sys.executable, "-c", STARTS_AND_DIES],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert starter.returncode == -9, starter.stderr
    until(lambda: not is_running(int(starter.stdout)))


def test_a_server_ends_with_the_block_also_after_an_error() -> None:
    port = free_port()
    seen = []
    with (
        pytest.raises(ZeroDivisionError),
        server_process([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)], port=port) as pid,
    ):
        seen.append((pid, is_running(pid)))
        raise ZeroDivisionError
    assert seen[0][1] and not is_running(seen[0][0])


def test_a_server_that_does_not_start_is_an_error() -> None:
    with (
        pytest.raises(AssertionError, match="ended with exit code 7"),
        server_process([sys.executable, "-c", "raise SystemExit(7)"], port=free_port()),
    ):
        pass
