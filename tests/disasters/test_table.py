"""The disaster table is complete, and its sample and its page follow from it."""

from collections import Counter

import pytest

from cm_delta_dagster import errors
from tests.disasters.page import PAGE, page
from tests.disasters.selection import EXPECTED, PAIRS, Kind, cells, sample
from tests.disasters.table import RULES
from tests.disasters.vocabulary import Act, Mode, Outcome, Rule, all_cells


def test_the_rules_cover_every_cell_exactly_once() -> None:
    counts = Counter(cell for rule in RULES for cell, _ in rule.expansion())
    assert set(counts) == set(all_cells())
    assert [str(cell) for cell, count in counts.items() if count > 1] == []


def _with_exceptions(rule: Rule) -> list[Rule]:
    return [rule, *(each for exception in rule.exceptions for each in _with_exceptions(exception))]


def test_every_exception_lies_within_its_rule() -> None:
    for rule in (each for top in RULES for each in _with_exceptions(top)):
        for exception in rule.exceptions:
            assert exception.pattern() <= rule.pattern()


def test_refusals_name_errors_of_the_package_and_give_reasons() -> None:
    for cell, expected in EXPECTED.items():
        assert (expected.outcome is Outcome.REFUSED) is bool(expected.error), str(cell)
        if expected.error:
            assert issubclass(getattr(errors, expected.error), errors.CmDeltaError)
        if expected.outcome in (Outcome.UNKNOWABLE, Outcome.INAPPLICABLE, Outcome.REFUSED):
            assert expected.reason, str(cell)


@pytest.mark.parametrize("kind", Kind)
def test_the_sample_covers_every_object_with_every_harm_and_every_act(kind: Kind) -> None:
    chosen = [cell for mode in Mode for pair in PAIRS for cell, _ in sample(kind, mode, *pair)]
    available = [cell for mode in Mode for pair in PAIRS for cell, _ in cells(kind, mode, *pair)]
    assert set(chosen) <= set(available)
    assert {(cell.object, cell.harm) for cell in chosen} == {(cell.object, cell.harm) for cell in available}
    assert {cell.act for cell in chosen} == {cell.act for cell in available} == set(Act) - {Act.OPTIMIZE}
    assert {cell.mode for cell in chosen} == set(Mode)


def test_the_page_of_the_docs_is_generated_from_the_table() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.disasters --write-docs`"
