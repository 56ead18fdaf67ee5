"""Each commit of a transaction over several tables names all of them, again in each attempt."""

import json
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.multi_table_commit import MultiTableCommit, TableCommit
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CatalogUnavailableError, IllegalCommitError
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_staged_commits import clean_staged_commits
from cm_delta_dagster.operations.maintenance.compact_log import compact_log
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.protocol.actions.actions import TRANSACTION_TAG
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.lake import Lake, broken_storage


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def tables(lake: Lake) -> list[Table]:
    return sorted((lake.new_table(name) for name in ("one", "two")), key=lambda table: table.table_id)


def append_to(table: Table) -> TableCommit:
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([add_file(f"new-{uuid.uuid4()}.parquet", partition_values={"day": "2026-01-01"}, size=100)])
    return TableCommit(committer=table.committer, transaction=transaction)


def together(client: DeltaClient, tables: Sequence[Table], **more: Any) -> MultiTableCommit:
    parts = [append_to(table) for table in tables]
    return MultiTableCommit(parts, coordinator=client.coordinator, settings=client.settings, **more)


def published(lake: Lake, table: Table, version: int) -> list[dict[str, Any]]:
    data = lake.memory.read(f"{table.location}/_delta_log/{version:020d}.json")
    return [json.loads(line) for line in data.splitlines()]


