"""Contract of ``CommitCoordinator``: a commit does not contradict the types of the columns of its table.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import json
from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import CommitProposal, InitialCommit, Ratified, TableCounts
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import IllegalCommitError
from cm_delta_dagster.protocol.actions.commit_json import decode_commit
from tests.contracts.catalog_bench import NAME, OTHER, Bench, Rule, create, proposal, summary
from tests.support.commit_builder import ADD, commit_of, of_bytes
from tests.support.type_changes import CASES, PARTITION_VALUES, TypeCase, file_of
from tests.support.unreadable_commits import line_of


def _proposal(version: int, *lines: str, operation: str = "WRITE", num_files: int | None = None) -> CommitProposal:
    """A staged proposal with these lines, which states metadata and protocol as its content sets them."""
    one = replace(proposal(version), mode=CommitMode.STAGED)
    counts = None if num_files is None else TableCounts(num_rows=None, num_files=num_files, size_bytes=1)
    stated = replace(one.summary, operation=operation, counts=counts)
    info = {"txnId": stated.txn_id, "inCommitTimestamp": stated.in_commit_timestamp, "operation": operation}
    content = "".join(f"{line}\n" for line in (json.dumps({"commitInfo": info}), *lines)).encode()
    actions = decode_commit(content, version=version)
    return replace(
        of_bytes(one, content), content=None, summary=stated, metadata=actions.metadata, protocol=actions.protocol
    )


def _with_protocol(case: TypeCase) -> tuple[str, ...]:
    """The lines that define the table of the case; a usual protocol if none sets one."""
    sets_protocol = any('"protocol"' in line[:20] for line in case.before)
    return case.before if sets_protocol else (line_of("protocol"), *case.before)


def _table(catalog: Catalog, number: int, case: TypeCase) -> str:
    """A table as the case has it, whose latest version is 1."""
    name = TableIdentifier("main", "sales", f"t{number}")
    staging = catalog.registry.create_staging_table(name)
    table_id = catalog.registry.register_table(staging.table_id, name, summary=summary(1000)).table_id
    file = () if case.num_files == 0 else (file_of("a"),)
    before = _proposal(1, *_with_protocol(case), *file, num_files=case.num_files)
    assert isinstance(catalog.coordinator.commit(table_id, before), Ratified)
    return table_id


def a_commit_that_contradicts_the_types_of_the_table_is_illegal(bench: Bench) -> None:
    """Alone and beside another table."""
    with bench.client() as catalog:
        other_id = create(catalog, OTHER).table_id
        for number, case in enumerate(CASES):
            table_id = _table(catalog, number, case)
            one = _proposal(2, *case.lines, operation=case.operation)
            if case.refused:
                with pytest.raises(IllegalCommitError, match=case.refused):
                    catalog.coordinator.commit(table_id, one)
                with pytest.raises(IllegalCommitError, match=case.refused):
                    catalog.coordinator.commit_together({table_id: one, other_id: commit_of(1, ADD)})
                one = _proposal(2)
            outcome = catalog.coordinator.commit(table_id, one)
            assert isinstance(outcome, Ratified) and outcome.version == 2, case.name
        assert catalog.registry.load_table(OTHER).ratified.latest_version == 0


def a_principal_that_may_append_cannot_add_a_value_of_another_type(bench: Bench) -> None:
    case = next(case for case in PARTITION_VALUES if case.refused)
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        table_id = _table(owner, 0, case)
        owner.access.enable_grants()
        owner.access.grant([Privilege.READ, Privilege.APPEND], "main.sales.t0", "writer")
        with pytest.raises(IllegalCommitError, match=case.refused):
            writer.coordinator.commit(table_id, _proposal(2, *case.lines))
        assert isinstance(writer.coordinator.commit(table_id, _proposal(2, file_of("b", p="2026-01-01"))), Ratified)


def version_0_has_no_partition_value_of_another_type(bench: Bench) -> None:
    with bench.client() as catalog:
        for number, case in enumerate(PARTITION_VALUES):
            if any("remove" in line[:12] or '"metaData"' in line[:20] for line in case.lines):
                continue
            one = _proposal(0, *_with_protocol(case), *case.lines)
            initial = InitialCommit(
                file_size=one.file_size,
                file_modification_time=77,
                metadata=one.metadata,
                protocol=one.protocol,
                content_to_check=one.content_to_check,
                sha256=one.sha256,
            )
            name = TableIdentifier("main", "sales", f"n{number}")
            staging = catalog.registry.create_staging_table(name)
            if case.refused:
                with pytest.raises(IllegalCommitError, match=case.refused):
                    catalog.registry.register_table(staging.table_id, name, summary=one.summary, initial=initial)
                continue
            entry = catalog.registry.register_table(staging.table_id, name, summary=one.summary, initial=initial)
            assert entry.ratified.latest_version == 0, case.name


def the_types_of_a_table_whose_definition_is_not_known_are_not_checked(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        assert isinstance(catalog.coordinator.commit(table_id, _proposal(1, file_of("b", p="never"))), Ratified)
        assert catalog.registry.load_table(NAME).definition is None


COMMIT_COORDINATOR_TYPES_CONTRACT: tuple[Rule, ...] = (
    a_commit_that_contradicts_the_types_of_the_table_is_illegal,
    a_principal_that_may_append_cannot_add_a_value_of_another_type,
    version_0_has_no_partition_value_of_another_type,
    the_types_of_a_table_whose_definition_is_not_known_are_not_checked,
)
