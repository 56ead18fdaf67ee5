"""Starts servers in processes of their own that end with the process that started them, even if that one is killed."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_TIED_TO_PARENT = """
import ctypes, os, signal, sys
parent, command = int(sys.argv[1]), sys.argv[2:]
if sys.platform == "linux":
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the process that started this one has ended")
os.execvp(command[0], command)
"""
"""Becomes the program; Linux kills it when the thread that started it ends. Elsewhere it outlives a killed test run."""


@contextmanager
def server_process(command: Sequence[str], *, port: int, directory: Path | None = None) -> Iterator[int]:
    """Run ``command`` until the block ends, or until this process does.

    Args:
        port: the port of this machine on which the server will listen.
        directory: its working directory.

    Returns:
        The process id.
    """
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", _TIED_TO_PARENT, str(os.getpid()), *command],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, process)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert process.poll() is None, f"the server ended with exit code {process.returncode}"
            time.sleep(0.05)
    raise AssertionError("the server did not start within 30 seconds")
