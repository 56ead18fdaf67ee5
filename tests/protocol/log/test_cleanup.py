"""Plans of vacuum and metadata cleanup."""

import pyarrow as pa
import pytest

from cm_delta_dagster.protocol.actions.actions import RemoveFile
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table
from cm_delta_dagster.protocol.log import cleanup
from cm_delta_dagster.protocol.log.cleanup import FILES_SCHEMA, UnreferencedFiles
from tests.support.actions import add_file
from tests.support.file_columns import removes_to_table

_DAY = 24 * 60 * 60 * 1000
_NOW = 20_000 * _DAY + 5_000_000
_UUID = "7d17ac10-5cc3-401b-bd1a-9c82dd2ea032"
_LOCATION = "file:///data/t"


def _vacuum(
    listed: dict[str, int],
    *,
    live: tuple[str, ...] = (),
    removed: dict[str, int | None] | None = None,
    vectors: tuple[str, ...] = (),
    partition_columns: tuple[str, ...] = (),
    sizes: dict[str, int] | None = None,
) -> UnreferencedFiles:
    adds = [add_file(path) for path in live]
    removes = [RemoveFile(path=path, deletion_timestamp=stamp) for path, stamp in (removed or {}).items()]
    rows = [
        {"path": path, "size": (sizes or {}).get(path, 10), "modification_time": _NOW - age}
        for path, age in listed.items()
    ]
    tombstones = cleanup.unexpired_tombstones(removes_to_table(removes), now_ms=_NOW, retention_ms=7 * _DAY)
    needed = cleanup.needed_files(
        _LOCATION, adds=adds_to_table(adds), tombstones=tombstones, deletion_vector_files=vectors
    )
    return cleanup.unreferenced_files(
        pa.Table.from_pylist(rows, FILES_SCHEMA),
        location=_LOCATION,
        needed=needed,
        partition_columns=partition_columns,
        now_ms=_NOW,
        retention_ms=7 * _DAY,
    )


@pytest.mark.requirements("VAC-1", "VAC-4")
def test_only_old_files_without_a_reference_are_deleted() -> None:
    plan = _vacuum(
        {"live": 9 * _DAY, "orphan": 9 * _DAY, "young": 6 * _DAY, "edge": 7 * _DAY, "p=1/orphan": 8 * _DAY},
        live=("live",),
    )
    assert plan == UnreferencedFiles(paths=("orphan", "p=1/orphan"), size_bytes=20)


@pytest.mark.requirements("VAC-1", "REC-15")
def test_a_tombstone_protects_its_file_until_it_expires() -> None:
    plan = _vacuum(
        dict.fromkeys(("kept", "edge", "gone", "undated"), 30 * _DAY),
        removed={"kept": _NOW - _DAY, "edge": _NOW - 7 * _DAY, "gone": _NOW - 7 * _DAY - 1, "undated": None},
    )
    assert plan.paths == ("gone", "undated")


@pytest.mark.requirements("VAC-2")
def test_a_file_with_an_expired_tombstone_and_a_live_add_is_kept() -> None:
    assert _vacuum({"f": 30 * _DAY}, live=("f",), removed={"f": 0}).paths == ()


@pytest.mark.requirements("VAC-2")
def test_deletion_vector_files_are_kept() -> None:
    plan = _vacuum(
        {"ab/deletion_vector_1.bin": 30 * _DAY, "deletion_vector_2.bin": 30 * _DAY, "deletion_vector_3.bin": 30 * _DAY},
        vectors=("file:///data/t/ab/deletion_vector_1.bin", "file:/data/t/deletion_vector_2.bin"),
    )
    assert plan.paths == ("deletion_vector_3.bin",)


@pytest.mark.requirements("VAC-3")
def test_hidden_files_are_kept_except_partitions_and_change_data() -> None:
    names = (
        "_delta_log/00000000000000000000.json",
        ".hidden",
        "_other/f",
        "p=1/_tmp/f",
        "p=1/.part.crc",
        "_p=1/f",
        ".q=2/f",
        "_r=3/f",
        "_change_data/cdc",
        "_p=1/_hidden",
        "_p=1/_change_data/f",
        "x_y/f",
    )
    plan = _vacuum(dict.fromkeys(names, 30 * _DAY), partition_columns=("_p", ".q", "plain"))
    assert plan.paths == (".q=2/f", "_change_data/cdc", "_p=1/_change_data/f", "_p=1/f", "x_y/f")


@pytest.mark.requirements("VAC-7", "REC-14")
def test_paths_are_compared_after_decoding() -> None:
    plan = _vacuum(
        dict.fromkeys(("a b", "p=50%25/f", "c", "d%20e", "é"), 30 * _DAY),
        live=("a%20b", "p=50%2525/f", "file:/data/t/c", "%C3%A9", "file:///elsewhere/f"),
    )
    assert plan.paths == ("d%20e",)


