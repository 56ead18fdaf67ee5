"""Conflicts between a transaction and a winning commit: the tables of ``conflict_cases`` and further cases."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cm_delta_dagster.protocol.actions.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from cm_delta_dagster.protocol.actions.commit_json import CommitActions, decode_commit, encode_commit
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table
from cm_delta_dagster.protocol.actions.paths import file_key
from cm_delta_dagster.protocol.commits.candidate_files import KnownFiles
from cm_delta_dagster.protocol.commits.conflicts import (
    ConflictKind,
    IsolationLevel,
    PendingCommit,
    ReadSet,
    check_conflict,
)
from cm_delta_dagster.protocol.features.protocol_evolution import catalog_managed_protocol
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.types import LONG, STRING, StructField, StructType, schema_to_json
from tests.support.actions import add_file, remove_file
from tests.support.conflict_cases import (
    BASE,
    FEATURES,
    PARTITION_COLUMNS,
    SCHEMA,
    TABLES,
    WHOLE_TABLE,
    Act,
    CaseTable,
    base_metadata,
)

_LOCATION = "file:///data/t"
_PROTOCOL = catalog_managed_protocol(FEATURES)
_SERIALIZABLE = IsolationLevel.SERIALIZABLE
_METADATA = base_metadata("1", TABLES["rows"], IsolationLevel.WRITE_SERIALIZABLE)


def _pending(*reads: str, removes: Sequence[str] = (), **fields: Any) -> PendingCommit:
    """A transaction that read the rows for the conditions and removes the files at the paths."""
    defaults: dict[str, Any] = {
        "read_set": ReadSet(
            predicates=tuple(parse_predicate(text, SCHEMA) for text in reads if text != WHOLE_TABLE),
            whole_table=WHOLE_TABLE in reads,
        ),
        "files": KnownFiles.of(_LOCATION, lambda: adds_to_table(list(BASE.values()))),
        "removed": frozenset(file_key(_LOCATION, path) for path in removes),
        "protocol": _PROTOCOL,
        "metadata": _METADATA,
        "metadata_changed": False,
        "protocol_changed": False,
        "app_ids": frozenset(),
        "domains": frozenset(),
        "isolation": IsolationLevel.WRITE_SERIALIZABLE,
        "schema": SCHEMA,
        "partition_columns": PARTITION_COLUMNS,
    }
    return PendingCommit(**(defaults | fields))


def _winner(actions: Sequence[Action], *, blind: bool | None = False) -> CommitActions:
    return decode_commit(encode_commit([CommitInfo(operation="WRITE", is_blind_append=blind), *actions]), version=8)


def _add(path: str, partition: str | None = "a", *, stats: str | None = None, data_change: bool = True) -> AddFile:
    return add_file(path, partition_values={"p": partition}, stats=stats, data_change=data_change)


def _remove(path: str, **fields: Any) -> RemoveFile:
    named = {"extended_file_metadata": True, "partition_values": {"p": "a"}, "size": 1}
    return remove_file(path, **(named | fields))


def _kind(pending: PendingCommit, winner: CommitActions) -> ConflictKind | None:
    conflict = check_conflict(pending, winner, location=_LOCATION)
    assert conflict is None or (conflict.version == 8 and conflict.message)
    return None if conflict is None else conflict.kind


def _pending_of(act: Act, table: CaseTable, isolation: IsolationLevel) -> PendingCommit:
    metadata = base_metadata("1", table, isolation)
    actions = act.actions("loser", _PROTOCOL, metadata)
    apps = frozenset([act.app_id] if act.app_id else ())
    domains = frozenset([act.domain] if act.domain else ())
    pending = _pending(
        *act.reads,
        removes=[action.path for action in actions if isinstance(action, RemoveFile)],
        metadata=next((action for action in actions if isinstance(action, Metadata)), metadata),
        metadata_changed=act.metadata is not None,
        protocol_changed=bool(act.features),
        app_ids=apps,
        domains=domains,
        isolation=IsolationLevel.SNAPSHOT if act.changes_no_row else isolation,
    )
    return replace(pending, read_set=replace(pending.read_set, transactions=apps, domains=domains))


def _winner_of(act: Act, table: CaseTable, isolation: IsolationLevel) -> CommitActions:
    actions = act.actions("winner", _PROTOCOL, base_metadata("1", table, isolation))
    only_adds = all(isinstance(action, (AddFile, SetTransaction)) for action in actions)
    return _winner(actions, blind=only_adds and not act.reads)


@pytest.mark.requirements("OCC-5", "OCC-6", "OCC-7", "OCC-8", "OCC-9", "OCC-10", "OCC-11", "OCC-12", "DOM-7", "TXN-4")
@pytest.mark.parametrize("name", TABLES)
def test_every_pair_of_transactions_has_the_expected_outcome(name: str) -> None:
    table = TABLES[name]
    cases = tuple(table.cases())
    assert len(cases) == 2 * len(table.acts) ** 2
    wrong = []
    for case in cases:
        loser, winner = table.acts[case.loser], table.acts[case.winner]
        found = _kind(_pending_of(loser, table, case.isolation), _winner_of(winner, table, case.isolation))
        wrong += [] if found == case.expected else [f"{case}: {found}"]
    assert not wrong, "\n".join(wrong)


def _graver(one: ConflictKind | None, other: ConflictKind | None) -> bool:
    return one is not None and other is None


@pytest.mark.requirements("OCC-3")
@pytest.mark.parametrize("name", TABLES)
def test_differences_from_delta_spark_are_explained(name: str) -> None:
    """A difference is another name of the conflict, or a pair of transactions that does not conflict here."""
    for case in TABLES[name].cases():
        assert not _graver(case.expected, case.in_delta_spark), case
        assert (case.difference is None) == (case.expected == case.in_delta_spark), case


def test_every_kind_of_conflict_occurs_in_the_tables() -> None:
    found = Counter(case.expected for table in TABLES.values() for case in table.cases())
    assert set(found) == {None, *ConflictKind} and all(found.values())


@pytest.mark.requirements("OCC-8", "OCC-14")
def test_serializable_conflicts_include_those_of_write_serializable() -> None:
    """The other conflicts are those of readers with blind appends."""
    for table in TABLES.values():
        pairs = {(case.loser, case.winner, case.isolation): case for case in table.cases()}
        for loser in table.acts:
            for winner in table.acts:
                weak = pairs[loser, winner, IsolationLevel.WRITE_SERIALIZABLE]
                strong = pairs[loser, winner, IsolationLevel.SERIALIZABLE]
                if weak.expected != strong.expected:
                    assert (weak.expected, strong.expected) == (None, ConflictKind.CONCURRENT_APPEND)
                    assert table.acts[winner].is_blind_append


_WIDER = StructType((*SCHEMA.fields, StructField("y", LONG)))
_STATS = '{"numRecords":3,"minValues":{"x":1},"maxValues":{"x":3},"nullCount":{"x":0}}'

CASES: tuple[tuple[str, PendingCommit, CommitActions, ConflictKind | None], ...] = (
    (
        "a reader that changes the metadata and a blind append",
        _pending(WHOLE_TABLE, metadata_changed=True),
        _winner([_add("n")], blind=True),
        ConflictKind.CONCURRENT_APPEND,
    ),
    (
        "a reader and an append that does not say whether it read",
        _pending("p = 'a'"),
        _winner([_add("n")], blind=None),
        ConflictKind.CONCURRENT_APPEND,
    ),
    (
        "a commit with isBlindAppend true that removes files",
        _pending("p = 'a'"),
        _winner([_add("n"), _remove("b1.parquet", partition_values={"p": "b"})], blind=True),
        ConflictKind.CONCURRENT_APPEND,
    ),
    ("an append to the NULL partition", _pending("p = 'a'"), _winner([_add("n", None)]), None),
    (
        "the second of two conditions",
        _pending("p = 'b'", "p = 'a'"),
        _winner([_add("n")]),
        ConflictKind.CONCURRENT_APPEND,
    ),
    ("statistics exclude", _pending("x = 5"), _winner([_add("n", stats=_STATS)]), None),
    (
        "a removal without partition values, of a file that was read",
        _pending("p = 'b'"),
        _winner([RemoveFile(path="b1.parquet")]),
        ConflictKind.CONCURRENT_DELETE_READ,
    ),
    (
        "a removal without partition values, of another file",
        _pending("p = 'b'"),
        _winner([RemoveFile(path="a1.parquet")]),
        None,
    ),
    (
        "a removal with partition values and extendedFileMetadata false",
        _pending("p = 'b'"),
        _winner([_remove("b1.parquet", extended_file_metadata=False)]),
        ConflictKind.CONCURRENT_DELETE_READ,
    ),
    (
        "a removal whose partition values lack the column",
        _pending("p = 'b'"),
        _winner([_remove("b1.parquet", partition_values={})]),
        ConflictKind.CONCURRENT_DELETE_READ,
    ),
    (
        "a removal from the NULL partition",
        _pending("p = 'b'"),
        _winner([_remove("later.parquet", partition_values={"p": None})]),
        None,
    ),
    (
        "a removal of a file added after the snapshot to a partition that was read",
        _pending("p = 'a'"),
        _winner([_remove("later.parquet")]),
        ConflictKind.CONCURRENT_DELETE_READ,
    ),
    (
        "a removal of a file added after the snapshot to another partition",
        _pending("p = 'b'"),
        _winner([_remove("later.parquet")]),
        None,
    ),
    (
        "a removal of a file that was read, with another spelling of its path",
        _pending("p = 'a' AND x = 2"),
        _winner([_remove("file:///data/t/a1.parquet")]),
        ConflictKind.CONCURRENT_DELETE_READ,
    ),
    (
        "both remove a file, with different spellings of its path",
        _pending(removes=["o o"]),
        _winner([_remove("file:///data/t/o%20o")]),
        ConflictKind.CONCURRENT_DELETE_DELETE,
    ),
    (
        "a removal without dataChange changes data",
        _pending("p = 'a'"),
        decode_commit(b'{"remove":{"path":"a1.parquet","deletionTimestamp":1}}\n', version=8),
        ConflictKind.CONCURRENT_DELETE_READ,
    ),
    (
        "an unordered txn of the same application and version",
        _pending(noted_transactions={"app": 7}),
        _winner([SetTransaction(app_id="app", version=7)], blind=True),
        ConflictKind.CONCURRENT_TRANSACTION,
    ),
    (
        "an unordered txn of the same application and another version",
        _pending(noted_transactions={"app": 7}),
        _winner([SetTransaction(app_id="app", version=8)], blind=True),
        None,
    ),
    *(
        (
            f"an ordered txn and {what} of the same application",
            _pending(ordered_transactions={"app": 7}),
            _winner([SetTransaction(app_id="app", version=version)], blind=True),
            kind,
        )
        for what, version, kind in (
            ("an earlier one", 6, None),
            ("the same one", 7, ConflictKind.CONCURRENT_TRANSACTION),
            ("a later one", 8, ConflictKind.CONCURRENT_TRANSACTION),
        )
    ),
    (
        "a txn that was only read",
        _pending(read_set=ReadSet(transactions=frozenset({"app"}))),
        _winner([SetTransaction(app_id="app", version=1)], blind=True),
        ConflictKind.CONCURRENT_TRANSACTION,
    ),
    (
        "a domain that was removed",
        _pending(domains=frozenset({"d"})),
        _winner([DomainMetadata(domain="d", configuration="", removed=True)]),
        ConflictKind.CONCURRENT_DOMAIN,
    ),
    (
        "row ids of both, which each attempt assigns again",
        _pending(domains=frozenset({"delta.rowTracking"})),
        _winner([DomainMetadata(domain="delta.rowTracking", configuration='{"rowIdHighWaterMark":3}')]),
        None,
    ),
)


@pytest.mark.requirements("OCC-8", "OCC-9", "OCC-10", "OCC-11", "OCC-12", "DOM-7", "FILE-9", "ROWTRK-11", "TXN-3")
@pytest.mark.parametrize(
    ("pending", "winner", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_winner_conflicts_exactly_if_the_result_depends_on_it(
    pending: PendingCommit, winner: CommitActions, expected: ConflictKind | None
) -> None:
    assert _kind(pending, winner) == expected


def _identity(mark: int | None, **more: Any) -> str:
    values = {"delta.identity.start": 1, "delta.identity.step": 1, **more}
    column = StructField(
        "i", LONG, metadata=values if mark is None else {**values, "delta.identity.highWaterMark": mark}
    )
    return schema_to_json(StructType((StructField("p", STRING), column)))


def _properties(**properties: str) -> Metadata:
    changed = {f"delta.{name}": value for name, value in properties.items()}
    return replace(_METADATA, configuration={**_METADATA.configuration, **changed})


_WITHOUT_VECTORS = _properties(enableDeletionVectors="false")


@pytest.mark.requirements("OCC-7", "OCC-13", "IDENT-6")
@pytest.mark.parametrize(
    ("before", "after", "harmless"),
    [
        (_METADATA, _METADATA, True),
        (replace(_METADATA, schema_string=_identity(None)), replace(_METADATA, schema_string=_identity(5)), True),
        (replace(_METADATA, schema_string=_identity(5)), replace(_METADATA, schema_string=_identity(9)), True),
        (
            replace(_METADATA, schema_string=_identity(5)),
            replace(_METADATA, schema_string=_identity(5, **{"delta.identity.step": 2})),
            False,
        ),
        (
            replace(_METADATA, schema_string=_identity(5)),
            replace(_METADATA, schema_string=_identity(9), description="ids"),
            False,
        ),
        (_WITHOUT_VECTORS, _METADATA, True),
        (_METADATA, _WITHOUT_VECTORS, False),
        (_WITHOUT_VECTORS, _properties(appendOnly="true"), False),
        (_METADATA, _properties(**{"constraints.c": "x > 0"}), False),
        (_METADATA, _properties(isolationLevel="Serializable"), False),
        (_METADATA, replace(_METADATA, schema_string=schema_to_json(_WIDER)), False),
        (_METADATA, replace(_METADATA, partition_columns=()), False),
        (_METADATA, replace(_METADATA, name="t"), False),
    ],
)
def test_only_metadata_changes_without_effect_on_files_are_harmless(
    before: Metadata, after: Metadata, harmless: bool
) -> None:
    """The checks of constraints, columns and append-only tables remain valid."""
    winner = _winner([after])
    assert _kind(_pending(metadata=before), winner) is (None if harmless else ConflictKind.METADATA_CHANGED)
    own = _pending(metadata=before, metadata_changed=True)
    assert _kind(own, winner) is ConflictKind.METADATA_CHANGED


def _with(*names: str) -> Protocol:
    features = tuple(_PROTOCOL.writer_features or ()) + names
    return replace(_PROTOCOL, writer_features=features)


def _without(feature: str) -> tuple[str, ...]:
    return tuple(name for name in _PROTOCOL.writer_features or () if name != feature)


@pytest.mark.requirements("OCC-6")
@pytest.mark.parametrize(
    ("protocol", "metadata", "is_allowed"),
    [
        (_PROTOCOL, _METADATA, True),
        (_with("checkConstraints", "generatedColumns", "identityColumns"), _METADATA, True),
        (_with("checkConstraints"), _properties(**{"constraints.c": "x > 0"}), False),
        (_with("identityColumns"), replace(_METADATA, schema_string=_identity(5)), False),
        (_with("rowTracking"), _METADATA, True),
        (_with("rowTracking"), _properties(enableRowTracking="true"), False),
        (_with("clustering"), _METADATA, False),
        (_with("checkpointProtection"), _METADATA, False),
        (_with("unknownFeature"), _METADATA, False),
        (replace(_PROTOCOL, writer_features=_without("domainMetadata")), _METADATA, False),
    ],
)
def test_a_new_feature_conflicts_if_written_files_may_violate_it(
    protocol: Protocol, metadata: Metadata, is_allowed: bool
) -> None:
    kind = _kind(_pending(metadata=metadata), _winner([protocol]))
    assert kind is (None if is_allowed else ConflictKind.PROTOCOL_CHANGED)
    both = _pending(metadata=metadata, protocol_changed=True)
    assert _kind(both, _winner([protocol])) is ConflictKind.PROTOCOL_CHANGED


@pytest.mark.requirements("OCC-5")
def test_the_message_names_the_predicate() -> None:
    conflict = check_conflict(_pending("p = 'a'"), _winner([_add("n")]), location=_LOCATION)
    assert conflict is not None
    assert conflict.message == "It added files that may hold rows for `p` = 'a'."
