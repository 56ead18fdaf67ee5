"""Paths of the log, locations and keys."""

import re
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.paths import (
    HIVE_DEFAULT_PARTITION,
    canonical_location,
    decode_path,
    encode_path,
    file_key,
    file_keys,
    first_flaw,
    flaw_of_log_path,
    folded_name,
    folded_names,
    hive_escape,
    hive_unescape,
    normalise_location,
    relative_file_keys,
    resolve_path,
    suspect_paths,
)

texts = st.text(st.characters(codec="utf-8"), min_size=1)
segments = texts.map(lambda text: text.replace("/", "_")).filter(lambda text: text not in (".", ".."))
relative_paths = st.lists(segments, min_size=1, max_size=4).map("/".join)


@pytest.mark.requirements("PATH-1", "PATH-2", "PATH-4")
@settings(deadline=None)
@given(texts)
def test_decoding_undoes_encoding(text: str) -> None:
    assert decode_path(encode_path(text)) == text


@pytest.mark.requirements("PATH-2")
@settings(deadline=None)
@given(texts)
def test_an_encoded_path_is_plain_ascii_without_forbidden_characters(text: str) -> None:
    encoded = encode_path(text)

    assert re.fullmatch(r"[A-Za-z0-9_.~\-/=!$&'()*+,;@%]*", encoded)
    assert not re.search(r"%(?![0-9A-F]{2})", encoded)


@pytest.mark.requirements("PATH-4")
@settings(deadline=None)
@given(relative_paths)
def test_a_file_is_found_again_under_its_own_name(relative: str) -> None:
    assert resolve_path("s3://bucket/t/", encode_path(relative)) == f"s3://bucket/t/{relative}"


def directory_of(value: str | None) -> str:
    return f"p={hive_escape(value) if value else HIVE_DEFAULT_PARTITION}"


@pytest.mark.requirements("PART-9", "PATH-4")
@settings(deadline=None)
@given(relative_paths)
def test_a_path_of_any_partition_value_decodes_to_its_directory(value: str) -> None:
    directory = directory_of(value)

    assert directory.count("/") == 0
    assert hive_unescape(directory.removeprefix("p=")) == value
    assert decode_path(encode_path(directory + "/f.parquet")) == directory + "/f.parquet"


