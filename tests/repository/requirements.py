"""The page of requirements: each id with its rule, the heading of the protocol text, and the tests that prove it.

``python -m tests.repository.requirements --write`` writes ``docs/requirements.md``; without the option the page is printed.
A test proves a requirement by naming its id in its marker ``pytest.mark.requirements``, in a comment, in a test id, or in a
docstring: its own, or that of its class or module.
"""

import ast
import csv
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

from tests.support.syntax_trees import parse

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "requirements.md"
RULES = Path(__file__).with_name("requirements.tsv")
REASONS = Path(__file__).with_name("without_tests.tsv")
STATUSES = ("refused", "not offered", "not written", "no test")

ID = re.compile(r"(?<![\w-])[A-Z][\w-]*\d")
"""What has the form of an id, up to the last digit of the word."""
_RANGE = re.compile(r"\b([A-Z][A-Za-z0-9-]*?-?)(\d+) (?:to|bis) (?:\1)?(\d+)\b")
_INTRODUCTION = """# Requirements

The rules that this project implements, by id. The marker `requirements` of a test names the ids that it proves; this page is
generated from them by `python -m tests.repository.requirements --write`. The heading is one of the [Delta protocol](https://github.com/delta-io/delta/blob/master/PROTOCOL.md)
or of its [RFCs](https://github.com/delta-io/delta/tree/master/protocol_rfcs). A source in brackets is not a heading: no protocol
text states the rule, and it follows delta-spark, the paper on Delta Lake, or a decision of this project.

For a rule without a test the last column says why:

- *refused*: the feature is not implemented for writers. Tables that use it are refused before anything is written.
- *not offered*: the client has no operation to which the rule applies.
- *not written*: the client does not follow the rule.
- *no test*: the client follows the rule, and no test names it.

In the rules, `v20(n)` is the number `n` padded with zeros to 20 digits, `log/` is the directory `_delta_log`, DV a deletion
vector, and ICT the in-commit timestamp.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A rule with its id, the section of this page, and the heading of the protocol text."""

    id: str
    section: str
    heading: str
    rule: str


def requirements() -> list[Requirement]:
    """Every requirement, in the order of the page."""
    return [Requirement(id=row[0], section=row[1], heading=row[2], rule=row[3]) for row in _rows(RULES)]


def reasons() -> dict[str, tuple[str, str]]:
    """Of each id without a test: one of :data:`STATUSES`, and the reason."""
    return {row[0]: (row[1], row[2]) for row in _rows(REASONS)}


def _rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]


@cache
def places_by_id() -> Mapping[str, list[str]]:
    """For each id the places in ``tests`` that name it, as ``path::function`` or ``path``."""
    found: dict[str, list[str]] = {requirement.id: [] for requirement in requirements()}
    for file in sorted((ROOT / "tests").rglob("*.py")):
        if file.parent != RULES.parent:
            for name, place in _named(file):
                if name in found and place not in found[name]:
                    found[name].append(place)
    return found


def _named(file: Path) -> Iterator[tuple[str, str]]:
    source = file.read_text()
    path = str(file.relative_to(ROOT / "tests"))
    functions = [
        (min(part.lineno for part in (node, *node.decorator_list)), node.end_lineno or node.lineno, node.name)
        for node in parse(source).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (tokenize.STRING, tokenize.COMMENT):
            continue
        line = token.start[0]
        owner = next((name for first, last, name in functions if first <= line <= last), None)
        place = path if owner is None else f"{path}::{owner}"
        for match in ID.finditer(_spelled_out(token.string)):
            yield match[0], place


def _spelled_out(text: str) -> str:
    """``text`` with ranges such as ``ROWTRK-2 to ROWTRK-6`` written as all of their ids."""
    return _RANGE.sub(
        lambda found: " ".join(f"{found[1]}{number}" for number in range(int(found[2]), int(found[3]) + 1)), text
    )


def page() -> str:
    """The page as Markdown."""
    proofs = places_by_id()
    without = reasons()
    every = requirements()
    covered = sum(bool(proofs[requirement.id]) for requirement in every)
    lines = [_INTRODUCTION, f"{covered} of {len(every)} requirements are named by tests.\n"]
    for section, members in groupby(every, key=lambda requirement: requirement.section):
        lines += [f"## {section}\n", "| id | rule | heading | tests |", "|---|---|---|---|"]
        for requirement in members:
            tests = "<br>".join(f"`{place}`" for place in proofs[requirement.id][:4])
            tests = tests or "*{}*: {}".format(*without.get(requirement.id, ("no test", "no reason is given")))
            more = len(proofs[requirement.id]) - 4
            tests += f"<br>and {more} more" if more > 0 else ""
            rule = requirement.rule.replace("|", "\\|")
            lines.append(f"| {requirement.id} | {rule} | {requirement.heading} | {tests} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
    else:
        print(page())
