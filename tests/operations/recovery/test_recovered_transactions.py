"""Recovery from storage records a transaction over several tables as a whole, or names it as incomplete."""

import json
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.client.commits.multi_table_commit import MultiTableCommit, TableCommit
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import IllegalCommitError
from cm_delta_dagster.operations.recovery.plan import RecoveryPlan, explain
from cm_delta_dagster.operations.recovery.recover import plan_recovery, recover
from cm_delta_dagster.operations.recovery.recover_warehouse import plan_warehouse_recovery, recover_warehouse
from cm_delta_dagster.operations.recovery.warehouse_plan import explain_adoption
from cm_delta_dagster.operations.tables.ratify_hold import ratify_hold
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from tests.support.actions import add_file
from tests.support.lake import Lake, broken_storage
from tests.support.old_catalog import back_up, lose, restore

WAREHOUSE = "memory://lake/warehouse"
NAMES = ("main.test.one", "main.test.two")

pytestmark = pytest.mark.requirements("MTX-6")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    yield lake
    lake.close()


@pytest.fixture
def tables(lake: Lake) -> list[Table]:
    return [lake.new_table(name) for name in ("one", "two")]


def append_to(lake: Lake, table: Table) -> TableCommit:
    path = f"new-{uuid.uuid4()}.parquet"
    lake.put(table, path)
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([add_file(path, partition_values={"day": "2026-01-01"}, size=100)])
    return TableCommit(committer=table.committer, transaction=transaction)


def commit_together(lake: Lake, tables: Sequence[Table], *, unpublished: Sequence[Table] = ()) -> None:
    """Commit to both tables; the commits of some are never published."""
    lake.clock.now += 1000
    parts = [append_to(lake, table) for table in tables]
    commit = MultiTableCommit(parts, coordinator=lake.client.coordinator, settings=lake.client.settings)
    faults = [broken_storage("write_if_absent", f"{table.location}/_delta_log/0") for table in unpublished]
    lake.store.fails = lambda method, at: next((error for fails in faults if (error := fails(method, at))), None)
    commit.finish(commit.ratify())
    lake.client.background.close()
    lake.store.fails = lambda *_: None


def ratify_held(lake: Lake, tables: Sequence[Table], *, unpublished: Table) -> tuple[list[str], list[str]]:
    """Ratify a hold of both tables; one commit is never published. Its staged files before and after."""
    parts = [append_to(lake, table) for table in tables]
    together = MultiTableCommit(parts, coordinator=lake.client.coordinator, settings=lake.client.settings)
    hold, before = together.hold(duration_ms=1_000_000), staged(lake, unpublished)
    lake.store.fails = broken_storage("write_if_absent", f"{unpublished.location}/_delta_log/0")
    ratify_hold(lake.client, hold.hold_id)
    lake.client.background.close()
    lake.store.fails = lambda *_: None
    return before, staged(lake, unpublished)


def stage_together(lake: Lake, tables: Sequence[Table]) -> None:
    """Die after the commits are staged."""

    def lose_proposal(method: str, _: object) -> Exception | None:
        return IllegalCommitError("Not sent, for the test.") if method == "commit_together" else None

    lake.catalog.fails = lose_proposal
    with pytest.raises(IllegalCommitError, match="Not sent"):
        commit_together(lake, tables)
    lake.catalog.fails = lambda *_: None


def staged(lake: Lake, table: Table) -> list[str]:
    return sorted(lake.files(table, "_delta_log/_staged_commits"))


def lines_of(plan: RecoveryPlan) -> str:
    return "\n".join(line for table in plan.tables for line in explain(table))


def versions(lake: Lake) -> list[int]:
    return [lake.client.table(name).snapshot().version for name in NAMES]


def test_a_staged_commit_is_recorded_if_another_one_of_its_transaction_was_published(
    lake: Lake, tables: list[Table], tmp_path: Path
) -> None:
    back_up(tmp_path)
    commit_together(lake, tables, unpublished=tables[1:])
    restore(lake, tmp_path)
    (name,) = staged(lake, tables[1])
    plan = plan_recovery(lake.client)
    assert plan.take_staged == (name,) and [len(table.taken) for table in plan.tables] == [1, 1]
    assert f"{name} is recorded because it was ratified together with version 1 of main.test.one" in lines_of(plan)
    assert all(part.is_complete for table in plan.tables for part in table.transactions)
    assert recover(lake.client, plan).num_commits == 2
    assert versions(lake) == [1, 1]
    again = plan_recovery(lake.client)
    assert again.take_staged == () and all(table.is_sound for table in again.tables)


def test_of_a_hold_the_ratified_commits_are_recorded_and_not_those_that_were_held(
    lake: Lake, tables: list[Table], tmp_path: Path
) -> None:
    """Both name the same versions. The ratified ones name each other, and the held ones were never ratified."""
    back_up(tmp_path)
    (kept,), both = ratify_held(lake, tables, unpublished=tables[1])
    restore(lake, tmp_path)
    (ratified,) = set(both) - {kept}
    plan = plan_recovery(lake.client)
    assert plan.take_staged == (ratified,) and "Incomplete" not in lines_of(plan)
    assert recover(lake.client, plan).num_commits == 2 and versions(lake) == [1, 1]
    assert all(table.is_sound for table in plan_recovery(lake.client).tables)


