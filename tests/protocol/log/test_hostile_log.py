"""Corrupt and malicious logs: a reader returns the correct table or raises an error of this package.

No other exception, endless loop or incomplete table is allowed. Deletion-vector bytes: ``test_hostile_vectors``.
"""

import copy
import functools
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import CmDeltaError, CorruptLogError
from cm_delta_dagster.operations.reading.history import history
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.log import last_checkpoint, log_files, version_checksum
from cm_delta_dagster.protocol.log.last_checkpoint import LastCheckpoint
from tests.support.foreign_log import Action, ForeignLog, add, contents, info, lines, metadata, protocol, remove, vector

pytestmark = pytest.mark.slow

_SETTINGS = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["\ud800", "\x00", "../x", "%zz", "s3://x/y", "", "long", "1e400"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)

_ACTIONS: tuple[Action, ...] = (
    info(inCommitTimestamp=5, txnId="t", operationParameters={"a": "b"}, operationMetrics={"n": "1"}, tags={"k": "v"}),
    protocol("deletionVectors", "v2Checkpoint"),
    metadata(delta__enableInCommitTimestamps="false"),
    add("a", stats='{"numRecords":1}', tags={"t": "u"}, deletionVector=vector("00000"), baseRowId=1),
    remove("b", partitionValues={"p": None}, extendedFileMetadata=True, size=4, deletionVector=vector("00000")),
    {"txn": {"appId": "x", "version": 3, "lastUpdated": 4}},
    {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
    {"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 3, "dataChange": False}},
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values in a JSON value, including itself."""
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += _places(item, (*path, key))
    return found


@st.composite
def _damaged_commits(draw: st.DrawFn) -> bytes:
    """A commit with all kinds of actions in which a few values are replaced or missing."""
    actions: list[Any] = [copy.deepcopy(dict(action)) for action in _ACTIONS]
    for _ in range(draw(st.integers(1, 3))):
        index = draw(st.integers(0, len(actions) - 1))
        place = draw(st.sampled_from(_places(actions[index])))
        if not place:
            actions[index] = draw(_JSON)
            continue
        holder = actions[index]
        for key in place[:-1]:
            holder = holder[key]
        if isinstance(holder, dict) and draw(st.booleans()):
            del holder[place[-1]]
        else:
            holder[place[-1]] = draw(_JSON)
    return "".join(json.dumps(action) + "\n" for action in actions).encode()


def _look_at(log: ForeignLog, version: int | None = None) -> dict[str, Any] | None:
    """Read everything from a log; None if it is refused. Other exceptions propagate."""
    try:
        table = log.table
        snapshot = table.snapshot(version=version)
        seen = contents(snapshot)
        assert snapshot.schema.names and snapshot.column_mapping and snapshot.num_files >= 0
        assert snapshot.num_rows is None or snapshot.num_rows >= 0
        list(table.commits(0, snapshot.version))
        history(table)
        return seen
    except CmDeltaError as error:
        assert "foreign/" in str(error), f"the message does not name the table: {error}"
        return None


@pytest.mark.requirements("LOG-3", "LOG-6", "PROT-2", "META-1", "FILE-1")
@_SETTINGS
@given(_damaged_commits())
@example(lines(info(), protocol(), metadata(), add("a", size=2**63)))
@example(lines(info(), protocol(), metadata(), {"txn": {"appId": ["x"], "version": 1}}))
@example(lines(info(), protocol(), metadata(), add("a", deletionVector={})))
@example(lines(info(), protocol(), metadata(), {"domainMetadata": {"domain": {}, "configuration": "{}"}}))
@example(b'{"add":' + b"[" * 100_000)
@example(b'{"metaData":' * 5000 + b"1" + b"}" * 5000)
@example(b'{"add":{"path":"a"}}\n{"add":{"path":"b","x":' + b"[" * 200_000 + b'\n{"add":{"path":"c"}}\n')
@example(b'{"add":{"path":"a"}}\n{"add":{"path":"b","x":' + b'{"y":' * 200_000 + b'\n{"add":{"path":"c"}}\n')
@example(b"\xff\xfe{}")
@example('{"add":{"path":"a"}}'.encode("utf-16"))
def test_a_commit_of_any_json_is_read_or_refused(data: bytes) -> None:
    """The small parser and the one for large commits, alone and as a table."""
    for decode in (commit_json.decode_commit, commit_json._decode_large):
        try:
            decode(data, version=1)
        except CorruptLogError as error:
            assert "ersion 1" in str(error)
    log = ForeignLog()
    log.write(log_files.commit_file_name(0), data)
    _look_at(log)
    log.create()
    log.write(log_files.commit_file_name(1), data)
    _look_at(log)


@pytest.mark.requirements("LOG-3")
@_SETTINGS
@given(st.binary(max_size=60), st.integers(0, 10**6), st.integers(0, 3))
def test_any_bytes_in_a_commit_are_read_or_refused(noise: bytes, position: int, kind: int) -> None:
    """Bytes are inserted, overwritten, removed or the only content."""
    data = lines(*_ACTIONS)
    at = position % len(data)
    changed = {
        0: data[:at] + noise + data[at:],
        1: data[:at] + noise + data[at + len(noise) :],
        2: data[:at] + data[at + len(noise) :],
        3: noise,
    }[kind]
    log = ForeignLog()
    log.write(log_files.commit_file_name(0), changed)
    _look_at(log)


def _damages(data: bytes, draw: Callable[[st.SearchStrategy[Any]], Any]) -> bytes:
    if draw(st.booleans()):
        return data[: draw(st.integers(0, len(data) - 1))]
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        changed[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(changed)


def _log_with(checkpoint: str) -> tuple[ForeignLog, list[str]]:
    """Six versions, a checkpoint of version 5, and the locations of its files."""
    log = ForeignLog()
    content, places = _content_with(checkpoint)
    for location, data in content.items():
        log.store.write(location, data)
    return log, list(places)


@functools.cache
def _content_with(checkpoint: str) -> tuple[dict[str, bytes], list[str]]:
    log = ForeignLog()
    log.create("deletionVectors", "v2Checkpoint", delta__checkpointPolicy="v2")
    for version in range(1, 7):
        more = [add("v", deletionVector=vector("00000"))] if version == 2 else []
        log.commit(version, info(), add(f"f{version}", stats=f'{{"numRecords":{version}}}'), *more)
    match checkpoint:
        case "classic":
            log.classic_checkpoint(5)
        case "multi-part":
            log.multi_part_checkpoint(5, 2)
        case "sidecars":
            log.v2_checkpoint(5)
    commits = log_files.CommitFile
    places = [
        status.location
        for status in log.store.list_recursive(log.directory)
        if not isinstance(log_files.parse_log_file(status.name), commits)
    ]
    return {found.location: log.store.read(found.location) for found in log.store.list_recursive(log.directory)}, places


@pytest.mark.requirements("CKPT-17", "CKPT-V2-9", "TT-5")
@_SETTINGS
@given(st.data(), st.sampled_from(["classic", "multi-part", "sidecars"]), st.booleans())
def test_a_corrupt_checkpoint_is_replaced_by_commits_or_refused(
    data: st.DataObject, checkpoint: str, has_commits: bool
) -> None:
    """A truncated checkpoint is never used; one with changed bytes raises no foreign exception."""
    log, places = _log_with(checkpoint)
    expected = contents(log.state(6))
    place = data.draw(st.sampled_from(places))
    whole = log.store.read(place)
    damaged = _damages(whole, data.draw)
    log.store.write(place, damaged)
    if not has_commits:
        for version in range(5):
            log.delete(log_files.commit_file_name(version))
    seen = _look_at(log, 6)
    if has_commits and whole.startswith(damaged):
        assert seen == expected
    elif len(damaged) < len(whole):
        assert seen in (None, expected)


@pytest.mark.requirements("CKPT-17")
@pytest.mark.parametrize("checkpoint", ["classic", "sidecars"])
def test_a_byte_changed_in_the_pages_of_a_checkpoint_is_noticed(checkpoint: str) -> None:
    """Pages carry checksums, which are verified; the commits are read instead."""
    log, places = _log_with(checkpoint)
    expected = contents(log.state(6))
    for place in places:
        whole = log.store.read(place)
        footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
        for position in range(4, footer, max(1, footer // 40)):
            changed = bytearray(whole)
            changed[position] ^= 0x40
            log.store.write(place, bytes(changed))
            assert _look_at(log, 6) == expected, f"byte {position} of {place}"
        log.store.write(place, whole)


@pytest.mark.requirements("LASTCP-4", "LASTCP-5", "LASTCP-6")
@_SETTINGS
@given(st.binary(max_size=80) | st.builds(lambda value: json.dumps(value).encode(), _JSON))
@example(b'{"version":5,"version":5,"size":1}')
@example(b'{"version":5.0,"size":1}')
@example(b'{"version":-1,"size":1}')
@example(b'{"version":99999999999999999999999999999,"size":1}')
@example(b'{"version":true,"size":1}')
@example(b'{"version":5,"size":1,"checksum":"00000000000000000000000000000000"}')
@example(b'{"version":5,"size":1,"v2Checkpoint":{"path":"x","sizeInBytes":1,"modificationTime":1,"sidecarFiles":[]}}')
@example(b'{"version":5,"size":1,"v2Checkpoint":{"path":"x","sizeInBytes":1,"modificationTime":1,"nonFileActions":5}}')
@example(b'{"version":5,"size":1,"parts":"two"}')
@example(b'{"version":' + b"[" * 50_000)
def test_the_content_of_the_hint_does_not_change_the_table(data: bytes) -> None:
    """Embedded content of a V2 checkpoint is not trusted either."""
    log, _ = _log_with("sidecars")
    expected = contents(log.state(6))
    log.write("_last_checkpoint", data)
    assert _look_at(log) == expected
    assert _look_at(log, 2) is not None


@pytest.mark.requirements("LASTCP-4", "LASTCP-6")
@_SETTINGS
@given(st.data())
def test_a_hint_with_changed_bytes_does_not_change_the_table(data: st.DataObject) -> None:
    log, _ = _log_with("classic")
    expected = contents(log.state(6))
    hint = last_checkpoint.encode(LastCheckpoint(version=5, size=9, size_in_bytes=100, num_of_add_files=6))
    log.write("_last_checkpoint", _damages(hint, data.draw))
    assert _look_at(log) == expected


@pytest.mark.requirements("CRC-9")
@_SETTINGS
@given(st.binary(max_size=80) | st.builds(lambda value: json.dumps(value).encode(), _JSON))
@example(b'{"protocol":{},"metadata":{}}')
@example(b'{"protocol":5,"metadata":[]}')
def test_any_bytes_are_decoded_as_a_checksum_or_ignored(data: bytes) -> None:
    """And the table is read as without the checksum."""
    version_checksum.decode(data)
    log, _ = _log_with("classic")
    expected = contents(log.state(6))
    log.write(log_files.checksum_file_name(6), data)
    assert _look_at(log) == expected


@pytest.mark.requirements("CRC-9")
@_SETTINGS
@given(st.data())
def test_a_checksum_with_replaced_values_is_decoded_or_ignored(data: st.DataObject) -> None:
    """Unknown values in optional fields included."""
    log, _ = _log_with("classic")
    value: Any = json.loads(
        version_checksum.encode(version_checksum.build_checksum(log.state(6), txn_id="t", in_commit_timestamp=1))
    )
    place = data.draw(st.sampled_from(_places(value)[1:]))
    holder = value
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = data.draw(_JSON)
    version_checksum.decode(json.dumps(value).encode())


@pytest.mark.requirements("LOG-9")
@_SETTINGS
@given(
    st.lists(st.text(max_size=40) | st.from_regex(re.compile(r"[0-9]{18,22}\.[a-z.]{1,20}", re.ASCII), fullmatch=True))
)
def test_unknown_names_in_the_log_are_ignored(names: list[str]) -> None:
    """Files with other names and any content."""
    log, _ = _log_with("classic")
    expected = contents(log.state(6))
    for name in names:
        if name and not re.fullmatch(r"[0-9]{20}\.json", name, re.ASCII):
            log.write(name, b"{ rubbish")
    assert _look_at(log, 6) == expected


@pytest.mark.requirements("CKPT-MP-2", "LC-7")
def test_a_huge_number_of_parts_or_versions_is_not_enumerated() -> None:
    log, _ = _log_with("classic")
    expected = contents(log.state(6))
    log.write(f"{6:020d}.checkpoint.{1:010d}.{9_999_999_999:010d}.parquet", b"")
    log.write(f"{0:020d}.{9_999_999_999:020d}.compacted.json", b"{}\n")
    log.write(f"{9_999_999_999:020d}.crc", b"{}")
    assert _look_at(log) == expected


@pytest.mark.requirements("LOG-4")
def test_a_commit_of_a_huge_version_is_refused_immediately() -> None:
    """The gap is reported without enumerating its versions."""
    log, _ = _log_with("classic")
    log.write(log_files.commit_file_name(2**63 - 1), lines(info()))
    with pytest.raises(CorruptLogError, match=f"7 to {2**63 - 2}"):
        log.table.snapshot()
