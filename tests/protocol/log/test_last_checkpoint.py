"""The ``_last_checkpoint`` hint: golden vectors of the canonical form, and invalid hints."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm_delta_dagster.protocol.log import last_checkpoint
from cm_delta_dagster.protocol.log.last_checkpoint import (
    LastCheckpoint,
    V2CheckpointHint,
    canonical_form,
    canonical_md5,
)

_GOLDEN = [
    (
        """{"k0":"'v 0'", "checksum": "adsaskfljadfkjadfkj", "k1":{"k2": 2, "k3": ["v3", [1, 2], """
        """{"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}""",
        '"k0"="%27v%200%27","k1"+"k2"=2,"k1"+"k3"+0="v3","k1"+"k3"+1+0=1,"k1"+"k3"+1+1=2,"k1"+"k3"+2+"k4"="v4",'
        '"k1"+"k3"+2+"k5"+0="v5","k1"+"k3"+2+"k5"+1="v6","k1"+"k3"+2+"k5"+2="v7"',
        "6a92d155a59bf2eecbd4b4ec7fd1f875",
    ),
    (
        '{"a": 10, "b": {"y": null, "x": "https://delta.io"} }',
        '"a"=10,"b"+"x"="https%3A%2F%2Fdelta.io","b"+"y"=null',
        "2cfc87ced1e7e99c744d05bc894337d8",
    ),
    ('{"k1": "v1", "checksum": "<anything>", "k3": 23}', '"k1"="v1","k3"=23', "32e9265a46ef2d45a3a1e0099d1df146"),
    ('[null, "hi ho", 2.71]', '0=null,1="hi%20ho",2=2.71', "666498010c8c14b75250e953d33aea4c"),
    (
        '{"version":10,"size":5,"sizeInBytes":12345,"numOfAddFiles":3}',
        '"numOfAddFiles"=3,"size"=5,"sizeInBytes"=12345,"version"=10',
        "8731df16a090dbc376b56e582f3c24a0",
    ),
    (
        '{"s":"é>","t":true,"e":{},"l":[],"f":1.0,"x":1e3}',
        '"f"=1.0,"s"="%C3%A9%3E","t"=true,"x"=1e3',
        "cfc39afb358b0d10b2c15b98b4f4d677",
    ),
    (
        '{"a":[0,1,2,3,4,5,6,7,8,9,10]}',
        '"a"+0=0,"a"+1=1,"a"+10=10,"a"+2=2,"a"+3=3,"a"+4=4,"a"+5=5,"a"+6=6,"a"+7=7,"a"+8=8,"a"+9=9',
        "623e8d1eca307405452069f7a929f07d",
    ),
]


@pytest.mark.requirements(
    "GV-1", "GV-2", "GV-3", "GV-4", "GV-5", "GV-6", "LASTCP-7", "LASTCP-8", "LASTCP-9", "LASTCP-10", "LASTCP-11", "X22"
)
@pytest.mark.parametrize(("text", "form", "md5"), _GOLDEN)
def test_canonical_form_and_digest_match_the_golden_vectors(text: str, form: str, md5: str) -> None:
    assert canonical_form(text) == form
    assert canonical_md5(text) == md5


@pytest.mark.requirements("LASTCP-7")
def test_only_the_top_level_checksum_key_is_left_out() -> None:
    assert canonical_form('{"a":{"checksum":"c"},"checksum":"x"}') == '"a"+"checksum"="c"'


@pytest.mark.requirements("LASTCP-8")
def test_unreserved_characters_are_never_encoded() -> None:
    assert canonical_form('{"-._~aZ09":"-._~aZ09+/*"}') == '"-._~aZ09"="-._~aZ09%2B%2F%2A"'


_FULL = LastCheckpoint(
    version=20,
    size=7,
    parts=3,
    size_in_bytes=4711,
    num_of_add_files=4,
    checkpoint_schema={"type": "struct", "fields": []},
    tags={"ä": "b c"},
    v2_checkpoint=V2CheckpointHint(
        path="x.checkpoint.u.parquet",
        size_in_bytes=1,
        modification_time=2,
        non_file_actions=({"txn": {"appId": "a", "version": 1}},),
        sidecar_files=({"path": "s.parquet", "sizeInBytes": 1, "modificationTime": 2},),
    ),
)


@pytest.mark.requirements("LASTCP-1", "LASTCP-5", "LASTCP-6")
def test_an_encoded_hint_is_decoded_and_its_checksum_is_valid() -> None:
    data = last_checkpoint.encode(_FULL)
    decoded = last_checkpoint.decode(data)
    assert decoded is not None and decoded.checksum == canonical_md5(data.decode())
    assert last_checkpoint.encode(decoded) == data
    assert list(json.loads(data))[:3] == ["version", "size", "parts"]


@pytest.mark.requirements("LASTCP-1")
def test_optional_fields_are_left_out_when_absent() -> None:
    assert set(json.loads(last_checkpoint.encode(LastCheckpoint(version=1, size=2)))) == {"version", "size", "checksum"}


@pytest.mark.requirements("LASTCP-6")
def test_a_hint_without_a_checksum_is_accepted() -> None:
    assert last_checkpoint.decode(b'{"version":3,"size":1,"unknown":{}}') == LastCheckpoint(version=3, size=1)


@pytest.mark.requirements("LASTCP-4", "LASTCP-6")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[]",
        b"\xff\xfe",
        b'{"size":1}',
        b'{"version":"3","size":1}',
        b'{"version":true,"size":1}',
        b'{"version":-1,"size":1}',
        b'{"version":3,"version":3,"size":1}',
        b'{"version":3,"size":1,"tags":{"a":"1","a":"2"}}',
        b'{"version":3,"size":1,"checksum":"00000000000000000000000000000000"}',
        b'{"version":3,"size":1,"checksum":7}',
        b'{"version":3,"size":1,"numOfAddFiles":NaN}',
        b'{"version":3,"size":1,"v2Checkpoint":{"path":"p"}}',
        b'{"version":3,"size":1} trailing',
        b"[" * 100_000,
    ],
)
def test_an_invalid_hint_is_ignored(data: bytes) -> None:
    assert last_checkpoint.decode(data) is None


@pytest.mark.requirements("LASTCP-6", "LASTCP-7")
@given(
    st.integers(0, 2**62), st.integers(0, 2**62), st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=12)
)
def test_a_changed_value_invalidates_the_checksum(version: int, size: int, tags: dict[str, str]) -> None:
    tags = {key: value for key, value in tags.items() if (key + value).isprintable()}
    data = last_checkpoint.encode(LastCheckpoint(version=version, size=size, tags=tags))
    assert last_checkpoint.decode(data) is not None
    changed = data.replace(f'"version":{version}'.encode(), f'"version":{version + 1}'.encode())
    assert last_checkpoint.decode(changed) is None
