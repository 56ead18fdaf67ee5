"""A hold of two tables: every interleaving of who holds, ratifies, discards and writes, with crashes and losses at every call.

Nothing of it is read before its ratification, and it becomes a version of both tables once, or of none.
"""

from collections.abc import Callable

import pytest

from cm_delta_dagster.errors import CommitStateUnknownError, HoldClosedError
from tests.model.casts import stages, writer
from tests.model.explorer import Explorer
from tests.model.hold_casts import HOLDER, cast_of_hold, discarder, holder, ratifier
from tests.model.observation import Decided
from tests.model.test_casts import errors_of, explore

Report = Callable[[str], None]
pytestmark = pytest.mark.requirements("WAP-1", "WAP-2", "MTX-2")
MODES = pytest.mark.parametrize("mode", ["staged", pytest.param("inline", marks=pytest.mark.exhaustive)])


def versions(explorer: Explorer, name: str) -> set[tuple[int, ...]]:
    """For each way in which the member ended, the versions of the hold."""
    ends = (ended.result for ended in explorer.results(name) if isinstance(ended.result, Decided))
    return {tuple(version for _, version, _ in end.versions) for end in ends}


@MODES
def test_two_ratifications_of_one_hold_make_it_versions_once(mode: str, report: Report) -> None:
    members = (ratifier("r", starts=stages), ratifier("s", starts=stages))
    explorer = explore(cast_of_hold("two ratifiers", *members, mode=mode, before=(holder(),), crashes=2), report)
    assert versions(explorer, "r") == versions(explorer, "s") == {(1, 1)}
    assert not errors_of(explorer, "r") - {HoldClosedError}


@MODES
def test_of_a_ratification_and_a_discard_one_wins(mode: str, report: Report) -> None:
    members = (ratifier("r", starts=stages), discarder())
    explorer = explore(
        cast_of_hold("ratifier and discarder", *members, mode=mode, before=(holder(),), losses=1), report
    )
    assert versions(explorer, "r") == {(1, 1)} and versions(explorer, "discarder") == {()}
    assert HoldClosedError in errors_of(explorer, "r") and HoldClosedError in errors_of(explorer, "discarder")


@MODES
@pytest.mark.parametrize("losses", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_hold_is_ratified_beside_a_writer_of_one_of_its_tables(mode: str, losses: int, report: Report) -> None:
    members = (ratifier("r", starts=stages), writer("w", starts=stages))
    cast = cast_of_hold("ratifier and writer", *members, mode=mode, before=(holder(),), losses=losses)
    explorer = explore(cast, report)
    assert {2, 1} == {found[0] for found in versions(explorer, "r")} | {found[1] for found in versions(explorer, "r")}


@MODES
def test_a_hold_that_is_made_while_another_process_looks_for_it(mode: str, report: Report) -> None:
    members = (holder(starts=stages), ratifier("r"))
    explorer = explore(cast_of_hold("holder and ratifier", *members, mode=mode, losses=1), report)
    assert versions(explorer, "r") == {(), (1, 1)} and versions(explorer, HOLDER) == {()}


@pytest.mark.exhaustive
@MODES
def test_lost_and_late_answers_leave_all_or_nothing_of_a_hold(mode: str, report: Report) -> None:
    members = (ratifier("r", starts=stages), ratifier("s", starts=stages))
    cast = cast_of_hold("two ratifiers, losses", *members, mode=mode, before=(holder(),), losses=2, delays=True)
    explorer = explore(cast, report)
    assert versions(explorer, "r") == {(1, 1)} and CommitStateUnknownError in errors_of(explorer, "r")
