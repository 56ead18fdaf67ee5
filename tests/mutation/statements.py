"""Statements of a module: which one has a position, which lines it spans, and what no mutant changes."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

Position: TypeAlias = tuple[int, int]
"""Line from 1 and column from 0."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef

_IGNORED_KEYWORDS = {"repr", "strict", "stacklevel"}
"""Arguments that change what a person sees, or that fail for mistakes of this package only (``zip(strict=True)``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement without the statements in its body.

    Attributes:
        first, last: lines, with those of decorators.
        body: first and last line of the function whose defaults or name the statement has; None for other statements.
        runs_at_import: True outside of functions, and for the header of a function that is not inside of another one.
        names: what an import-time statement defines.
    """

    first: int
    last: int
    body: tuple[int, int] | None = None
    runs_at_import: bool = False
    names: frozenset[str] = frozenset()


def statements_of(tree: ast.Module) -> list[Statement]:
    """All statements, each before the ones in its body."""
    return list(_statements(tree, in_function=False, owner=frozenset()))


def statement_at(statements: list[Statement], line: int) -> Statement:
    """The innermost statement that spans the line."""
    return [one for one in statements if one.first <= line <= one.last][-1]


def _statements(node: ast.AST, *, in_function: bool, owner: frozenset[str]) -> Iterator[Statement]:
    """``owner`` has the name of the class whose body is read."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            if isinstance(child, ast.ExceptHandler | ast.match_case):
                first = child.lineno if isinstance(child, ast.ExceptHandler) else child.pattern.lineno
                yield Statement(first=first, last=max(first, child.body[0].lineno - 1), runs_at_import=not in_function)
                yield from _statements(child, in_function=in_function, owner=owner)
            continue
        body = getattr(child, "body", None)
        last = max(child.lineno, body[0].lineno - 1) if body else (child.end_lineno or child.lineno)
        is_function = isinstance(child, _Function)
        yield Statement(
            first=min([child.lineno, *(one.lineno for one in getattr(child, "decorator_list", ()))]),
            last=last,
            body=(child.body[0].lineno, child.end_lineno or child.lineno) if isinstance(child, _Function) else None,
            runs_at_import=not in_function,
            names=frozenset() if in_function else _defined(child) | owner,
        )
        inner = frozenset([child.name]) if isinstance(child, ast.ClassDef) else owner
        yield from _statements(child, in_function=in_function or is_function, owner=inner)


def _defined(statement: ast.stmt) -> frozenset[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return frozenset([name])
        case ast.Assign(targets=targets):
            return frozenset(node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            return frozenset([name])
    return frozenset()


def ignored_spans(tree: ast.Module) -> list[tuple[Position, Position]]:
    """Where no mutant is made: annotations, type aliases, decorators, the second argument of ``isinstance``, the texts of errors,
    and arguments of ``_IGNORED_KEYWORDS``."""
    return [_span(part) for node in ast.walk(tree) for part in _ignored_parts(node)]


def _ignored_parts(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.arg(annotation=ast.expr() as annotation):
            return [annotation]
        case ast.AnnAssign(annotation=annotation, value=value):
            is_alias = isinstance(annotation, ast.Name) and annotation.id == "TypeAlias" and value is not None
            return [annotation, *([value] if is_alias and value else [])]
        case ast.FunctionDef(decorator_list=decorators, returns=returns):
            return [*decorators, *([returns] if returns else [])]
        case ast.ClassDef(decorator_list=decorators):
            return decorators
        case ast.Call(func=function, args=arguments, keywords=keywords):
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name.endswith(("Error", "Exception", "Warning")):
                return [*arguments, *(keyword.value for keyword in keywords)]
            types = arguments[1:] if name in ("isinstance", "issubclass", "cast", "TypeVar") else []
            return [*types, *(keyword.value for keyword in keywords if keyword.arg in _IGNORED_KEYWORDS)]
    return []


def _span(node: ast.expr) -> tuple[Position, Position]:
    return (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