@pytest.mark.requirements("PART-9", "PATH-2", "PATH-4")
@pytest.mark.parametrize(
    ("value", "directory", "path"),
    [
        ("a/b", "p=a%2Fb", "p=a%252Fb"),
        ("50%", "p=50%25", "p=50%2525"),
        ("a b", "p=a b", "p=a%20b"),
        ("k=v", "p=k%3Dv", "p=k%253Dv"),
        ("#1", "p=%231", "p=%25231"),
        ("ü", "p=ü", "p=%C3%BC"),
        ("a+b", "p=a+b", "p=a+b"),
        ("12:30", "p=12%3A30", "p=12%253A30"),
        ("\x01\x7f", "p=%01%7F", "p=%2501%257F"),
        ("{[]}^", "p=%7B%5B%5D}%5E", "p=%257B%255B%255D%7D%255E"),
        (None, "p=__HIVE_DEFAULT_PARTITION__", "p=__HIVE_DEFAULT_PARTITION__"),
        ("", "p=__HIVE_DEFAULT_PARTITION__", "p=__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_directories_are_escaped_as_hive_does_and_then_as_a_uri(value: str | None, directory: str, path: str) -> None:
    assert directory_of(value) == directory
    assert encode_path(directory) == path


@pytest.mark.requirements("PATH-1")
@pytest.mark.parametrize(
    ("path", "expected"),
    [("a+b", "a+b"), ("ü", "ü"), ("%C3%BC", "ü"), ("a%2520b", "a%20b"), ("a%2fb", "a/b"), ("x y", "x y")],
)
def test_a_path_is_decoded_exactly_once(path: str, expected: str) -> None:
    assert decode_path(path) == expected


@pytest.mark.requirements("PATH-1")
@pytest.mark.parametrize("path", ["50%", "%2", "%zz", "%ff"])
def test_a_broken_escape_is_damage(path: str) -> None:
    with pytest.raises(CorruptLogError, match=re.escape(path)):
        decode_path(path)


@pytest.mark.requirements("PATH-3")
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("x.parquet", "file:///data/t/x.parquet"),
        ("./d//x", "file:///data/t/d/x"),
        ("a%3A/x", "file:///data/t/a:/x"),
        ("/other/x%20y", "file:///other/x y"),
        ("file:/other/x", "file:///other/x"),
        ("file:///other/x", "file:///other/x"),
        ("s3://bucket/a%20b/x", "s3://bucket/a b/x"),
        ("c=1:2/x", "file:///data/t/c=1:2/x"),
    ],
)
def test_relative_and_absolute_paths_become_locations(path: str, expected: str) -> None:
    assert resolve_path("file:///data/t", path) == expected


@pytest.mark.requirements("PATH-3")
def test_a_path_with_a_leading_slash_stays_on_the_host_of_the_table() -> None:
    assert resolve_path("memory://name/t", "/x") == "memory://name/x"
    assert resolve_path("/data/t", "/x") == "file:///x"
    assert resolve_path("/data/t", "x") == "/data/t/x"


@pytest.mark.requirements("PATH-5")
@pytest.mark.parametrize("path", ["../x", "a/../../x", "%2E%2E/x", "a%2F..%2Fx", "file:///data/t/../x", "/a/..", ".."])
def test_a_path_with_a_parent_segment_is_refused(path: str) -> None:
    with pytest.raises(CorruptLogError, match=r"'\.\.' segment"):
        resolve_path("file:///data/t", path)
    with pytest.raises(CorruptLogError, match=r"'\.\.' segment"):
        file_keys("file:///data/t", pa.array([path]))


@pytest.mark.requirements("PATH-3")
@pytest.mark.parametrize("path", ["", ".", "./", "//"])
def test_a_path_without_a_name_is_refused(path: str) -> None:
    with pytest.raises(CorruptLogError, match="does not name a file"):
        file_keys("file:///data/t", pa.array(["a", path]))


@pytest.mark.requirements("PATH-5")
def test_dots_within_names_are_ordinary() -> None:
    assert resolve_path("s3://b", "..a/b../...") == "s3://b/..a/b../..."


@pytest.mark.requirements("REC-14")
@pytest.mark.parametrize(
    "uri", ["/a/b", "file:/a/b", "file:///a/b", "FILE:/a/b/", "file://localhost/a//b", "file:///a/./b"]
)
def test_spellings_of_a_local_location_have_one_normal_form(uri: str) -> None:
    assert normalise_location(uri) == "file:///a/b"


@pytest.mark.requirements("REC-14")
def test_other_locations_keep_their_host_and_case() -> None:
    assert normalise_location("s3a://Bucket/A") == normalise_location("s3://Bucket/A") == "s3://Bucket/A"
    assert normalise_location("s3://Bucket/A") != normalise_location("s3://Bucket/a")
    assert normalise_location("memory://n/") == "memory://n"


@pytest.mark.requirements("REC-14")
@pytest.mark.parametrize(
    ("canonical", "spellings"),
    [
        ("file:///a/b", ("/a/b", "file:/a//b/", "FILE://localhost/a/./b", "file:///a/b")),
        ("s3://Bucket/a", ("s3a://Bucket/a", "s3n://Bucket//a", "s3://key:secret@Bucket/a/")),
        ("gs://bucket/a", ("gcs://bucket/a", "GS://bucket/a")),
        (
            "az://c@account/a",
            tuple(
                f"{scheme}://c@{host}/a"
                for scheme in ("abfs", "abfss", "wasb", "wasbs", "az")
                for host in ("Account.dfs.core.windows.net", "account.blob.core.windows.net:443", "account")
            ),
        ),
        ("az://c/a", ("az://c/a", "abfss://c/a/")),
        ("hdfs://nn/a", ("hdfs://nn:8020/a", "HDFS://nn/a")),
        ("hdfs://nn:9000/a", ("hdfs://nn:9000/a",)),
        ("memory://n/a", ("memory://n//a",)),
    ],
)
def test_spellings_of_a_location_have_one_canonical_form(canonical: str, spellings: tuple[str, ...]) -> None:
    assert {canonical_location(spelled) for spelled in spellings} == {canonical}
    assert canonical_location(canonical) == canonical


_NAMES = st.text(st.sampled_from("aAéÉe\u0301ßẞ%20Cc3 "), max_size=10)


@given(st.lists(_NAMES.filter(lambda name: "/" not in name), max_size=5))
def test_folded_names_are_those_of_each(names: list[str]) -> None:
    located = pa.array([f"file:///d/{name}" for name in names], pa.string())
    assert folded_names(located).to_pylist() == [folded_name(name) for name in names]
    assert [folded_name(folded_name(name)) for name in names] == [folded_name(name) for name in names]


@pytest.mark.requirements("REC-14", "PATH-3")
@settings(deadline=None)
@given(st.lists(st.one_of(relative_paths.map(encode_path), relative_paths.map(lambda p: "file:/t/" + quote(p)))))
def test_keys_of_many_paths_are_those_of_each(paths: list[str]) -> None:
    chunks = pa.chunked_array([paths[:1], paths[1:]], type=pa.string())

    assert file_keys("file:/t", chunks).to_pylist() == [file_key("file:/t", path) for path in paths]


@pytest.mark.requirements("REC-14")
def test_two_spellings_of_one_file_have_one_key_and_null_stays_null() -> None:
    paths = pa.array(["p=a b/x", "p=a%20b/x", "file:/t/p=a%20b/x", "/t/p=a b//x", None, "p=ab/x"])

    keys = file_keys("/t/", paths).to_pylist()

    assert set(keys[:4]) == {"file:///t/p=a b/x"}
    assert keys[4:] == [None, "file:///t/p=ab/x"]


_SPELLINGS = st.text(st.sampled_from("ab%2/.:é0 "), min_size=1, max_size=12)


@pytest.mark.requirements("REC-14", "PATH-1", "PATH-3", "PATH-5")
@settings(deadline=None, max_examples=300)
@given(st.lists(_SPELLINGS, min_size=1, max_size=5), st.integers(0, 3))
def test_keys_of_many_odd_paths_are_those_of_each(paths: list[str], start: int) -> None:
    """Refused together if one of them is refused alone."""
    array = pa.array([*["x"] * start, *paths]).slice(start)
    try:
        expected = [file_key("file:/t", path) for path in paths]
    except CorruptLogError:
        with pytest.raises(CorruptLogError):
            file_keys("file:/t", array)
        with pytest.raises(CorruptLogError):
            relative_file_keys("file:/t", array)
        return
    assert file_keys("file:/t", array).to_pylist() == expected
    relative = relative_file_keys("file:/t", array).to_pylist()
    assert relative == [key.removeprefix("file:///t/") for key in expected]
    assert ["//" in key for key in relative] == [not key.startswith("file:///t/") for key in expected]


@pytest.mark.requirements("REC-14", "PATH-3")
@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["d", "a%20b", "file:/t/d", "s3://b", "s3:/", "file://localhost", "%2F"]), _SPELLINGS)
    )
)
def test_directories_that_repeat_are_resolved_as_each_file_would_be(parts: list[tuple[str, str]]) -> None:
    paths = [f"{directory}/{name}" for directory, name in parts]
    try:
        expected = [file_key("s3://b/t", path) for path in paths]
    except CorruptLogError:
        return
    assert file_keys("s3://b/t", pa.array(paths, pa.string())).to_pylist() == expected


