"""Checkpoints: building and decoding the rows of every kind of checkpoint."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.actions import (
    Action,
    AddFile,
    CheckpointMetadata,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
)
from cm_delta_dagster.protocol.actions.commit_json import decode_commit, encode_action, encode_commit
from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA, table_to_adds, table_to_removes
from cm_delta_dagster.protocol.log import checkpoint_reading, checkpoints
from cm_delta_dagster.protocol.log.action_reconciliation import TableState, replay, state_from_checkpoint
from cm_delta_dagster.protocol.log.checkpoint_reading import decode_checkpoint, decode_checkpoint_json
from cm_delta_dagster.protocol.log.checkpoints import build_checkpoint
from tests.support.actions import add_file

_LOCATION = "file:///data/t"
_NOW = 100 * 24 * 60 * 60 * 1000
_WEEK = 7 * 24 * 60 * 60 * 1000
_V2 = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("v2Checkpoint", "deletionVectors"),
    writer_features=("v2Checkpoint", "deletionVectors", "domainMetadata"),
)
_V1 = Protocol(min_reader_version=1, min_writer_version=2)
_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "p", "type": "date", "nullable": True, "metadata": {}},
        ],
    }
)
_VECTOR = DeletionVectorDescriptor(
    storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", size_in_bytes=40, cardinality=6, offset=1
)
_STATS = '{"numRecords":3,"tightBounds":true,"minValues":{"id":1},"maxValues":{"id":9},"nullCount":{"id":0}}'
_FULL_ADD = AddFile(
    path="p=2020-01-01/a%20b",
    partition_values={"p": "2020-01-01"},
    size=10,
    modification_time=5,
    stats=_STATS,
    tags={"k": "v"},
    deletion_vector=_VECTOR,
    base_row_id=7,
    default_row_commit_version=1,
    clustering_provider="liquid",
)
_PLAIN_ADD = AddFile(path="b", partition_values={"p": None}, size=1, modification_time=6)
_FULL_REMOVE = RemoveFile(
    path="c",
    deletion_timestamp=_NOW - _WEEK,
    extended_file_metadata=True,
    partition_values={"p": None},
    size=3,
    stats=_STATS,
    tags={"k": "v"},
    deletion_vector=_VECTOR,
    base_row_id=1,
    default_row_commit_version=2,
)
_STRUCT = {"delta.checkpoint.writeStatsAsStruct": "true"}
_NO_JSON = {"delta.checkpoint.writeStatsAsJson": "false"}


def _metadata(configuration: Mapping[str, str], policy: str) -> Metadata:
    return Metadata(
        id="i",
        schema_string=_SCHEMA,
        partition_columns=("p",),
        created_time=4,
        description="d",
        configuration={"delta.checkpointPolicy": policy, **configuration},
    )


def _state(
    *files: Action, protocol: Protocol = _V2, policy: str = "v2", configuration: Mapping[str, str] | None = None
) -> TableState:
    small: list[Action] = [
        protocol,
        _metadata(configuration or {}, policy),
        SetTransaction(app_id="app", version=3, last_updated=8),
        SetTransaction(app_id="b", version=1),
        DomainMetadata(domain="live", configuration="{}"),
        DomainMetadata(domain="gone", configuration="", removed=True),
    ]
    first = decode_commit(encode_commit([*small, *files]), version=4)
    return replay(None, [first], location=_LOCATION)


def _kinds(table: pa.Table) -> list[tuple[str, ...]]:
    return [tuple(name for name, value in row.items() if value is not None) for row in table.to_pylist()]


def _first_add(table: pa.Table) -> dict[str, Any]:
    return next(row["add"] for row in table.to_pylist() if row["add"] is not None)


@pytest.mark.requirements("CKPT-1", "CKPT-2", "CKPT-V2-3", "CKPT-V2-4", "V2ACT-3")
def test_every_row_is_one_action_and_checkpoint_metadata_is_first() -> None:
    tables = build_checkpoint(_state(_FULL_ADD, _PLAIN_ADD, _FULL_REMOVE), now_ms=_NOW)
    assert _kinds(tables.top) == [
        ("checkpointMetadata",),
        ("protocol",),
        ("metaData",),
        ("txn",),
        ("txn",),
        ("domainMetadata",),
        ("add",),
        ("add",),
        ("remove",),
    ]
    assert tables.num_actions == 9 and tables.sidecars == ()
    assert decode_checkpoint(tables.top).checkpoint_metadata == CheckpointMetadata(version=4)


@pytest.mark.requirements("CKPT-1", "CKPT-3", "CKPT-4", "CKPT-13", "CKPT-18", "X11", "X21")
def test_all_fields_of_an_action_are_kept() -> None:
    state = _state(_FULL_ADD, _PLAIN_ADD, _FULL_REMOVE)
    content = decode_checkpoint(build_checkpoint(state, now_ms=_NOW).top)
    assert content.protocol == _V2 and content.metadata == state.metadata
    assert content.transactions == (
        SetTransaction(app_id="app", version=3, last_updated=8),
        SetTransaction(app_id="b", version=1),
    )
    assert content.domains == (DomainMetadata(domain="live", configuration="{}"),)
    by_path = {add.path: add for add in table_to_adds(content.adds)}
    assert by_path == {add.path: _unchanged(add) for add in (_FULL_ADD, _PLAIN_ADD)}
    (remove,) = table_to_removes(content.removes)
    assert (remove.stats, remove.tags, remove.data_change) == (None, None, False)
    assert remove.deletion_vector == _VECTOR and remove.size == 3 and remove.base_row_id == 1
    assert remove.deletion_timestamp == _NOW - _WEEK and remove.partition_values == {"p": None}


def _unchanged(add: AddFile) -> AddFile:
    fields = {name: getattr(add, name) for name in AddFile.__dataclass_fields__}
    return AddFile(**{**fields, "data_change": False})


@pytest.mark.requirements("CKPT-7", "CKPT-4")
def test_columns_have_the_types_of_the_protocol() -> None:
    top = build_checkpoint(_state(_FULL_ADD, _FULL_REMOVE), now_ms=_NOW).top
    add, remove = top.schema.field("add").type, top.schema.field("remove").type
    assert [item.name for item in add] == [
        "path",
        "partitionValues",
        "size",
        "modificationTime",
        "dataChange",
        "stats",
        "tags",
        "deletionVector",
        "baseRowId",
        "defaultRowCommitVersion",
        "clusteringProvider",
    ]
    assert {item.name for item in remove}.isdisjoint({"stats", "tags"})
    assert add.field("deletionVector").type.field("offset").type == pa.int32()
    assert top.schema.field("protocol").type.field("minReaderVersion").type == pa.int32()


@pytest.mark.requirements("REC-15", "CKPT-1")
def test_expired_tombstones_are_dropped() -> None:
    removes = [
        RemoveFile(path="kept", deletion_timestamp=_NOW - _WEEK),
        RemoveFile(path="gone", deletion_timestamp=_NOW - _WEEK - 1),
        RemoveFile(path="undated"),
    ]
    content = decode_checkpoint(build_checkpoint(_state(*removes), now_ms=_NOW).top)
    assert content.removes["path"].to_pylist() == ["kept"]


@pytest.mark.requirements("CKPT-8", "CKPT-9", "CKPT-10", "X17")
def test_parsed_columns_are_written_only_if_enabled() -> None:
    default = _first_add(build_checkpoint(_state(_FULL_ADD), now_ms=_NOW).top)
    both = _first_add(build_checkpoint(_state(_FULL_ADD, configuration=_STRUCT), now_ms=_NOW).top)
    only = _first_add(build_checkpoint(_state(_FULL_ADD, configuration={**_STRUCT, **_NO_JSON}), now_ms=_NOW).top)
    neither = _first_add(build_checkpoint(_state(_FULL_ADD, configuration=_NO_JSON), now_ms=_NOW).top)
    bare = _first_add(build_checkpoint(_state(_PLAIN_ADD, configuration=_STRUCT), now_ms=_NOW).top)
    present = [
        {"stats", "stats_parsed", "partitionValues_parsed"} & set(row) for row in (default, both, only, neither, bare)
    ]
    assert present == [
        {"stats"},
        {"stats", "stats_parsed", "partitionValues_parsed"},
        {"stats_parsed", "partitionValues_parsed"},
        set(),
        {"partitionValues_parsed"},
    ]
    assert both["partitionValues_parsed"]["p"].isoformat() == "2020-01-01"
    assert both["stats_parsed"]["maxValues"] == {"id": 9}


@pytest.mark.requirements("CKPT-9", "PART-5")
@pytest.mark.parametrize(("text", "is_parsed"), [("2024-07-01 12:00:00", False), ("2024-07-01T12:00:00.000000Z", True)])
def test_parsed_partition_values_are_left_out_where_a_time_lacks_its_zone(text: str, is_parsed: bool) -> None:
    """Its value depends on the reader."""
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("t", "timestamp"))
    ]
    metadata = Metadata(
        id="i",
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        partition_columns=("t",),
        configuration={"delta.checkpointPolicy": "v2", **_STRUCT},
    )
    adds = [
        AddFile(path=value or "n", partition_values={"t": value}, size=1, modification_time=1) for value in (text, None)
    ]
    state = replay(None, [decode_commit(encode_commit([_V2, metadata, *adds]), version=0)], location=_LOCATION)
    top = build_checkpoint(state, now_ms=_NOW).top
    names = top.schema.field("add").type
    assert (names.get_field_index("partitionValues_parsed") >= 0) is is_parsed


@pytest.mark.requirements("CKPT-9")
def test_a_table_without_files_has_the_parsed_partition_values_of_a_time() -> None:
    """No text lacks its zone."""
    fields = [{"name": "t", "type": "timestamp", "nullable": True, "metadata": {}}]
    metadata = Metadata(
        id="i",
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        partition_columns=("t",),
        configuration={"delta.checkpointPolicy": "v2", **_STRUCT},
    )
    state = replay(None, [decode_commit(encode_commit([_V2, metadata]), version=0)], location=_LOCATION)
    names = build_checkpoint(state, now_ms=_NOW).top.schema.field("add").type
    assert names.get_field_index("partitionValues_parsed") >= 0


@pytest.mark.requirements("CKPT-9", "UP-INT-1")
def test_interval_partition_values_are_stored_as_numbers() -> None:
    """Parquet has no type for months, and other readers do not support durations."""
    fields = [("id", "long"), ("y", "interval year to month"), ("d", "interval day")]
    texts = {"y": "INTERVAL '1-2' YEAR TO MONTH", "d": "INTERVAL '-1' DAY"}
    schema = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
    metadata = Metadata(
        id="i",
        schema_string=json.dumps({"type": "struct", "fields": schema}),
        partition_columns=("y", "d"),
        configuration={"delta.checkpointPolicy": "v2", **_STRUCT},
    )
    adds = [
        AddFile(
            path="a", partition_values=texts, size=1, modification_time=1, stats='{"numRecords":1,"nullCount":{"id":0}}'
        ),
        AddFile(path="b", partition_values=dict.fromkeys(texts), size=1, modification_time=1),
    ]
    state = replay(None, [decode_commit(encode_commit([_V2, metadata, *adds]), version=0)], location=_LOCATION)
    top = build_checkpoint(state, now_ms=_NOW).top
    file = pa.BufferOutputStream()
    pq.write_table(top, file)
    read = pq.read_table(pa.BufferReader(file.getvalue()))
    parsed = [row["partitionValues_parsed"] for row in read["add"].to_pylist() if row is not None]
    assert sorted(parsed, key=repr) == [{"y": 14, "d": -86_400_000_000}, {"y": None, "d": None}]
    kinds = read.schema.field("add").type.field("partitionValues_parsed").type
    assert [kinds.field(name).type for name in ("y", "d")] == [pa.int32(), pa.int64()]


@pytest.mark.requirements("CKPT-12")
def test_statistics_are_read_from_the_struct_if_there_is_no_text() -> None:
    state = _state(_FULL_ADD, _PLAIN_ADD, configuration={**_STRUCT, **_NO_JSON})
    texts = decode_checkpoint(build_checkpoint(state, now_ms=_NOW).top).adds["stats"].to_pylist()
    assert sorted(map(str, texts)) == sorted([_STATS, "None"])


@pytest.mark.requirements("CKPT-V2-4", "CKPT-V2-5", "CKPT-V2-6", "CKPT-V2-7", "V2ACT-1")
def test_many_file_actions_are_all_written_to_sidecars() -> None:
    adds = [add_file(f"f{n}", partition_values={"p": None}, size=n) for n in range(25)]
    tables = build_checkpoint(_state(*adds, _FULL_REMOVE), now_ms=_NOW, max_inline=20, rows_per_sidecar=10)
    assert [table.num_rows for table in tables.sidecars] == [10, 10, 6]
    assert all(table.column_names == ["add", "remove"] for table in tables.sidecars)
    # The columns exist, because some readers select them by name, but all their values are null.
    assert tables.top["add"].null_count == tables.top["remove"].null_count == tables.top.num_rows
    sidecars = [checkpoints.sidecar_action(f"s{n}.parquet", size_in_bytes=n, modification_time=_NOW) for n in range(3)]
    content = decode_checkpoint(checkpoints.with_sidecars(tables.top, sidecars))
    assert content.sidecars == tuple(sidecars) and content.adds.num_rows == content.removes.num_rows == 0
    parts = [decode_checkpoint(table) for table in tables.sidecars]
    assert sorted(path for part in parts for path in part.adds["path"].to_pylist()) == sorted(add.path for add in adds)
    assert [path for part in parts for path in part.removes["path"].to_pylist()] == ["c"]
    assert tables.num_actions == 6 + 26


@pytest.mark.requirements("CKPT-V2-1", "CKPT-V2-11", "CKPT-13")
@pytest.mark.parametrize(("protocol", "policy"), [(_V1, "v2"), (_V1, "classic"), (_V2, "classic")])
def test_without_feature_or_policy_a_checkpoint_follows_the_v1_spec(protocol: Protocol, policy: str) -> None:
    state = _state(_FULL_ADD, _PLAIN_ADD, protocol=protocol, policy=policy)
    tables = build_checkpoint(state, now_ms=_NOW, max_inline=1)
    assert not checkpoints.is_v2(tables) and tables.sidecars == ()
    content = decode_checkpoint(tables.top)
    assert content.checkpoint_metadata is None and content.protocol == protocol and content.adds.num_rows == 2
    assert checkpoints.is_v2(build_checkpoint(_state(), now_ms=_NOW))


@pytest.mark.requirements("CKPT-1", "CKPT-V2-6")
def test_a_table_without_files_has_a_checkpoint() -> None:
    content = decode_checkpoint(build_checkpoint(_state(configuration=_STRUCT), now_ms=_NOW).top)
    assert content.adds.num_rows == content.removes.num_rows == 0 and content.metadata is not None


@pytest.mark.requirements("CKPT-2", "CKPT-3")
def test_unknown_and_missing_columns_are_accepted() -> None:
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 2, "maxRowIndex": 9}
    rows = pa.table({"add": [{"path": "a", "size": 1, "deletionVector": vector, "new": 1}, None], "other": ["x", "y"]})
    content = decode_checkpoint(rows)
    assert content.adds["path"].to_pylist() == ["a"] and content.adds["stats"].to_pylist() == [None]
    assert content.adds["deletionVector"].to_pylist()[0] == {**_without(vector, "maxRowIndex"), "offset": None}
    assert content.protocol is None and content.removes.num_rows == 0


def _without(value: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key != name}


@pytest.mark.requirements("CKPT-V2-5")
def test_file_actions_beside_sidecars_are_corrupt() -> None:
    tables = build_checkpoint(_state(_PLAIN_ADD), now_ms=_NOW)
    mixed = checkpoints.with_sidecars(
        tables.top, [checkpoints.sidecar_action("s", size_in_bytes=1, modification_time=1)]
    )
    with pytest.raises(CorruptLogError, match="sidecars"):
        decode_checkpoint(mixed)


@pytest.mark.requirements("CKPT-V2-3", "REC-1")
@pytest.mark.parametrize("name", ["protocol", "metaData", "checkpointMetadata"])
def test_a_duplicate_single_action_is_corrupt(name: str) -> None:
    top = build_checkpoint(_state(), now_ms=_NOW).top
    with pytest.raises(CorruptLogError, match=name):
        decode_checkpoint(pa.concat_tables([top, top.select([name])], promote_options="default"))


@pytest.mark.requirements("CKPT-17")
def test_rows_that_are_not_actions_are_corrupt() -> None:
    for rows in (
        {"protocol": [{"minWriterVersion": 2}]},
        {"txn": [1]},
        {"metaData": [{"id": "i", "schemaString": None}]},
        {"add": [{"path": None, "size": 1}]},
        {"add": [{"path": [1]}]},
    ):
        with pytest.raises(CorruptLogError):
            decode_checkpoint(pa.table(rows))


@pytest.mark.requirements("CKPT-V2-8", "CKPT-14")
def test_the_json_form_is_equivalent_to_the_rows() -> None:
    state = _state(_FULL_ADD)
    lines = [
        '{"checkpointMetadata":{"version":4,"tags":{"a":"b"}}}',
        encode_action(state.protocol),
        encode_action(state.metadata),
        '{"sidecar":{"path":"s","sizeInBytes":3,"modificationTime":5,"tags":null}}',
        encode_action(SetTransaction(app_id="app", version=3)),
    ]
    content = checkpoint_reading.decode_checkpoint_json("\n".join(lines).encode())
    assert content.checkpoint_metadata == CheckpointMetadata(version=4, tags={"a": "b"})
    assert content.sidecars == (SidecarFile(path="s", size_in_bytes=3, modification_time=5),)
    assert content.protocol == state.protocol and content.metadata == state.metadata
    assert content.transactions == (SetTransaction(app_id="app", version=3),)
    inline = checkpoint_reading.decode_checkpoint_json(encode_action(_FULL_ADD).encode())
    assert table_to_adds(inline.adds) == [_FULL_ADD]


@pytest.mark.requirements("CKPT-17", "CKPT-V2-8")
@pytest.mark.parametrize(
    "data", [b'{"sidecar":{"path":"s"}}', b'{"sidecar":[]}', b'{"checkpointMetadata":{"version":"x"}}', b'{"sidecar"']
)
def test_an_invalid_json_form_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptLogError):
        checkpoint_reading.decode_checkpoint_json(data)


@pytest.mark.requirements("CKPT-12")
def test_parsed_columns_are_not_read_if_there_are_texts() -> None:
    parsed = ["add.stats_parsed.numRecords", "add.partitionValues_parsed.p"]
    assert checkpoint_reading.columns_to_read(["add.path", "add.stats", *parsed, "remove.path"]) == [
        "add.path",
        "add.stats",
        "remove.path",
    ]
    assert checkpoint_reading.columns_to_read(["add.path", *parsed]) == ["add.path", "add.stats_parsed.numRecords"]


@pytest.mark.requirements("CKPT-2", "CKPT-3")
@settings(deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=40), min_size=1, max_size=3), st.integers(0, 3))
def test_adds_are_read_from_any_rows(chunks: list[list[bool]], start: int) -> None:
    """Contiguous, scattered and in slices of larger columns; vectors and maps belong to their file."""
    number = iter(range(1000))
    rows = [[_add_row(next(number)) if present else None for present in chunk] for chunk in chunks]
    kind = pa.struct([item for item in ADD_SCHEMA if item.name != "tags"])
    arrays = [pa.array([_add_row(999)] * start + chunk, kind).slice(start) for chunk in rows]
    content = decode_checkpoint(pa.table({"add": pa.chunked_array(arrays, kind)}))
    expected = [row for chunk in rows for row in chunk if row is not None]
    found = content.adds.to_pylist()
    assert [row["path"] for row in found] == [row["path"] for row in expected]
    assert [dict(row["partitionValues"]) for row in found] == [dict(row["partitionValues"]) for row in expected]
    assert [(row["deletionVector"] or {}).get("pathOrInlineDv") for row in found] == [
        (row["deletionVector"] or {}).get("pathOrInlineDv") for row in expected
    ]


def _add_row(number: int) -> dict[str, object]:
    vector = {"storageType": "u", "pathOrInlineDv": f"v{number}", "offset": 1, "sizeInBytes": 1, "cardinality": 1}
    return {
        "path": f"f{number}",
        "partitionValues": [("p", str(number))],
        "size": number,
        "deletionVector": vector if number % 3 == 0 else None,
    }


@pytest.mark.requirements("UP-CKPT-1")
def test_the_tags_of_a_checkpoint_are_not_used() -> None:
    """Wrong numbers and an invalid schema have no effect."""
    false_tags = {"sidecarNumActions": "7", "sidecarSizeInBytes": "x", "numOfAddFiles": "0", "sidecarFileSchema": "{"}
    lines = [
        {"checkpointMetadata": {"version": 4, "tags": false_tags}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "m", "format": {"provider": "parquet", "options": {}}, "schemaString": "{}", "partitionColumns": [],
                      "configuration": {}}},
        {"add": {"path": "f", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": False}},
    ]  # fmt: skip
    content = decode_checkpoint_json("".join(json.dumps(line) + "\n" for line in lines).encode())
    state = state_from_checkpoint([content], version=4, location="file:///t")
    assert state.files.adds["path"].to_pylist() == ["f"]


@pytest.mark.requirements("DOM-5")
def test_a_removed_domain_of_a_json_checkpoint_is_not_in_the_table() -> None:
    """A checkpoint has no use for it, but another writer may store it."""
    live = DomainMetadata(domain="live", configuration="{}")
    removed = DomainMetadata(domain="gone", configuration="{}", removed=True)
    assert decode_checkpoint_json(encode_commit([_V2, live, removed])).domains == (live,)
