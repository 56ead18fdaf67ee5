"""Two transactions over two tables: every interleaving, with crashes and lost responses at every call, commits all or nothing."""

from collections.abc import Callable

import pytest

from cm_delta_dagster.errors import CommitConflictError, CommitStateUnknownError
from tests.model.casts import cast_of_two, row, stages, writer, writer_of_two
from tests.model.explorer import Explorer
from tests.model.observation import WroteTogether
from tests.model.test_casts import errors_of, explore

Report = Callable[[str], None]
MODES = pytest.mark.parametrize("mode", ["staged", "inline"])


def _versions(explorer: Explorer, name: str) -> set[tuple[int, ...]]:
    ends = explorer.results(name)
    return {
        tuple(part.version for part in ended.result.parts) for ended in ends if isinstance(ended.result, WroteTogether)
    }


@pytest.mark.requirements("CM-C1", "CM-C2", "CM-C3", "CM-W4", "OCC-12")
@MODES
def test_two_transactions_over_two_tables_lose_and_invent_nothing(mode: str, report: Report) -> None:
    members = (writer_of_two("a", starts=stages), writer_of_two("b", starts=stages))
    explorer = explore(cast_of_two("two writers of two tables", *members, mode=mode, crashes=2), report)
    assert _versions(explorer, "a") == _versions(explorer, "b") == {(1, 1), (2, 2)}


@pytest.mark.requirements("CM-W4")
@pytest.mark.parametrize("mode", ["staged", pytest.param("inline", marks=pytest.mark.exhaustive)])
def test_lost_and_late_answers_leave_all_or_nothing(mode: str, report: Report) -> None:
    members = (writer_of_two("a", starts=stages), writer_of_two("b", starts=stages))
    limits = {"losses": 2} if mode == "inline" else {"losses": 1, "delays": True}
    explorer = explore(
        cast_of_two("two writers of two tables, losses", *members, mode=mode, crashes=0, **limits), report
    )
    assert _versions(explorer, "a") == {(1, 1), (2, 2)}
    if mode == "inline":
        assert CommitStateUnknownError in errors_of(explorer, "a")


@pytest.mark.requirements("OCC-5", "OCC-9")
def test_of_two_overwrites_of_two_tables_one_conflicts_as_a_whole(report: Report) -> None:
    members = (writer_of_two("o", overwrite=True, starts=stages), writer_of_two("a", starts=stages))
    explorer = explore(cast_of_two("overwriter and writer of two tables", *members, mode="inline"), report)
    assert _versions(explorer, "o") and CommitConflictError not in errors_of(explorer, "a")
    wrote = [ended.result for ended in explorer.results("o") if isinstance(ended.result, WroteTogether)]
    assert all(row("o") in part.snapshot_rows for end in wrote for part in end.parts)


@pytest.mark.requirements("CM-C3", "OCC-12")
def test_a_transaction_over_two_tables_beside_a_writer_of_one(report: Report) -> None:
    members = (writer_of_two("a"), writer("b", starts=stages))
    both = cast_of_two("writer of two tables and writer", *members, mode="inline", single=("b",), losses=1)
    explorer = explore(both, report)
    assert {versions[0] for versions in _versions(explorer, "a")} <= {1, 2}
