"""Contract of ``CommitCoordinator``: no caller can have a commit ratified that makes its table unreadable.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import hashlib
import json
from dataclasses import replace

import pytest

from cm_delta_dagster.advice import advice
from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy, PolicyChange
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind
from cm_delta_dagster.catalog.ratification import CommitProposal, InitialCommit, Ratified, TableCounts, VersionTaken
from cm_delta_dagster.catalog.sql.ratification import coordinator
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CommitError, CommitRefusedError, IllegalCommitError, TableNotFoundError
from cm_delta_dagster.protocol.actions.commit_json import decode_commit
from cm_delta_dagster.protocol.commits.proposal_checks.content import MAX_CHECKED_BYTES
from cm_delta_dagster.remedies import TakeBackCommit
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
    proposal,
    summary,
)
from tests.support.commit_builder import ADD, REMOVE, commit_of, of_bytes
from tests.support.log_records import logged_by
from tests.support.stated_marks import numbered, row_id_mark
from tests.support.unreadable_commits import (
    DEEP,
    MAPPED_SCHEMA,
    REFUSED,
    TIMED,
    UnreadableCommit,
    configuration_of,
    line_of,
    vector_of,
)

SEVERAL_LINES = 3000
"""Lines with which a commit is checked in columns."""

ABSOLUTE = (
    line_of("add", path='"s3://other/table/a.parquet"'),
    line_of("remove", path='"file:///other/a.parquet"'),
    line_of("cdc", path='"/other/a.parquet"'),
    line_of("add", deletionVector=vector_of(storageType='"p"', pathOrInlineDv='"s3://other/table/v.bin"')),
)


def _proposal(case: UnreadableCommit, version: int, *, good: tuple[str, ...] = ()) -> CommitProposal:
    """A staged proposal with the content of ``case``."""
    one = replace(proposal(version), mode=CommitMode.STAGED)
    data = case.data(txn_id=one.summary.txn_id, timestamp_ms=one.summary.in_commit_timestamp, good=good)
    return replace(of_bytes(one, data), content=None)


def _names_what_is_wrong(message: str, case: UnreadableCommit) -> bool:
    """Whether the refusal names the action, or the line that is none. The action of a line that nests too deeply is not known."""
    is_nested = any(DEEP in text for text in (case.line, *case.info.values()))
    return (case.action or "line 2 is not ") in message or (is_nested and "nests too many" in message)


def _of_lines(version: int, *lines: str) -> CommitProposal:
    one = commit_of(version, mode=CommitMode.STAGED)
    assert one.content is not None
    return replace(of_bytes(one, one.content + "".join(f"{line}\n" for line in lines).encode()), content=None)


def a_commit_that_readers_cannot_read_is_illegal(bench: Bench) -> None:
    """Without grants and rules, alone and beside other tables; the table stays readable and takes the version."""
    with bench.client() as catalog:
        table_id, other_id = defined(catalog).table_id, create(catalog, OTHER).table_id
        good = tuple(line_of("add", path=f'"part-{number}.parquet"') for number in range(SEVERAL_LINES))
        for case in REFUSED:
            with pytest.raises((IllegalCommitError, CommitError)) as refused:
                catalog.coordinator.commit(table_id, _proposal(case, 1))
            assert isinstance(refused.value, IllegalCommitError), case.name
            assert _names_what_is_wrong(str(refused.value), case), case.name
        for case in REFUSED[::9]:
            with pytest.raises(IllegalCommitError):
                catalog.coordinator.commit(table_id, _proposal(case, 1, good=good))
            with pytest.raises(IllegalCommitError):
                catalog.coordinator.commit_together({other_id: commit_of(1, ADD), table_id: _proposal(case, 1)})
        ratified = catalog.registry.load_table(NAME).ratified
        assert ratified.latest_version == 0 and catalog.registry.load_table(OTHER).ratified.latest_version == 0
        valid = _of_lines(1, *good)
        assert isinstance(catalog.coordinator.commit(table_id, valid), Ratified)
        assert valid.content_to_check is not None
        assert decode_commit(valid.content_to_check, version=1).adds.num_rows == SEVERAL_LINES


def a_protocol_without_the_catalog_is_illegal(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id = defined(catalog).table_id
        for protocol in (
            line_of("protocol", readerFeatures="[]", writerFeatures="[]"),
            line_of("protocol", minReaderVersion="1", minWriterVersion="2", readerFeatures=None, writerFeatures=None),
            line_of(
                "protocol",
                readerFeatures='["catalogManaged","unheardOf"]',
                writerFeatures='["catalogManaged","unheardOf"]',
            ),
        ):
            with pytest.raises(IllegalCommitError, match="protocol"):
                catalog.coordinator.commit(table_id, _of_lines(1, protocol))
        assert catalog.registry.load_table(NAME).ratified.latest_version == 0


def files_outside_of_the_table_are_illegal_except_in_a_clone(bench: Bench) -> None:
    with bench.client() as catalog:
        entry = defined(catalog)
        for line in ABSOLUTE:
            with pytest.raises(IllegalCommitError, match="outside of the table"):
                catalog.coordinator.commit(entry.table_id, _of_lines(1, line))
        inside = line_of("add", path=json.dumps(f"{entry.location}/a.parquet"))
        assert isinstance(catalog.coordinator.commit(entry.table_id, _of_lines(1, inside)), Ratified)
        staging = catalog.registry.create_staging_table(OTHER, clone_of=entry.table_id)
        catalog.registry.register_table(staging.table_id, OTHER, summary=replace(summary(1000), operation="CLONE"))
        for version, line in enumerate(ABSOLUTE, 1):
            assert isinstance(catalog.coordinator.commit(staging.table_id, _of_lines(version, line)), Ratified)


def files_outside_of_a_new_table_are_illegal_except_in_a_clone(bench: Bench) -> None:
    def initial(line: str) -> InitialCommit:
        protocol = line_of(
            "protocol",
            readerFeatures='["catalogManaged","deletionVectors"]',
            writerFeatures='["catalogManaged","inCommitTimestamp","deletionVectors"]',
        )
        content = _of_lines(0, protocol, line_of("metaData"), line).content_to_check
        assert content is not None
        return InitialCommit(
            file_size=len(content),
            file_modification_time=77,
            metadata=metadata("id"),
            protocol=PROTOCOL,
            content=content,
        )

    with bench.client() as catalog:
        source = defined(catalog)
        for line in ABSOLUTE:
            staging = catalog.registry.create_staging_table(OTHER)
            with pytest.raises(IllegalCommitError, match="outside of the table"):
                catalog.registry.register_table(staging.table_id, OTHER, summary=summary(1000), initial=initial(line))
        clone = catalog.registry.create_staging_table(OTHER, clone_of=source.table_id)
        entry = catalog.registry.register_table(
            clone.table_id, OTHER, summary=summary(1000), initial=initial(ABSOLUTE[0])
        )
        assert entry.ratified.latest_version == 0


MAPPED = line_of(
    "metaData", schemaString=MAPPED_SCHEMA, configuration=configuration_of(**{"delta.columnMapping.mode": "name"})
)
MAPPED_PROTOCOL = line_of(
    "protocol",
    readerFeatures='["catalogManaged","columnMapping"]',
    writerFeatures='["catalogManaged","inCommitTimestamp","columnMapping"]',
)


def metadata_that_needs_a_feature_without_it_is_illegal(bench: Bench) -> None:
    """Whichever of metadata and protocol the commit sets; the other one is that of the version before."""
    with bench.client() as catalog:
        table_id = defined(catalog).table_id
        for lines in ((MAPPED,), (MAPPED, line_of("protocol"))):
            with pytest.raises(IllegalCommitError, match="needs the feature columnMapping"):
                catalog.coordinator.commit(table_id, _of_lines(1, *lines))
        removed = line_of("remove")  # The partition columns change.
        mapped = _of_lines(1, MAPPED, MAPPED_PROTOCOL, removed)
        assert mapped.content_to_check is not None
        actions = decode_commit(mapped.content_to_check, version=1)
        mapped = replace(mapped, metadata=actions.metadata, protocol=actions.protocol)
        assert isinstance(catalog.coordinator.commit(table_id, mapped), Ratified)
        with pytest.raises(IllegalCommitError, match="needs the feature columnMapping"):
            catalog.coordinator.commit(table_id, _of_lines(2, line_of("protocol")))
        assert isinstance(catalog.coordinator.commit(table_id, _of_lines(1, line_of("protocol"))), VersionTaken)
        for version, lines in enumerate(((MAPPED,), (line_of("metaData"), line_of("protocol"), removed)), 2):
            assert isinstance(catalog.coordinator.commit(table_id, _of_lines(version, *lines)), Ratified)


def an_invalid_commit_that_was_made_put_if_absent_is_recorded_with_a_warning(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id = defined(catalog).table_id
        catalog.commit_policies.change_commit_policy(table_id, CommitPolicy.parse("put_if_absent"))
        for version, lines in ((1, (line_of("add"),)), (2, (line_of("add", path='"../x"'),))):
            checked = _of_lines(version, *lines)
            record = replace(
                created(version),
                summary=checked.summary,
                content_to_check=checked.content_to_check,
                file_size=checked.file_size,
                sha256=checked.sha256,
            )
            with logged_by(coordinator) as messages:
                assert isinstance(catalog.coordinator.record_published(table_id, record), Ratified)
            assert [
                advice(TakeBackCommit(version=version)) in message and "'../x'" in message for message in messages
            ] == [True] * (version - 1)


def _row_mark(mark: int) -> str:
    return json.dumps(row_id_mark(mark))


def a_row_id_mark_does_not_fall(bench: Bench) -> None:
    """Whatever is between: another commit without a mark, and commits whose content is not known or too large."""
    with bench.client() as catalog:
        table_id, other_id = defined(catalog).table_id, create(catalog, OTHER).table_id
        assert isinstance(catalog.coordinator.commit(table_id, _of_lines(1, _row_mark(9))), Ratified)
        between = (
            _of_lines(2, line_of("add")),
            replace(_of_lines(3, _row_mark(3)), content_to_check=None),
            _of_lines(4, _row_mark(9)),
            _of_lines(5, _row_mark(3) + " " * MAX_CHECKED_BYTES),
        )
        for valid in between:
            for mark in (8, -1):
                lower = _of_lines(valid.version, _row_mark(mark))
                with pytest.raises(IllegalCommitError, match=f"high-water mark {mark}, and that of the table is 9"):
                    catalog.coordinator.commit(table_id, lower)
                with pytest.raises(IllegalCommitError, match=f"high-water mark {mark}, and that of the table is 9"):
                    catalog.coordinator.commit_together({table_id: lower, other_id: commit_of(1, ADD)})
            assert isinstance(catalog.coordinator.commit(table_id, valid), Ratified)
        assert isinstance(catalog.coordinator.commit(table_id, _of_lines(5, _row_mark(1))), VersionTaken)
        assert isinstance(catalog.coordinator.commit(table_id, _of_lines(6, _row_mark(20))), Ratified)
        with pytest.raises(IllegalCommitError, match="that of the table is 20"):
            catalog.coordinator.commit(table_id, _of_lines(7, _row_mark(19)))
        assert catalog.registry.load_table(OTHER).ratified.latest_version == 0
        removed = line_of("domainMetadata", domain='"delta.rowTracking"', configuration='"{}"', removed="true")
        assert isinstance(catalog.coordinator.commit(table_id, _of_lines(7, removed)), Ratified)
        with pytest.raises(IllegalCommitError, match="that of the table is 20"):
            catalog.coordinator.commit(table_id, _of_lines(8, _row_mark(1)))
        assert isinstance(catalog.coordinator.commit(table_id, _of_lines(8, line_of("protocol"))), Ratified), (
            "without the feature"
        )
        assert isinstance(catalog.coordinator.commit(table_id, _of_lines(9, _row_mark(1))), Ratified)


def _numbered(mark: int | None, *, start: int = 1, step: int = 1, name: str = "n") -> str:
    return json.dumps(numbered(mark, start=start, step=step, name=name))


def _not_numbered() -> str:
    """Metadata with the same column, which is not an identity column."""
    action = numbered(None)
    column = {"name": "n", "type": "long", "nullable": True, "metadata": {}}
    action["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": [column]})
    return json.dumps(action)


def a_mark_that_is_not_a_number_is_refused(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id = defined(catalog).table_id
        assert isinstance(catalog.coordinator.commit(table_id, _of_lines(1, _numbered(500))), Ratified)
        for mark in ("7", 7.0, True, 2**63):
            line = json.dumps(numbered(None, **{"delta.identity.highWaterMark": mark}))
            with pytest.raises(
                IllegalCommitError, match=r"highWaterMark .* in column n, which is not a 64-bit integer"
            ):
                catalog.coordinator.commit(table_id, _of_lines(2, line))
        with pytest.raises(IllegalCommitError, match="and that of the table is 500"):
            catalog.coordinator.commit(table_id, _of_lines(2, _numbered(7)))


def an_identity_mark_does_not_fall(bench: Bench) -> None:
    """Unless the column is defined again: after it was dropped, or by a replacement of the table. Each sequence has a mark."""
    with bench.client() as catalog:
        table_id = defined(catalog).table_id
        steps: tuple[tuple[str, tuple[str, ...]], ...] = (
            (_numbered(None), ()),
            (_numbered(5), (_numbered(4), _numbered(None))),
            (_numbered(6), (_numbered(5),)),
            (_numbered(1, step=-1), ()),
            (_numbered(-3, step=-1), (_numbered(-2, step=-1),)),
            (_numbered(1, start=7), (_numbered(5), _numbered(-2, step=-1))),
            (_not_numbered(), (_numbered(5), _numbered(None), _numbered(None, start=7))),
            (_numbered(1, name="other"), ()),
            (_numbered(None, start=7), ()),
            (_numbered(8, start=7), ()),
        )
        version = 0
        for valid, invalid in steps:
            version += 1
            assert isinstance(catalog.coordinator.commit(table_id, _of_lines(version, valid)), Ratified)
            for line in invalid:
                with pytest.raises(IllegalCommitError, match="of the identity column n, and that of the table is"):
                    catalog.coordinator.commit(table_id, _of_lines(version + 1, line))
        assert isinstance(catalog.coordinator.commit(table_id, _of_lines(version + 1, line_of("add"))), Ratified)
        lower = _of_lines(version + 2, _numbered(7, start=7))
        with pytest.raises(IllegalCommitError, match="and that of the table is 8"):
            catalog.coordinator.commit(table_id, lower)
        assert isinstance(catalog.coordinator.commit(table_id, _replacement(lower)), Ratified)


def _replacement(one: CommitProposal, *removed: str) -> CommitProposal:
    """The proposal as a replacement of the table, which removes files."""
    assert one.content_to_check is not None
    data = one.content_to_check.replace(b'"WRITE"', b'"CREATE OR REPLACE TABLE AS SELECT"')
    assert data != one.content_to_check
    data += "".join(line_of("remove", path=json.dumps(path)) + "\n" for path in removed).encode()
    return replace(of_bytes(one, data), content=None)


def a_replacement_that_leaves_files_lowers_no_identity_mark(bench: Bench) -> None:
    """The catalog knows the number of files from the commit before; if it does not, it believes the operation."""
    with bench.client() as catalog:
        table_id = defined(catalog).table_id
        written = _of_lines(1, _numbered(5), line_of("add", path='"a"'), line_of("add", path='"b"'))
        counts = TableCounts(num_rows=None, num_files=2, size_bytes=2)
        written = replace(written, summary=replace(written.summary, counts=counts))
        assert isinstance(catalog.coordinator.commit(table_id, written), Ratified)
        for removed in ((), ("a",)):
            with pytest.raises(IllegalCommitError, match="and that of the table is 5"):
                catalog.coordinator.commit(table_id, _replacement(_of_lines(2, _numbered(None)), *removed))
        assert isinstance(catalog.coordinator.commit(table_id, _replacement(_of_lines(2, _numbered(5)), "a")), Ratified)
        assert isinstance(
            catalog.coordinator.commit(table_id, _replacement(_of_lines(3, _numbered(None)), "b")), Ratified
        )
        assert isinstance(catalog.coordinator.commit(table_id, _of_lines(4, _numbered(1))), Ratified)


def what_only_column_mapping_uses_lowers_no_identity_mark(bench: Bench) -> None:
    """Without column mapping, a physical name, a column id and the case of a name make no other column."""
    of_mapping: dict[str, object] = {"delta.columnMapping.id": 7, "delta.columnMapping.physicalName": "col"}
    with bench.client() as catalog:
        table_id = defined(catalog).table_id
        assert isinstance(catalog.coordinator.commit(table_id, _of_lines(1, _numbered(5))), Ratified)
        named, cased = json.dumps(numbered(1, **of_mapping)), _numbered(1, name="N")
        for version in (2, 3):
            for line in (named, cased):
                with pytest.raises(IllegalCommitError, match="of the identity column n, and that of the table is 5"):
                    catalog.coordinator.commit(table_id, _of_lines(version, line))
            valid = numbered(5, name="N", **of_mapping)
            assert isinstance(catalog.coordinator.commit(table_id, _of_lines(version, json.dumps(valid))), Ratified)


def an_identity_column_with_another_id_has_another_mark(bench: Bench) -> None:
    def mapped(mark: int, column_id: int) -> str:
        fields: dict[str, object] = {"delta.columnMapping.id": column_id, "delta.columnMapping.physicalName": "col"}
        action = numbered(mark, **fields)
        action["metaData"]["configuration"] = {**TIMED, "delta.columnMapping.mode": "name"}
        return json.dumps(action)

    with bench.client() as catalog:
        table_id = defined(catalog).table_id
        assert isinstance(catalog.coordinator.commit(table_id, _of_lines(1, MAPPED_PROTOCOL, mapped(9, 1))), Ratified)
        with pytest.raises(IllegalCommitError, match="of the identity column col, and that of the table is 9"):
            catalog.coordinator.commit(table_id, _of_lines(2, MAPPED_PROTOCOL, mapped(1, 1)))
        assert isinstance(catalog.coordinator.commit(table_id, _of_lines(2, MAPPED_PROTOCOL, mapped(1, 2))), Ratified)


TRACKING_PROTOCOL = line_of(
    "protocol",
    readerFeatures='["catalogManaged"]',
    writerFeatures='["catalogManaged","inCommitTimestamp","domainMetadata","rowTracking","identityColumns"]',
)


def _initial(*lines: str, is_copied: bool = True) -> InitialCommit:
    """Version 0 with these lines; its content is in the catalog, or only checked."""
    content = _of_lines(0, TRACKING_PROTOCOL, *lines).content_to_check
    assert content is not None
    actions = decode_commit(content, version=0)
    return InitialCommit(
        file_size=len(content),
        file_modification_time=77,
        metadata=actions.metadata or metadata("id"),
        protocol=PROTOCOL,
        content=content if is_copied else None,
        content_to_check=None if is_copied else content,
        sha256=hashlib.sha256(content).hexdigest(),
    )


def the_marks_of_version_0_do_not_fall(bench: Bench) -> None:
    """Of a new table and of a clone, whether or not the catalog keeps the content."""
    good = tuple(line_of("add", path=f'"part-{number}.parquet"') for number in range(SEVERAL_LINES))
    with bench.client() as catalog:
        source, other_id = defined(catalog).table_id, create(catalog, OTHER).table_id
        for number, (lines, is_copied, clone_of) in enumerate(
            (
                ((_numbered(5), _row_mark(9)), True, None),
                ((_numbered(5), _row_mark(9), *good), False, None),
                ((_numbered(5), _row_mark(9)), True, source),
            )
        ):
            name = TableIdentifier("main", "sales", f"new{number}")
            staging = catalog.registry.create_staging_table(name, clone_of=clone_of)
            operation = "WRITE" if clone_of is None else "CLONE"
            catalog.registry.register_table(
                staging.table_id,
                name,
                summary=replace(summary(1000), operation=operation),
                initial=_initial(*lines, is_copied=is_copied),
            )
            for line in (_row_mark(8), _numbered(4)):
                with pytest.raises(IllegalCommitError, match=r"and that of the table is [95]\."):
                    catalog.coordinator.commit(staging.table_id, _of_lines(1, line))
                with pytest.raises(IllegalCommitError, match=r"and that of the table is [95]\."):
                    catalog.coordinator.commit_together(
                        {staging.table_id: _of_lines(1, line), other_id: commit_of(1, ADD)}
                    )
            assert isinstance(
                catalog.coordinator.commit(staging.table_id, _of_lines(1, _row_mark(9), _numbered(5))), Ratified
            )


def a_rule_knows_the_content_of_version_0_that_the_catalog_does_not_keep(bench: Bench) -> None:
    with bench.client() as catalog:
        catalog.commit_rules.set_commit_rule(CommitRule(scope="main", name="keep", kind=CommitRuleKind.APPEND_ONLY))
        initial = _initial(_numbered(5), is_copied=False)
        table_id = catalog.registry.create_staging_table(NAME).table_id
        with pytest.raises(CommitRefusedError, match="a content that the catalog cannot read"):
            catalog.registry.register_table(
                table_id, NAME, summary=summary(1000), initial=replace(initial, content_to_check=None)
            )
        assert (
            catalog.registry.register_table(table_id, NAME, summary=summary(1000), initial=initial).table_id == table_id
        )


def a_version_0_whose_content_is_not_known_has_the_marks_of_its_metadata(bench: Bench) -> None:
    with bench.client() as catalog:
        for number, (initial, is_known) in enumerate(
            (
                (replace(_initial(_numbered(5)), content=None), True),
                (replace(_initial(), content=None, metadata=replace(metadata(), schema_string="{")), False),
            )
        ):
            name = TableIdentifier("main", "sales", f"new{number}")
            table_id = catalog.registry.create_staging_table(name).table_id
            catalog.registry.register_table(table_id, name, summary=summary(1000), initial=initial)
            if is_known:
                with pytest.raises(IllegalCommitError, match="and that of the table is 5"):
                    catalog.coordinator.commit(table_id, _of_lines(1, _numbered(4)))
            assert isinstance(catalog.coordinator.commit(table_id, _of_lines(1, _numbered(5))), Ratified)


def a_commit_made_put_if_absent_raises_marks_and_does_not_lower_them(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id = defined(catalog).table_id
        catalog.commit_policies.change_commit_policy(table_id, CommitPolicy.parse("put_if_absent"))
        for version, (row_id, number, is_lower) in enumerate(
            ((5, 2, False), (9, 5, False), (3, 5, True), (9, 4, True)), 1
        ):
            checked = _of_lines(version, _row_mark(row_id), _numbered(number))
            record = replace(checked, mode=CommitMode.PUT_IF_ABSENT, file_name=created(version).file_name)
            for is_repeated in (False, True):
                with logged_by(coordinator) as messages:
                    outcome = catalog.coordinator.record_published(table_id, record)
                assert isinstance(outcome, Ratified) and outcome.repeated == is_repeated
                assert ["high-water mark" in message for message in messages] == [True] * (is_lower and not is_repeated)
        catalog.commit_policies.change_commit_policy(table_id, None)
        catalog.coordinator.record_published(table_id, created(5, operation="SET COMMIT MODE"))
        assert catalog.commit_policies.change_commit_policy(table_id, None) is PolicyChange.DONE
        for line in (_row_mark(8), _numbered(4)):
            with pytest.raises(IllegalCommitError, match=r"and that of the table is [95]\."):
                catalog.coordinator.commit(table_id, _of_lines(6, line))
        assert isinstance(catalog.coordinator.commit(table_id, _of_lines(6, _row_mark(9), _numbered(5))), Ratified)


def content_that_is_too_large_or_absent_is_ratified_unchecked(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id = defined(catalog).table_id
        large = _of_lines(1, "no action" + " " * MAX_CHECKED_BYTES)
        assert isinstance(catalog.coordinator.commit(table_id, large), Ratified)
        absent = replace(_of_lines(2, "no action"), content_to_check=None)
        assert isinstance(catalog.coordinator.commit(table_id, absent), Ratified)
        assert catalog.registry.load_table(NAME).ratified.latest_version == 2


def rules_hold_for_content_that_is_too_large_to_be_validated(bench: Bench) -> None:
    """Content above 16 MiB is never refused for its size alone, and a rule is not avoided by it."""
    with bench.client() as catalog:
        table_id = defined(catalog).table_id
        catalog.commit_rules.set_commit_rule(CommitRule(scope="main", name="append", kind=CommitRuleKind.APPEND_ONLY))
        padding = " " * MAX_CHECKED_BYTES
        removes = _of_lines(1, json.dumps(REMOVE) + padding)
        with pytest.raises(CommitRefusedError, match="append"):
            catalog.coordinator.commit(table_id, removes)
        assert isinstance(catalog.coordinator.commit(table_id, _of_lines(1, json.dumps(ADD) + padding)), Ratified)


def large_content_for_a_table_that_does_not_exist_is_not_parsed(bench: Bench) -> None:
    """The content is not JSON, which another error would say."""
    with bench.client() as catalog:
        large = _of_lines(1, "no action" + " " * 100_000)
        with pytest.raises(TableNotFoundError):
            catalog.coordinator.commit("unknown", large)
        assert large.content_to_check is not None
        initial = InitialCommit(
            file_size=large.file_size,
            file_modification_time=77,
            metadata=metadata("id"),
            protocol=PROTOCOL,
            content_to_check=large.content_to_check,
        )
        with pytest.raises(TableNotFoundError):
            catalog.registry.register_table("unknown", OTHER, summary=summary(1000), initial=initial)
        reserved = catalog.registry.create_staging_table(OTHER)
        with pytest.raises(IllegalCommitError):
            catalog.registry.register_table(reserved.table_id, OTHER, summary=summary(1000), initial=initial)


COMMIT_COORDINATOR_VALIDATION_CONTRACT: tuple[Rule, ...] = (
    a_commit_that_readers_cannot_read_is_illegal,
    a_protocol_without_the_catalog_is_illegal,
    files_outside_of_the_table_are_illegal_except_in_a_clone,
    files_outside_of_a_new_table_are_illegal_except_in_a_clone,
    metadata_that_needs_a_feature_without_it_is_illegal,
    an_invalid_commit_that_was_made_put_if_absent_is_recorded_with_a_warning,
    a_row_id_mark_does_not_fall,
    an_identity_mark_does_not_fall,
    a_mark_that_is_not_a_number_is_refused,
    a_replacement_that_leaves_files_lowers_no_identity_mark,
    what_only_column_mapping_uses_lowers_no_identity_mark,
    an_identity_column_with_another_id_has_another_mark,
    the_marks_of_version_0_do_not_fall,
    a_rule_knows_the_content_of_version_0_that_the_catalog_does_not_keep,
    a_version_0_whose_content_is_not_known_has_the_marks_of_its_metadata,
    a_commit_made_put_if_absent_raises_marks_and_does_not_lower_them,
    content_that_is_too_large_or_absent_is_ratified_unchecked,
    rules_hold_for_content_that_is_too_large_to_be_validated,
    large_content_for_a_table_that_does_not_exist_is_not_parsed,
)
