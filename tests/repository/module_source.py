"""What the source of a module names: imports, texts, and the fixtures that its tests request."""

import ast
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.syntax_trees import parse

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_REQUESTS_BY_TEXT = frozenset({"getfixturevalue", "usefixtures", "indirect"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What some code names.

    Attributes:
        imports: module and name of each import, also in functions; the name is empty where the module itself is imported.
        texts: string literals without docstrings; the values of an f-string are written as ``\\0``.
        names: variables that it reads or binds.
        parameters: those of the tests and fixtures in it, and its texts if it requests fixtures by a text.
        is_fixture, is_autouse: whether it is a function that pytest calls for the tests that request it, or for all.
    """

    imports: tuple[tuple[str, str], ...]
    texts: tuple[str, ...]
    names: frozenset[str]
    parameters: frozenset[str]
    is_fixture: bool = False
    is_autouse: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The source of one module.

    Attributes:
        path: relative to the root of the repository.
        bindings: module and name behind each name that an import at module level binds; of a lazy package, those of its stub.
        definitions: functions, classes and assignments at module level, of a ``conftest.py``.
        is_lazy: whether it imports the names of its stub on first use.
    """

    name: str
    path: str
    whole: Part
    bindings: Mapping[str, tuple[str, str]]
    definitions: Mapping[str, Part] = field(default_factory=dict)
    is_lazy: bool

    @property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")

    @property
    def is_test(self) -> bool:
        """Whether pytest collects it."""
        return self.name.startswith("tests.") and self.name.rpartition(".")[2].startswith("test_")


def module_name(path: str) -> str:
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def read_source(path: str, text: str, *, stub: str | None = None) -> Source:
    """The source of the module whose file, and the stub beside it, have this path and text."""
    tree = parse(text)
    return Source(
        name=module_name(path),
        path=path,
        whole=read_part(tree),
        bindings=dict(_bindings(tree if stub is None else parse(stub))),
        definitions=dict(_definitions(tree)) if path.endswith("conftest.py") else {},
        is_lazy=stub is not None,
    )


def read_program(text: str) -> Part | None:
    """What a program names that is given as a text; None if the text is no program with imports."""
    if "import" not in text:
        return None
    try:
        return read_part(parse(textwrap.dedent(text.replace("\0", "_"))))
    except (SyntaxError, ValueError):
        return None


def read_part(tree: ast.AST) -> Part:
    """What ``tree`` names."""
    imports: list[tuple[str, str]] = []
    texts: list[str] = []
    names: set[str] = set()
    parameters: set[str] = set()
    of_texts: set[int] = set()
    by_text = False
    for node in (tree, *running_nodes(tree)):
        match node:
            case ast.ImportFrom(module=str(module), names=imported, level=0):
                imports += ((module, name.name) for name in imported)
            case ast.Import(names=imported):
                imports += ((name.name, "") for name in imported)
            case ast.JoinedStr(values=values):
                of_texts |= {id(value) for value in values}
                texts.append("".join(str(one.value) if isinstance(one, ast.Constant) else "\0" for one in values))
            case ast.Constant(value=str(text)) if id(node) not in of_texts:
                texts.append(text)
            case ast.Name(id=name):
                names.add(name)
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test_") or _is_fixture(node):
                parameters |= {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
        by_text |= getattr(node, "attr", getattr(node, "arg", None)) in _REQUESTS_BY_TEXT
    return Part(
        imports=tuple(imports),
        texts=tuple(texts),
        names=frozenset(names),
        parameters=frozenset(parameters | set(texts) if by_text else parameters),
        is_fixture=_is_fixture(tree),
        is_autouse=_is_fixture(tree, autouse=True),
    )


def running_nodes(tree: ast.AST, *, with_functions: bool = True) -> Iterator[ast.AST]:
    """All nodes below ``tree`` but docstrings, those that only a type checker reads, and optionally those in functions.

    A node comes before the nodes below it.
    """
    left = list(ast.iter_child_nodes(tree))
    while left:
        match left.pop():
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")) as child:
                left += child.orelse
            case ast.Expr(value=ast.Constant()):
                pass
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() if not with_functions:
                pass
            case child:
                yield child
                left += ast.iter_child_nodes(child)


def _bindings(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    for node in running_nodes(tree, with_functions=False):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                yield from ((name.asname or name.name, (module, name.name)) for name in names)
            case ast.Import(names=names):
                yield from ((name.asname or name.name.partition(".")[0], (name.name, "")) for name in names)


def _definitions(tree: ast.Module) -> Iterator[tuple[str, Part]]:
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, read_part(node)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, read_part(node)


def _is_fixture(node: ast.AST, *, autouse: bool = False) -> bool:
    if not isinstance(node, _Function):
        return False
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any("fixture" in text and (not autouse or "autouse=True" in text) for text in decorators)
