"""File names of the log."""

import pytest

from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.log_files import (
    ChecksumFile,
    ClassicCheckpointFile,
    CommitFile,
    CompactionFile,
    LastCheckpointFile,
    LogFile,
    MultiPartCheckpointFile,
    StagedCommitFile,
    V2CheckpointFile,
    parse_log_file,
)

_UUID = "7d17ac10-5cc3-401b-bd1a-9c82dd2ea032"
_V7 = "00000000000000000007"

NAMES: tuple[tuple[str, LogFile], ...] = (
    (f"{_V7}.json", CommitFile(7)),
    (f"{_V7}.{_UUID}.json", StagedCommitFile(7, _UUID)),
    (f"{_V7}.checkpoint.parquet", ClassicCheckpointFile(7)),
    (f"{_V7}.checkpoint.0000000002.0000000003.parquet", MultiPartCheckpointFile(7, 2, 3)),
    (f"{_V7}.checkpoint.{_UUID}.parquet", V2CheckpointFile(7, _UUID, "parquet")),
    (f"{_V7}.checkpoint.{_UUID}.json", V2CheckpointFile(7, _UUID, "json")),
    (f"{_V7}.00000000000000000009.compacted.json", CompactionFile(7, 9)),
    (f"{_V7}.crc", ChecksumFile(7)),
    ("_last_checkpoint", LastCheckpointFile()),
)


@pytest.mark.requirements("LOG-9", "LOG-2", "CM-3", "CKPT-5", "CKPT-MP-1", "CKPT-V2-2", "LC-1", "CRC-1")
@pytest.mark.parametrize(("name", "value"), NAMES)
def test_a_name_of_the_protocol_is_recognised(name: str, value: LogFile) -> None:
    assert parse_log_file(name) == value


@pytest.mark.requirements("LOG-9")
@pytest.mark.parametrize(
    "name",
    [
        "7.json",
        "0000000000000000007.json",
        "000000000000000000007.json",
        f".{_V7}.json.crc",
        f"{_V7}.json.tmp",
        f"{_V7}.json\n",
        f"x{_V7}.json",
        "_last_checkpoint.tmp",
        f"{_V7}.checkpoint.orc",
        f"{_V7}.checkpoint.2.3.parquet",
        f"{_V7}.checkpoint.not-a-uuid.parquet",
        "\N{ARABIC-INDIC DIGIT ZERO}" * 20 + ".json",
        "_commits",
        "",
    ],
)
def test_any_other_name_is_ignored(name: str) -> None:
    assert parse_log_file(name) is None


@pytest.mark.requirements("LOG-2", "CM-3", "CKPT-5", "CKPT-V2-2", "LC-1", "CRC-1")
def test_built_names_are_parsed() -> None:
    made = [
        log_files.commit_file_name(7),
        log_files.staged_commit_file_name(7, _UUID),
        log_files.classic_checkpoint_file_name(7),
        log_files.v2_checkpoint_file_name(7, _UUID, "json"),
        log_files.compaction_file_name(7, 9),
        log_files.checksum_file_name(7),
    ]
    assert [parse_log_file(name) for name in made] == [
        CommitFile(7),
        StagedCommitFile(7, _UUID),
        ClassicCheckpointFile(7),
        V2CheckpointFile(7, _UUID, "json"),
        CompactionFile(7, 9),
        ChecksumFile(7),
    ]


@pytest.mark.requirements("LOG-18")
def test_names_sort_as_versions_do() -> None:
    versions = [0, 9, 10, 99, 100, 10**12]
    assert sorted(map(log_files.commit_file_name, versions)) == [log_files.commit_file_name(v) for v in versions]


@pytest.mark.requirements("CM-3", "CKPT-V2-7")
def test_the_directories_of_a_log_are_in_the_table() -> None:
    assert log_files.log_directory("s3://b/t") == "s3://b/t/_delta_log"
    assert log_files.staged_commits_directory("s3://b/t") == "s3://b/t/_delta_log/_staged_commits"
    assert log_files.sidecars_directory("s3://b/t") == "s3://b/t/_delta_log/_sidecars"
