"""Which changes to the code make a mutant: operators of cosmic-ray, and some for what it leaves out.

cosmic-ray has an operator for each pair of comparisons and of arithmetic operators. Most of those mutants fail with any test
that runs the line (``"a" / "b"``), or behave as the original does (``is`` for ``==``), so that few of them say something of
the tests. ``OPERATORS`` has for each operator the replacements that a mistake would make.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import parso
from cosmic_ray.operators import (
    binary_operator_replacement,
    boolean_replacer,
    break_continue,
    comparison_operator_replacement,
    exception_replacer,
    number_replacer,
    unary_operator_replacement,
    zero_iteration_for_loop,
)
from cosmic_ray.operators.operator import Example, Operator

_Position: TypeAlias = tuple[tuple[int, int], tuple[int, int]]

_COMPARISONS = {
    "Eq_NotEq",
    "NotEq_Eq",
    "Lt_LtE",
    "Lt_GtE",
    "LtE_Lt",
    "LtE_Gt",
    "Gt_GtE",
    "Gt_LtE",
    "GtE_Gt",
    "GtE_Lt",
    "Is_IsNot",
    "IsNot_Is",
}
_BINARY = {
    "Add_Sub",
    "Sub_Add",
    "Mul_FloorDiv",
    "Div_Mul",
    "FloorDiv_Mul",
    "Mod_FloorDiv",
    "Pow_Mul",
    "RShift_LShift",
    "LShift_RShift",
    "BitOr_BitAnd",
    "BitAnd_BitOr",
    "BitXor_BitOr",
}
_UNARY = {"Delete_USub", "Delete_Invert", "Delete_Not"}


class NegateMembership(Operator):
    """``in`` and ``not in`` take each other's place."""

    def mutation_positions(self, node: Any) -> Iterator[_Position]:
        if node.type == "comparison":
            yield from ((operator.start_pos, operator.end_pos) for operator in _memberships(node))

    def mutate(self, node: Any, index: int) -> Any:
        operator = _memberships(node)[index]
        negated = " not in" if operator.get_code().strip() == "in" else " in"
        node.children[node.children.index(operator)] = parso.parse(negated)
        return node

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return (Example("x in y", "x not in y"), Example("x not in y", "x in y"))


def _memberships(node: Any) -> list[Any]:
    return [child for child in node.children[1::2] if child.get_code().split() in (["in"], ["not", "in"])]


class NegateLaterCondition(Operator):
    """Negates the conditions of ``elif`` and of comprehensions; ``AddNot`` negates those of ``if``, ``while`` and ternaries."""

    def mutation_positions(self, node: Any) -> Iterator[_Position]:
        yield from ((node.children[at].start_pos, node.children[at].end_pos) for at in _later_conditions(node))

    def mutate(self, node: Any, index: int) -> Any:
        at = _later_conditions(node)[index]
        node.children[at] = parso.parse(f" (not ({node.children[at].get_code().strip()}))")
        return node

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return (
            Example("if a: pass\nelif b: pass", "if a: pass\nelif (not (b)): pass"),
            Example("[x for x in y if x]", "[x for x in y if (not (x))]"),
        )


def _later_conditions(node: Any) -> list[int]:
    if node.type == "if_stmt":
        keywords = (at for at, child in enumerate(node.children) if child.type == "keyword" and child.value == "elif")
        return [at + 1 for at in keywords]
    return [1] if node.type == "comp_if" else []


_AUGMENTED = {"+=": "-=", "-=": "+=", "|=": "&=", "&=": "|="}


class SwapAugmentedAssignment(Operator):
    """``+=`` and ``-=`` take each other's place, and so do ``|=`` and ``&=``."""

    def mutation_positions(self, node: Any) -> Iterator[_Position]:
        if node.type == "operator" and node.value in _AUGMENTED:
            yield (node.start_pos, node.end_pos)

    def mutate(self, node: Any, index: int) -> Any:
        assert index == 0
        node.value = _AUGMENTED[node.value]
        return node

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return tuple(Example(f"x {before} y", f"x {after} y") for before, after in _AUGMENTED.items())


class RemoveCall(Operator):
    """A statement that is a call, such as a check that raises, does nothing."""

    def mutation_positions(self, node: Any) -> Iterator[_Position]:
        if node.type == "simple_stmt" and _is_call(node.children[0]):
            yield (node.children[0].start_pos, node.children[0].end_pos)

    def mutate(self, node: Any, index: int) -> Any:
        assert index == 0
        node.children[0] = parso.parse(f"{node.children[0].get_first_leaf().prefix}pass")
        return node

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return (Example("check(x)\n", "pass\n"),)


def _is_call(node: Any) -> bool:
    if node.type not in ("atom_expr", "power"):
        return False
    last = node.children[-1]
    return bool(last.type == "trailer" and last.children[0].value == "(")


def _chosen(operators: Iterable[type[Operator]], suffixes: set[str]) -> dict[str, Operator]:
    chosen = {one.__name__: one() for one in operators if one.__name__.partition("_")[2] in suffixes}
    assert len(chosen) == len(suffixes), "cosmic-ray names its operators in another way"
    return chosen


_OTHERS = (
    boolean_replacer.AddNot,
    boolean_replacer.ReplaceTrueWithFalse,
    boolean_replacer.ReplaceFalseWithTrue,
    boolean_replacer.ReplaceAndWithOr,
    boolean_replacer.ReplaceOrWithAnd,
    break_continue.ReplaceBreakWithContinue,
    break_continue.ReplaceContinueWithBreak,
    exception_replacer.ExceptionReplacer,
    number_replacer.NumberReplacer,
    zero_iteration_for_loop.ZeroIterationForLoop,
    NegateMembership,
    NegateLaterCondition,
    SwapAugmentedAssignment,
    RemoveCall,
)

OPERATORS: Mapping[str, Operator] = MappingProxyType(
    _chosen(comparison_operator_replacement.operators(), _COMPARISONS)
    | _chosen(binary_operator_replacement.operators(), _BINARY)
    | _chosen(unary_operator_replacement.operators(), _UNARY)
    | {operator.__name__: operator() for operator in _OTHERS}
)
"""Operators by name."""
