"""Conflicts between a transaction and a commit that won."""

from collections.abc import Sequence
from typing import Any

import pytest

from cm_delta_dagster.protocol.action_json import CommitActions, decode_commit, encode_commit
from cm_delta_dagster.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from cm_delta_dagster.protocol.conflicts import (
    ConflictKind,
    IsolationLevel,
    PendingCommit,
    ReadSet,
    check_conflict,
)
from cm_delta_dagster.protocol.path_encoding import file_key
from cm_delta_dagster.protocol.predicates import Comparison, ComparisonOperator
from cm_delta_dagster.protocol.schema import PrimitiveType, StructField, StructType

_LOCATION = "file:///data/t"
_SCHEMA = StructType(
    (StructField(name="p", type=PrimitiveType("string")), StructField(name="x", type=PrimitiveType("long")))
)
_DV = DeletionVectorDescriptor(storage_type="u", path_or_inline_dv="v", size_in_bytes=1, cardinality=1, offset=1)


def _equals(column: str, value: Any) -> Comparison:
    return Comparison(column, ComparisonOperator.EQ, value)


def _reads(*partitions: str) -> ReadSet:
    return ReadSet(predicates=tuple(_equals("p", partition) for partition in partitions))


def _pending(read_set: ReadSet = ReadSet(), *removed: str, **fields: Any) -> PendingCommit:  # noqa: B008  (a frozen value)
    defaults: dict[str, Any] = {
        "metadata_changed": False,
        "protocol_changed": False,
        "app_ids": frozenset(),
        "domains": frozenset(),
        "is_blind_append": read_set == ReadSet() and not removed,
        "data_change": True,
        "isolation": IsolationLevel.WRITE_SERIALIZABLE,
        "schema": _SCHEMA,
        "partition_columns": ("p",),
    }
    keys = frozenset(file_key(_LOCATION, path) for path in removed)
    return PendingCommit(read_set=read_set, removed=keys, **(defaults | fields))


def _winner(actions: Sequence[Action], *, blind: bool | None = False) -> CommitActions:
    return decode_commit(encode_commit([CommitInfo(operation="WRITE", is_blind_append=blind), *actions]), version=8)


def _add(path: str, partition: str | None = "a", *, stats: str | None = None, data_change: bool = True) -> AddFile:
    return AddFile(
        path=path, partition_values={"p": partition}, size=1, modification_time=0, stats=stats, data_change=data_change
    )


def _remove(path: str, partition: str | None = "a", **fields: Any) -> RemoveFile:
    return RemoveFile(
        path=path,
        deletion_timestamp=1,
        extended_file_metadata=True,
        partition_values={"p": partition},
        size=1,
        **fields,
    )


def _kind(pending: PendingCommit, winner: CommitActions) -> ConflictKind | None:
    conflict = check_conflict(pending, winner, location=_LOCATION)
    assert conflict is None or (conflict.version == 8 and conflict.message)
    return None if conflict is None else conflict.kind


_WHOLE = ReadSet(whole_table=True)
_METADATA = Metadata(id="i", schema_string="{}")
_SERIALIZABLE = IsolationLevel.SERIALIZABLE
_X_IS_5 = ReadSet(predicates=(_equals("x", 5),))
_STATS_1_TO_3 = '{"numRecords":3,"minValues":{"x":1},"maxValues":{"x":3},"nullCount":{"x":0}}'

