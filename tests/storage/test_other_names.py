"""Which objects several locations name."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from cm_delta_dagster.storage.fsspec_store import FsspecStore
from cm_delta_dagster.storage.local_store import LocalStore
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.other_names import named_otherwise, resolved_files, resolved_location, sizes_of
from cm_delta_dagster.storage.stores import Stores
from tests.support.lake import Unreliable


def texts(*locations: object) -> pa.Array:
    return pa.array([f"file://{location}" for location in locations], pa.string())


def test_a_link_to_a_directory_costs_two_calls_and_none_for_its_files(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    store = Unreliable(LocalStore())
    names = [f"{number:04d}" for number in range(1000)]
    located = texts(*(tmp_path / "link" / name for name in names), *(tmp_path / "real" / name for name in names))
    found = resolved_files(Stores(stores={"file": store}), located)
    assert found.to_pylist() == [f"file://{tmp_path}/real/{name}" for name in names] * 2
    assert len(store.calls) == 4
    root = f"file://{tmp_path}/real"
    assert named_otherwise(Stores(stores={"file": store}), root, [*names, "other"], located[:1000]) == set(names)
    assert len(store.calls) == 7, "one more for the root"


def test_links_to_files_are_resolved_and_what_has_no_place_is_null(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "link").symlink_to(tmp_path / "elsewhere" / "file")
    (tmp_path / "d" / "loop").symlink_to(tmp_path / "d" / "loop")
    located = pa.array(
        [f"file://{tmp_path}/d/{name}" for name in ("link", "plain", "loop", "missing")]
        + [f"file://{tmp_path}/nothing/x", "file:///x", "dbfs:///x/y", "file://host/x"],
        pa.string(),
    )
    assert resolved_files(Stores(), located).to_pylist() == [
        f"file://{tmp_path}/elsewhere/file",
        *(f"file://{tmp_path}/d/{name}" for name in ("plain", "loop", "missing")),
        f"file://{tmp_path}/nothing/x",
        "file:///x",
        None,
        None,
    ]
    assert resolved_location(Stores(), "dbfs:///x") is None


def test_an_object_of_the_same_name_is_another_one_only_if_it_differs_in_size_or_time(tmp_path: Path) -> None:
    """What another machine has mounted, or another store holds, cannot be compared."""
    memory = MemoryStore(now_ms=lambda: 1)
    stores = Stores(stores={"memory": memory})
    for location in ("here/d=1/a", "here/d=1/b", "here/d=1/c", "here/d=1/d", "there/a"):
        memory.write(f"memory://{location}", b"12")
    memory.write("memory://there/b", b"123")
    named = {"memory://there/a": "d=1/a", "memory://there/b": None, "memory://gone/C": "d=1/c", "x-y:///d": "d=1/d"}
    for location, kept in named.items():
        paths = ["d=1/a", "d=1/b", "d=1/c", "d=1/d"]
        found = named_otherwise(stores, "memory://here", paths, pa.array([location]))
        assert found == {kept} - {None}, location
    assert named_otherwise(stores, "memory://here", [], pa.array(["memory://there/a"])) == frozenset()


def test_sizes_are_those_of_objects_that_exist(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"123")
    located = texts(tmp_path / "a", tmp_path / "b", tmp_path / "a").to_pylist()
    assert sizes_of(Stores().store_for, located) == {located[0]: 3}


@pytest.mark.parametrize(
    ("options", "resolved"),
    [
        ({"account_name": "Account"}, "az://c@account/t"),
        (
            {"connection_string": "DefaultEndpointsProtocol=https;AccountName=account;AccountKey=eA=="},
            "az://c@account/t",
        ),
    ],
)
def test_the_account_of_a_container_comes_from_the_options(options: Mapping[str, object], resolved: str) -> None:
    store = FsspecStore("az", options=options)
    assert store.resolve("az://c/t") == store.resolve("abfss://c/t/") == resolved
    assert store.resolve("wasbs://c@other.blob.core.windows.net/t") == "az://c@other/t"