@pytest.mark.requirements("VAC-1")
def test_directories_of_transactions_are_kept_while_a_file_in_them_is() -> None:
    old = ("delta.txn=0/", "delta.txn=0/p=1/", "delta.txn=0/p=2/", "delta.txn=0/p=1/live", "delta.txn=0/p=2/gone")
    emptied = ("delta.txn=1/", "delta.txn=1/p=1/", "delta.txn=1/p=1/gone", "delta.txn=2/", "user/")
    listed = {**dict.fromkeys((*old, *emptied), 30 * _DAY), "delta.txn=2/p=1/young": _DAY}
    plan = _vacuum(
        listed, live=("delta.txn=0/p=1/live",), sizes=dict.fromkeys((name for name in listed if name[-1] == "/"), 0)
    )
    assert plan.paths == (
        "delta.txn=0/p=2/",
        "delta.txn=0/p=2/gone",
        "delta.txn=1/",
        "delta.txn=1/p=1/",
        "delta.txn=1/p=1/gone",
    )


@pytest.mark.requirements("VAC-1")
def test_an_empty_listing_gives_an_empty_plan() -> None:
    assert _vacuum({}, live=("a",)) == UnreferencedFiles(paths=(), size_bytes=0)


def _v(version: int) -> str:
    return f"{version:020d}"


def _cleanup(
    names: list[str],
    timestamps: dict[int, int],
    *,
    staged: tuple[str, ...] = (),
    published: int = 99,
    unusable: str = "",
) -> cleanup.LogCleanupPlan:
    return cleanup.log_cleanup_plan(
        names,
        staged_names=staged,
        commit_timestamps=timestamps,
        published_version=published,
        now_ms=_NOW,
        retention_ms=30 * _DAY,
        unusable_checkpoints=frozenset({unusable}),
    )


_LIMIT = 19_970 * _DAY


def _commits(last: int) -> list[str]:
    return [f"{_v(version)}.json" for version in range(last + 1)]


@pytest.mark.requirements("CLEAN-2")
def test_the_cut_off_is_midnight_utc() -> None:
    assert cleanup.cut_off_timestamp(_NOW, 30 * _DAY) == _LIMIT


@pytest.mark.requirements("CLEAN-2", "CLEAN-3", "CLEAN-5", "CLEAN-6", "CLEAN-7", "CLEAN-8", "CLEAN-11", "X10")
def test_files_before_the_newest_expired_checkpoint_are_deleted() -> None:
    v2 = f"{_v(3)}.checkpoint.{_UUID}.parquet"
    late = f"{_v(6)}.checkpoint.parquet"
    names = [
        *_commits(7),
        *(f"{_v(version)}.crc" for version in range(8)),
        f"{_v(1)}.checkpoint.parquet",
        f"{_v(2)}.checkpoint.{_UUID}.json",
        v2,
        late,
        f"{_v(0)}.{_v(2)}.compacted.json",
        f"{_v(3)}.{_v(5)}.compacted.json",
        f"{_v(4)}.{_v(5)}.compacted.json",
        "_last_checkpoint",
        "something.txt",
    ]
    staged = (*(f"{_v(version)}.{_UUID}.json" for version in (0, 3, 4)), "junk")
    plan = _cleanup(names, {version: _LIMIT - 5 + version for version in range(8)}, staged=staged)
    # Version 5 has exactly the cut-off time; 6 and 7 are younger, so the checkpoint of 3 is the one to keep.
    assert plan.cut_off_version == 3
    assert plan.cut_off_checkpoint == (v2,)
    assert plan.log_names == (
        f"{_v(0)}.{_v(2)}.compacted.json",
        f"{_v(0)}.crc",
        f"{_v(0)}.json",
        f"{_v(1)}.crc",
        f"{_v(1)}.json",
        f"{_v(1)}.checkpoint.parquet",
        f"{_v(2)}.crc",
        f"{_v(2)}.json",
        f"{_v(2)}.checkpoint.{_UUID}.json",
        f"{_v(3)}.{_v(5)}.compacted.json",
    )
    assert plan.staged_names == staged[:2]
    assert plan.kept_checkpoints == (v2, late)


@pytest.mark.requirements("CLEAN-2", "CLEAN-3")
def test_a_checkpoint_exactly_at_the_cut_off_commit_counts() -> None:
    names = [*_commits(6), f"{_v(5)}.checkpoint.parquet"]
    assert _cleanup(names, {version: _LIMIT - 5 + version for version in range(7)}).cut_off_version == 5


