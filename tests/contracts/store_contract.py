"""Contract of ``Store``. ``tests/storage/test_store_contract.py`` runs it for each implementation."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from cm_delta_dagster.errors import ObjectAlreadyExistsError, ObjectNotFoundError, StorageError
from cm_delta_dagster.storage.discard import discard_below
from cm_delta_dagster.storage.store import Store

Rule = Callable[[Store, str], None]


def an_object_is_read_whole_and_in_ranges(store: Store, root: str) -> None:
    store.write(f"{root}/deep/er/x", b"0123456789")
    assert store.read(f"{root}/deep/er/x") == b"0123456789"
    assert store.read_range(f"{root}/deep/er/x", offset=2, length=3) == b"234"
    assert store.read_range(f"{root}/deep/er/x", offset=8, length=30) == b"89"
    assert store.read_range(f"{root}/deep/er/x", offset=10, length=1) == b""


def write_replaces_an_object_and_stat_returns_its_new_size(store: Store, root: str) -> None:
    store.write(f"{root}/x", b"long old content")
    store.write(f"{root}/x", b"new")
    status = store.stat(f"{root}/x")
    assert (store.read(f"{root}/x"), status.size, status.location, status.name) == (b"new", 3, f"{root}/x", "x")
    assert status.modification_time > 1_500_000_000_000


@pytest.mark.requirements("LOG-5")
def write_if_absent_does_not_change_an_existing_object(store: Store, root: str) -> None:
    store.write_if_absent(f"{root}/log/0.json", b"first")
    store.write_if_absent(f"{root}/log/staged/1.json", b"staged", may_show_unfinished=True)
    for name, there in (("0.json", b"first"), ("staged/1.json", b"staged")):
        for may_show_unfinished in (False, True):
            with pytest.raises(ObjectAlreadyExistsError):
                store.write_if_absent(f"{root}/log/{name}", b"second", may_show_unfinished=may_show_unfinished)
        assert store.read(f"{root}/log/{name}") == there


@pytest.mark.requirements("LOG-5")
def exactly_one_of_concurrent_writers_creates_the_object(store: Store, root: str) -> None:
    barrier = threading.Barrier(12)

    def attempt(number: int) -> int | None:
        barrier.wait(300)
        try:
            store.write_if_absent(f"{root}/contended", str(number).encode() * 1000)
        except ObjectAlreadyExistsError:
            return None
        return number

    for _ in range(5):
        with ThreadPoolExecutor(12) as threads:
            winners = [number for number in threads.map(attempt, range(12)) if number is not None]
        assert len(winners) == 1
        assert store.read(f"{root}/contended") == str(winners[0]).encode() * 1000
        store.delete(f"{root}/contended")


@pytest.mark.requirements("LOG-18")
def a_listing_is_sorted_and_begins_with_the_start_name(store: Store, root: str) -> None:
    names = [f"{version:020d}.json" for version in (10, 9, 11, 100)]
    for name in names:
        store.write(f"{root}/log/{name}", b"x")
    store.write(f"{root}/log/_sidecars/00000000000000000009.parquet", b"x")
    store.write(f"{root}/logger/other", b"x")
    assert [found.name for found in store.list_from(f"{root}/log")] == sorted(names)
    assert [found.name for found in store.list_from(f"{root}/log/", start=names[0])] == sorted(names)[1:]
    assert [found.location for found in store.list_from(f"{root}/log", start=names[3])] == [f"{root}/log/{names[3]}"]
    assert store.list_from(f"{root}/log", start="1") == []


def a_recursive_listing_is_sorted_by_location(store: Store, root: str) -> None:
    paths = ["a-b", "a/b/c", "a/z", "a.txt", "b"]
    for path in paths:
        store.write(f"{root}/tree/{path}", b"x")
    expected = sorted(f"{root}/tree/{path}" for path in paths)
    assert [found.location for found in store.list_recursive(f"{root}/tree")] == expected


def the_listing_of_a_missing_directory_is_empty(store: Store, root: str) -> None:
    assert store.list_from(f"{root}/nowhere") == []
    assert list(store.list_recursive(f"{root}/nowhere")) == []


def a_listing_reflects_earlier_writes_and_deletions(store: Store, root: str) -> None:
    for number in range(5):
        store.write_if_absent(f"{root}/fresh/{number}", b"x")
        assert len(store.list_from(f"{root}/fresh")) == number + 1
    store.delete(f"{root}/fresh/0")
    assert [found.name for found in store.list_from(f"{root}/fresh")] == ["1", "2", "3", "4"]


def missing_objects_raise_errors_except_in_delete(store: Store, root: str) -> None:
    store.write(f"{root}/directory/x", b"x")
    for location in (f"{root}/missing", f"{root}/directory"):
        with pytest.raises(ObjectNotFoundError, match=location):
            store.stat(location)
    with pytest.raises(ObjectNotFoundError, match=f"{root}/missing"):
        store.read(f"{root}/missing")
    with pytest.raises(ObjectNotFoundError, match=f"{root}/missing"):
        store.read_range(f"{root}/missing", offset=0, length=1)
    store.delete(f"{root}/missing")
    store.delete(f"{root}/no/such/directory/missing")


def names_with_special_characters_are_not_changed(store: Store, root: str) -> None:
    names = sorted(["a b", "a%20b", "a%b", "ü", "x=1,y", "a#b", "a+b", "[a]"])
    for name in names:
        store.write_if_absent(f"{root}/odd/{name}", name.encode())
    assert [found.name for found in store.list_from(f"{root}/odd")] == names
    assert [store.read(f"{root}/odd/{name}").decode() for name in names] == names


def an_empty_object_exists(store: Store, root: str) -> None:
    store.write_if_absent(f"{root}/empty", b"")
    assert store.read(f"{root}/empty") == b"" and store.stat(f"{root}/empty").size == 0
    with pytest.raises(StorageError):
        store.write_if_absent(f"{root}/empty", b"x")


def a_copy_has_the_bytes_of_its_source(store: Store, root: str) -> None:
    store.write(f"{root}/a b%20", b"bytes" * 1000)
    for _ in range(2):
        store.copy(f"{root}/a b%20", f"{root}/new/directory/copy=1")
    store.delete(f"{root}/a b%20")
    assert store.read(f"{root}/new/directory/copy=1") == b"bytes" * 1000
    assert [found.name for found in store.list_recursive(root)] == ["copy=1"]
    with pytest.raises(ObjectNotFoundError, match=f"{root}/missing"):
        store.copy(f"{root}/missing", f"{root}/other")


def discard_deletes_only_objects_below_the_directory(store: Store, root: str) -> None:
    for name in ("gone/a/x", "gone/.hidden/y", "gone-not/x", "z"):
        store.write(f"{root}/{name}", b"x")
    store.remove_empty_directories(f"{root}/gone")
    assert len(list(store.list_recursive(root))) == 4
    discard_below(store, f"{root}/gone")
    discard_below(store, f"{root}/never/there")
    assert [found.location for found in store.list_recursive(root)] == [f"{root}/gone-not/x", f"{root}/z"]


@pytest.mark.requirements("REC-14")
def each_spelling_of_a_location_is_resolved_to_one(store: Store, root: str) -> None:
    store.write(f"{root}/deep/x", b"1")
    resolved = store.resolve(f"{root}/deep/x")
    for spelled in (f"{root}//deep/x", f"{root}/./deep/x", f"{root}/deep/x/", resolved):
        assert store.resolve(spelled) == resolved
    assert store.resolve(f"{root}/deep/X") != resolved != store.resolve(f"{root}/deep")
    assert store.links_in(root) == store.links_in(f"{root}/missing/") == {}


def writes_within_an_existing_directory_succeed(store: Store, root: str) -> None:
    store.write(f"{root}/table/log/0.json", b"x")
    within = f"{root}/table/log"
    store.write_if_absent(f"{within}/1.json", b"x", within=within)
    store.write_if_absent(f"{within}/staged/2.json", b"x", may_show_unfinished=True, within=within)
    store.write(f"{within}/sidecars/3", b"x", within=within)
    assert len(list(store.list_recursive(root))) == 4


STORE_CONTRACT: tuple[Rule, ...] = (
    each_spelling_of_a_location_is_resolved_to_one,
    writes_within_an_existing_directory_succeed,
    an_object_is_read_whole_and_in_ranges,
    write_replaces_an_object_and_stat_returns_its_new_size,
    write_if_absent_does_not_change_an_existing_object,
    exactly_one_of_concurrent_writers_creates_the_object,
    a_listing_is_sorted_and_begins_with_the_start_name,
    a_recursive_listing_is_sorted_by_location,
    the_listing_of_a_missing_directory_is_empty,
    a_listing_reflects_earlier_writes_and_deletions,
    missing_objects_raise_errors_except_in_delete,
    names_with_special_characters_are_not_changed,
    an_empty_object_exists,
    a_copy_has_the_bytes_of_its_source,
    discard_deletes_only_objects_below_the_directory,
)
