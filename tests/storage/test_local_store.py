"""Local files: temporary files, limits, missing directories."""

import multiprocessing
import os
import resource
import signal
from pathlib import Path

import pytest

from cm_delta_dagster.errors import (
    DirectoryNotFoundError,
    ObjectAlreadyExistsError,
    StorageError,
    StoreNotSupportedError,
)
from cm_delta_dagster.storage.local_store import LocalStore, local_path


def _create_concurrently(location: str, number: int, barrier: object, answers: object) -> None:
    barrier.wait()
    try:
        LocalStore().write_if_absent(location, str(number).encode() * 5000)
        answers.put(number)
    except ObjectAlreadyExistsError:
        answers.put(None)


def _write_with_a_file_size_limit(location: str, may_show_unfinished: bool, answers: object) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        LocalStore().write_if_absent(location, b"x" * 5000, may_show_unfinished=may_show_unfinished)
        answers.put("written")
    except StorageError as error:
        answers.put(str(error))


@pytest.mark.requirements("LOG-5")
def test_exactly_one_of_concurrent_processes_creates_the_object(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    barrier, answers = spawn.Barrier(4), spawn.Queue()
    location = f"file://{tmp_path}/log/0.json"
    processes = [
        spawn.Process(target=_create_concurrently, args=(location, number, barrier, answers)) for number in range(4)
    ]
    for process in processes:
        process.start()
    winners = [number for number in (answers.get(timeout=300) for _ in processes) if number is not None]
    for process in processes:
        process.join()
    assert len(winners) == 1
    assert LocalStore().read(location) == str(winners[0]).encode() * 5000
    assert os.listdir(tmp_path / "log") == ["0.json"]


@pytest.mark.requirements("LOG-5")
@pytest.mark.parametrize("may_show_unfinished", [False, True])
def test_a_write_without_space_leaves_no_file(tmp_path: Path, may_show_unfinished: bool) -> None:
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    arguments = (f"file://{tmp_path}/x", may_show_unfinished, answers)
    process = spawn.Process(target=_write_with_a_file_size_limit, args=arguments)
    process.start()
    answer = answers.get(timeout=300)
    process.join()
    assert answer.startswith("Could not create")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_the_error_of_a_full_disk_says_so() -> None:
    with pytest.raises(StorageError, match=r"disk is full|permission|Could not write"):
        LocalStore().write("file:///dev/full/x", b"x")


@pytest.mark.requirements("LOG-5")
def test_a_file_system_without_exclusive_naming_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreNotSupportedError, match="neither hard links nor an exclusive rename"):
        LocalStore(primitives=()).write_if_absent(f"file://{tmp_path}/x", b"x")
    assert os.listdir(tmp_path) == []


@pytest.mark.requirements("LOG-5")
def test_temporary_files_of_a_killed_writer_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / ".0123.cm-delta-tmp").write_bytes(b"half")
    assert LocalStore().list_from(f"file://{tmp_path}") == []
    assert list(LocalStore().list_recursive(f"file://{tmp_path}")) == []


def test_a_file_in_place_of_a_directory_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for act in (LocalStore().read, LocalStore().list_from, LocalStore().stat):
        with pytest.raises(StorageError, match="is a file"):
            act(f"file://{tmp_path}/file/x")
    with pytest.raises(StorageError, match="is a file"):
        LocalStore().write_if_absent(f"file://{tmp_path}/file/x", b"")


@pytest.mark.parametrize("location", ["file:/a b", "file:///a b", "/a b", "file://localhost/a b"])
def test_all_spellings_of_a_local_location_are_one_path(location: str) -> None:
    assert local_path(location) == "/a b"


@pytest.mark.parametrize("location", ["relative", "file://host/x", "s3://bucket/x", "file:relative", ""])
def test_other_locations_are_refused(location: str) -> None:
    with pytest.raises(StoreNotSupportedError):
        local_path(location)


@pytest.mark.parametrize("how", ["staged", "created", "written"])
def test_nothing_is_written_if_the_directory_does_not_exist(tmp_path: Path, how: str) -> None:
    store, within = LocalStore(), f"file://{tmp_path}/table/log"
    with pytest.raises(DirectoryNotFoundError, match="does not exist"):
        match how:
            case "staged":
                store.write_if_absent(f"{within}/staged/1", b"x", may_show_unfinished=True, within=within)
            case "created":
                store.write_if_absent(f"{within}/1", b"x", within=within)
            case "written":
                store.write(f"{within}/1", b"x", within=within)
    assert not list(tmp_path.iterdir())