@pytest.mark.requirements("REC-14")
def test_plain_paths_are_their_own_keys_and_are_not_copied() -> None:
    paths = pa.array(["day=1/a.parquet", "b.parquet"])
    assert relative_file_keys("file:///t", paths) is paths


_PIECES = (
    *(
        "a",
        "/",
        ".",
        "..",
        "%",
        "%4",
        "%2",
        "x",
        "0",
        "%25",
        "%2F",
        "%2E",
        "%00",
        "file:",
        "s3://b",
        "%C3%A9",
        "%e4%b8%ad",
    ),
    *(
        "%F0%9F%98%80",
        "%C0%80",
        "%C3",
        "%A9",
        "%E0%80%80",
        "%ED%A0%80",
        "%F4%90%80%80",
        "%F0%80%80%80",
        "%E4%B8",
        "%FF",
    ),
)


@settings(max_examples=1000)
@given(st.lists(st.lists(st.sampled_from(_PIECES), max_size=6).map("".join), max_size=8))
def test_paths_with_a_flaw_are_suspect(paths: list[str]) -> None:
    suspects = suspect_paths(pa.chunked_array([paths], pa.string())).to_pylist()
    flaws = [(row, flaw) for row, path in enumerate(paths) if (flaw := flaw_of_log_path(path)) is not None]
    assert {paths[row] for row, _ in flaws} <= set(suspects)
    assert first_flaw(pa.array(paths, pa.string())) == (flaws[0] if flaws else None)


def test_escaped_characters_beyond_ascii_are_not_suspect() -> None:
    codes = (
        0x80,
        0x7FF,
        0x800,
        0xFFF,
        0x1000,
        0xCFFF,
        0xD7FF,
        0xE000,
        0xFFFF,
        0x10000,
        0x3FFFF,
        0x40000,
        0xFFFFF,
        0x10FFFF,
    )
    paths = [f"city={quote(chr(code))}/part{quote(chr(code))}" for code in codes]
    both = pa.chunked_array([[*paths, *(path.replace("%", "%25") for path in paths), *map(str.lower, paths)]])
    assert suspect_paths(both).to_pylist() == []
