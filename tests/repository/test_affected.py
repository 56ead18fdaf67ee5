"""Which tests a change can touch, in a small tree where each kind of use is planted, and in this repository."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.affected import affected, changed_files, graph_without, main
from tests.repository.module_graph import ModuleGraph
from tests.repository.requirements import ROOT

PLANTED: Mapping[str, str] = {
    "cm_delta_dagster/__init__.py": "def __getattr__(name): ...\n",
    "cm_delta_dagster/__init__.pyi": "from cm_delta_dagster.lazy import Lazy as Lazy\n"
    "from cm_delta_dagster.other import Other as Other\n",
    "cm_delta_dagster/lazy.py": "from cm_delta_dagster.deep import depth\nclass Lazy: ...\n",
    "cm_delta_dagster/other.py": "class Other: ...\n",
    "cm_delta_dagster/deep.py": "depth = 1\n",
    "cm_delta_dagster/typed.py": "class Typed: ...\n",
    "cm_delta_dagster/checked.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
    "    from cm_delta_dagster.typed import Typed\nelse:\n    from cm_delta_dagster import deep\n",
    "cm_delta_dagster/commands/group.py": "from importlib import import_module\n"
    "def run(name): return import_module(f'cm_delta_dagster.commands.{name}')\n",
    "cm_delta_dagster/commands/hello.py": "def hello(): from cm_delta_dagster.other import Other\n",
    "cm_delta_dagster/sql/install.py": "SCRIPT = 'make.sql'\nHOME = 'cm_delta_dagster:sql/steps'\n",
    "cm_delta_dagster/sql/make.sql": "SELECT 1",
    "cm_delta_dagster/sql/steps/first.py": "",
    "cm_delta_dagster/public/__init__.py": "from cm_delta_dagster.public.one import One\n"
    "from cm_delta_dagster.public.two import Two\n",
    "cm_delta_dagster/public/one.py": "class One: ...\n",
    "cm_delta_dagster/public/two.py": "class Two: ...\n",
    "definitions/__main__.py": "from cm_delta_dagster import Other\n",
    "docs/page.md": "Text\n```python\nfrom cm_delta_dagster import Other\n```\n",
    "pyproject.toml": "",
    "tests/conftest.py": "import pytest\nfrom cm_delta_dagster.deep import depth\nfrom cm_delta_dagster.other import Other\n"
    "def helper(): return depth\n@pytest.fixture\ndef deep(): return helper()\n"
    "@pytest.fixture\ndef deeper(deep): return deep\n@pytest.fixture\ndef unused(): return Other\n",
    "tests/area/conftest.py": "import pytest\n@pytest.fixture(autouse=True)\ndef always():\n"
    "    from cm_delta_dagster.typed import Typed\n",
    "tests/area/test_autouse.py": "def test_it(): ...\n",
    "tests/contract.py": "class Contract:\n    def test_it(self, deeper): ...\n",
    "tests/worker.py": "from cm_delta_dagster.other import Other\n",
    "tests/test_lazy.py": "from cm_delta_dagster import Lazy\n",
    "tests/test_checked.py": "def test_it():\n    import cm_delta_dagster.checked\n",
    "tests/test_fixture.py": "def test_it(deeper): ...\n",
    "tests/test_fixture_by_name.py": "def test_it(request): request.getfixturevalue('deep')\n",
    "tests/test_contract.py": "from tests.contract import Contract\nclass TestIt(Contract): ...\n",
    "tests/test_module_process.py": "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'tests.worker'])\n",
    "tests/test_file_process.py": "WORKER = 'worker.py'\n",
    "tests/test_program.py": "PROGRAM = '''\n    from cm_delta_dagster import Other\n'''\n",
    "tests/test_demo.py": "COMMAND = ['python', '-m', 'definitions']\n",
    "tests/test_word.py": "KEY = 'definitions'\n",
    "tests/test_commands.py": "from cm_delta_dagster.commands.group import run\n",
    "tests/test_sql.py": "from cm_delta_dagster.sql.install import SCRIPT\n",
    "tests/test_public.py": "from cm_delta_dagster.public import One\n",
    "tests/docs/test_pages.py": "PAGES = 'docs'\n",
    "tests/repository/test_words.py": "",
}

OTHER_USERS = {
    "test_commands",
    "test_demo",
    "test_file_process",
    "test_module_process",
    "test_pages",
    "test_program",
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("planted")
    for path, text in PLANTED.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.fixture(scope="module")
def graph(planted: Path) -> ModuleGraph:
    return ModuleGraph(root=planted)


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ("cm_delta_dagster/lazy.py", {"test_lazy"}),
        ("cm_delta_dagster/other.py", OTHER_USERS),
        (
            "cm_delta_dagster/deep.py",
            {"test_lazy", "test_checked", "test_contract", "test_fixture", "test_fixture_by_name"},
        ),
        ("cm_delta_dagster/typed.py", {"test_autouse"}),
        ("cm_delta_dagster/commands/hello.py", {"test_commands"}),
        ("cm_delta_dagster/sql/make.sql", {"test_sql"}),
        ("cm_delta_dagster/sql/steps/first.py", {"test_sql"}),
        ("cm_delta_dagster/public/one.py", {"test_public"}),
        ("cm_delta_dagster/public/two.py", set()),
        ("cm_delta_dagster/public/__init__.py", {"test_public"}),
        ("docs/page.md", {"test_pages"}),
        ("tests/worker.py", {"test_module_process", "test_file_process"}),
        ("tests/contract.py", {"test_contract"}),
        ("tests/area/conftest.py", {"test_autouse"}),
        ("tests/test_word.py", {"test_word"}),
        ("mkdocs.yml", set()),
        (".ci/run", set()),
    ],
)
def test_a_change_touches_the_tests_that_use_the_file(graph: ModuleGraph, changed: str, names: set[str]) -> None:
    assert {Path(path).stem for path in affected([changed], graph)} == names | {"test_words"}


def test_a_change_of_a_stub_touches_what_a_change_of_its_module_does(graph: ModuleGraph) -> None:
    module = "cm_delta_dagster/__init__.py"
    assert affected([f"{module}i"], graph) == affected([module], graph)


@pytest.mark.parametrize("changed", ["pyproject.toml", "tests/conftest.py"])
def test_a_change_of_what_all_tests_share_touches_everything(graph: ModuleGraph, changed: str) -> None:
    assert len(affected([changed], graph)) == sum("/test_" in path for path in PLANTED)


def test_no_change_touches_nothing(graph: ModuleGraph) -> None:
    assert affected([], graph) == []


def test_a_deleted_module_touches_what_still_names_it(planted: Path) -> None:
    (planted / "tests/test_broken.py").write_text("from cm_delta_dagster import deleted\n")
    changed = ["cm_delta_dagster/deleted.py"]
    names = [Path(path).stem for path in affected(changed, graph_without(changed, root=planted))]
    (planted / "tests/test_broken.py").unlink()
    assert names == ["test_words", "test_broken"]


def test_the_change_is_what_differs_from_the_last_common_commit(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def commit(**files: str) -> None:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        git("add", ".")
        git("commit", "-qm", "c")

    git("init", "-qb", "main")
    commit(kept="1", edited="1", moved="a longer text that git sees as the same")
    git("checkout", "-qb", "work")
    commit(committed="1")
    git("mv", "moved", "target")
    (tmp_path / "edited").write_text("2")
    (tmp_path / "new").write_text("1")
    git("worktree", "add", "-q", str(tmp_path.parent / "other"), "main")
    (tmp_path.parent / "other" / "theirs").write_text("1")
    git("-C", str(tmp_path.parent / "other"), "add", ".")
    git("-C", str(tmp_path.parent / "other"), "commit", "-qm", "c")
    assert changed_files("main", root=tmp_path) == ["committed", "edited", "moved", "new", "target"]
    with pytest.raises(SystemExit, match="git merge-base nothing HEAD"):
        changed_files("nothing", root=tmp_path)


def test_a_command_without_a_base_shows_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--rest"]) == 2
    assert "usage: python -m tests.affected BASE" in capsys.readouterr().err


@pytest.fixture(scope="module")
def repository() -> ModuleGraph:
    return ModuleGraph(root=ROOT)


@pytest.mark.parametrize(
    ("changed", "touched", "untouched"),
    [
        (
            "cm_delta_dagster/protocol/log/checkpoints.py",
            {"protocol/log/test_checkpoints.py", "client/snapshots/test_log_layouts.py", "docs/test_snippets.py"},
            {"protocol/schema/test_types.py", "storage/test_server_process.py"},
        ),
        (
            "cm_delta_dagster/orchestration/sensor/sensors.py",
            {"orchestration/sensor/test_sensors.py", "definitions/test_demo.py"},
            {"operations/writing/test_merge.py", "protocol/log/test_checkpoints.py", "spark/read/test_scan.py"},
        ),
        ("cm_delta_dagster/cli/commands/rewriting.py", {"cli/commands/test_clone.py"}, {"spark/read/test_scan.py"}),
        ("cm_delta_dagster/protocol/features/expressions.py", {"operations/tables/test_constraints.py"}, set()),
        (
            "cm_delta_dagster/catalog/sql/database/migrations/from_0013.py",
            {"catalog/sql/database/test_migrations.py", "api/test_clones.py"},
            set(),
        ),
        (
            "cm_delta_dagster/spark/jvm/Skipping.java",
            {"spark/read/test_file_index.py"},
            {"protocol/schema/test_types.py"},
        ),
        ("definitions/defs/flights.py", {"definitions/test_demo.py"}, {"orchestration/sensor/test_sensors.py"}),
        ("tests/spark/connect_worker.py", {"spark/test_connect.py"}, {"spark/read/test_scan.py"}),
        ("tests/contracts/leases_contract.py", {"catalog/test_catalog_contract.py"}, {"spark/read/test_scan.py"}),
        ("tests/golden/tables.tar.gz", {"golden/test_golden.py"}, {"protocol/schema/test_types.py"}),
        (
            "docs/rules.md",
            {"docs/test_snippets.py", "docs/test_reference.py"},
            {"orchestration/sensor/test_sensors.py"},
        ),
        ("README.md", {"docs/test_snippets.py"}, {"orchestration/sensor/test_sensors.py"}),
        ("deployment/compose.yaml", {"deployment/test_settings.py"}, {"docs/test_snippets.py"}),
    ],
)
def test_a_change_in_the_repository_touches_its_tests(
    repository: ModuleGraph, changed: str, touched: set[str], untouched: set[str]
) -> None:
    found = {path.removeprefix("tests/") for path in affected([changed], repository)}
    assert (ROOT / changed).exists() and all((ROOT / "tests" / path).exists() for path in touched | untouched)
    assert touched - found == set() and untouched & found == set()
    assert "repository/test_words.py" in found


def test_each_module_is_named_by_another_or_read_through_its_folder(repository: ModuleGraph) -> None:
    modules = [module.path for module in repository.modules.values() if module.path.startswith("cm_delta_dagster/")]
    without_tests = [
        path for path in modules if all(name.startswith("tests/repository/") for name in affected([path], repository))
    ]
    assert without_tests == []
