"""Selection of the files from which a version is built."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.checkpoint_files import CheckpointKind
from cm_delta_dagster.protocol.log.log_segment import (
    LogSegment,
    StagedCommit,
    build_log_segment,
    earliest_version,
    latest_version,
    oldest_checkpoint,
    version_after_cleanup,
)

_LOCATION = "s3://bucket/t"
_LOG = f"{_LOCATION}/_delta_log"
_UUIDS = ("016ae953-37a9-438e-8683-9a9a4a79a395", "7d17ac10-5cc3-401b-bd1a-9c82dd2ea032")


def _commits(*versions: int) -> list[str]:
    return [log_files.commit_file_name(version) for version in versions]


def _staged(version: int, uuid: str = _UUIDS[0]) -> StagedCommit:
    name = log_files.staged_commit_file_name(version, uuid)
    return StagedCommit(version=version, location=f"{_LOG}/_staged_commits/{name}")


def _segment(names: list[str], version: int, *ratified: StagedCommit) -> LogSegment:
    return build_log_segment(location=_LOCATION, names=names, ratified=ratified, version=version)


def _names(segment: LogSegment) -> list[str]:
    return [commit.location.rsplit("/", 1)[1] for commit in segment.commits]


@pytest.mark.requirements("LOG-1", "LOG-4", "CKPT-14", "TT-1", "CM-R5")
def test_without_a_checkpoint_all_commits_are_in_the_segment() -> None:
    """And no later commit."""
    segment = _segment([*_commits(0, 1, 2, 3, 4), log_files.classic_checkpoint_file_name(4)], 3)
    assert segment.checkpoint is None
    assert _names(segment) == _commits(0, 1, 2, 3)


@pytest.mark.requirements("CM-R6")
def test_the_example_of_the_protocol() -> None:
    """Published 0-7, checkpoint 2, compaction 3-5; the catalog reports 7, 8 and 9."""
    names = [
        *_commits(*range(8)),
        log_files.classic_checkpoint_file_name(2),
        log_files.compaction_file_name(3, 5),
        log_files.LAST_CHECKPOINT_FILE_NAME,
    ]
    segment = _segment(names, 9, _staged(9), _staged(7), _staged(8, _UUIDS[1]))
    assert segment.checkpoint is not None
    assert segment.checkpoint.version == 2
    assert [(found.start, found.version) for found in segment.compactions] == [(3, 5)]
    assert segment.commits[1:] == (_staged(7), _staged(8, _UUIDS[1]), _staged(9))
    assert _names(segment)[:1] == _commits(6)


@pytest.mark.requirements("CM-R4")
def test_a_commit_of_the_catalog_overrides_the_published_one() -> None:
    """And before a compaction that covers it."""
    names = [*_commits(0, 1, 2, 3), log_files.compaction_file_name(1, 3)]
    segment = _segment(names, 3, _staged(2))
    assert segment.compactions == ()
    assert segment.commits[2] == _staged(2)


@pytest.mark.requirements("CM-R5", "CM-R9")
def test_ratified_commits_after_the_version_are_ignored() -> None:
    segment = _segment([*_commits(0, 1, 2), log_files.compaction_file_name(1, 2)], 1, _staged(2), _staged(3))
    assert (_names(segment), segment.compactions) == (_commits(0, 1), ())


@pytest.mark.requirements("LOG-4", "CM-R7", "CM-5", "TT-5")
@pytest.mark.parametrize(
    ("names", "version", "ratified", "gap"),
    [
        (_commits(0, 1, 3), 3, (), "2"),
        (_commits(0, 1), 4, (_staged(4),), "2 to 3"),
        (_commits(1, 2), 2, (), "0"),
        ([], 0, (), "0"),
        ([log_files.classic_checkpoint_file_name(5), *_commits(7)], 7, (), "6"),
        ([*_commits(0), log_files.staged_commit_file_name(1, _UUIDS[0])], 1, (), "1"),
        ([*_commits(0, 1), "0000000000000000002.json"], 2, (), "2"),
        ([*_commits(0, 1, 5), log_files.compaction_file_name(2, 3)], 5, (), "4"),
        ([*_commits(0, 4), log_files.compaction_file_name(2, 3)], 4, (), "1"),
        ([*_commits(0, 1), log_files.compaction_file_name(2, 3)], 4, (), "4"),
    ],
)
def test_the_error_for_a_gap_names_the_missing_versions(
    names: list[str], version: int, ratified: tuple[StagedCommit, ...], gap: str
) -> None:
    with pytest.raises(CorruptLogError, match=rf"commits of {gap} are missing"):
        _segment(names, version, *ratified)


@pytest.mark.requirements("CKPT-14", "CLEAN-10")
def test_a_checkpoint_alone_is_sufficient_for_its_version() -> None:
    segment = _segment([log_files.classic_checkpoint_file_name(5)], 5)
    assert (segment.commits, segment.checkpoint and segment.checkpoint.version) == ((), 5)


@pytest.mark.requirements("CKPT-MP-2")
def test_an_incomplete_multi_part_checkpoint_is_ignored() -> None:
    """Sets with different counts are never mixed."""
    part = "00000000000000000003.checkpoint.{:010d}.{:010d}.parquet".format
    names = [*_commits(0, 1, 2, 3, 4), part(1, 3), part(3, 3), part(1, 2)]
    assert _segment(names, 4).checkpoint is None
    segment = _segment([*names, part(2, 2)], 4)
    assert segment.checkpoint is not None
    assert segment.checkpoint.kind is CheckpointKind.MULTI_PART
    assert segment.checkpoint.locations == (f"{_LOG}/{part(1, 2)}", f"{_LOG}/{part(2, 2)}")


@pytest.mark.requirements("CKPT-14")
def test_the_newest_checkpoint_up_to_the_version_is_selected() -> None:
    names = [*_commits(*range(9)), log_files.classic_checkpoint_file_name(2)]
    names += [log_files.v2_checkpoint_file_name(4, _UUIDS[0], "json"), log_files.classic_checkpoint_file_name(8)]
    segment = _segment(names, 7)
    assert segment.checkpoint is not None
    assert (segment.checkpoint.version, segment.checkpoint.kind) == (4, CheckpointKind.V2)
    assert _names(segment) == _commits(5, 6, 7)


@pytest.mark.requirements("CKPT-17", "CKPT-V2-9")
def test_an_excluded_checkpoint_is_replaced_by_an_older_one() -> None:
    names = [*_commits(*range(5)), log_files.classic_checkpoint_file_name(1), log_files.classic_checkpoint_file_name(3)]
    found = _segment(names, 4)
    assert found.checkpoint is not None
    again = build_log_segment(
        location=_LOCATION, names=names, ratified=(), version=4, excluded_checkpoints=frozenset({found.checkpoint})
    )
    assert again.checkpoint is not None
    assert (again.checkpoint.version, _names(again)) == (1, _commits(2, 3, 4))


@pytest.mark.requirements("LC-7", "CM-R5")
@pytest.mark.parametrize(("start", "end"), [(2, 4), (1, 3), (4, 7)])
def test_a_compaction_outside_the_range_of_commits_is_ignored(start: int, end: int) -> None:
    names = [
        *_commits(*range(8)),
        log_files.classic_checkpoint_file_name(2),
        log_files.compaction_file_name(start, end),
    ]
    segment = _segment(names, 6)
    assert (segment.compactions, _names(segment)) == ((), _commits(3, 4, 5, 6))


@pytest.mark.requirements("LOG-4")
def test_a_compaction_replaces_missing_commits() -> None:
    segment = _segment([*_commits(0, 1, 4), log_files.compaction_file_name(2, 3)], 4)
    assert _names(segment) == _commits(0, 1, 4)


@pytest.mark.requirements("LC-5", "LC-7", "LOG-1")
@settings(deadline=None)
@given(
    st.integers(0, 12),
    st.sets(st.integers(0, 12), max_size=3),
    st.sets(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=6),
    st.sets(st.integers(0, 12), max_size=4),
)
def test_every_version_after_the_checkpoint_is_applied_exactly_once(
    version: int, checkpoints: set[int], ranges: set[tuple[int, int]], ratified: set[int]
) -> None:
    names = _commits(*range(13)) + [log_files.classic_checkpoint_file_name(number) for number in checkpoints]
    names += [log_files.compaction_file_name(start, end) for start, end in ranges if end > start]
    segment = _segment(names, version, *(_staged(number) for number in ratified))
    first = 0 if segment.checkpoint is None else segment.checkpoint.version + 1
    applied = [commit.version for commit in segment.commits]
    for compaction in segment.compactions:
        applied += range(compaction.start, compaction.version + 1)
    assert sorted(applied) == list(range(first, version + 1))
    expected = max((number for number in checkpoints if number <= version), default=None)
    assert (None if segment.checkpoint is None else segment.checkpoint.version) == expected
    from_catalog = {commit.version for commit in segment.commits if isinstance(commit, StagedCommit)}
    assert from_catalog == {number for number in ratified if first <= number <= version}


@pytest.mark.requirements("LOG-19")
def test_the_segment_is_a_value() -> None:
    """A segment is immutable."""
    segment = _segment(_commits(0), 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        segment.version = 1


def _commits(*versions: int) -> list[str]:
    return [f"{version:020d}.json" for version in versions]


@pytest.mark.requirements("TT-5", "CKPT-14", "CKPT-MP-2")
@pytest.mark.parametrize(
    ("names", "latest", "earliest"),
    [
        (_commits(0, 1, 2), 2, 0),
        (_commits(3, 4, 5), 5, 5),
        ([*_commits(3, 4, 5), f"{4:020d}.checkpoint.parquet"], 5, 4),
        ([*_commits(5, 6), f"{4:020d}.checkpoint.parquet"], 6, 4),
        ([*_commits(6), f"{4:020d}.checkpoint.parquet"], 6, 6),
        ([*_commits(0, 1, 2), f"{7:020d}.checkpoint.parquet"], 7, 7),
        ([*_commits(0, 1), f"{7:020d}.checkpoint.{1:010d}.{2:010d}.parquet"], 1, 0),
        ([], None, None),
        ([f"{3:020d}.crc", "_last_checkpoint", f"{2**63}".zfill(20) + ".json"], None, None),
    ],
)
def test_the_first_and_the_last_version_follow_from_the_names(
    names: list[str], latest: int | None, earliest: int | None
) -> None:
    """A version needs a complete checkpoint or version 0, and every commit after it."""
    assert latest_version(names) == latest
    if latest is not None:
        assert earliest_version(names, latest=latest) == earliest


@pytest.mark.requirements("CKPT-MP-2")
@pytest.mark.parametrize(("latest", "expected"), [(3, None), (4, 4), (5, 4), (8, 4)])
def test_the_oldest_checkpoint_is_complete_and_of_a_version_up_to_the_latest(latest: int, expected: int | None) -> None:
    part = f"{2:020d}.checkpoint.{1:010d}.{2:010d}.parquet"
    names = [part, f"{8:020d}.checkpoint.parquet", f"{4:020d}.checkpoint.parquet", *_commits(0, 1, 2)]
    assert oldest_checkpoint(names, latest=latest) == expected


@pytest.mark.requirements("CLEAN-10", "LOG-4")
def test_a_cleaned_log_is_distinguished_from_one_with_a_gap() -> None:
    cleaned = [*_commits(3, 4, 5), f"{4:020d}.checkpoint.parquet"]
    assert [version_after_cleanup(cleaned, version=version, latest=5) for version in (1, 3, 4)] == [4, 4, None]
    assert version_after_cleanup(_commits(0, 1, 3), version=1, latest=3) is None
    gap_before_checkpoint = [*_commits(0, 1, 3, 4, 5), f"{4:020d}.checkpoint.parquet"]
    assert version_after_cleanup(gap_before_checkpoint, version=2, latest=5) is None, "cleanup removes version 0 first"
    assert version_after_cleanup(_commits(3), ratified=[4, 5], version=1, latest=5) == 5
