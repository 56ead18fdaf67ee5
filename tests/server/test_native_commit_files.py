"""What the API of this package reads on storage before the catalog ratifies: the server does not trust its caller's word."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.ratification import CommitProposal, CommitSummary, InitialCommit, Ratified, RatifiedCommit
from cm_delta_dagster.catalog.recovery import AdoptedState, AdoptedTable, CommitHistory
from cm_delta_dagster.catalog.rest.http_catalog import HttpCatalog
from cm_delta_dagster.catalog.tables import RecordedDefinition, TableEntry
from cm_delta_dagster.errors import CmDeltaError, CommitRejectedError, OperationRefusedError
from cm_delta_dagster.protocol.actions.commit_json import encode_action
from tests.contracts.catalog_bench import NAME, OTHER, PROTOCOL, create, metadata
from tests.support.commit_builder import ADD, REMOVE, commit_of
from tests.support.holds import hold_one
from tests.support.live_server import LiveServer


def staged_file(entry: TableEntry, proposal: CommitProposal) -> Path:
    path = Path(entry.location.removeprefix("file://")) / "_delta_log" / "_staged_commits" / proposal.file_name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def staged(version: int, action: Mapping[str, Any] = ADD) -> tuple[CommitProposal, bytes]:
    """A proposal without its content, and the bytes of its file."""
    proposal = commit_of(version, action, mode=CommitMode.STAGED)
    data = proposal.content_to_check or proposal.content
    assert data is not None
    bare = replace(proposal, content=None, content_to_check=None, sha256=hashlib.sha256(data).hexdigest())
    return replace(bare, file_size=len(data)), data


@pytest.fixture
def entry(server: LiveServer) -> TableEntry:
    """A table whose version 0 is not a file."""
    with server.catalog() as direct:
        return create(direct)


@pytest.fixture
def catalog(server: LiveServer) -> Catalog:
    return HttpCatalog(server.url, server.token_for("writer"))


def test_a_commit_is_ratified_only_with_its_staged_file(catalog: Catalog, entry: TableEntry) -> None:
    proposal, data = staged(1)
    with pytest.raises(CommitRejectedError, match="has no such file"):
        catalog.coordinator.commit(entry.table_id, proposal)
    with pytest.raises(CommitRejectedError, match="has no such file"):
        catalog.coordinator.commit(entry.table_id, replace(proposal, content_to_check=data))
    with pytest.raises(CommitRejectedError, match="has no such file"):
        catalog.coordinator.commit_together({entry.table_id: proposal})
    file = staged_file(entry, proposal)
    for other in (data[:-1], data[:-1] + b" "):
        file.write_bytes(other)
        with pytest.raises(CommitRejectedError):
            catalog.coordinator.commit(entry.table_id, proposal)
    file.write_bytes(data)
    assert isinstance(catalog.coordinator.commit(entry.table_id, proposal), Ratified)
    file.unlink()
    repeated = catalog.coordinator.commit(entry.table_id, proposal)
    assert isinstance(repeated, Ratified) and repeated.repeated


def test_a_commit_whose_body_would_be_too_large_is_ratified(
    server: LiveServer, catalog: Catalog, entry: TableEntry
) -> None:
    """The server reads its file: a client does not send the bytes that are only to be checked."""
    large = {"add": {**ADD["add"], "tags": {"text": "x" * (server.settings.max_body_bytes - 4096)}}}
    proposal, data = staged(1, large)
    staged_file(entry, proposal).write_bytes(data)
    sent = replace(proposal, content_to_check=data)
    assert isinstance(catalog.coordinator.commit(entry.table_id, sent), Ratified)
    with pytest.raises(CommitRejectedError, match="has no such file"):
        catalog.coordinator.commit(entry.table_id, replace(staged(2, large)[0], content_to_check=data))


def test_no_file_outside_of_the_storage_roots_is_named(catalog: Catalog, tmp_path: Path) -> None:
    outside = f"file://{tmp_path}/outside"
    with pytest.raises(OperationRefusedError, match="not below one of its storage roots"):
        catalog.registry.create_staging_table(NAME, location=outside)
    with pytest.raises(OperationRefusedError, match="not below one of its storage roots"):
        catalog.registry.register_path(OTHER, outside)
    with pytest.raises(OperationRefusedError, match="not below one of its storage roots"):
        catalog.recovery.check_adoption(OTHER, location=outside)
    with pytest.raises(OperationRefusedError, match="not below one of its storage roots"):
        catalog.recovery.adopt_table(adopted(f"{outside}/table"))
    with pytest.raises(CmDeltaError):
        catalog.registry.load_table(NAME)


def test_a_table_is_not_relocated_to_outside_of_the_storage_roots(
    catalog: Catalog, entry: TableEntry, tmp_path: Path
) -> None:
    """Neither by the name of the place nor by a link below a root."""
    for directory in ("outside", "warehouse"):
        (tmp_path / directory).mkdir()
    (tmp_path / "warehouse" / "link").symlink_to(tmp_path / "outside")
    for location in (f"file://{tmp_path}/outside/t", f"file://{tmp_path}/warehouse/link/t"):
        with pytest.raises(OperationRefusedError, match="not below one of its storage roots"):
            catalog.recovery.relocate_table(entry.table_id, location=location, moved_from=entry.location)
        with pytest.raises(OperationRefusedError, match="not below one of its storage roots"):
            catalog.recovery.adopt_table(adopted(location))
    assert catalog.registry.load_table(NAME).location == entry.location
    inside = f"file://{tmp_path}/warehouse/moved"
    catalog.recovery.relocate_table(entry.table_id, location=inside, moved_from=entry.location)
    assert catalog.registry.load_table(NAME).location == inside


def test_a_commit_is_held_only_with_its_staged_file_and_is_ratified_later(
    server: LiveServer, catalog: Catalog, entry: TableEntry
) -> None:
    """Also if its version is taken then, because it is rebased."""
    rule = CommitRule(scope=str(NAME), name="keep", kind=CommitRuleKind.APPEND_ONLY, on_violation=OnViolation.APPROVAL)
    catalog.commit_rules.set_commit_rule(rule)
    proposal, data = staged(1, REMOVE)
    file = staged_file(entry, proposal)
    for other in (None, data[:-1], data[:-1] + b" "):
        if other is not None:
            file.write_bytes(other)
        with pytest.raises(CommitRejectedError):
            hold_one(catalog, entry.table_id, proposal)
        with pytest.raises(CommitRejectedError):
            hold_one(catalog, entry.table_id, replace(proposal, content_to_check=data))
    assert catalog.holds.holds() == ()
    file.write_bytes(data)
    hold = hold_one(catalog, entry.table_id, proposal)
    assert hold is not None
    (held,) = catalog.holds.held_proposals(hold.hold_id)
    assert (held.file_name, held.sha256, held.content) == (proposal.file_name, proposal.sha256, None)
    approved = replace(proposal, hold_id=hold.hold_id)
    assert isinstance(catalog.coordinator.commit(entry.table_id, approved), Ratified)
    late, late_data = staged(1, REMOVE)
    with pytest.raises(CommitRejectedError, match="has no such file"):
        hold_one(catalog, entry.table_id, late)
    staged_file(entry, late).write_bytes(late_data)
    assert hold_one(catalog, entry.table_id, late) is not None


def test_a_commit_is_recorded_as_published_only_with_its_published_file(catalog: Catalog, entry: TableEntry) -> None:
    policy = CommitPolicy(kind=CommitPolicyKind.PUT_IF_ABSENT)
    catalog.commit_policies.change_commit_policy(entry.table_id, policy)
    proposal, data = staged(1)
    proposal = replace(proposal, mode=CommitMode.PUT_IF_ABSENT, file_name=f"{1:020d}.json")
    file = staged_file(entry, proposal).parent.parent / proposal.file_name
    for other in (None, data[:-1], data[:-1] + b" "):
        if other is not None:
            file.write_bytes(other)
        with pytest.raises(CommitRejectedError):
            catalog.coordinator.record_published(entry.table_id, proposal)
        with pytest.raises(CommitRejectedError):
            catalog.coordinator.record_published(entry.table_id, replace(proposal, content=data))
    assert catalog.coordinator.get_ratified_commits(entry.table_id).latest_version == 0
    file.write_bytes(data)
    recorded = catalog.coordinator.record_published(entry.table_id, proposal)
    assert isinstance(recorded, Ratified) and not recorded.repeated
    (record,) = catalog.coordinator.commit_records(entry.table_id, start=1, end=1)
    assert (record.mode, record.sha256) == (CommitMode.PUT_IF_ABSENT, proposal.sha256)
    file.unlink()
    repeated = catalog.coordinator.record_published(entry.table_id, proposal)
    assert isinstance(repeated, Ratified) and repeated.repeated


def adopted(location: str) -> AdoptedTable:
    definition = RecordedDefinition(metadata=metadata("id"), protocol=PROTOCOL, version=2, in_commit_timestamp=1002)
    history = CommitHistory(proposals=(commit_of(2, ADD),), published_version=0, definition=definition)
    state = AdoptedState.ACTIVE
    return AdoptedTable(table_id="adopted", identifier=OTHER, location=location, state=state, history=history)


def version_0() -> tuple[CommitSummary, InitialCommit, bytes]:
    """The registration of version 0 without its content, and the bytes of its file."""
    made = metadata("id")
    proposal = commit_of(0, *(json.loads(encode_action(action)) for action in (PROTOCOL, made)))
    data = proposal.content
    assert data is not None
    digest = hashlib.sha256(data).hexdigest()
    initial = InitialCommit(
        file_size=len(data), file_modification_time=77, metadata=made, protocol=PROTOCOL, sha256=digest
    )
    return proposal.summary, initial, data


def test_a_table_is_registered_only_with_the_version_0_that_is_in_its_log(catalog: Catalog) -> None:
    staging = catalog.registry.create_staging_table(NAME)
    summary, initial, data = version_0()

    def register(initial: InitialCommit | None, summary: CommitSummary = summary) -> TableEntry:
        return catalog.registry.register_table(staging.table_id, NAME, summary=summary, initial=initial)

    with pytest.raises(CommitRejectedError, match="has no such file"):
        register(initial)
    with pytest.raises(CommitRejectedError, match="has no such file"):
        register(replace(initial, content=data, content_to_check=data))
    log = Path(staging.location.removeprefix("file://")) / "_delta_log"
    log.mkdir(parents=True)
    file = log / f"{0:020d}.json"
    for other in (data[:-1], data[:-1] + b" ", b"x" * len(data)):
        file.write_bytes(other)
        with pytest.raises(CommitRejectedError):
            register(initial)
    file.write_bytes(data)
    for wrong in (
        None,
        replace(initial, metadata=metadata("other")),
        replace(initial, protocol=replace(PROTOCOL, writer_features=("catalogManaged",))),
        replace(initial, sha256="0" * 64),
        replace(initial, content=data[:-1] + b" "),
    ):
        with pytest.raises(CommitRejectedError):
            register(wrong)
    with pytest.raises(CommitRejectedError, match="another txnId"):
        register(initial, replace(summary, txn_id="other"))
    assert catalog.registry.list_tables() == ()
    entry = register(initial)
    assert entry.definition is not None and entry.definition.metadata == initial.metadata
    file.unlink()
    assert register(initial) == entry  # A repeated registration reads no file.


def test_no_file_is_read_for_a_caller_that_may_not_create_the_table(server: LiveServer, catalog: Catalog) -> None:
    """The refusal is the same whether or not there is a version 0."""
    staging = catalog.registry.create_staging_table(NAME)
    summary, initial, _ = version_0()
    stranger = HttpCatalog(server.url, server.token_for("stranger"))
    reader = HttpCatalog(server.url, server.token_for("writer", read_only=True))
    catalog.access.enable_grants(owner="writer")
    for client in (stranger, reader):
        with client, pytest.raises(OperationRefusedError, match=r"privilege alter|is read-only"):
            client.registry.register_table(staging.table_id, NAME, summary=summary, initial=initial)


@pytest.fixture
def first(catalog: Catalog, entry: TableEntry) -> RatifiedCommit:
    """The record of version 1."""
    proposal, data = staged(1)
    staged_file(entry, proposal).write_bytes(data)
    catalog.coordinator.commit(entry.table_id, proposal)
    (record,) = catalog.coordinator.commit_records(entry.table_id, start=1, end=1)
    return record


@pytest.mark.usefixtures("first")
def test_recovery_records_only_commits_that_are_in_the_log(catalog: Catalog, entry: TableEntry) -> None:
    proposal, data = staged(2)
    file = staged_file(entry, proposal)
    time = proposal.summary.in_commit_timestamp
    definition = RecordedDefinition(metadata=metadata("id"), protocol=PROTOCOL, version=2, in_commit_timestamp=time)
    history = CommitHistory(proposals=(proposal,), published_version=0, definition=definition)

    def take_in(history: CommitHistory = history) -> bool:
        return catalog.recovery.take_in_commits(entry.table_id, history, after=1)

    for other in (None, data[:-1], data[:-1] + b" "):
        if other is not None:
            file.write_bytes(other)
        with pytest.raises(CommitRejectedError):
            take_in()
    file.write_bytes(data)
    other_id = replace(proposal, summary=replace(proposal.summary, txn_id="other"))
    for wrong in (
        replace(history, proposals=(other_id,)),
        replace(history, proposals=(replace(proposal, file_name=f"../{proposal.file_name}"),)),
        replace(history, proposals=(replace(proposal, content=data[:-1] + b" "),)),
        replace(history, published_version=1),
    ):
        with pytest.raises(CommitRejectedError):
            take_in(wrong)
    assert catalog.coordinator.get_ratified_commits(entry.table_id).latest_version == 1
    assert take_in()
    assert catalog.coordinator.get_ratified_commits(entry.table_id).latest_version == 2


def test_a_commit_is_replaced_only_by_a_staged_file(catalog: Catalog, entry: TableEntry, first: RatifiedCommit) -> None:
    info = {"txnId": first.txn_id, "inCommitTimestamp": first.in_commit_timestamp, "operation": "WRITE"}
    data = json.dumps({"commitInfo": info}).encode() + b"\n"
    made, _ = staged(1)
    summary = replace(made.summary, txn_id=first.txn_id, in_commit_timestamp=first.in_commit_timestamp)
    digest = hashlib.sha256(data).hexdigest()
    proposal = replace(made, file_size=len(data), sha256=digest, summary=summary)

    def put_in_place(proposal: CommitProposal = proposal) -> bool:
        return catalog.recovery.replace_commit(
            entry.table_id, proposal, replaces=first, data_change=False, reason="a test"
        )

    for other in (None, data[:-1], data[:-1] + b" "):
        if other is not None:
            staged_file(entry, proposal).write_bytes(other)
        with pytest.raises(CommitRejectedError):
            put_in_place()
    staged_file(entry, proposal).write_bytes(data)
    assert catalog.coordinator.commit_records(entry.table_id, start=1, end=1) == (first,)
    assert put_in_place()
    (replaced,) = catalog.coordinator.commit_records(entry.table_id, start=1, end=1)
    assert (replaced.file_name, replaced.sha256) == (proposal.file_name, proposal.sha256)


def test_a_table_is_adopted_only_with_the_commits_of_its_log(catalog: Catalog, tmp_path: Path) -> None:
    table = adopted(f"file://{tmp_path}/warehouse/adopted")
    (stated,) = table.history.proposals
    data = stated.content
    assert data is not None
    bare = replace(stated, content=None, content_to_check=None, mode=CommitMode.STAGED)
    table = replace(table, history=replace(table.history, proposals=(bare,)))
    log = tmp_path / "warehouse" / "adopted" / "_delta_log"
    file = log / "_staged_commits" / bare.file_name
    file.parent.mkdir(parents=True)
    for other in (None, data[:-1], data[:-1] + b" "):
        if other is not None:
            file.write_bytes(other)
        with pytest.raises(CommitRejectedError):
            catalog.recovery.adopt_table(table)
    file.write_bytes(data)
    with pytest.raises(CommitRejectedError, match="the log has no such version"):
        catalog.recovery.adopt_table(table)
    (log / f"{0:020d}.json").write_bytes(b"{}")
    assert catalog.registry.list_tables() == ()
    adopted_entry = catalog.recovery.adopt_table(table)
    assert adopted_entry is not None and adopted_entry.ratified.latest_version == 2
