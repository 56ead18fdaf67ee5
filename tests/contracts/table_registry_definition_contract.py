"""Contract of ``TableRegistry``: definition and etag.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.ratification import (
    Ratified,
    VersionTaken,
)
from cm_delta_dagster.errors import (
    CommitRejectedError,
    IllegalCommitError,
    TableNotFoundError,
)
from cm_delta_dagster.protocol.actions import commit_json
from tests.contracts.catalog_bench import (
    NAME,
    OTHER,
    PROTOCOL,
    Bench,
    Rule,
    copied,
    create,
    defined,
    inline,
    metadata,
    proposal,
)

MORE = replace(PROTOCOL, writer_features=("catalogManaged", "inCommitTimestamp", "appendOnly"))


@pytest.mark.requirements("CM-C13", "CM-R1")
def the_definition_of_a_registered_table_is_served(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        entry = defined(catalog)
        found = other.registry.load_table(NAME)
        assert found == entry == other.registry.load_table_by_id(entry.table_id)
        definition = found.definition
        assert definition is not None and (definition.metadata, definition.protocol) == (metadata("id"), PROTOCOL)
        assert (definition.version, definition.in_commit_timestamp) == (0, 1000)
        assert [field.name for field in definition.columns.fields] == ["id"]
        assert (definition.partition_columns, definition.properties) == ((), metadata().configuration)
        (initial,) = other.coordinator.commit_records(entry.table_id, start=0, end=0)
        assert (initial.file_name, initial.file_size, initial.file_modification_time) == (f"{0:020d}.json", 200, 77)


@pytest.mark.requirements("CM-C13")
def a_commit_changes_the_definition_and_the_etag(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        entry = defined(catalog)
        table = entry.table_id
        seen = [entry.etag]
        catalog.coordinator.commit(table, proposal(1))
        assert other.registry.load_table(NAME).etag == entry.etag
        wider = metadata("id", "day", owner="me")
        catalog.coordinator.commit(table, replace(proposal(2), metadata=wider, protocol=PROTOCOL))
        found = other.registry.load_table(NAME)
        assert found.definition is not None and found.definition.metadata == wider
        assert (found.definition.version, found.definition.in_commit_timestamp) == (2, 1002)
        seen.append(found.etag)
        catalog.coordinator.commit(table, replace(proposal(3), metadata=wider, protocol=PROTOCOL))
        catalog.coordinator.set_published_version(table, 3)
        again = other.registry.load_table(NAME)
        assert (again.etag, again.definition) == (found.etag, found.definition)
        catalog.coordinator.commit(table, replace(proposal(4), protocol=MORE))
        found = other.registry.load_table(NAME)
        assert found.definition is not None
        assert (found.definition.metadata, found.definition.protocol, found.definition.version) == (wider, MORE, 4)
        seen.append(found.etag)
        seen.append(catalog.registry.rename_table(table, OTHER).etag)
        assert catalog.registry.rename_table(table, OTHER).etag == seen[-1]
        catalog.registry.drop_table(OTHER)
        assert catalog.registry.undrop_table(table).etag == seen[-1]
        catalog.registry.drop_table(OTHER)
        seen.append(create(catalog, OTHER).etag)
        assert len(set(seen)) == len(seen)


@pytest.mark.requirements("CM-C13", "CM-C1")
def a_refused_proposal_does_not_change_the_definition(bench: Bench) -> None:
    with bench.client() as catalog:
        entry = defined(catalog)
        table = entry.table_id
        first = replace(proposal(1), metadata=metadata("a"), protocol=PROTOCOL)
        assert isinstance(catalog.coordinator.commit(table, first), Ratified)
        now = catalog.registry.load_table(NAME)
        other = replace(proposal(1), metadata=metadata("b"), protocol=PROTOCOL)
        assert isinstance(catalog.coordinator.commit(table, other), VersionTaken)
        with pytest.raises(CommitRejectedError):
            catalog.coordinator.commit(table, replace(proposal(3), metadata=metadata("c"), protocol=PROTOCOL))
        with pytest.raises(CommitRejectedError):
            catalog.coordinator.commit(
                table, replace(proposal(2, timestamp=5), metadata=metadata("c"), protocol=PROTOCOL)
            )
        assert catalog.registry.load_table(NAME) == now
        catalog.coordinator.commit(table, replace(proposal(2), metadata=metadata("d"), protocol=PROTOCOL))
        now = catalog.registry.load_table(NAME)
        repeated = replace(first, metadata=metadata("e"), published_version=0)
        assert catalog.coordinator.commit(table, repeated) == Ratified(
            version=1, latest_version=2, published_version=0, repeated=True
        )
        assert catalog.registry.load_table(NAME) == now


@pytest.mark.requirements("CM-C13")
def no_definition_is_served_before_it_is_reported(bench: Bench) -> None:
    with bench.client() as catalog:
        entry = create(catalog)
        table = entry.table_id
        assert entry.definition is None
        catalog.coordinator.commit(table, replace(proposal(1), metadata=metadata("id")))
        changed = catalog.registry.load_table(NAME)
        assert changed.definition is None
        assert changed.etag != entry.etag
        assert not catalog.registry.set_definition(table, version=0, metadata=metadata("old"), protocol=PROTOCOL)
        assert catalog.registry.load_table(NAME).definition is None
        assert catalog.registry.set_definition(table, version=1, metadata=metadata("id"), protocol=PROTOCOL)
        found = catalog.registry.load_table(NAME)
        assert found.definition is not None and found.definition.metadata == metadata("id")
        assert found.etag == changed.etag
        assert catalog.registry.set_definition(table, version=1, metadata=metadata("fixed"), protocol=PROTOCOL)
        assert catalog.registry.load_table(NAME).etag not in (entry.etag, changed.etag)
        with pytest.raises(TableNotFoundError):
            catalog.registry.set_definition(str(uuid.uuid4()), version=1, metadata=metadata("id"), protocol=PROTOCOL)
        catalog.registry.drop_table(NAME)
        with pytest.raises(TableNotFoundError):
            catalog.registry.load_table_by_id(table)


@pytest.mark.requirements("CM-C13", "CM-C14")
def content_with_another_definition_than_the_proposal_is_rejected(bench: Bench) -> None:
    with bench.client() as catalog:
        table = defined(catalog).table_id
        line = commit_json.encode_action(metadata("id", "more")).encode() + b"\n"
        for one in (inline(1), copied(1)):
            assert one.content is not None
            content = one.content + line
            changed = replace(one, content=content, file_size=len(content))
            for wrong in (changed, replace(changed, metadata=metadata("id"), protocol=PROTOCOL)):
                with pytest.raises(CommitRejectedError, match="protocol or metadata"):
                    catalog.coordinator.commit(table, wrong)
            broken = one.content + b'{"metaData":1}\n'
            with pytest.raises(IllegalCommitError):
                catalog.coordinator.commit(table, replace(one, content=broken, file_size=len(broken)))
        right = replace(changed, metadata=metadata("id", "more"), protocol=PROTOCOL)
        assert isinstance(catalog.coordinator.commit(table, right), Ratified)


@pytest.mark.requirements("CM-C13", "CM-C15")
def version_and_definition_are_read_consistently(bench: Bench) -> None:
    """The version is the number of columns, at every moment."""
    with bench.client() as catalog, bench.client() as other:
        table = defined(catalog).table_id
        last = 40

        def write() -> None:
            for version in range(1, last + 1):
                columns = [f"c{number}" for number in range(version + 1)]
                one = replace(proposal(version), metadata=metadata(*columns), protocol=PROTOCOL)
                catalog.coordinator.commit(table, replace(one, published_version=version - 2 if version > 2 else None))

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            seen = set()
            while not writing.done() or last not in seen:
                entry = other.registry.load_table(NAME)
                assert entry.definition is not None
                assert len(entry.definition.columns.fields) == entry.ratified.latest_version + 1
                seen.add(entry.ratified.latest_version)
            writing.result()


TABLE_REGISTRY_DEFINITION_CONTRACT: tuple[Rule, ...] = (
    the_definition_of_a_registered_table_is_served,
    a_commit_changes_the_definition_and_the_etag,
    a_refused_proposal_does_not_change_the_definition,
    no_definition_is_served_before_it_is_reported,
    content_with_another_definition_than_the_proposal_is_rejected,
    version_and_definition_are_read_consistently,
)
