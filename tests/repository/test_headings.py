"""Docstrings, comments and requirements cite headings that exist in the protocol text."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repository.requirements import ROOT, requirements
from tests.support.syntax_trees import parse

HEADINGS = Path(__file__).with_name("headings.txt")
"""Headings of the protocol documents, one a line; a line that begins with ``#`` names the document."""

_QUOTED = r'"[^"]+"(?:,\s+"[^"]+")*'
CITATION = re.compile(rf"\b[Pp]rotocol\s+headings?\s+({_QUOTED})")
"""The form of every citation: ``protocol heading "Checkpoints"``, ``protocol headings "Checkpoints", "V2 Spec"``."""
_OTHER_FORM = re.compile(r'(?<!rotocol )(?<!rotocol\n)\bheadings?\s+"|\b[Pp]rotocol\s+"|\b(?:RFC|section|§)\s+"')

UNCITED = {
    "changes/stream_offset.py": "the format is delta-spark's",
    "changes/batch_planning.py": "the rules are delta-spark's",
    "commits/candidate_files.py": "a cache for conflict detection, which conflicts.py cites",
    "features/column_specs.py": "an argument of this library",
    "features/expressions.py": "the expressions are Spark SQL",
    "features/generated_filters.py": "the filters follow from Spark's functions",
    "log/markers.py": "not part of the Delta protocol",
    "predicates/boolean_structure.py": "conditions are Spark SQL",
    "predicates/disjoint.py": "conditions are Spark SQL",
    "predicates/normal_forms.py": "conditions are Spark SQL",
    "predicates/predicate_json.py": "a format of this library",
    "predicates/predicates.py": "conditions are Spark SQL",
    "predicates/references.py": "expressions are Spark SQL",
    "predicates/sql_expressions.py": "conditions are Spark SQL",
    "predicates/sql_functions.py": "conditions are Spark SQL",
    "predicates/sql_literals.py": "conditions are Spark SQL",
    "predicates/sql_parser.py": "conditions are Spark SQL",
    "predicates/sql_strings.py": "conditions are Spark SQL",
    "predicates/sql_checks.py": "conditions are Spark SQL",
    "predicates/sql_lexer.py": "Spark SQL, which the protocol text does not define",
    "predicates/timestamps.py": "conditions are Spark SQL",
    "schema/char_types.py": "the metadata is Spark's",
    "schema/column_paths.py": "an argument of this library",
    "schema/selection.py": "an argument of this library",
    "schema/type_text.py": "the types are Spark SQL",
    "statistics/file_forecast.py": "sizes of files are left to writers",
}
"""Modules of ``protocol`` that implement no protocol text, and why."""


def known_headings() -> set[str]:
    lines = HEADINGS.read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Line number and text of each comment and each string that stands alone, such as a docstring."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def cited(text: str) -> list[str]:
    """The headings that ``text`` cites, in order."""
    return [" ".join(name.split()) for match in CITATION.finditer(text) for name in re.findall(r'"([^"]+)"', match[1])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('Checkpoints (protocol heading "Checkpoints").', ["Checkpoints"]),
        ('Protocol headings "Data Files", "Column\nMapping". More.', ["Data Files", "Column Mapping"]),
        ('``"protocol"`` is an action.', []),
    ],
)
def test_one_expression_finds_every_citation(text: str, expected: list[str]) -> None:
    assert cited(text) == expected


@pytest.mark.parametrize("text", ['(heading "Checkpoints")', 'protocol "Checkpoints"', 'RFC "Commit Protocol"'])
def test_other_forms_of_a_citation_are_noticed(text: str) -> None:
    assert _OTHER_FORM.search(text) and not cited(text)


def test_every_cited_heading_exists() -> None:
    known = known_headings()
    wrong = []
    for file in sorted((ROOT / "cm_delta_dagster").rglob("*.py")):
        for line, text in prose(file.read_text()):
            place = f"{file.relative_to(ROOT)}:{line}"
            wrong += [f"{place}: no heading {name!r} in {HEADINGS.name}" for name in cited(text) if name not in known]
            if _OTHER_FORM.search(text):
                wrong.append(f'{place}: write `protocol heading "..."`')
    assert not wrong, "\n".join(wrong)


def test_every_source_of_a_requirement_exists() -> None:
    known = known_headings()
    wrong = [
        f"{requirement.id}: {name}"
        for requirement in requirements()
        for name in requirement.heading.split("; ")
        if name not in known
    ]
    assert not wrong, "\n".join(wrong)


def test_each_module_of_protocol_cites_the_heading_that_it_implements() -> None:
    folder = ROOT / "cm_delta_dagster" / "protocol"
    modules = {str(file.relative_to(folder)): file for file in folder.rglob("*.py") if file.name != "__init__.py"}
    without = {name for name, file in modules.items() if not cited(ast.get_docstring(parse(file.read_text())) or "")}
    assert without == UNCITED.keys(), (
        f"without a heading: {sorted(without - UNCITED.keys())}, needlessly listed: {sorted(UNCITED.keys() - without)}"
    )


def test_headings_are_listed_once() -> None:
    lines = [line for line in HEADINGS.read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) == len(set(lines)) > 100
