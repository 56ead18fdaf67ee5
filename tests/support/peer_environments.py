"""Virtual environments of peers, made from ``peer_environments.toml`` and kept in the user's cache folder.

For tests and benchmarks: a peer whose packages do not fit beside those of the project runs in a process of its own.
"""

import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.cached_folders import PeerUnavailableError, cached_folder

_PINS = Path(__file__).with_name("peer_environments.toml")
_OTHER_INTERPRETERS = ("CONDA_", "PYSPARK_", "PYTHON", "SAIL_", "SPARK_", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
"""Beginnings of the names of variables that are about the interpreter of the tests."""
_OTHER_PLACES = frozenset(("PIP_CONSTRAINT", "PIP_PREFIX", "PIP_REQUIREMENT", "PIP_ROOT", "PIP_TARGET", "PIP_USER"))
"""Variables with which pip would install something else, or elsewhere."""


class PeerProgramError(RuntimeError):
    """A program of a peer ended with an error; the message has what it wrote to standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerEnvironment:
    """An interpreter for programs that read a request as JSON from standard input and answer on standard output."""

    name: str
    python: Path

    def command(self, *arguments: str) -> list[str]:
        """How to start the interpreter so that it imports nothing from elsewhere; use it with ``clean_variables``.

        Start a module or a script of this project: the environment has no other programs than the interpreter.
        """
        return [str(self.python), "-I", *arguments]

    def run_json(self, program: Path, request: object = None) -> Any:
        """The answer of a program that writes JSON."""
        return json.loads(self._run(program, request))

    def run_arrow(self, program: Path, request: object = None) -> pa.Table:
        """The rows of a program that writes a stream of Arrow IPC."""
        return pa.ipc.open_stream(self._run(program, request)).read_all()

    def _run(self, program: Path, request: object) -> bytes:
        done = subprocess.run(
            self.command(str(program)), input=json.dumps(request).encode(), capture_output=True, timeout=900,
            env=clean_variables(), check=False,
        )  # fmt: skip
        if done.returncode:
            said = done.stderr.decode(errors="replace")[-2000:]
            raise PeerProgramError(
                f"{program.name} in the environment {self.name} ended with code {done.returncode}: {said}"
            )
        return done.stdout


PROJECT = PeerEnvironment(name="project", python=Path(sys.executable))
"""The interpreter of the tests, for programs that need a process of their own."""


def pinned_packages() -> dict[str, list[str]]:
    """The packages of each environment."""
    return {name: table["packages"] for name, table in tomllib.loads(_PINS.read_text()).items()}


def peer_environment(name: str) -> PeerEnvironment:
    """The environment ``name`` of the list, which is made if no process has made it.

    Raises:
        PeerUnavailableError: pip cannot install its packages here.
    """
    packages = pinned_packages()[name]
    folder = cached_folder(folder_name(name, packages), lambda unfinished: _make(name, packages, unfinished))
    return PeerEnvironment(name=name, python=folder / "bin" / "python")


def folder_name(name: str, packages: Sequence[str]) -> str:
    """Another name for other packages, another Python and another machine."""
    version = ".".join(map(str, sys.version_info[:3]))
    made_of = [*sorted(packages), sys.version, sys.base_prefix, sysconfig.get_platform()]
    digest = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:12]
    return f"{name}-python-{version}-{digest}"


def clean_variables() -> dict[str, str]:
    """The variables of this process without those that lead another interpreter to the packages of this one."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OTHER_INTERPRETERS) and name not in _OTHER_PLACES
    }


def _make(name: str, packages: Sequence[str], folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, env=clean_variables())
    if packages:
        _install(name, packages, folder / "bin" / "python")
    for program in (folder / "bin").iterdir():  # Scripts contain the path of the unfinished folder.
        if not program.name.startswith("python"):
            program.unlink()


def _install(name: str, packages: Sequence[str], python: Path) -> None:
    pip = [sys.executable, "-P", "-m", "pip", "--python", str(python)]
    options = ["--quiet", "--no-deps", "--no-compile", "--only-binary=:all:", "--no-warn-script-location"]
    done = subprocess.run(
        [*pip, "install", *options, *packages], capture_output=True, text=True, check=False, env=clean_variables()
    )
    if done.returncode:
        raise PeerUnavailableError(
            f"The environment {name} cannot be made: pip does not install its packages. "
            f"Check that a package index is reachable. pip wrote: {done.stderr.strip()[-600:]}"
        )
    checked = subprocess.run([*pip, "check"], capture_output=True, text=True, check=False, env=clean_variables())
    if checked.returncode:
        raise ValueError(f"The list of {name} in {_PINS.name} is not complete. pip wrote: {checked.stdout.strip()}")
