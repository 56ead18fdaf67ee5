"""A class or type alias has one meaning in the package."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.repository.requirements import ROOT
from tests.support.syntax_trees import parse


def defined_types(tree: ast.Module) -> Iterator[str]:
    """The names of all classes of a module, and of the type aliases at module level.

    Neither type variables nor abbreviations of another name, such as ``_Op = ComparisonOperator``, are types of their own.
    """
    yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    for node in tree.body:
        match node:
            case ast.AnnAssign(
                target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias") | ast.Attribute(attr="TypeAlias")
            ):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() | ast.BinOp()) if _is_camel_case(name):
                yield name
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="type" | "NewType" | "NamedTuple"))
            ):
                yield name


def _is_camel_case(name: str) -> bool:
    letters = name.lstrip("_")
    return letters[:1].isupper() and not letters.isupper()


def _modules_by_type() -> dict[str, list[str]]:
    modules: dict[str, list[str]] = defaultdict(list)
    for file in sorted((ROOT / "cm_delta_dagster").rglob("*.py")):
        for name in defined_types(parse(file.read_text())):
            modules[name].append(str(file.relative_to(ROOT)))
    return modules


def test_no_name_of_a_class_or_type_alias_is_defined_twice() -> None:
    modules = _modules_by_type()
    assert len(modules) > 500
    repeated = {name: files for name, files in modules.items() if len(files) > 1}
    assert repeated == {}


def test_classes_and_all_forms_of_type_aliases_are_found() -> None:
    text = """
class Plain: ...
def function():
    class _Inner: ...
Alias: TypeAlias = int
Other: typing.TypeAlias = int
_Union = int | str
Generic = Mapping[str, int]
_Kind = type(value)
_Op = ComparisonOperator
_T = TypeVar("_T")
LIMIT = 2 << 3
number = values[0]
"""
    assert list(defined_types(parse(text))) == ["Plain", "_Inner", "Alias", "Other", "_Union", "Generic", "_Kind"]
