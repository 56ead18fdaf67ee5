"""Contract of ``CommitCoordinator``: content that is not that of the commit, flawed or too large to be read.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import json
from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy, PolicyChange
from cm_delta_dagster.catalog.ratification import CommitProposal, InitialCommit, Ratified
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CommitRefusedError, CommitRejectedError, IllegalCommitError
from cm_delta_dagster.protocol.actions.commit_json import decode_commit
from cm_delta_dagster.protocol.commits.proposal_checks.content import MAX_CHECKED_BYTES
from tests.contracts.access_control_contract import principal_of
from tests.contracts.catalog_bench import (
    NAME,
    OTHER,
    PROTOCOL,
    Bench,
    Rule,
    create,
    created,
    defined,
    metadata,
    summary,
)
from tests.support.commit_builder import ADD, commit_of
from tests.support.stated_marks import numbered, row_id_mark
from tests.support.unreadable_commits import line_of


def _staged(one: CommitProposal) -> CommitProposal:
    return replace(one, mode=CommitMode.STAGED, content=None)


def _large(one: CommitProposal) -> CommitProposal:
    """The proposal with a content that is too large to be read, whose metadata it states as clients do."""
    assert one.content_to_check is not None
    actions = decode_commit(one.content_to_check, version=one.version)
    content = one.content_to_check + b" " * MAX_CHECKED_BYTES
    return replace(
        _staged(one),
        content_to_check=content,
        file_size=len(content),
        sha256=None,
        metadata=actions.metadata,
    )


def _replacement(one: CommitProposal) -> CommitProposal:
    return replace(one, summary=replace(one.summary, operation="CREATE OR REPLACE TABLE"))


def content_of_another_commit_is_rejected(bench: Bench) -> None:
    """Without grants, with them, for an approval, and at the registration; unknown content is absent."""
    with bench.client() as catalog:
        table_id, other_id = create(catalog).table_id, create(catalog, OTHER).table_id
        one = _staged(commit_of(1, ADD))
        assert one.content_to_check is not None
        for wrong in (
            replace(one, content_to_check=one.content_to_check + b"\n"),
            replace(one, content_to_check=one.content_to_check[:-1] + b" "),
            replace(one, content_to_check=b""),
            replace(one, sha256="0" * 64),
            replace(one, file_size=one.file_size + 1),
            replace(one, content_to_check=one.content_to_check + b" " * MAX_CHECKED_BYTES),
            replace(one, content=one.content_to_check, content_to_check=b"{}\n"),
        ):
            with pytest.raises(CommitRejectedError, match=r"proposed staged with .*(of content and the size|SHA-256)"):
                catalog.coordinator.commit(table_id, wrong)
            with pytest.raises(CommitRejectedError, match=r"of content and the size|SHA-256"):
                catalog.coordinator.commit_together({other_id: commit_of(1, ADD), table_id: wrong})
        name = TableIdentifier("main", "sales", "new")
        staging = catalog.registry.create_staging_table(name)
        initial = InitialCommit(
            file_size=5,
            file_modification_time=77,
            metadata=metadata("id"),
            protocol=PROTOCOL,
            content_to_check=b"{}\n",
        )
        with pytest.raises(
            CommitRejectedError, match="Version 0 was registered with 3 bytes of content and the size 5"
        ):
            catalog.registry.register_table(staging.table_id, name, summary=summary(1000), initial=initial)
        assert catalog.registry.load_table(NAME).ratified.latest_version == 0
        assert isinstance(catalog.coordinator.commit(table_id, replace(one, content_to_check=None)), Ratified)


def _found(version: int, *lines: str) -> CommitProposal:
    """The record of a commit that was made put-if-absent, whose first lines are right."""
    data = commit_of(version).content_to_check
    assert data is not None
    data += "".join(f"{line}\n" for line in lines).encode()
    return replace(
        created(version),
        summary=commit_of(version).summary,
        content_to_check=data,
        file_size=len(data),
        sha256=None,
    )


def _end_put_if_absent(catalog: Catalog, table_id: str, version: int) -> None:
    catalog.commit_policies.change_commit_policy(table_id, None)
    catalog.coordinator.record_published(table_id, created(version, operation="SET COMMIT MODE"))
    assert catalog.commit_policies.change_commit_policy(table_id, None) is PolicyChange.DONE


def a_flawed_commit_that_was_made_put_if_absent_sets_marks_and_application_ids(bench: Bench) -> None:
    """Whatever of it can be read: the file is a commit, and later ones must not lower its marks or take its ids."""
    flaws = (line_of("add", path='"../x"'), "no JSON", line_of("txn", version='"x"'), line_of("metaData", id=None))
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        table_id = defined(owner).table_id
        owner.commit_policies.change_commit_policy(table_id, CommitPolicy.parse("put_if_absent"))
        for version, flaw in enumerate(flaws, 1):
            stated = (
                json.dumps(row_id_mark(10 * version)),
                json.dumps(numbered(version)),
                line_of("txn", appId=f'"job{version}"'),
            )
            assert isinstance(owner.coordinator.record_published(table_id, _found(version, flaw, *stated)), Ratified)
        last = len(flaws) + 1
        _end_put_if_absent(owner, table_id, last)
        for action, mark in ((row_id_mark(39), 40), (numbered(3), 4)):
            with pytest.raises(IllegalCommitError, match=f"and that of the table is {mark}"):
                owner.coordinator.commit(table_id, _staged(commit_of(last + 1, action)))
        owner.access.enable_grants()
        owner.access.grant([Privilege.READ, Privilege.APPEND], str(NAME), principal_of(writer))
        for version in range(1, last):
            taken = _staged(commit_of(last + 1, ADD, {"txn": {"appId": f"job{version}", "version": 2}}))
            with pytest.raises(CommitRefusedError, match=f"'job{version}'"):
                writer.coordinator.commit(table_id, taken)


def a_flawed_commit_that_was_made_put_if_absent_lowers_no_mark(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id = defined(catalog).table_id
        catalog.commit_policies.change_commit_policy(table_id, CommitPolicy.parse("put_if_absent"))
        for version, row_id, number, lines in ((1, 9, 5, ()), (2, 3, 2, ("no JSON",))):
            marks = json.dumps(row_id_mark(row_id)), json.dumps(numbered(number))
            assert isinstance(catalog.coordinator.record_published(table_id, _found(version, *lines, *marks)), Ratified)
        _end_put_if_absent(catalog, table_id, 3)
        for action, mark in ((row_id_mark(8), 9), (numbered(4), 5)):
            with pytest.raises(IllegalCommitError, match=f"and that of the table is {mark}"):
                catalog.coordinator.commit(table_id, _staged(commit_of(4, action)))
        assert isinstance(
            catalog.coordinator.commit(table_id, _staged(commit_of(4, row_id_mark(9), numbered(5)))), Ratified
        )


def a_replacement_that_is_too_large_to_be_read_starts_identity_columns_again(bench: Bench) -> None:
    """With the marks that its proposer states, or none. The row id high-water mark stays, and so do all if it is no replacement."""
    with bench.client() as catalog:
        for name, is_stated, lowest in ((NAME, True, 1), (OTHER, False, None)):
            table_id = create(catalog, name).table_id
            first = _staged(commit_of(1, row_id_mark(9), numbered(5)))
            assert isinstance(catalog.coordinator.commit(table_id, first), Ratified)
            written = _large(commit_of(2, numbered(1)))
            assert isinstance(catalog.coordinator.commit(table_id, written), Ratified)
            with pytest.raises(IllegalCommitError, match="and that of the table is 5"):
                catalog.coordinator.commit(table_id, _staged(commit_of(3, numbered(1))))
            replaced = _replacement(_large(commit_of(3, numbered(1))))
            if not is_stated:
                replaced = replace(replaced, metadata=None, protocol=None)
            assert isinstance(catalog.coordinator.commit(table_id, replaced), Ratified)
            with pytest.raises(IllegalCommitError, match="and that of the table is 9"):
                catalog.coordinator.commit(table_id, _staged(commit_of(4, row_id_mark(8))))
            if lowest is not None:
                with pytest.raises(IllegalCommitError, match=f"and that of the table is {lowest}"):
                    catalog.coordinator.commit(table_id, _staged(commit_of(4, numbered(0))))
            assert isinstance(catalog.coordinator.commit(table_id, _staged(commit_of(4, numbered(1)))), Ratified)


COMMIT_COORDINATOR_UNREAD_CONTENT_CONTRACT: tuple[Rule, ...] = (
    content_of_another_commit_is_rejected,
    a_flawed_commit_that_was_made_put_if_absent_sets_marks_and_application_ids,
    a_flawed_commit_that_was_made_put_if_absent_lowers_no_mark,
    a_replacement_that_is_too_large_to_be_read_starts_identity_columns_again,
)
