"""What every catalog keeps of a table beside its versions: definition and etag, the published mark, contents of small commits.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import hashlib
import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy
from cm_delta_dagster.catalog.ratification import (
    KEPT_COMMITS,
    KEPT_CONTENT_BYTES,
    CommitProposal,
    InitialCommit,
    Ratified,
    RatifiedCommits,
    VersionTaken,
)
from cm_delta_dagster.catalog.tables import TableEntry
from cm_delta_dagster.errors import CommitRejectedError, InvalidArgumentError, TableNotFoundError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from tests.contracts.catalog_bench import NAME, OTHER, Bench, Rule, create, created, inline, proposal, summary

PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("catalogManaged",),
    writer_features=("catalogManaged", "inCommitTimestamp"),
)
MORE = replace(PROTOCOL, writer_features=("catalogManaged", "inCommitTimestamp", "appendOnly"))


def metadata(*columns: str, **properties: str) -> Metadata:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in columns]
    return Metadata(id="5d1a", schema_string=json.dumps({"type": "struct", "fields": fields}), configuration=properties)


def defined(catalog: Catalog, *, content: bytes | None = None) -> TableEntry:
    staging = catalog.create_staging_table(NAME)
    initial = InitialCommit(
        file_size=200 if content is None else len(content),
        file_modification_time=77,
        metadata=metadata("id"),
        protocol=PROTOCOL,
        content=content,
    )
    return catalog.register_table(staging.table_id, NAME, summary=summary(1000), initial=initial)


def copied(version: int, *, size: int = 0) -> CommitProposal:
    """A staged proposal that carries a copy of its commit too."""
    return replace(inline(version, size=size), mode=CommitMode.STAGED)


def kept(catalog: Catalog, table: str, *, since: int = 0) -> list[int]:
    """Versions that are published and served with their content; the row is checked to be whole."""
    answer = catalog.get_ratified_commits(table, content_from_version=since)
    versions = [commit.version for commit in answer.cached_commits]
    assert all(
        commit.content is not None and len(commit.content) == commit.file_size for commit in answer.cached_commits
    )
    assert versions == list(range(answer.published_version - len(versions) + 1, answer.published_version + 1))
    assert [commit.version for commit in answer.commits] == list(
        range(answer.published_version + 1, answer.latest_version + 1)
    )
    return versions


# Definition and etag


def a_definition_is_served_from_the_registration_on(bench: Bench) -> None:
    """CM-C13, CM-R1"""
    with bench.client() as catalog, bench.client() as other:
        entry = defined(catalog)
        found = other.load_table(NAME)
        assert found == entry == other.load_table_by_id(entry.table_id)
        definition = found.definition
        assert definition is not None and (definition.metadata, definition.protocol) == (metadata("id"), PROTOCOL)
        assert (definition.version, definition.in_commit_timestamp) == (0, 1000)
        assert [field.name for field in definition.columns.fields] == ["id"]
        assert (definition.partition_columns, definition.properties) == ((), {})
        (initial,) = other.accepted_commits(entry.table_id, start=0, end=0)
        assert (initial.file_name, initial.file_size, initial.file_modification_time) == (f"{0:020d}.json", 200, 77)


def a_definition_changes_with_the_commit_that_sets_it_and_the_etag_with_it(bench: Bench) -> None:
    """CM-C13"""
    with bench.client() as catalog, bench.client() as other:
        entry = defined(catalog)
        table = entry.table_id
        seen = [entry.etag]
        catalog.commit(table, proposal(1))
        assert other.load_table(NAME).etag == entry.etag
        wider = metadata("id", "day", owner="me")
        catalog.commit(table, replace(proposal(2), metadata=wider, protocol=PROTOCOL))
        found = other.load_table(NAME)
        assert found.definition is not None and found.definition.metadata == wider
        assert (found.definition.version, found.definition.in_commit_timestamp) == (2, 1002)
        seen.append(found.etag)
        catalog.commit(table, replace(proposal(3), metadata=wider, protocol=PROTOCOL))
        catalog.set_published_version(table, 3)
        again = other.load_table(NAME)
        assert (again.etag, again.definition) == (found.etag, found.definition)
        catalog.commit(table, replace(proposal(4), protocol=MORE))
        found = other.load_table(NAME)
        assert found.definition is not None
        assert (found.definition.metadata, found.definition.protocol, found.definition.version) == (wider, MORE, 4)
        seen.append(found.etag)
        seen.append(catalog.rename_table(table, OTHER).etag)
        assert catalog.rename_table(table, OTHER).etag == seen[-1]
        catalog.drop_table(OTHER)
        assert catalog.undrop_table(table).etag == seen[-1]
        catalog.drop_table(OTHER)
        seen.append(create(catalog, OTHER).etag)
        assert len(set(seen)) == len(seen)


def a_proposal_that_is_not_ratified_leaves_the_definition_alone(bench: Bench) -> None:
    """CM-C13, CM-C1"""
    with bench.client() as catalog:
        entry = defined(catalog)
        table = entry.table_id
        first = replace(proposal(1), metadata=metadata("a"), protocol=PROTOCOL)
        assert isinstance(catalog.commit(table, first), Ratified)
        now = catalog.load_table(NAME)
        other = replace(proposal(1), metadata=metadata("b"), protocol=PROTOCOL)
        assert isinstance(catalog.commit(table, other), VersionTaken)
        with pytest.raises(CommitRejectedError):
            catalog.commit(table, replace(proposal(3), metadata=metadata("c"), protocol=PROTOCOL))
        with pytest.raises(CommitRejectedError):
            catalog.commit(table, replace(proposal(2, timestamp=5), metadata=metadata("c"), protocol=PROTOCOL))
        assert catalog.load_table(NAME) == now
        catalog.commit(table, replace(proposal(2), metadata=metadata("d"), protocol=PROTOCOL))
        now = catalog.load_table(NAME)
        repeated = replace(first, metadata=metadata("e"), published_version=0)
        assert catalog.commit(table, repeated) == Ratified(
            version=1, latest_version=2, published_version=0, repeated=True
        )
        assert catalog.load_table(NAME) == now


def a_catalog_that_was_never_told_serves_no_definition_until_it_is(bench: Bench) -> None:
    """CM-C13"""
    with bench.client() as catalog:
        entry = create(catalog)
        table = entry.table_id
        assert entry.definition is None
        catalog.commit(table, replace(proposal(1), metadata=metadata("id")))
        changed = catalog.load_table(NAME)
        assert changed.definition is None
        assert changed.etag != entry.etag
        assert not catalog.set_definition(table, version=0, metadata=metadata("old"), protocol=PROTOCOL)
        assert catalog.load_table(NAME).definition is None
        assert catalog.set_definition(table, version=1, metadata=metadata("id"), protocol=PROTOCOL)
        found = catalog.load_table(NAME)
        assert found.definition is not None and found.definition.metadata == metadata("id")
        assert found.etag == changed.etag
        assert catalog.set_definition(table, version=1, metadata=metadata("mended"), protocol=PROTOCOL)
        assert catalog.load_table(NAME).etag not in (entry.etag, changed.etag)
        with pytest.raises(TableNotFoundError):
            catalog.set_definition(str(uuid.uuid4()), version=1, metadata=metadata("id"), protocol=PROTOCOL)
        catalog.drop_table(NAME)
        with pytest.raises(TableNotFoundError):
            catalog.load_table_by_id(table)


def content_that_sets_another_definition_than_is_told_is_rejected(bench: Bench) -> None:
    """CM-C13, CM-C14"""
    with bench.client() as catalog:
        table = defined(catalog).table_id
        line = commit_json.encode_action(metadata("id", "more")).encode() + b"\n"
        for one in (inline(1), copied(1)):
            assert one.content is not None
            content = one.content + line
            told = replace(one, content=content, file_size=len(content))
            for wrong in (told, replace(told, metadata=metadata("id"), protocol=PROTOCOL)):
                with pytest.raises(CommitRejectedError, match="protocol or metadata"):
                    catalog.commit(table, wrong)
            broken = one.content + b'{"metaData":1}\n'
            with pytest.raises(CommitRejectedError):
                catalog.commit(table, replace(one, content=broken, file_size=len(broken)))
        right = replace(told, metadata=metadata("id", "more"), protocol=PROTOCOL)
        assert isinstance(catalog.commit(table, right), Ratified)


def a_reader_never_sees_a_version_with_another_definition(bench: Bench) -> None:
    """CM-C13, CM-C15: the version is the number of columns, at every moment."""
    with bench.client() as catalog, bench.client() as other:
        table = defined(catalog).table_id
        last = 40

        def write() -> None:
            for version in range(1, last + 1):
                columns = [f"c{number}" for number in range(version + 1)]
                one = replace(proposal(version), metadata=metadata(*columns), protocol=PROTOCOL)
                catalog.commit(table, replace(one, published_version=version - 2 if version > 2 else None))

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            seen = set()
            while not writing.done() or last not in seen:
                entry = other.load_table(NAME)
                assert entry.definition is not None
                assert len(entry.definition.columns.fields) == entry.ratified.latest_version + 1
                seen.add(entry.ratified.latest_version)
            writing.result()


# The published mark


def a_published_mark_may_come_late_and_with_a_commit(bench: Bench) -> None:
    """CM-P4, CM-P5, CM-C8"""
    with bench.client() as catalog:
        table = create(catalog).table_id
        for version in (1, 2, 3):
            catalog.commit(table, proposal(version))
        told = catalog.commit(table, replace(proposal(4), published_version=2))
        assert told == Ratified(version=4, latest_version=4, published_version=2)
        assert [commit.version for commit in catalog.get_ratified_commits(table).commits] == [3, 4]
        late = catalog.commit(table, replace(proposal(5), published_version=1))
        assert late == Ratified(version=5, latest_version=5, published_version=2)
        whole = catalog.commit(table, replace(inline(6), published_version=5))
        assert whole == Ratified(version=6, latest_version=6, published_version=5)
        catalog.set_published_version(table, 6)
        assert catalog.get_ratified_commits(table).commits == ()


def a_published_mark_never_goes_beyond_what_was_ratified_before(bench: Bench) -> None:
    """CM-P1, CM-C3: the version is looked at before the mark."""
    with bench.client() as catalog:
        table = create(catalog).table_id
        one = proposal(1)
        catalog.commit(table, one)
        for mark in (2, 3):
            with pytest.raises(CommitRejectedError, match="published"):
                catalog.commit(table, replace(proposal(2), published_version=mark))
        with pytest.raises(InvalidArgumentError):
            catalog.set_published_version(table, 2)
        assert isinstance(catalog.commit(table, replace(proposal(1), published_version=9)), VersionTaken)
        repeated = catalog.commit(table, replace(one, published_version=1))
        assert repeated == Ratified(version=1, latest_version=1, published_version=0, repeated=True)
        known = catalog.get_ratified_commits(table)
        assert (known.latest_version, known.published_version) == (1, 0)


# Contents


def small_contents_are_served_after_publication_to_those_who_ask(bench: Bench) -> None:
    """CM-C4, CM-C9, CM-C16"""
    with bench.client() as catalog, bench.client() as other:
        first = inline(0).content
        table = defined(catalog, content=first).table_id
        made = [copied(1), inline(2), copied(3)]
        for one in made:
            assert isinstance(catalog.commit(table, one), Ratified)
        plain = other.get_ratified_commits(table)
        assert [commit.content for commit in plain.commits] == [None, made[1].content, None]
        assert [commit.mode.value for commit in plain.commits] == ["staged", "inline", "staged"]
        asked = other.get_ratified_commits(table, content_from_version=2)
        assert [commit.content for commit in asked.commits] == [None, made[1].content, made[2].content]
        assert asked.cached_commits == () and plain.cached_commits == ()
        catalog.set_published_version(table, 2)
        asked = other.get_ratified_commits(table, content_from_version=0)
        assert [commit.content for commit in asked.cached_commits] == [first, made[0].content, made[1].content]
        assert [commit.content for commit in asked.commits] == [made[2].content]
        assert kept(other, table, since=2) == [2] and kept(other, table, since=3) == []
        ranged = other.get_ratified_commits(table, start=1, end=1, content_from_version=0)
        assert [commit.version for commit in ranged.cached_commits] == [1] and ranged.commits == ()
        assert other.get_ratified_commits(table).cached_commits == () == other.load_table(NAME).ratified.cached_commits
        taken = other.commit(table, proposal(1))
        assert isinstance(taken, VersionTaken)
        assert [commit.content for commit in taken.winners.commits] == [one.content for one in made]


def the_version_before_the_asked_ones_is_served_with_its_timestamp(bench: Bench) -> None:
    """A client compares it with the version that it has in memory."""
    with bench.client() as catalog:
        table = defined(catalog).table_id
        made = [proposal(1), proposal(2), proposal(3)]
        for one in made:
            assert isinstance(catalog.commit(table, one), Ratified)
        expected = [one.summary.in_commit_timestamp for one in made[:2]]
        asked = [
            catalog.get_ratified_commits(table, content_from_version=version).preceding_timestamp
            for version in (2, 3, 4)
        ]
        assert asked == [*expected, None]
        catalog.set_published_version(table, 3)
        assert catalog.get_ratified_commits(table, content_from_version=3).preceding_timestamp == expected[1]
        assert catalog.get_ratified_commits(table).preceding_timestamp is None


def a_large_commit_ends_the_row_of_kept_contents(bench: Bench) -> None:
    """CM-C7, CM-C8"""
    with bench.client() as catalog:
        table = create(catalog).table_id
        assert kept(catalog, table) == []
        catalog.commit(table, copied(1))
        catalog.commit(table, inline(2, size=KEPT_CONTENT_BYTES))
        catalog.commit(table, copied(3))
        served = catalog.get_ratified_commits(table, content_from_version=0)
        assert all(commit.content is not None for commit in served.commits)
        catalog.set_published_version(table, 1)
        assert kept(catalog, table) == []
        catalog.set_published_version(table, 3)
        assert kept(catalog, table) == [3]
        catalog.commit(table, replace(proposal(4), published_version=3))
        assert kept(catalog, table) == []
        catalog.set_published_version(table, 4)
        assert kept(catalog, table) == []
        records = catalog.accepted_commits(table, start=0, end=4)
        assert [record.content for record in records] == [None] * 5


def kept_contents_are_bounded_whoever_tells_of_the_publication(bench: Bench) -> None:
    """CM-C8: what a catalog keeps of a table does not grow with its age."""
    with bench.client() as catalog:
        content = inline(0).content
        table = defined(catalog, content=content).table_id
        most = 0
        for version in range(1, 3 * KEPT_COMMITS):
            one = copied(version) if version % 3 else inline(version)
            catalog.commit(table, replace(one, published_version=version - 1 if version % 2 else None))
            if version % 10 == 0:
                catalog.set_published_version(table, version)
            if version % 20 == 0:
                now = kept(catalog, table)
                assert min(version + 1, KEPT_COMMITS) <= len(now) < KEPT_COMMITS + 16
                stored = [
                    one for one in catalog.accepted_commits(table, start=0, end=version) if one.content is not None
                ]
                most = max(most, len(stored))
        assert KEPT_COMMITS <= most < KEPT_COMMITS + 16


def no_content_is_forgotten_before_its_commit_is_published(bench: Bench) -> None:
    """CM-C7"""
    with bench.client() as catalog:
        table = create(catalog).table_id
        last = 2 * KEPT_COMMITS
        for version in range(1, last + 1):
            catalog.commit(table, inline(version))
        served = catalog.get_ratified_commits(table).commits
        assert len(served) == last and all(commit.content is not None for commit in served)
        catalog.set_published_version(table, last)
        assert KEPT_COMMITS <= len(kept(catalog, table)) < KEPT_COMMITS + 16


def contents_of_created_commits_are_kept_too(bench: Bench) -> None:
    """CM-C5"""
    with bench.client() as catalog:
        zero, one = inline(0).content, inline(1)
        table = defined(catalog, content=zero).table_id
        catalog.change_commit_policy(table, CommitPolicy.parse("put_if_absent"))
        told = replace(
            created(1), content=one.content, file_size=one.file_size, summary=one.summary, metadata=metadata("id", "b")
        )
        with pytest.raises(CommitRejectedError):
            catalog.record_published(table, replace(told, file_size=1))
        assert isinstance(catalog.record_published(table, told), Ratified)
        answer: RatifiedCommits = catalog.get_ratified_commits(table, content_from_version=0)
        assert [commit.content for commit in answer.cached_commits] == [zero, one.content]
        definition = catalog.load_table(NAME).definition
        assert definition is not None and definition.metadata == metadata("id", "b")


def the_digest_of_every_commit_is_kept_and_answered(bench: Bench) -> None:
    """Digests come with the proposal, or from its content; they are served with commits, records, and by themselves."""
    with bench.client() as catalog:
        zero = b'{"commitInfo":{}}\n'
        table = defined(catalog, content=zero).table_id
        told, derived, without = inline(1), copied(2), proposal(3)
        assert told.content is not None and derived.content is not None
        digests = {
            0: hashlib.sha256(zero).hexdigest(),
            1: hashlib.sha256(told.content).hexdigest(),
            2: hashlib.sha256(derived.content).hexdigest(),
            4: "0" * 64,
        }
        for offered in (replace(told, sha256=digests[1]), derived, without, replace(proposal(4), sha256=digests[4])):
            assert isinstance(catalog.commit(table, offered), Ratified)
    with bench.client() as other:
        assert dict(other.commit_digests(table, start=0, end=9)) == digests
        assert dict(other.commit_digests(table, start=2, end=3)) == {2: digests[2]}
        assert dict(other.commit_digests("unknown", start=0, end=9)) == {}
        records = other.accepted_commits(table, start=0, end=4)
        assert [record.sha256 for record in records] == [digests.get(version) for version in range(5)]
        served = other.get_ratified_commits(table).commits
        assert [commit.sha256 for commit in served] == [digests.get(version) for version in range(1, 5)]


def a_digest_that_is_none_or_not_that_of_the_content_is_rejected(bench: Bench) -> None:
    with bench.client() as catalog:
        table = defined(catalog).table_id
        for wrong in (replace(inline(1), sha256="0" * 64), replace(proposal(1), sha256="F" * 64)):
            with pytest.raises(CommitRejectedError, match="SHA-256"):
                catalog.commit(table, wrong)
        assert catalog.get_ratified_commits(table).latest_version == 0


STATE_CONTRACT: tuple[Rule, ...] = (
    the_digest_of_every_commit_is_kept_and_answered,
    a_digest_that_is_none_or_not_that_of_the_content_is_rejected,
    a_definition_is_served_from_the_registration_on,
    a_definition_changes_with_the_commit_that_sets_it_and_the_etag_with_it,
    a_proposal_that_is_not_ratified_leaves_the_definition_alone,
    a_catalog_that_was_never_told_serves_no_definition_until_it_is,
    content_that_sets_another_definition_than_is_told_is_rejected,
    a_reader_never_sees_a_version_with_another_definition,
    a_published_mark_may_come_late_and_with_a_commit,
    a_published_mark_never_goes_beyond_what_was_ratified_before,
    small_contents_are_served_after_publication_to_those_who_ask,
    the_version_before_the_asked_ones_is_served_with_its_timestamp,
    a_large_commit_ends_the_row_of_kept_contents,
    kept_contents_are_bounded_whoever_tells_of_the_publication,
    no_content_is_forgotten_before_its_commit_is_published,
    contents_of_created_commits_are_kept_too,
)
