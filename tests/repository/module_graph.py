"""Which module uses which, read from the source: the package, the demo, benchmarks, tests, and the code blocks of the documents.

A module uses what it imports, also inside of functions, and the modules that its string literals name: the argument of
``import_module``, ``python -m``, a program as text, the name of a file. Imports for type checkers only do not count, since they do
not run; a package that imports names on first use lists them in its stub ``__init__.pyi``, and a user of such a name uses the
module that defines it. Importing a module also runs the ``__init__.py`` of its packages; what these import does not count.

A test also uses the fixtures that it requests, each with what its own code names, and not the whole ``conftest.py``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.repository.module_source import Part, Source, module_name, read_program, read_source

PACKAGES = ("benchmarks", "cm_delta_dagster", "definitions", "resources", "tests")

_NAMES = re.compile(
    rf"(?<![\w./])(?:{'|'.join(PACKAGES)})(?:\.\w+)+(?:\.\0)?(?![\w/])|(?<![\w./])(?:{'|'.join(PACKAGES)})\.\0"
)
"""Dotted names of modules in a text, in which ``\\0`` stands for the values of an f-string."""

_BLOCK = re.compile(r"^```(?:python|py|yaml|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMANDS = {"cm-delta": "cm_delta_dagster.cli.main"}


@dataclass(kw_only=True)
class ModuleGraph:
    """The uses between the modules below ``root``.

    A node is a module, ``<package>:init`` for an ``__init__.py`` that runs because a module below it is imported,
    ``<conftest>:file`` for the file that all tests of a folder share, ``<conftest>:<name>`` for a definition there, or the path
    of a document.

    Args:
        gone: names of modules that were deleted; what still names them uses them.
    """

    root: Path
    gone: frozenset[str] = frozenset()
    _uses: dict[str, frozenset[str]] = field(default_factory=dict)

    @cached_property
    def modules(self) -> Mapping[str, Source]:
        files = [file for package in PACKAGES for file in sorted((self.root / package).rglob("*.py"))]
        paths = {file.relative_to(self.root).as_posix(): file for file in files}
        stubs = {path: file.with_suffix(".pyi") for path, file in paths.items()}
        return {
            module_name(path): read_source(
                path, file.read_text(), stub=stubs[path].read_text() if stubs[path].exists() else None
            )
            for path, file in paths.items()
        }

    @cached_property
    def documents(self) -> Mapping[str, str]:
        """Text of each page, by its path."""
        files = sorted({*self.root.glob("*.md"), *(self.root / "docs").rglob("*.md")})
        return {file.relative_to(self.root).as_posix(): file.read_text() for file in files}

    @cached_property
    def tests(self) -> tuple[Source, ...]:
        """The modules that pytest collects, in the order of their paths."""
        return tuple(sorted((one for one in self.modules.values() if one.is_test), key=lambda one: one.path))

    @cached_property
    def _folders(self) -> frozenset[str]:
        """Names of packages, also of those without ``__init__.py``."""
        return frozenset(
            ".".join(name.split(".")[:length]) for name in self.modules for length in range(1, name.count(".") + 1)
        )

    @cached_property
    def _files(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the modules whose file has a name such as ``connect_worker.py``."""
        found: dict[str, tuple[str, ...]] = {}
        for module in self.modules.values():
            name = module.path.rpartition("/")[2]
            if name not in ("__init__.py", "conftest.py"):
                found[name] = (*found.get(name, ()), module.name)
        return found

    def uses(self, node: str) -> frozenset[str]:
        """The nodes that ``node`` uses directly."""
        if node not in self._uses:
            self._uses[node] = frozenset(self._find_uses(node)) - {node}
        return self._uses[node]

    def _find_uses(self, node: str) -> Iterator[str]:
        name, _, part = node.partition(":")
        module = self.modules.get(name)
        if node in self.documents:
            yield from self._uses_of_document(self.documents[node])
        elif module is None or part in ("init", "file"):
            return
        elif part:
            definition = module.definitions[part]
            yield from self._uses_of_part(definition, module)
            for used in definition.names:
                if used in module.bindings:
                    yield from self.targets(*module.bindings[used])
                elif used in module.definitions:
                    yield f"{module.name}:{used}"
        elif module.is_lazy:
            for origin, bound in (*module.whole.imports, *module.bindings.values()):
                yield from self.targets(origin, bound)
        else:
            yield from self._uses_of_part(module.whole, module)

    def _uses_of_document(self, text: str) -> Iterator[str]:
        for block in _BLOCK.findall(text):
            yield from self._named(block)
            if (inner := read_program(block)) is not None:
                yield from self._uses_of_part(inner, None)

    def _uses_of_part(self, part: Part, module: Source | None) -> Iterator[str]:
        for origin, name in part.imports:
            yield from self.targets(origin, name)
        starts_modules = "-m" in part.texts
        is_code_of_tests = module is None or module.name.partition(".")[0] in ("tests", "benchmarks")
        for text in part.texts:
            if starts_modules and f"{text}.__main__" in self.modules:
                yield f"{text}.__main__"
            if is_code_of_tests:
                yield from self._named(text)
                if (inner := read_program(text)) is not None:
                    yield from self._uses_of_part(inner, module)
            elif found := _NAMES.fullmatch(text.replace(":", ".")):  # A message of the package can name a module too.
                yield from self._resolved(found[0])
            yield from self._files_named(text, module)

    def _named(self, text: str) -> Iterator[str]:
        """The modules and documents that a text names."""
        for name in _NAMES.findall(text):
            yield from self._resolved(name)
        if text in _COMMANDS:
            yield _COMMANDS[text]
        if text in self.documents:
            yield text
        if text == "docs":
            yield from (page for page in self.documents if page.startswith("docs/"))

    def _files_named(self, text: str, module: Source | None) -> Iterator[str]:
        """The modules whose file a text names: those of the folder of the module if there are some, or else all of the name."""
        folder, _, name = text.rpartition("/")
        if folder or not name.startswith(
            "test_"
        ):  # A name of a test file without its folder is no path to start it by.
            names = self._files.get(name, ())
            near = [other for other in names if module and other.rpartition(".")[0] == module.name.rpartition(".")[0]]
            yield from near or names

    def _resolved(self, name: str) -> Iterator[str]:
        """Nodes of a dotted name: of the longest part of it that is a module, with the name after it."""
        if name.endswith(".\0"):
            modules = (module for module in self.modules.values() if not module.is_test)
            yield from (module.name for module in modules if module.name.rpartition(".")[0] == name[:-2])
            return
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            module = ".".join(parts[:length])
            if module in self.modules or module in self.gone:
                yield from self.targets(module, parts[length] if length < len(parts) else "")
                if f"{module}.__main__" in self.modules and length == len(parts):
                    yield f"{module}.__main__"
                return

    def targets(self, origin: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> Iterator[str]:
        """The nodes that the import of ``name`` from the module ``origin`` uses; an empty name stands for the module."""
        if origin.partition(".")[0] not in PACKAGES or (origin, name) in seen:
            return
        parts = origin.split(".")
        yield from (f"{'.'.join(parts[:length])}:init" for length in range(1, len(parts)))
        module = self.modules.get(origin)
        inner = f"{origin}.{name}"
        if name and (inner in self.modules or inner in self.gone or inner in self._folders):
            yield from (f"{origin}:init", inner)
        elif module is not None and module.is_package and name in module.bindings:
            yield f"{origin}:init"
            yield from self.targets(*module.bindings[name], seen | {(origin, name)})
        else:
            yield origin
            if module is not None and module.is_package:
                yield f"{origin}:init"

    @cached_property
    def _used_by(self) -> Mapping[str, list[str]]:
        used_by: dict[str, list[str]] = {}
        left, known = [*self.modules, *self.documents], set[str]()
        while left:
            if (node := left.pop()) not in known:
                known.add(node)
                for used in self.uses(node):
                    used_by.setdefault(used, []).append(node)
                    left.append(used)
        return used_by

    def users(self, nodes: Iterable[str]) -> frozenset[str]:
        """``nodes``, and the nodes that use one of them directly or through others; without the use of fixtures."""
        found, left = set[str](), list(nodes)
        while left:
            if (node := left.pop()) not in found:
                found.add(node)
                left += self._used_by.get(node, ())
        return frozenset(found)

    @cached_property
    def reach(self) -> Mapping[str, frozenset[str]]:
        """By the path of each module of tests: the nodes that it uses directly, through modules of tests, or through fixtures."""
        return {test.path: self._reach(test) for test in self.tests}

    def _reach(self, test: Source) -> frozenset[str]:
        parts = test.name.split(".")
        names = [".".join((*parts[:length], "conftest")) for length in range(1, len(parts))]
        conftests = [self.modules[name] for name in names if name in self.modules]
        fixtures = [
            (name, f"{conftest.name}:{name}", definition.is_autouse)
            for conftest in conftests
            for name, definition in conftest.definitions.items()
            if definition.is_fixture
        ]
        found: set[str] = set()
        left = [test.name, *(f"{conftest.name}:file" for conftest in conftests)]
        while left:
            if (node := left.pop()) not in found:
                found.add(node)
                if node.startswith("tests."):
                    requested = self._requested(node)
                    left += self.uses(node)
                    left += [fixture for name, fixture, is_autouse in fixtures if is_autouse or name in requested]
        return frozenset(found)

    def _requested(self, node: str) -> frozenset[str]:
        """Names of fixtures that a module of tests, or a definition of a ``conftest.py``, can request."""
        name, _, part = node.partition(":")
        module = self.modules.get(name)
        if module is None or part in ("init", "file"):
            return frozenset()
        return module.definitions[part].parameters if part else module.whole.parameters
