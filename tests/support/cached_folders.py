"""Folders of the user's cache that tests and benchmarks fill at first use: jars, servers, environments of the peers."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

_COMPLETE = "complete"
"""File that a complete folder contains."""

_unavailable: dict[Path, "PeerUnavailableError"] = {}
"""What could not be made in this process: each attempt to reach a registry may take long."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class PeerUnavailableError(RuntimeError):
    """What a test compares with cannot be installed on this machine; the message says why."""


def cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cm-delta-dagster"


def cached_folder(name: str, make: Callable[[Path], object]) -> Path:
    """The folder ``name`` of the cache.

    One process makes it, others wait for it. The folder appears when it is complete: a process that is killed leaves
    only what the next one removes.

    Args:
        make: fills the empty folder that it is given, which gets its name afterwards: what is there must work at
            another path.

    Raises:
        PeerUnavailableError: from ``make``, which is not called again in this process.
    """
    folder = cache_home() / name
    if folder in _unavailable:
        raise _unavailable[folder]
    if not (folder / _COMPLETE).exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.with_name(f".{name}.lock")):
            if not (folder / _COMPLETE).exists():
                _fill(folder, make)
    return folder


def _fill(folder: Path, make: Callable[[Path], object]) -> None:
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        make(unfinished)
    except BaseException as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        if isinstance(error, PeerUnavailableError):
            _unavailable[folder] = error
        raise
    (unfinished / _COMPLETE).touch()
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Hold the lock of the file, which the system releases when the process ends."""
    with file.open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def or_skip(get: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
    """What ``get`` returns. Where the peer is unavailable the test is skipped, or fails if ``CM_DELTA_REQUIRE_PEERS`` is set."""
    try:
        return get(*arguments, **named)
    except PeerUnavailableError as error:
        if os.environ.get("CM_DELTA_REQUIRE_PEERS"):
            raise
        pytest.skip(str(error))
