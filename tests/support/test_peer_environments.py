"""The environments of peers: exact versions, one way to make them, and nothing of the tests' own interpreter in them."""

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.support.cached_folders import PeerUnavailableError, cache_home
from tests.support.peer_environments import (
    PROJECT,
    PeerProgramError,
    folder_name,
    peer_environment,
    pinned_packages,
)

ROOT = Path(__file__).parents[2]
PRINTS_PATH = "import json, os, sys; json.dump([sys.prefix, sys.path, [*os.environ]], sys.stdout)"


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_home()


def test_every_version_is_exact_and_stands_once() -> None:
    for name, packages in pinned_packages().items():
        assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", package) for package in packages), name
        alone = [package.partition("==")[0] for package in packages]
        assert alone == sorted(set(alone)), name


def test_pyspark_client_is_not_installed_beside_pyspark() -> None:
    """It has the same files. The client of Sail is the ``pyspark[connect]`` of the project."""
    for packages in (*pinned_packages().values(), [*metadata.packages_distributions()["pyspark"]]):
        assert not {"pyspark", "pyspark-client"} <= {package.partition("==")[0] for package in packages}


def test_another_list_is_another_folder() -> None:
    folder = folder_name("peer", ["a==1", "b==2"])
    assert folder == folder_name("peer", ["b==2", "a==1"])
    assert len({folder, folder_name("peer", ["a==1"]), folder_name("peer", ["a==1", "b==3"])}) == 3


def test_a_program_sees_the_environment_and_nothing_else(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {"PYTHONPATH", "PYTHONHOME", "SPARK_HOME", "VIRTUAL_ENV", "PIP_TARGET", "SAIL_MODE"}
    for name in others:
        monkeypatch.setenv(name, str(ROOT))
    program = tmp_path / "program.py"
    program.write_text(PRINTS_PATH)
    prefix, path, variables = peer_environment("no-packages").run_json(program)
    assert Path(prefix).parent == empty_cache
    assert not any(entry.startswith((str(ROOT), sys.prefix, str(tmp_path / "program"))) for entry in path)
    assert "PATH" in variables and not others.intersection(variables)
    bin_directory = peer_environment("no-packages").python.parent
    assert all(file.name.startswith("python") for file in bin_directory.iterdir())


def test_the_error_of_a_program_is_shown(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys; sys.exit(f'refused {sys.stdin.read()}')")
    with pytest.raises(
        PeerProgramError, match=r"program\.py in the environment project ended with code 1: refused \[1\]"
    ):
        PROJECT.run_json(program, [1])


def test_without_a_package_index_an_environment_is_unavailable(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(
        PeerUnavailableError, match=r"sail cannot be made.*package index is reachable.*pysail=="
    ) as raised:
        peer_environment("sail")
    assert "\n" not in str(raised.value).partition("pip wrote")[0]
    assert all(file.name.endswith(".lock") for file in empty_cache.iterdir())


def test_environments_are_made_in_one_module_only() -> None:
    here = {Path(__file__), ROOT / "tests/support/peer_environments.py"}
    makes = re.compile(r"""["']-m["'],\s*["'](venv|virtualenv|ensurepip|pip)["']|\bimport (venv|ensurepip)\b""")
    files = [file for folder in ("tests", "benchmarks") for file in (ROOT / folder).rglob("*.py")]
    assert [str(file.relative_to(ROOT)) for file in files if file not in here and makes.search(file.read_text())] == []
