"""``python -m tests.affected BASE`` prints the test files that the change since the revision BASE can touch.

The change is what differs from the last common commit with BASE, uncommitted and new files included. A test file is touched if it
can reach a changed module by the uses that :mod:`tests.repository.module_graph` finds. A changed file that is no Python touches the
modules that name it, or else those that name its folder. A change of ``pyproject.toml`` or of ``tests/conftest.py`` touches
everything, and each change touches the tests of the repository, which read all files.

Options: ``--rest`` prints the files that are not touched instead; ``--run`` runs pytest on the touched ones with the arguments that
follow it.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.repository.module_graph import PACKAGES, ModuleGraph
from tests.repository.module_source import Part, Source, module_name

ROOT = Path(__file__).parents[1]
EVERYTHING = ("pyproject.toml", "tests/conftest.py")
READ_ALL_FILES = "tests/repository/"
FOLDERS = {
    ".ci/": "tests/repository/",
    ".github/": "tests/repository/",
    "deployment/": "tests/deployment/",
    "docs/": "tests/docs/",
}
"""Folders without modules, and the tests that a change of their files touches."""


def changed_files(base: str, *, root: Path = ROOT) -> list[str]:
    """Paths of the files that differ from the last common commit with ``base``, also those that are deleted or new."""
    start = git(root, "merge-base", base, "HEAD").strip()
    changed = git(root, "diff", "--name-only", "--no-renames", start).splitlines()
    return sorted({*changed, *git(root, "ls-files", "--others", "--exclude-standard").splitlines()})


def git(root: Path, *arguments: str) -> str:
    """What a git command prints; its failure ends the program with git's message."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def graph_without(changed: Iterable[str], *, root: Path = ROOT) -> ModuleGraph:
    """The graph of the modules below ``root``, in which those of ``changed`` that do not exist are known as deleted."""
    gone = (path for path in changed if path.endswith(".py") and not (root / path).exists())
    return ModuleGraph(root=root, gone=frozenset(map(module_name, gone)))


def affected(changed: Iterable[str], graph: ModuleGraph) -> list[str]:
    """Paths of the test files that a change of the files ``changed`` can touch."""
    paths = sorted(changed)
    everything = [test.path for test in graph.tests]
    if any(path in EVERYTHING for path in paths):
        return everything
    folders = tuple(folder for prefix, folder in FOLDERS.items() if any(path.startswith(prefix) for path in paths))
    if paths:
        folders += (READ_ALL_FILES,)
    touched = graph.users(node for path in paths for node in _nodes(graph, path))
    return [
        test.path
        for test in graph.tests
        if test.path.startswith(folders) or not touched.isdisjoint(graph.reach[test.path])
    ]


def _nodes(graph: ModuleGraph, path: str) -> Iterator[str]:
    """The nodes of the graph that a changed file is, or that read it."""
    path = path.removesuffix("i") if path.endswith(".pyi") else path
    name = module_name(path)
    if path.endswith("/conftest.py"):
        yield from (name, f"{name}:file")
    elif path in graph.documents:
        yield from (path, *_readers(graph, path))
    elif not path.endswith(".py") or path.partition("/")[0] not in PACKAGES:
        yield from _readers(graph, path) or _neighbours(graph, path)
    else:
        yield from (name, f"{name}:init")
        if name in graph.modules and not _is_used(graph, name):
            yield from _readers(graph, path) or _neighbours(graph, path)


def _is_used(graph: ModuleGraph, name: str) -> bool:
    """Whether pytest collects the module, or another module names it."""
    module, nodes = graph.modules[name], {name, f"{name}:init"}
    return module.is_test or any(
        not nodes.isdisjoint(graph.uses(other.name))
        for other in graph.modules.values()
        if other is not module and not other.path.startswith(READ_ALL_FILES)
    )


def _readers(graph: ModuleGraph, path: str) -> list[str]:
    """The modules with a string that names the file, or else its nearest folder that a string names."""
    file = Path(path)
    names = [file.name] if file.name != "__init__.py" else []
    if file.suffix not in ("", ".md", ".py"):
        names.append(file.stem)
    if file.parts[0] in PACKAGES:
        names += reversed(file.parent.parts[1:])
    for name in names:
        pattern = re.compile(rf"(?:.*[/:])?{re.escape(name)}(?:/.*)?", re.DOTALL)
        found = [
            node
            for module in graph.modules.values()
            if module.path != path
            and module.path.partition("/")[0] in (file.parts[0], "tests")
            and not module.path.startswith(READ_ALL_FILES)
            for node, part in ((module.name, module.whole), *_definitions(module))
            if any(pattern.fullmatch(text) for text in part.texts)
        ]
        if found:
            return found
    return []


def _definitions(module: Source) -> Iterator[tuple[str, Part]]:
    """Nodes of the definitions of a ``conftest.py``."""
    yield from ((f"{module.name}:{name}", part) for name, part in module.definitions.items())


def _neighbours(graph: ModuleGraph, path: str) -> list[str]:
    """The modules of the nearest folder above the file that has modules of its own."""
    for folder in list(Path(path).parents)[:-1]:
        found = [
            name for name, module in graph.modules.items() if Path(module.path).parent == folder and module.path != path
        ]
        if found:
            return found
    return []


def main(arguments: Sequence[str]) -> int:
    """Carries out the command; the exit code is that of pytest with ``--run``."""
    options = list(arguments)
    tail: list[str] | None = None
    if "--run" in options:
        at = options.index("--run")
        options, tail = options[:at], options[at + 1 :]
    rest = "--rest" in options
    names = [option for option in options if option != "--rest"]
    if len(names) != 1 or names[0].startswith("-"):
        print("usage: python -m tests.affected BASE [--rest] [--run [PYTEST_ARGUMENT ...]]", file=sys.stderr)
        return 2
    changed = changed_files(names[0])
    graph = graph_without(changed)
    files = affected(changed, graph)
    others = [test.path for test in graph.tests if test.path not in set(files)]
    print(f"affected: {len(files)} test files; not affected: {len(others)} (list them with --rest)", file=sys.stderr)
    if tail is None:
        print(*(others if rest else files), sep="\n")
        return 0
    return (
        subprocess.run([sys.executable, "-m", "pytest", *tail, *files], cwd=ROOT, check=False).returncode
        if files
        else 0
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
