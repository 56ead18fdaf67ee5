"""Contract of ``RecoverableCatalog``.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import (
    CommitProposal,
    Ratified,
    VersionTaken,
)
from cm_delta_dagster.catalog.recovery import AdoptedState, AdoptedTable, CommitHistory, HistoryStart
from cm_delta_dagster.catalog.tables import InactiveState, RecordedDefinition, TableIdentifier
from cm_delta_dagster.errors import (
    CommitRejectedError,
    IllegalCommitError,
    InvalidArgumentError,
    RecoveryError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from cm_delta_dagster.protocol.actions.commit_json import decode_commit
from tests.contracts.catalog_bench import NAME, OTHER, PROTOCOL, Bench, Rule, create, inline, metadata, proposal
from tests.support.commit_builder import commit_of
from tests.support.stated_marks import numbered, row_id_mark

WAREHOUSE = "memory://warehouse"


def published(version: int, *, data_change: bool = True, timestamp: int | None = None) -> CommitProposal:
    """A commit as recovery finds it in ``_delta_log``."""
    one = proposal(version, data_change=data_change, timestamp=timestamp)
    return replace(one, file_name=f"{version:020d}.json")


def history(proposals: Sequence[CommitProposal], *, to: int | None = None, columns: str = "a") -> CommitHistory:
    last = proposals[-1]
    return CommitHistory(
        proposals=tuple(proposals),
        published_version=last.version if to is None else to,
        definition=RecordedDefinition(
            metadata=metadata(columns),
            protocol=PROTOCOL,
            version=last.version,
            in_commit_timestamp=last.summary.in_commit_timestamp,
        ),
    )


def adopted(
    *, first: int = 0, last: int = 2, state: AdoptedState = AdoptedState.ACTIVE, at: str = "main/sales/orders-1"
) -> AdoptedTable:
    return AdoptedTable(
        table_id=str(uuid.uuid4()),
        identifier=NAME,
        location=f"{WAREHOUSE}/{at}",
        state=state,
        history=history([published(version) for version in range(first, last + 1)]),
    )


def the_id_of_the_catalog_is_that_of_its_feed(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        identity = catalog.registry.identity()
        assert identity == other.registry.identity()
        assert identity.catalog_id == catalog.feed.feed_page(after=0, limit=1).catalog_id
        assert identity.warehouse == WAREHOUSE


def recovered_commits_are_recorded_once_and_can_be_followed(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        catalog.coordinator.commit(table, proposal(1))
        found = [published(2), published(3, data_change=False)]
        assert catalog.recovery.take_in_commits(table, history(found, columns="b"), after=1) is True
        entry = catalog.registry.load_table_by_id(table)
        ratified = entry.ratified
        assert (ratified.latest_version, ratified.published_version, ratified.latest_data_version) == (3, 3, 2)
        assert entry.definition is not None and entry.definition.metadata == metadata("b")
        feed = catalog.feed.feed(after=0, limit=9)
        assert catalog.recovery.take_in_commits(table, history(found), after=1) is False
        assert catalog.feed.feed(after=0, limit=9) == feed
        assert [entry.summary for entry in feed[2:]] == [one.summary for one in found]
        assert isinstance(catalog.coordinator.commit(table, proposal(3)), VersionTaken)
        assert isinstance(catalog.coordinator.commit(table, proposal(4)), Ratified)


def _stated(version: int, *actions: Mapping[str, Any]) -> CommitProposal:
    return replace(commit_of(version, *actions, mode=CommitMode.STAGED), content=None)


def recovered_and_adopted_tables_have_the_marks_of_their_log(bench: Bench) -> None:
    """Also if they are lower than those that the catalog had: the commits that stated these are gone."""
    with bench.client() as catalog:
        table = create(catalog).table_id
        first = _stated(1, row_id_mark(9), numbered(7))
        assert isinstance(catalog.coordinator.commit(table, first), Ratified)
        recovered = replace(history([published(1)]), row_id_mark=4)
        numbered_metadata = decode_commit(json.dumps(numbered(3)).encode(), version=1).metadata
        assert numbered_metadata is not None
        recovered = replace(recovered, definition=replace(recovered.definition, metadata=numbered_metadata))
        catalog.recovery.take_in_commits(table, recovered, after=0, replaces=[first.summary.txn_id])
        again = replace(adopted(), identifier=OTHER)
        at = replace(
            again.history, row_id_mark=4, definition=replace(again.history.definition, metadata=numbered_metadata)
        )
        assert catalog.recovery.adopt_table(replace(again, history=at)) is not None
        for table_id, version in ((table, 2), (again.table_id, 3)):
            for lower in (row_id_mark(3), numbered(2)):
                with pytest.raises(IllegalCommitError, match=r"and that of the table is [43]\."):
                    catalog.coordinator.commit(table_id, _stated(version, lower))
            assert isinstance(
                catalog.coordinator.commit(table_id, _stated(version, row_id_mark(4), numbered(3))), Ratified
            )
        unknown = replace(adopted(at="main/sales/other-1"), identifier=TableIdentifier("main", "sales", "unknown"))
        assert catalog.recovery.adopt_table(unknown) is not None
        assert isinstance(
            catalog.coordinator.commit(unknown.table_id, _stated(3, row_id_mark(0), numbered(0))), Ratified
        )


def recovered_commits_get_feed_positions_after_a_gap(bench: Bench) -> None:
    """A sensor may have come to any position that the catalog gave out before it was restored from a copy."""
    with bench.client() as catalog:
        table = create(catalog).table_id
        catalog.recovery.take_in_commits(table, history([published(1), published(2)]), after=0)
        catalog.coordinator.commit(table, proposal(3))
        positions = [entry.position for entry in catalog.feed.feed(after=0, limit=9)]
        assert positions[0] == 1 and positions[1] > 10**9
        assert positions[1:] == list(range(positions[1], positions[1] + 3))
        assert catalog.feed.latest_feed_position() == positions[-1]


def unpublished_commits_are_recovered_from_staged_files(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        staged = proposal(2)
        catalog.recovery.take_in_commits(table, history([published(1), staged], to=1), after=0)
        ratified = catalog.registry.load_table_by_id(table).ratified
        assert [(one.version, one.file_name) for one in ratified.commits] == [(2, staged.file_name)]


def recovery_deletes_content_of_published_commits(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        catalog.coordinator.commit(table, inline(1))
        catalog.recovery.take_in_commits(table, history([published(2)]), after=1)
        records = catalog.coordinator.commit_records(table, start=0, end=9)
        assert [(one.version, one.content) for one in records] == [(0, None), (1, None), (2, None)]
        assert catalog.coordinator.get_ratified_commits(table, content_from_version=0).cached_commits == ()


def recovery_is_refused_after_another_commit(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        catalog.coordinator.commit(table, proposal(1))
        with pytest.raises(RecoveryError, match="plan"):
            catalog.recovery.take_in_commits(table, history([published(1)]), after=0)
        with pytest.raises(RecoveryError):
            catalog.recovery.take_in_commits(table, history([published(4)]), after=3)
        assert catalog.registry.load_table_by_id(table).ratified.latest_version == 1


def recovered_commits_with_a_gap_or_old_timestamp_are_refused(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        before = catalog.feed.feed(after=0, limit=9)
        for wrong in (
            [published(2)],
            [published(1), published(3)],
            [published(1, timestamp=1000)],
            [published(1), published(2, timestamp=1001)],
        ):
            with pytest.raises(RecoveryError, match="no gap"):
                catalog.recovery.take_in_commits(table, history(wrong), after=0)
        misnamed = replace(published(1), file_name="../1.json")
        with pytest.raises(CommitRejectedError):
            catalog.recovery.take_in_commits(table, history([misnamed]), after=0)
        with pytest.raises(TableNotFoundError):
            catalog.recovery.take_in_commits("unknown", history([published(1)]), after=0)
        assert catalog.feed.feed(after=0, limit=9) == before


def recovery_replaces_all_commits_above_a_version(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        fork = [proposal(1), inline(2), proposal(3)]
        for one in fork:
            catalog.coordinator.commit(table, one)
        catalog.pins.pin_version(table, 3, owner="run")
        catalog.pins.pin_version(table, 0, owner="early")
        commits = [published(1), published(2, data_change=False)]
        txn_ids = [one.summary.txn_id for one in fork]
        with pytest.raises(RecoveryError):
            catalog.recovery.take_in_commits(table, history(commits), after=0, replaces=txn_ids[:2])
        assert catalog.recovery.take_in_commits(table, history(commits), after=0, replaces=txn_ids) is True
        assert catalog.recovery.take_in_commits(table, history(commits), after=0, replaces=txn_ids) is False
        ratified = catalog.registry.load_table_by_id(table).ratified
        assert (ratified.latest_version, ratified.latest_data_version, ratified.commits) == (2, 1, ())
        assert [entry.summary.txn_id for entry in catalog.feed.feed(after=1, limit=9)] == [
            one.summary.txn_id for one in commits
        ]
        assert catalog.pins.pinned_version(table, owner="run") is None
        assert catalog.pins.pinned_version(table, owner="early") == 0


def a_table_of_a_lost_catalog_is_adopted_with_its_id_and_location(bench: Bench) -> None:
    with bench.client() as catalog:
        table = adopted(first=5, last=7)
        entry = catalog.recovery.adopt_table(table)
        assert entry == catalog.registry.load_table(NAME) == catalog.recovery.adopt_table(table)
        assert entry is not None
        assert (entry.table_id, entry.location) == (table.table_id, table.location)
        assert (entry.ratified.latest_version, entry.ratified.published_version) == (7, 7)
        assert entry.definition == table.history.definition
        assert [found.version for found in catalog.feed.feed(after=0, limit=9)] == [5, 6, 7]
        assert isinstance(catalog.coordinator.commit(table.table_id, proposal(8)), Ratified)


def a_table_adopted_as_dropped_can_be_undropped(bench: Bench) -> None:
    with bench.client() as catalog:
        table = adopted(state=AdoptedState.DROPPED)
        assert catalog.recovery.adopt_table(table) is None and catalog.recovery.adopt_table(table) is None
        assert catalog.registry.list_tables() == ()
        (inactive,) = catalog.registry.inactive_tables()
        assert (inactive.table_id, inactive.state) == (table.table_id, InactiveState.DROPPED)
        assert catalog.registry.undrop_table(table.table_id).ratified.latest_version == 2


def adoption_is_refused_for_a_taken_name_or_location(bench: Bench) -> None:
    with bench.client() as catalog:
        first = adopted()
        catalog.recovery.adopt_table(first)
        with pytest.raises(TableAlreadyExistsError):
            catalog.recovery.adopt_table(adopted(at="main/sales/orders-2"))
        for place in ("main/sales/orders-1", "main/sales/orders-1/below", "main/sales"):
            with pytest.raises(RecoveryError, match="orders-1"):
                catalog.recovery.adopt_table(replace(adopted(at=place), identifier=OTHER))
        with pytest.raises(RecoveryError, match="already"):
            catalog.recovery.adopt_table(replace(adopted(last=1), table_id=first.table_id))
        with pytest.raises(InvalidArgumentError):
            catalog.recovery.adopt_table(replace(adopted(at="x"), identifier=replace(OTHER, table="a/b")))
        assert catalog.registry.list_tables() == (NAME,)


def relocation_is_refused_for_a_taken_location(bench: Bench) -> None:
    with bench.client() as catalog:
        table, other = create(catalog), create(catalog, OTHER)
        new = f"{WAREHOUSE}-2/main/sales/orders"
        catalog.recovery.relocate_table(table.table_id, location=new, moved_from=table.location)
        catalog.recovery.relocate_table(table.table_id, location=new, moved_from=table.location)
        assert catalog.registry.load_table(NAME).location == new
        for taken in (new, f"{new}/below", f"{WAREHOUSE}-2"):
            with pytest.raises(RecoveryError, match=new):
                catalog.recovery.relocate_table(other.table_id, location=taken, moved_from=other.location)
        with pytest.raises(RecoveryError, match="Make a new plan"):
            catalog.recovery.relocate_table(other.table_id, location=f"{WAREHOUSE}-2/x", moved_from=f"{WAREHOUSE}/y")
        with pytest.raises(TableNotFoundError):
            catalog.recovery.relocate_table("unknown", location=new, moved_from=new)
        catalog.registry.drop_table(OTHER)
        catalog.recovery.relocate_table(other.table_id, location=f"{WAREHOUSE}-2/o", moved_from=other.location)
        assert catalog.registry.undrop_table(other.table_id).location == f"{WAREHOUSE}-2/o"


def versions_may_be_missing_only_after_log_cleanup(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        catalog.coordinator.commit(table, proposal(1))
        found = history([published(5, data_change=False), published(6)])
        cleaned = replace(found, start=HistoryStart.AFTER_CLEANUP)
        with pytest.raises(RecoveryError, match="no gap"):
            catalog.recovery.take_in_commits(table, found, after=1)
        for wrong in (
            [published(1)],
            [published(5), published(7)],
            [published(5, timestamp=1001)],
            [published(5), published(6, timestamp=1001)],
        ):
            with pytest.raises(RecoveryError):
                refused = replace(history(wrong), start=HistoryStart.AFTER_CLEANUP)
                catalog.recovery.take_in_commits(table, refused, after=1)
        assert catalog.registry.load_table_by_id(table).ratified.latest_version == 1
        assert catalog.recovery.take_in_commits(table, cleaned, after=1) is True
        assert catalog.recovery.take_in_commits(table, cleaned, after=1) is False
        assert [one.version for one in catalog.coordinator.commit_records(table, start=0, end=9)] == [0, 1, 5, 6]
        feed = catalog.feed.feed(after=0, limit=9)
        assert [(entry.version, entry.data_version) for entry in feed[2:]] == [(5, 5), (6, 6)]
        assert isinstance(catalog.coordinator.commit(table, proposal(7)), Ratified)


def commits_after_cleaned_versions_replace_those_of_the_catalog(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        fork = [proposal(1), proposal(2)]
        for one in fork:
            catalog.coordinator.commit(table, one)
        catalog.pins.pin_version(table, 2, owner="run")
        cleaned = replace(history([published(9)]), start=HistoryStart.AFTER_CLEANUP)
        with pytest.raises(RecoveryError):
            catalog.recovery.take_in_commits(table, cleaned, after=0)
        replaced = [one.summary.txn_id for one in fork]
        assert catalog.recovery.take_in_commits(table, cleaned, after=0, replaces=replaced) is True
        assert [one.version for one in catalog.coordinator.commit_records(table, start=0, end=9)] == [0, 9]
        assert catalog.pins.pinned_version(table, owner="run") is None


def recovered_commits_keep_their_mode(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        made = replace(published(1), mode=CommitMode.PUT_IF_ABSENT)
        catalog.recovery.take_in_commits(table, history([made]), after=0)
        assert [one.mode for one in catalog.coordinator.commit_records(table, start=1, end=1)] == [
            CommitMode.PUT_IF_ABSENT
        ]


def the_content_of_a_commit_is_replaced_once_with_an_entry_of_the_audit(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        first, second = proposal(1), proposal(2)
        catalog.coordinator.commit(table, replace(first, sha256="a" * 64))
        catalog.coordinator.commit(table, second)
        (record,) = catalog.coordinator.commit_records(table, start=1, end=1)
        other = replace(proposal(1), sha256="b" * 64, file_size=7, summary=first.summary)
        feed = [entry.position for entry in catalog.feed.feed(after=0, limit=9)]
        call = partial(
            catalog.recovery.replace_commit, table, other, replaces=record, data_change=False, reason="took back ../x"
        )
        assert call() is True
        assert call() is False
        (found,) = catalog.coordinator.commit_records(table, start=1, end=1)
        assert (found.file_name, found.file_size, found.sha256) == (other.file_name, 7, "b" * 64)
        assert (found.txn_id, found.in_commit_timestamp) == (record.txn_id, record.in_commit_timestamp)
        assert catalog.coordinator.get_ratified_commits(table).latest_version == 2
        assert [entry.position for entry in catalog.feed.feed(after=0, limit=9)] == feed
        assert [entry.summary.data_change for entry in catalog.feed.feed(after=0, limit=9)][1] is False
        (entry,) = [entry for entry in catalog.audit_log.audit() if entry.action == "take back commit"]
        assert (entry.scope, entry.reason) == (str(NAME), "took back ../x")


def a_commit_that_has_changed_is_not_replaced(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        first = proposal(1)
        catalog.coordinator.commit(table, first)
        (record,) = catalog.coordinator.commit_records(table, start=1, end=1)
        other = replace(proposal(1), sha256="b" * 64, summary=first.summary)
        for wrong in (replace(record, sha256="c" * 64), replace(record, txn_id="x"), replace(record, file_size=1)):
            with pytest.raises(RecoveryError):
                catalog.recovery.replace_commit(table, other, replaces=wrong, data_change=False, reason="")
        with pytest.raises(RecoveryError):
            catalog.recovery.replace_commit(
                table,
                replace(proposal(5), sha256="b" * 64),
                replaces=replace(record, version=5),
                data_change=False,
                reason="",
            )
        with pytest.raises(TableNotFoundError):
            catalog.recovery.replace_commit(str(uuid.uuid4()), other, replaces=record, data_change=False, reason="")
        assert catalog.coordinator.commit_records(table, start=1, end=1) == (record,)


RECOVERABLE_CATALOG_CONTRACT: tuple[Rule, ...] = (
    the_id_of_the_catalog_is_that_of_its_feed,
    recovered_commits_are_recorded_once_and_can_be_followed,
    recovered_and_adopted_tables_have_the_marks_of_their_log,
    recovered_commits_get_feed_positions_after_a_gap,
    unpublished_commits_are_recovered_from_staged_files,
    recovery_deletes_content_of_published_commits,
    recovery_is_refused_after_another_commit,
    recovered_commits_with_a_gap_or_old_timestamp_are_refused,
    recovery_replaces_all_commits_above_a_version,
    a_table_of_a_lost_catalog_is_adopted_with_its_id_and_location,
    a_table_adopted_as_dropped_can_be_undropped,
    adoption_is_refused_for_a_taken_name_or_location,
    relocation_is_refused_for_a_taken_location,
    versions_may_be_missing_only_after_log_cleanup,
    commits_after_cleaned_versions_replace_those_of_the_catalog,
    recovered_commits_keep_their_mode,
    the_content_of_a_commit_is_replaced_once_with_an_entry_of_the_audit,
    a_commit_that_has_changed_is_not_replaced,
)