def test_a_recovery_that_ended_after_one_of_the_tables_is_continued(
    lake: Lake, tables: list[Table], tmp_path: Path
) -> None:
    back_up(tmp_path)
    commit_together(lake, tables, unpublished=tables[1:])
    restore(lake, tmp_path)
    alone = plan_recovery(lake.client, tables=NAMES[:1])
    assert "Incomplete" in lines_of(alone) and "the plan does not include the table" in lines_of(alone)
    (result,) = recover(lake.client, alone).tables
    assert any("Incomplete" in line for line in result.warnings)
    assert versions(lake) == [1, 0]
    assert recover(lake.client, plan_recovery(lake.client, tables=NAMES[1:])).num_commits == 1
    assert versions(lake) == [1, 1]


def test_a_transaction_of_staged_commits_is_chosen_as_a_whole_or_not_at_all(
    lake: Lake, tables: list[Table], tmp_path: Path
) -> None:
    stage_together(lake, tables)
    plan = plan_recovery(lake.client)
    assert plan.take_staged == () and plan.num_commits == 0, "nothing shows that it was ratified"
    chosen = plan_recovery(lake.client, take_staged=staged(lake, tables[1]))
    assert set(chosen.take_staged) == {name for table in tables for name in staged(lake, table)}
    assert recover(lake.client, chosen).num_commits == 2
    assert versions(lake) == [1, 1]


def test_an_attempt_that_failed_is_not_recorded_with_the_one_that_was_ratified(
    lake: Lake, tables: list[Table], tmp_path: Path
) -> None:
    """Both attempts have the same transaction id, and name other versions."""
    lake.append(tables[1])
    back_up(tmp_path)
    parts = [append_to(lake, table) for table in tables]
    lake.append(lake.reopened().table(tables[1].identifier))
    commit = MultiTableCommit(parts, coordinator=lake.client.coordinator, settings=lake.client.settings)
    lake.store.fails = broken_storage("write_if_absent", f"{tables[0].location}/_delta_log/0")
    commit.finish(commit.ratify())
    lake.client.background.close()
    lake.store.fails = lambda *_: None
    names = staged(lake, tables[0])
    assert len(names) == 2
    restore(lake, tmp_path)
    plan = plan_recovery(lake.client)
    (taken,) = plan.take_staged
    content = lake.memory.read(f"{tables[0].location}/_delta_log/_staged_commits/{taken}")
    group = next(json.loads(line) for line in content.splitlines() if b"transactionGroup" in line)["transactionGroup"]
    assert {part["tableId"]: part["proposedVersion"] for part in group["participants"]} == {
        tables[0].table_id: 1,
        tables[1].table_id: 3,
    }
    recover(lake.client, plan)
    assert versions(lake) == [1, 3]


def without_copy(lake: Lake, table: Table) -> str:
    set_commit_policy(table, CommitPolicy.parse("inline"))
    return "no copy of the commit exists"


def with_another_commit(lake: Lake, table: Table) -> str:
    return "that version is another commit"


@pytest.mark.parametrize("lose_one", [without_copy, with_another_commit])
def test_a_transaction_of_which_a_commit_is_lost_is_named_as_incomplete(
    lake: Lake, tables: list[Table], tmp_path: Path, lose_one: Any
) -> None:
    reason = lose_one(lake, tables[1])
    back_up(tmp_path)
    commit_together(lake, tables, unpublished=tables[1:])
    restore(lake, tmp_path)
    if lose_one is with_another_commit:
        for name in staged(lake, tables[1]):
            lake.memory.delete(f"{tables[1].location}/_delta_log/_staged_commits/{name}")
        lake.append(lake.client.table(NAMES[1]))
        lake.client.wait_for_background()
    plan = plan_recovery(lake.client)
    (part,) = plan.tables[0].transactions
    assert part.version == 1 and not part.is_complete
    assert part.missing == (f"version 1 of main.test.two ({reason})",)
    assert f"Incomplete: the transaction {part.transaction_id}" in lines_of(plan)
    recover(lake.client, plan)
    assert versions(lake)[0] == 1


def test_a_lost_catalog_gets_whole_transactions_back(lake: Lake, tables: list[Table], tmp_path: Path) -> None:
    commit_together(lake, tables)
    lake.client.wait_for_background()
    lose(lake, tmp_path)
    plain = plan_warehouse_recovery(lake.client, warehouse=WAREHOUSE)
    assert [table.transactions for table in plain.tables] == [(), ()] and plain.take_staged == ()
    recover_warehouse(lake.client, plain)
    assert versions(lake) == [1, 1]
    commit_together(lake, [lake.client.table(name) for name in NAMES], unpublished=tables[:1])
    lose(lake, tmp_path)
    plan = plan_warehouse_recovery(lake.client, warehouse=WAREHOUSE)
    assert [table.latest_version for table in plan.tables] == [2, 2]
    assert any(
        "recorded because it was ratified together with version 2 of main.test.two" in line
        for line in explain_adoption(plan)
    )
    recover_warehouse(lake.client, plan)
    assert versions(lake) == [2, 2]


def test_a_lost_catalog_names_transactions_of_which_a_commit_is_lost(
    lake: Lake, tables: list[Table], tmp_path: Path
) -> None:
    set_commit_policy(tables[1], CommitPolicy.parse("inline"))
    commit_together(lake, tables, unpublished=tables[1:])
    lose(lake, tmp_path)
    plan = plan_warehouse_recovery(lake.client, warehouse=WAREHOUSE)
    text = "\n".join(explain_adoption(plan))
    assert "Incomplete" in text and "version 1 of main.test.two (no copy of the commit exists)" in text
    recover_warehouse(lake.client, plan)
    assert versions(lake) == [1, 0]