CASES: tuple[tuple[str, PendingCommit, CommitActions, ConflictKind | None], ...] = (
    ("two blind appends", _pending(), _winner([_add("n")], blind=True), None),
    ("two blind appends, serializable", _pending(isolation=_SERIALIZABLE), _winner([_add("n")], blind=True), None),
    ("a blind append and a rewrite of files", _pending(), _winner([_remove("o"), _add("n")]), None),
    ("a reader and a blind append", _pending(_reads("a")), _winner([_add("n")], blind=True), None),
    (
        "a reader and a blind append, serializable",
        _pending(_reads("a"), isolation=_SERIALIZABLE),
        _winner([_add("n")], blind=True),
        ConflictKind.CONCURRENT_APPEND,
    ),
    (
        "a reader of another partition and a blind append, serializable",
        _pending(_reads("b"), isolation=_SERIALIZABLE),
        _winner([_add("n")], blind=True),
        None,
    ),
    (
        "a reader that changes the metadata and a blind append",
        _pending(_WHOLE, metadata_changed=True),
        _winner([_add("n")], blind=True),
        ConflictKind.CONCURRENT_APPEND,
    ),
    ("a reader and an append that read", _pending(_reads("a")), _winner([_add("n")]), ConflictKind.CONCURRENT_APPEND),
    (
        "a reader and an append that does not say whether it read",
        _pending(_reads("a")),
        _winner([_add("n")], blind=None),
        ConflictKind.CONCURRENT_APPEND,
    ),
    (
        "a reader of the whole and an append that read",
        _pending(_WHOLE),
        _winner([_add("n")]),
        ConflictKind.CONCURRENT_APPEND,
    ),
    ("disjoint partitions", _pending(_reads("b"), "q"), _winner([_remove("o"), _add("n")]), None),
    (
        "one partition of two",
        _pending(_reads("b", "a"), "q"),
        _winner([_add("n")]),
        ConflictKind.CONCURRENT_APPEND,
    ),
    ("the null partition and another", _pending(_reads("a")), _winner([_add("n", None)]), None),
    ("statistics exclude", _pending(_X_IS_5), _winner([_add("n", stats=_STATS_1_TO_3)]), None),
    ("no statistics", _pending(_X_IS_5), _winner([_add("n")]), ConflictKind.CONCURRENT_APPEND),
    (
        "a removal in a partition that was read",
        _pending(_reads("a")),
        _winner([_remove("o")]),
        ConflictKind.CONCURRENT_DELETE_READ,
    ),
    ("a removal elsewhere", _pending(_reads("b")), _winner([_remove("o")]), None),
    (
        "a removal and a reader of the whole",
        _pending(_WHOLE),
        _winner([_remove("o")]),
        ConflictKind.CONCURRENT_DELETE_READ,
    ),
    (
        "a removal that does not say its partition",
        _pending(_reads("b")),
        _winner([RemoveFile(path="o")]),
        ConflictKind.CONCURRENT_DELETE_READ,
    ),
    ("both remove a file", _pending(ReadSet(), "o"), _winner([_remove("o")]), ConflictKind.CONCURRENT_DELETE_DELETE),
    (
        "both remove a file, spelled differently",
        _pending(ReadSet(), "o o"),
        _winner([_remove("file:///data/t/o%20o")]),
        ConflictKind.CONCURRENT_DELETE_DELETE,
    ),
    (
        "both remove a file, with different vectors",
        _pending(ReadSet(), "o"),
        _winner([_remove("o", deletion_vector=_DV)]),
        ConflictKind.CONCURRENT_DELETE_DELETE,
    ),
    (
        "the winner rearranged a file that is removed here",
        _pending(_reads("a"), "o"),
        _winner([_remove("o", data_change=False), _add("n", data_change=False)]),
        ConflictKind.CONCURRENT_DELETE_DELETE,
    ),
    (
        "an append and a rearrangement",
        _pending(),
        _winner([_remove("o", data_change=False), _add("n", data_change=False)]),
        None,
    ),
    ("a rearrangement and an append", _pending(_reads("a"), "o", data_change=False), _winner([_add("n")]), None),
    (
        "a rearrangement and a removal of its file",
        _pending(_reads("a"), "o", data_change=False),
        _winner([_remove("o")]),
        ConflictKind.CONCURRENT_DELETE_DELETE,
    ),
    ("a metadata change", _pending(), _winner([_METADATA], blind=True), ConflictKind.METADATA_CHANGED),
    (
        "a protocol change",
        _pending(),
        _winner([Protocol(min_reader_version=1, min_writer_version=2)]),
        ConflictKind.PROTOCOL_CHANGED,
    ),
    (
        "the same application, read",
        _pending(ReadSet(transactions=frozenset({"app"}))),
        _winner([SetTransaction(app_id="app", version=1)], blind=True),
        ConflictKind.CONCURRENT_TRANSACTION,
    ),
    (
        "the same application, written",
        _pending(app_ids=frozenset({"app"})),
        _winner([SetTransaction(app_id="app", version=1)], blind=True),
        ConflictKind.CONCURRENT_TRANSACTION,
    ),
    (
        "another application",
        _pending(app_ids=frozenset({"app"})),
        _winner([SetTransaction(app_id="other", version=1)], blind=True),
        None,
    ),
    (
        "the same domain",
        _pending(domains=frozenset({"d"})),
        _winner([DomainMetadata(domain="d", configuration="")]),
        ConflictKind.CONCURRENT_DOMAIN,
    ),
    (
        "another domain",
        _pending(domains=frozenset({"d"})),
        _winner([DomainMetadata(domain="e", configuration="")]),
        None,
    ),
    ("an empty commit", _pending(_WHOLE, "o"), _winner([]), None),
)


@pytest.mark.parametrize(
    ("pending", "winner", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_winner_conflicts_exactly_if_the_result_depends_on_it(
    pending: PendingCommit, winner: CommitActions, expected: ConflictKind | None
) -> None:
    """OCC-5 to OCC-12, DOM-7, TXN-4."""
    assert _kind(pending, winner) == expected


def test_write_serializable_is_a_level_of_the_table_property() -> None:
    """OCC-14."""
    assert IsolationLevel("WriteSerializable") is IsolationLevel.WRITE_SERIALIZABLE
    assert IsolationLevel("Serializable") is IsolationLevel.SERIALIZABLE


def test_a_remove_that_only_pretends_to_know_its_partition_is_taken_for_unknown() -> None:
    """FILE-9: partition values count only with extendedFileMetadata."""
    remove = RemoveFile(path="o", partition_values={"p": "a"}, extended_file_metadata=False)
    assert _kind(_pending(_reads("b")), _winner([remove])) is ConflictKind.CONCURRENT_DELETE_READ


def test_a_winner_that_calls_itself_a_blind_append_but_removes_files_is_none() -> None:
    """OCC-8: a false flag must not hide a conflict."""
    winner = _winner([_add("n"), _remove("o", "b")], blind=True)
    assert _kind(_pending(_reads("a")), winner) is ConflictKind.CONCURRENT_APPEND
