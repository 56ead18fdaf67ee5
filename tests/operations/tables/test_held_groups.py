"""The group of a hold of several tables: its ratified commits name each other with the versions that they became."""

import json
from typing import Any

import pytest

from cm_delta_dagster.catalog.holds import Hold
from cm_delta_dagster.client.commits.multi_table_commit import MultiTableCommit, TableCommit
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CatalogUnavailableError, CommitStateUnknownError
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.tables.ratify_hold import HOLD_TAG, ratify_hold
from cm_delta_dagster.protocol.actions.actions import TRANSACTION_TAG
from tests.support.held_tables import change, filled, held
from tests.support.lake import Lake

_ID = "transaction-1"


@pytest.fixture
def tables(lake: Lake) -> list[Table]:
    return sorted((filled(lake, name) for name in ("one", "two")), key=lambda table: table.table_id)


def hold_both(lake: Lake, tables: list[Table]) -> Hold:
    parts = [
        TableCommit(committer=table.committer, transaction=change(lake, table, adds="new.parquet")) for table in tables
    ]
    together = MultiTableCommit(
        parts, coordinator=lake.client.coordinator, settings=lake.client.settings, transaction_id=_ID
    )
    return together.hold(duration_ms=86_400_000)


def group_and_tags(lake: Lake, table: Table, version: int) -> tuple[dict[str, Any], dict[str, str]]:
    lines = lake.memory.read(f"{table.location}/_delta_log/{version:020d}.json").splitlines()
    actions = [json.loads(line) for line in lines]
    (group,) = (action["transactionGroup"] for action in actions if "transactionGroup" in action)
    return group, actions[0]["commitInfo"]["tags"]


def check_groups(lake: Lake, tables: list[Table], hold: Hold) -> None:
    """Each commit names all of them with the versions that they have, under one id, which no staged file of the hold has."""
    expected = [{"tableId": table.table_id, "proposedVersion": hold.versions[table.table_id]} for table in tables]
    ids = set()
    for table in tables:
        publish(table)
        group, tags = group_and_tags(lake, table, hold.versions[table.table_id])
        assert group["participants"] == expected and tags[HOLD_TAG] == hold.hold_id
        assert group["coordinatingCatalog"] == lake.sql_catalog.registry.identity().catalog_id
        ids |= {group["transactionId"], tags[TRANSACTION_TAG]}
    assert len(ids) == 1 and _ID not in ids
    entries = [
        entry for entry in lake.sql_catalog.feed.feed(after=0, limit=50) if TRANSACTION_TAG in entry.summary.tags
    ]
    assert [entry.table_id for entry in entries] == [table.table_id for table in tables]
    assert {entry.summary.tags[TRANSACTION_TAG] for entry in entries} == ids


@pytest.mark.requirements("MTX-1", "MTX-2", "WAP-2")
def test_the_commits_of_a_ratified_hold_name_each_other_with_their_new_versions(
    lake: Lake, tables: list[Table]
) -> None:
    hold = hold_both(lake, tables)
    lake.append(tables[1], "later.parquet")
    done = ratify_hold(lake.reopened(), hold.hold_id)
    assert dict(done.hold.versions) == {tables[0].table_id: 4, tables[1].table_id: 5}
    check_groups(lake, tables, done.hold)


@pytest.mark.requirements("MTX-1", "WAP-2")
@pytest.mark.parametrize("answers_lost", [1, 100])
def test_a_ratification_whose_answer_is_lost_is_found_by_the_next(
    lake: Lake, tables: list[Table], answers_lost: int
) -> None:
    """Also if a table was written to between the two calls."""
    hold = hold_both(lake, tables)
    lost: list[str] = []

    def lose(method: str, argument: Any) -> Exception | None:
        if method == "commit_together" and len(lost) < answers_lost:
            lost.append(method)
            return CatalogUnavailableError("lost by the test")
        return CatalogUnavailableError("lost by the test") if lost and answers_lost > 1 else None

    lake.catalog.fails_after = lose
    if answers_lost == 1:
        first = ratify_hold(lake.client, hold.hold_id)
        assert not first.repeated
    else:
        with pytest.raises(CommitStateUnknownError):
            ratify_hold(lake.client, hold.hold_id)
    lake.catalog.fails_after = lambda method, argument: None
    lake.append(lake.reopened().table(tables[0].identifier), "later.parquet")
    again = ratify_hold(lake.reopened(), hold.hold_id)
    assert again.repeated and dict(again.hold.versions) == {table.table_id: 4 for table in tables}
    assert [lake.reopened().table(table.identifier).snapshot().version for table in tables] == [5, 4]
    check_groups(lake, tables, again.hold)


@pytest.mark.requirements("MTX-1")
def test_a_hold_of_one_table_has_no_group(lake: Lake, tables: list[Table]) -> None:
    hold = held(lake, (tables[0], change(lake, tables[0], adds="new.parquet")))
    assert ratify_hold(lake.reopened(), hold.hold_id).version == 4
    publish(tables[0])
    lines = lake.memory.read(f"{tables[0].location}/_delta_log/{4:020d}.json").splitlines()
    assert not any("transactionGroup" in json.loads(line) for line in lines)
    assert TRANSACTION_TAG not in json.loads(lines[0])["commitInfo"]["tags"]
