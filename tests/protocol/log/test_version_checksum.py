"""Version checksums: building, advancing, encoding and decoding."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.protocol.actions.actions import (
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
from cm_delta_dagster.protocol.actions.commit_json import CommitActions, decode_commit, encode_commit
from cm_delta_dagster.protocol.log import version_checksum
from cm_delta_dagster.protocol.log.action_reconciliation import TableState, replay
from cm_delta_dagster.protocol.log.version_checksum import (
    DEFAULT_BOUNDARIES,
    FileSizeHistogram,
    VersionChecksum,
    advance_checksum,
    build_checksum,
)
from tests.support.actions import add_file, remove_file

_LOCATION = "file:///data/t"
_PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors", "inCommitTimestamp", "domainMetadata"),
)
_METADATA = Metadata(
    id="i",
    schema_string='{"type":"struct","fields":[]}',
    configuration={"delta.enableInCommitTimestamps": "true"},
    created_time=5,
)


def _commit(version: int, *actions: Action) -> CommitActions:
    return decode_commit(encode_commit(actions), version=version)


def _state(*actions: Action) -> TableState:
    return replay(None, [_commit(0, _PROTOCOL, _METADATA, *actions)], location=_LOCATION)


def _vector(cardinality: int) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type="i", path_or_inline_dv=f"v{cardinality}", size_in_bytes=1, cardinality=cardinality
    )


def _add(path: str, size: int, cardinality: int = 0, *, data_change: bool = True) -> AddFile:
    return add_file(path, _vector(cardinality) if cardinality else None, size=size, data_change=data_change)


def _remove(add: AddFile) -> RemoveFile:
    return remove_file(add.path, add.deletion_vector, extended_file_metadata=True, partition_values={}, size=add.size)


def _advance(before: VersionChecksum, *actions: Action) -> VersionChecksum | None:
    return advance_checksum(before, [_commit(1, *actions)], location=_LOCATION)


@pytest.mark.requirements("CRC-2", "CRC-3", "CRC-4", "CRC-6", "CRC-7", "X11")
def test_a_checksum_counts_and_sums_live_files() -> None:
    state = _state(
        _add("a", 8191),
        _add("b", 8192, 9),
        _add("c", 10**12, 10),
        RemoveFile(path="d", deletion_timestamp=1),
        SetTransaction(app_id="z", version=1),
        SetTransaction(app_id="app", version=2, last_updated=3),
        DomainMetadata(domain="live", configuration="{}"),
        DomainMetadata(domain="gone", configuration="", removed=True),
    )
    value = build_checksum(state, txn_id="t", in_commit_timestamp=7)
    assert (value.table_size_bytes, value.num_files) == (8191 + 8192 + 10**12, 3)
    assert (value.num_deleted_records, value.num_deletion_vectors) == (19, 2)
    assert value.deleted_record_counts == (1, 1, 1, 0, 0, 0, 0, 0, 0, 0)
    assert (value.txn_id, value.in_commit_timestamp) == ("t", 7)
    assert value.set_transactions is not None and [txn.app_id for txn in value.set_transactions] == ["app", "z"]
    assert value.domain_metadata == (DomainMetadata(domain="live", configuration="{}"),)
    histogram = value.file_size_histogram
    assert histogram is not None and histogram.boundaries == DEFAULT_BOUNDARIES
    filled = {low: files for low, *files in zip(*_columns(histogram), strict=True) if files[0]}
    assert filled == {0: [1, 8191], 8192: [1, 8192], DEFAULT_BOUNDARIES[-1]: [1, 10**12]}


def _columns(histogram: FileSizeHistogram) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return histogram.boundaries, histogram.file_counts, histogram.total_bytes


@pytest.mark.requirements("CRC-5")
def test_a_size_on_a_boundary_belongs_to_the_upper_bin() -> None:
    before = build_checksum(_state(), txn_id=None, in_commit_timestamp=None)
    assert before.file_size_histogram == FileSizeHistogram(
        boundaries=DEFAULT_BOUNDARIES,
        file_counts=(0,) * len(DEFAULT_BOUNDARIES),
        total_bytes=(0,) * len(DEFAULT_BOUNDARIES),
    )
    after = _advance(before, _add("a", 8192))
    assert after is not None and after.file_size_histogram is not None
    assert after.file_size_histogram.file_counts[:3] == (0, 1, 0)


@pytest.mark.requirements("CRC-5")
def test_boundaries_ascend_from_zero() -> None:
    assert DEFAULT_BOUNDARIES[0] == 0 and list(DEFAULT_BOUNDARIES) == sorted(set(DEFAULT_BOUNDARIES))
    assert len(DEFAULT_BOUNDARIES) == 95
    histogram = build_checksum(_state(_add("a", 10**15)), txn_id=None, in_commit_timestamp=None).file_size_histogram
    assert histogram is not None and histogram.boundaries[-2:] == (128 * 2**30, 256 * 2**30)
    assert histogram.boundaries[:3] == (0, 8 * 2**10, 16 * 2**10) and histogram.file_counts == (0,) * 94 + (1,)


_STEP = st.dictionaries(
    st.sampled_from("abcdefgh"), st.tuples(st.integers(0, 3 * 2**23), st.sampled_from([0, 1, 10, 2**31])), max_size=5
)


@pytest.mark.requirements("CRC-7")
@settings(deadline=None)
@given(st.lists(st.tuples(_STEP, st.dictionaries(st.sampled_from("xyz"), st.booleans(), max_size=2)), max_size=6))
def test_advanced_checksums_equal_built_ones(
    steps: list[tuple[dict[str, tuple[int, int]], dict[str, bool]]],
) -> None:
    state = _state(_add("a", 1))
    live = {"a": _add("a", 1)}
    start = build_checksum(state, txn_id=None, in_commit_timestamp=0)
    value: VersionChecksum | None = start
    commits = []
    for version, (files, names) in enumerate(steps, start=1):
        actions: list[Action] = []
        for path, (size, cardinality) in files.items():
            if path in live:
                actions.append(_remove(live.pop(path)))
            else:
                live[path] = _add(path, size, cardinality)
                actions.append(live[path])
        for name, removed in names.items():
            actions.append(DomainMetadata(domain=name, configuration="c", removed=removed))
            actions.append(SetTransaction(app_id=name, version=version))
        info = CommitInfo(txn_id=f"t{version}", in_commit_timestamp=version)
        commits.append(_commit(version, info, *actions))
        state = replay(state, commits[-1:], location=_LOCATION)
        assert value is not None
        value = advance_checksum(value, commits[-1:], location=_LOCATION)
        assert value == build_checksum(state, txn_id=f"t{version}", in_commit_timestamp=version)
        assert value == advance_checksum(start, commits, location=_LOCATION)


@pytest.mark.requirements("CRC-4", "CRC-7", "FILE-5")
def test_a_new_deletion_vector_on_a_file_is_counted_once() -> None:
    before = build_checksum(_state(_add("a", 5, 3)), txn_id=None, in_commit_timestamp=None)
    after = _advance(before, _remove(_add("a", 5, 3)), _add("a", 5, 7, data_change=False))
    assert after is not None
    assert (after.num_files, after.table_size_bytes, after.num_deleted_records, after.num_deletion_vectors) == (
        1,
        5,
        7,
        1,
    )


@pytest.mark.requirements("CRC-7", "FILE-4", "FILE-9")
@pytest.mark.parametrize(
    "action",
    [
        RemoveFile(path="a", deletion_timestamp=1),
        RemoveFile(path="a", deletion_timestamp=1, size=5),
        RemoveFile(path="a", deletion_timestamp=1, extended_file_metadata=True),
        _add("a", 5, data_change=False),
    ],
)
def test_a_commit_without_the_needed_fields_gives_none(action: Action) -> None:
    before = build_checksum(_state(_add("a", 5)), txn_id=None, in_commit_timestamp=None)
    assert _advance(before, action) is None


@pytest.mark.requirements("CRC-3")
def test_the_timestamp_is_present_exactly_if_the_feature_is_enabled() -> None:
    before = build_checksum(_state(), txn_id=None, in_commit_timestamp=1)
    after = _advance(before, Metadata(id="i", schema_string=_METADATA.schema_string))
    assert before.in_commit_timestamp == 1
    assert after is not None and after.in_commit_timestamp is None


def _full() -> VersionChecksum:
    state = _state(
        _add("a", 5, 3), SetTransaction(app_id="ä", version=1), DomainMetadata(domain="d", configuration="{}")
    )
    return build_checksum(state, txn_id="t", in_commit_timestamp=1)


@pytest.mark.requirements("CRC-1", "CRC-2")
def test_an_encoded_checksum_is_decoded() -> None:
    data = version_checksum.encode(_full())
    assert version_checksum.decode(data) == _full()
    content = json.loads(data)
    assert content["numMetadata"] == content["numProtocol"] == 1
    assert content["metadata"]["id"] == "i" and content["protocol"]["minReaderVersion"] == 3
    assert "allFiles" not in content


@pytest.mark.requirements("CRC-9", "CRC-10", "X18")
def test_older_names_and_missing_or_unknown_fields_are_accepted() -> None:
    content = json.loads(version_checksum.encode(_full()))
    content["histogramOpt"] = content.pop("fileSizeHistogram")
    content["unknown"] = {"a": 1}
    decoded = version_checksum.decode(json.dumps(content).encode())
    assert decoded == _full()
    for name in ("histogramOpt", "txnId", "setTransactions", "domainMetadata", "deletedRecordCountsHistogramOpt"):
        content.pop(name)
    bare = version_checksum.decode(json.dumps(content).encode())
    assert bare is not None and bare.file_size_histogram is None and bare.set_transactions is None
    after = _advance(bare, _add("b", 1), SetTransaction(app_id="b", version=1))
    assert after is not None and after.num_files == 2 and after.set_transactions is None


@pytest.mark.requirements("CRC-2", "CRC-9")
@pytest.mark.parametrize("name", ["tableSizeBytes", "numFiles", "numMetadata", "numProtocol", "metadata", "protocol"])
def test_a_file_without_a_required_field_is_treated_as_missing(name: str) -> None:
    content = json.loads(version_checksum.encode(_full()))
    content.pop(name)
    assert version_checksum.decode(json.dumps(content).encode()) is None
    content[name] = "x"
    assert version_checksum.decode(json.dumps(content).encode()) is None


@pytest.mark.requirements("CRC-9")
@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"{", b"null"])
def test_an_invalid_file_is_treated_as_missing(data: bytes) -> None:
    assert version_checksum.decode(data) is None


@pytest.mark.requirements("CRC-11")
def test_differences_names_the_fields_that_do_not_match() -> None:
    state = _state(_add("a", 5))
    value = build_checksum(state, txn_id=None, in_commit_timestamp=None)
    assert version_checksum.differences(value, state) == ()
    assert version_checksum.differences(value, _state(_add("a", 6), _add("b", 0))) == ("tableSizeBytes", "numFiles")
