"""Complete checkpoints among the names in ``_delta_log``."""

import pytest

from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.checkpoint_files import (
    CheckpointKind,
    CheckpointSource,
    complete_checkpoints,
    newest_checkpoint,
)

_UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def _part(version: int, part: int, parts: int) -> str:
    return f"{version:020d}.checkpoint.{part:010d}.{parts:010d}.parquet"


@pytest.mark.requirements("CKPT-MP-2")
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([_part(3, 2, 2), _part(3, 1, 2)], [(3, (_part(3, 1, 2), _part(3, 2, 2)))]),
        ([_part(3, 1, 2)], []),
        ([_part(3, 1, 2), _part(3, 2, 3)], []),
        ([_part(3, 0, 2), _part(3, 1, 2)], []),
        ([_part(3, 1, 2), _part(3, 3, 2)], []),
        ([_part(3, 1, 10**10 - 1)], []),
        ([log_files.classic_checkpoint_file_name(3)], [(3, (log_files.classic_checkpoint_file_name(3),))]),
        ([log_files.commit_file_name(3), "_last_checkpoint", "x"], []),
    ],
)
def test_a_multi_part_checkpoint_needs_all_of_its_parts(
    names: list[str], expected: list[tuple[int, tuple[str, ...]]]
) -> None:
    assert [(found.version, found.locations) for found in complete_checkpoints(names)] == expected


@pytest.mark.requirements("CKPT-14")
def test_checkpoints_are_ordered_by_version() -> None:
    names = [log_files.classic_checkpoint_file_name(version) for version in (7, 2, 5)]
    assert [found.version for found in complete_checkpoints(names)] == [2, 5, 7]


@pytest.mark.requirements("CKPT-14")
def test_the_newest_checkpoint_is_v2_then_classic_then_multi_part() -> None:
    """All kinds are equivalent; the choice is stable."""
    parts = [_part(3, 1, 2), _part(3, 2, 2)]
    classic = log_files.classic_checkpoint_file_name(3)
    v2 = log_files.v2_checkpoint_file_name(3, _UUID, "json")
    older = log_files.v2_checkpoint_file_name(2, _UUID, "parquet")

    def newest(*names: str) -> CheckpointSource | None:
        return newest_checkpoint(complete_checkpoints(names))

    assert newest() is None
    kinds = [found.kind for names in ([], [classic], [classic, v2]) if (found := newest(older, *parts, *names))]
    assert kinds == [CheckpointKind.MULTI_PART, CheckpointKind.CLASSIC, CheckpointKind.V2]