@pytest.mark.requirements("CLEAN-3", "CLEAN-4")
@pytest.mark.parametrize(
    ("names", "timestamps"),
    [
        (_commits(3), dict.fromkeys(range(4), 0)),
        ([*_commits(3), f"{_v(2)}.checkpoint.parquet"], dict.fromkeys(range(4), _LIMIT + 1)),
        ([*_commits(3), f"{_v(2)}.checkpoint.parquet"], {}),
        ([*_commits(3), f"{_v(3)}.checkpoint.parquet"], {0: 0, 1: 0, 2: 0, 3: _NOW}),
        ([*_commits(3), f"{_v(2)}.checkpoint.{1:010d}.{2:010d}.parquet"], dict.fromkeys(range(4), 0)),
        ([], {0: 0}),
    ],
)
def test_without_an_expired_checkpoint_nothing_is_deleted(names: list[str], timestamps: dict[int, int]) -> None:
    staged = (f"{_v(0)}.{_UUID}.json",)
    assert _cleanup(names, timestamps, staged=staged) == cleanup.LogCleanupPlan()


@pytest.mark.requirements("CLEAN-3", "CKPT-MP-2")
def test_a_multi_part_checkpoint_with_all_parts_is_complete() -> None:
    parts = tuple(f"{_v(2)}.checkpoint.{part:010d}.{2:010d}.parquet" for part in (1, 2))
    plan = _cleanup([*_commits(3), *parts], dict.fromkeys(range(4), 0))
    assert plan.cut_off_checkpoint == parts and plan.log_names == tuple(_commits(1))


@pytest.mark.requirements("CLEAN-3", "CKPT-17")
def test_an_unusable_checkpoint_is_not_the_cut_off() -> None:
    names = [*_commits(5), f"{_v(2)}.checkpoint.parquet", f"{_v(4)}.checkpoint.parquet"]
    plan = _cleanup(names, dict.fromkeys(range(6), 0), unusable=f"{_v(4)}.checkpoint.parquet")
    assert plan.cut_off_version == 2


@pytest.mark.requirements("CLEAN-12")
def test_unpublished_versions_do_not_move_the_cut_off() -> None:
    names = [*_commits(5), f"{_v(2)}.checkpoint.parquet", f"{_v(4)}.checkpoint.parquet"]
    assert _cleanup(names, dict.fromkeys(range(6), 0), published=3).cut_off_version == 2


@pytest.mark.requirements("CLEAN-9", "V2ACT-2")
def test_only_old_unreferenced_sidecars_are_deleted() -> None:
    midnight = 20_000 * _DAY
    sidecars = [("old", midnight - _DAY - 1), ("edge", midnight - _DAY), ("named", 0), ("far", 0), ("fresh", _NOW)]
    referenced = {"named", "file:/data/t/_delta_log/_sidecars/far"}
    assert cleanup.sidecar_cleanup_plan(sidecars, referenced=referenced, now_ms=_NOW) == ("old",)


@pytest.mark.requirements("CLEAN-11")
def test_no_sidecar_is_deleted_if_a_checkpoint_is_unreadable() -> None:
    assert cleanup.sidecar_cleanup_plan([("old", 0)], referenced=None, now_ms=_NOW) == ()


@pytest.mark.requirements("CLEAN-8", "CM-P7", "CM-W5")
def test_staged_commits_that_were_not_ratified_are_found() -> None:
    lost, won, next_one, young, last, edge = (
        f"{_v(version)}.{number}d17ac10-5cc3-401b-bd1a-9c82dd2ea032.json"
        for number, version in enumerate((1, 2, 4, 3, 3, 1))
    )
    staged = [(last, _NOW - _DAY - 1), (lost, 0), (won, 0), (next_one, 0), (young, _NOW - 10), (edge, _NOW - _DAY)]
    names = cleanup.orphaned_staged_commits(
        [*staged, ("junk", 0), (f"{_v(1)}.json", 0)],
        ratified_names={won},
        published_version=3,
        now_ms=_NOW,
        safety_age_ms=_DAY,
    )
    assert names == (lost, last)


@pytest.mark.requirements("CLEAN-2")
def test_a_commit_has_expired_at_the_next_midnight_after_its_retention() -> None:
    for timestamp, midnight in ((0, 0), (1, _DAY), (_DAY, _DAY), (_DAY + 1, 2 * _DAY)):
        expiry = cleanup.next_cut_off(timestamp, retention_ms=5)
        assert expiry == midnight + 5
        assert cleanup.cut_off_timestamp(expiry, 5) >= timestamp > cleanup.cut_off_timestamp(expiry - 1, 5)


def test_a_file_that_the_caller_keeps_is_not_unreferenced() -> None:
    rows = [{"path": path, "size": 10, "modification_time": 0} for path in ("a", "b")]
    plan = cleanup.unreferenced_files(
        pa.Table.from_pylist(rows, FILES_SCHEMA),
        location=_LOCATION,
        needed=pa.array([], pa.string()),
        kept=frozenset({"a"}),
        partition_columns=(),
        now_ms=_NOW,
        retention_ms=_DAY,
    )
    assert plan == UnreferencedFiles(paths=("b",), size_bytes=10)