def group_of(actions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    (group,) = (action["transactionGroup"] for action in actions if "transactionGroup" in action)
    assert isinstance(group, dict)
    return group


def participants(*versions: tuple[Table, int]) -> list[dict[str, object]]:
    return [{"tableId": table.table_id, "proposedVersion": version} for table, version in versions]


@pytest.mark.requirements("MTX-1")
@pytest.mark.parametrize("mode", ["staged", "inline"])
def test_each_commit_of_several_tables_names_all_of_them_and_the_catalog(
    lake: Lake, tables: list[Table], mode: str
) -> None:
    set_commit_policy(tables[0], CommitPolicy.parse(mode))
    lake.append(tables[1])
    commit = together(lake.client, tables, transaction_id="transaction-1")
    commit.finish(commit.ratify())
    for table, version in zip(tables, (1, 2), strict=True):
        actions = published(lake, table, version)
        assert group_of(actions) == {
            "transactionId": "transaction-1",
            "participants": participants((tables[0], 1), (tables[1], 2)),
            "coordinatingCatalog": lake.sql_catalog.registry.identity().catalog_id,
        }
        assert actions[0]["commitInfo"]["tags"] == {TRANSACTION_TAG: "transaction-1"}
    entries = [entry for entry in lake.catalog.feed.feed(after=0, limit=9) if entry.version][-2:]
    assert [entry.summary.tags[TRANSACTION_TAG] for entry in entries] == ["transaction-1"] * 2


@pytest.mark.requirements("MTX-1")
def test_a_commit_of_one_table_has_no_group(lake: Lake, tables: list[Table]) -> None:
    commit = together(lake.client, tables[:1], transaction_id="transaction-1")
    commit.finish(commit.ratify())
    actions = published(lake, tables[0], 1)
    assert not any("transactionGroup" in action for action in actions)
    assert TRANSACTION_TAG not in actions[0]["commitInfo"].get("tags", {})


@pytest.mark.requirements("MTX-2")
def test_a_taken_version_ratifies_nothing_and_the_next_attempt_names_fresh_versions(
    lake: Lake, tables: list[Table]
) -> None:
    commit = together(lake.client, tables)
    lake.append(lake.reopened().table(tables[1].identifier))
    groups = list[Any]()

    def note(method: str, argument: Any) -> None:
        if method == "commit_together":
            lines = [proposal.content_to_check.splitlines() for proposal in argument.values()]
            groups.extend(group_of([json.loads(line) for line in content]) for content in lines)

    lake.catalog.fails = note
    commit.finish(commit.ratify())
    first, again, fresh, fresh_again = groups
    assert first == again and fresh == fresh_again
    assert first["transactionId"] == fresh["transactionId"]
    assert first["participants"] == participants((tables[0], 1), (tables[1], 1))
    assert fresh["participants"] == participants((tables[0], 1), (tables[1], 2))
    assert group_of(published(lake, tables[0], 1)) == group_of(published(lake, tables[1], 2)) == fresh


@pytest.mark.requirements("MTX-2", "MTX-3")
def test_the_catalog_refuses_a_part_of_a_group(lake: Lake, tables: list[Table]) -> None:
    proposed = dict[str, Any]()

    def lose(method: str, argument: Any) -> Exception | None:
        if method != "commit_together":
            return None
        proposed.update(argument)
        return IllegalCommitError("Not sent, for the test.")

    lake.catalog.fails = lose
    with pytest.raises(IllegalCommitError, match="Not sent"):
        together(lake.client, tables).ratify()
    lake.catalog.fails = lambda *_: None
    one, two = (table.table_id for table in tables)
    coordinator = lake.sql_catalog.coordinator
    with pytest.raises(IllegalCommitError, match=r"which is not proposed with it\..*Nothing was ratified"):
        coordinator.commit(one, proposed[one])
    with pytest.raises(IllegalCommitError, match=f"names version 1 of table {two}"):
        coordinator.commit_together({one: proposed[one], lake.new_table("three").table_id: proposed[two]})
    assert [coordinator.get_ratified_commits(table.table_id).latest_version for table in tables] == [0, 0]
    coordinator.commit_together(proposed)
    assert [coordinator.get_ratified_commits(table.table_id).latest_version for table in tables] == [1, 1]


@pytest.mark.requirements("MTX-3")
def test_who_may_only_append_may_append_to_several_tables_together(lake: Lake, tables: list[Table]) -> None:
    owner = lake.sql_catalog.acting_as("owner")
    owner.access.enable_grants()
    owner.access.grant([Privilege.APPEND], "main", "writer")
    client = DeltaClient(
        lake.sql_catalog.acting_as("writer"),
        stores=Stores(stores={"memory": lake.store}),
        settings=lake.client.settings,
        now_ms=lake.clock,
    )
    commit = together(client, [client.table(table.identifier) for table in tables])
    assert [part.outcome.version for part in commit.ratify()] == [1, 1]


@pytest.mark.requirements("MTX-3")
def test_neither_checkpoint_compaction_nor_checksum_has_the_group(lake: Lake, tables: list[Table]) -> None:
    for _ in range(2):
        commit = together(lake.client, tables)
        commit.finish(commit.ratify())
    table = lake.reopened().table(tables[0].identifier)
    checkpoint(table)
    compact_log(table, start=1, end=2)
    derived = [
        status.location
        for status in lake.memory.list_from(f"{table.location}/_delta_log")
        if ".checkpoint" in status.name or status.name.endswith((".crc", ".compacted.json"))
    ]
    assert {name.rsplit(".", 1)[-1] for name in derived} == {"parquet", "crc", "json"}
    assert not any(b"transactionGroup" in lake.memory.read(location) for location in derived)
    assert lake.reopened().table(table.identifier).snapshot().version == 2


def stage_only(lake: Lake, tables: list[Table]) -> None:
    """Die after the commits are staged: the catalog never gets the proposal."""

    def lose(method: str, _: object) -> Exception | None:
        return IllegalCommitError("Not sent, for the test.") if method == "commit_together" else None

    lake.catalog.fails = lose
    with pytest.raises(IllegalCommitError, match="Not sent"):
        together(lake.client, tables).ratify()
    lake.catalog.fails = lambda *_: None


def staged(lake: Lake, table: Table) -> set[str]:
    return lake.files(table, "_delta_log/_staged_commits")


@pytest.mark.requirements("MTX-4")
def test_staged_commits_of_a_group_that_was_never_ratified_are_removed_as_others_are(
    lake: Lake, tables: list[Table]
) -> None:
    stage_only(lake, tables)
    assert [len(staged(lake, table)) for table in tables] == [1, 1]
    for table in tables:
        assert lake.reopened().table(table.identifier).snapshot().version == 0
        lake.append(table)
    lake.client.wait_for_background()
    lake.clock.pass_days(8)
    lake.allow(MaintenanceKind.METADATA_CLEANUP)
    for table in tables:
        assert clean_staged_commits(table).num_files == len(staged(lake, table)) + 2
        assert staged(lake, table) == set()


def by_publication(client: DeltaClient, table: Table) -> None:
    publish(client.table(table.identifier))


def by_the_next_commit(client: DeltaClient, table: Table) -> None:
    commit = together(client, [client.table(table.identifier)])
    commit.finish(commit.ratify())
    client.wait_for_background()


@pytest.mark.requirements("MTX-4", "CM-P2")
@pytest.mark.parametrize("complete", [by_publication, by_the_next_commit])
@pytest.mark.parametrize("num_published", [0, 1])
def test_any_client_completes_the_publication_of_a_ratified_group(
    lake: Lake, tables: list[Table], num_published: int, complete: Callable[[DeltaClient, Table], None]
) -> None:
    location = tables[1].location if num_published else "memory://lake"
    lake.store.fails = lambda method, at: (
        broken_storage("write_if_absent", f"_delta_log/{1:020d}.json")(method, at) if location in str(at) else None
    )
    commit = together(lake.client, tables)
    commit.finish(commit.ratify())
    lake.client.background.close()  # It has not published everything, and never will.
    lake.store.fails = lambda *_: None
    name = f"_delta_log/{1:020d}.json"
    assert [name in lake.files(table) for table in tables] == [bool(num_published), False]
    client = lake.reopened()
    for table in tables:
        assert client.table(table.identifier).snapshot().version == 1, "readers of the catalog see all of it"
        complete(client, table)
    assert group_of(published(lake, tables[0], 1)) == group_of(published(lake, tables[1], 1))


def test_a_catalog_that_does_not_say_which_one_it_is_gets_no_proposal(lake: Lake, tables: list[Table]) -> None:
    client = lake.reopened(max_resolve_attempts=1)
    commit = together(client, [client.table(table.identifier) for table in tables])

    def fail(method: str, _: object) -> Exception | None:
        return CatalogUnavailableError("No answer, for the test.") if method == "identity" else None

    lake.catalog.fails = fail
    with pytest.raises(CatalogUnavailableError):
        commit.ratify()
    assert not any(method == "commit_together" for method, _ in lake.catalog.calls)
    assert [staged(lake, table) for table in tables] == [set(), set()]
