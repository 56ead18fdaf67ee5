"""The page of requirements fits the tests that there are."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.repository.requirements import ID, PAGE, ROOT, STATUSES, page, places_by_id, reasons, requirements
from tests.support.syntax_trees import parse


def test_the_page_of_requirements_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.repository.requirements --write`"


def test_requirements_have_unique_ids_and_whole_sentences() -> None:
    every = requirements()
    assert len({requirement.id for requirement in every}) == len(every) > 500
    assert all(requirement.rule.endswith(".") and requirement.heading for requirement in every)


def test_most_requirements_are_named_by_a_test() -> None:
    proofs = places_by_id()
    assert sum(map(bool, proofs.values())) >= 400
    assert any(place.startswith("protocol/log/test_checkpoints.py::") for place in proofs["CKPT-1"])


def test_each_requirement_has_a_test_or_a_reason_for_having_none() -> None:
    untested = {name for name, places in places_by_id().items() if not places}
    assert untested - set(reasons()) == set(), "name the id in a test, or add it to without_tests.tsv with a reason"
    assert set(reasons()) - untested == set(), (
        "these ids have tests or do not exist: remove them from without_tests.tsv"
    )
    assert {status for status, reason in reasons().values() if reason} <= set(STATUSES)


def test_markers_name_requirements_and_rulings_that_exist() -> None:
    known = {requirement.id for requirement in requirements()} | {f"X{number}" for number in range(1, 24)}
    named = [(file, name) for file in _test_files() for name in _marked(file)]
    assert len(named) > 2000
    unknown = [f"{file.relative_to(ROOT)}: {name}" for file, name in named if name not in known]
    assert not unknown, "\n".join(unknown)


def test_docstrings_of_tests_are_sentences_and_do_not_begin_with_ids() -> None:
    ids = {requirement.id for requirement in requirements()}
    beginning = [
        f"{file.relative_to(ROOT)}: {node.name}"
        for file in _test_files()
        for node in ast.walk(parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if re.split(r"[\s,:;.]", ast.get_docstring(node) or "", maxsplit=1)[0] in ids
    ]
    assert not beginning, "name them in @pytest.mark.requirements:\n" + "\n".join(beginning)


def _test_files() -> Iterator[Path]:
    return iter(sorted((ROOT / "tests").rglob("*.py")))


def _marked(file: Path) -> Iterator[str]:
    """The ids in the markers of the file."""
    for node in ast.walk(parse(file.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirements":
            yield from (ast.literal_eval(argument) for argument in node.args)


def test_the_package_itself_does_not_name_requirement_ids() -> None:
    """A stranger reads the rule in the code, not its number."""
    ids = {requirement.id for requirement in requirements()}
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in sorted((ROOT / "cm_delta_dagster").rglob("*.py"))
        for match in ID.finditer(file.read_text())
        if match[0] in ids
    ]
    assert not found, "\n".join(found)
