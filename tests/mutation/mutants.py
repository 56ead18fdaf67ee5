"""Mutants of a set of modules, and a sample of them."""

import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from types import CodeType

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tests.mutation.operators import OPERATORS
from tests.mutation.statements import ignored_spans
from tests.support.syntax_trees import parse


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Mutant:
    """The change that ``operator`` makes at its ``occurrence`` in ``file``, which is relative to the root of the project."""

    file: str
    line: int
    column: int
    operator: str
    occurrence: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column} {self.operator}#{self.occurrence}"


def mutants_of(root: Path, file: str) -> list[Mutant]:
    """All mutants of a module, in order."""
    source = (root / file).read_text()
    ignored = ignored_spans(parse(source))
    nodes = list(ast_nodes(get_ast(source)))
    mutants = []
    for name, operator in OPERATORS.items():
        starts = (start for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, start in enumerate(starts):
            if not any(first <= start < last for first, last in ignored):
                line, column = start
                mutants.append(Mutant(file=file, line=line, column=column, operator=name, occurrence=occurrence))
    return sorted(mutants)


def sample_of(root: Path, mutants: Sequence[Mutant], size: int, seed: int) -> list[Mutant]:
    """``size`` of the mutants that are valid Python, or all if they are fewer; the same for the same mutants and seed."""
    shuffled = random.Random(seed).sample(sorted(mutants), len(mutants))
    return list(islice((mutant for mutant in shuffled if _is_valid(root, mutant)), size))


def _is_valid(root: Path, mutant: Mutant) -> bool:
    """cosmic-ray takes the ``*`` of parameters for a multiplication, and negates ``:=`` without brackets, for instance."""
    try:
        mutated_code(root, mutant)
    except (AttributeError, SyntaxError):
        return False
    return True


@cache
def mutated_source(root: Path, mutant: Mutant) -> str:
    """The text of the module with the change."""
    source = (root / mutant.file).read_text()
    mutated = mutate_code(source, OPERATORS[mutant.operator], mutant.occurrence)
    if mutated is None or mutated == source:
        raise ValueError(f"{mutant} is not a mutant of the code as it is now.")
    return str(mutated)


def mutated_code(root: Path, mutant: Mutant) -> CodeType:
    """The compiled module with the change. Raises SyntaxError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(mutated_source(root, mutant), str(root / mutant.file), "exec", dont_inherit=True)


def difference(root: Path, mutant: Mutant) -> str:
    """The changed lines, before and after."""
    before = (root / mutant.file).read_text().splitlines()
    after = mutated_source(root, mutant).splitlines()
    at = next((at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), 0)
    same_end = next((at for at, (old, new) in enumerate(zip(before[::-1], after[::-1], strict=False)) if old != new), 0)
    old, new = before[at : len(before) - same_end], after[at : len(after) - same_end]
    return " ".join(line.strip() for line in old) + "  ->  " + " ".join(line.strip() for line in new)
