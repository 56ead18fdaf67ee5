"""Starts servers in processes of their own that end with the process that started them, even if that one is killed."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import until

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
def server_process(
    command: Sequence[str],
    *,
    port: int,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Run ``command`` until the block ends, or until this process does.

    Args:
        port: the port of this machine on which the server will listen.
        directory: its working directory.
        environment: its environment variables; by default those of this process.

    Returns:
        The process id.
    """
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", _TIED_TO_PARENT, str(os.getpid()), *command],
        cwd=directory,
        env=environment,
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


def is_running(pid: int) -> bool:
    """Whether a process exists, on Linux; one that has ended and that its parent has not read yet does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    until(
        lambda: is_listening(port) or process.poll() is not None,
        failure=lambda: f"no server listens on the port {port}",
    )
    assert process.poll() is None, f"the server ended with exit code {process.returncode}"


def is_listening(port: int) -> bool:
    """Whether a server on this machine accepts connections on the port."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
