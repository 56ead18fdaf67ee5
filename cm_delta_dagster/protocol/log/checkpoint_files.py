"""Which files in ``_delta_log`` are a complete checkpoint (protocol heading "Checkpoints").

The only place that decides this: a classic or V2 checkpoint is one file, a multi-part checkpoint is complete if none of its
parts is missing ("readers must ignore multi-part checkpoints with missing parts"). Sidecars are not looked at.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.protocol.log.log_files import (
    ClassicCheckpointFile,
    LogFile,
    MultiPartCheckpointFile,
    V2CheckpointFile,
    parse_log_file,
)


class CheckpointKind(StrEnum):
    """Naming schemes of checkpoints."""

    CLASSIC = "classic"
    MULTI_PART = "multi-part"
    V2 = "v2"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSource:
    """A complete checkpoint and its top-level files; a multi-part checkpoint has its parts in order."""

    version: int
    kind: CheckpointKind
    locations: tuple[str, ...]


def complete_checkpoints(names: Iterable[str]) -> tuple[CheckpointSource, ...]:
    """The complete checkpoints among the names in ``_delta_log``, oldest first; their locations are these bare names."""
    parsed = [(file, name) for name in names if (file := parse_log_file(name)) is not None]
    return tuple(sorted(checkpoints_among(parsed), key=lambda checkpoint: (checkpoint.version, checkpoint.locations)))


def checkpoints_among(files: Sequence[tuple[LogFile, str]]) -> list[CheckpointSource]:
    """The complete checkpoints among ``files``, pairs of a parsed name and the location to report."""
    checkpoints: list[CheckpointSource] = []
    parts: dict[tuple[int, int], dict[int, str]] = {}
    for file, path in files:
        match file:
            case ClassicCheckpointFile():
                checkpoints.append(
                    CheckpointSource(version=file.version, kind=CheckpointKind.CLASSIC, locations=(path,))
                )
            case V2CheckpointFile():
                checkpoints.append(CheckpointSource(version=file.version, kind=CheckpointKind.V2, locations=(path,)))
            case MultiPartCheckpointFile():
                parts.setdefault((file.version, file.parts), {})[file.part] = path
            case _:
                pass
    for (version, count), known in parts.items():
        # The number of parts in a name may be huge, so the parts are not enumerated.
        if len(known) == count and (min(known), max(known)) == (1, count):
            locations = tuple(known[part] for part in sorted(known))
            checkpoints.append(CheckpointSource(version=version, kind=CheckpointKind.MULTI_PART, locations=locations))
    return checkpoints


def newest_checkpoint(candidates: Iterable[CheckpointSource]) -> CheckpointSource | None:
    """The candidate of the greatest version, None without candidates.

    "Multiple checkpoints could exist for the same table version [...] a client can choose which checkpoint to use": this
    client prefers V2, then classic, then multi-part checkpoints.
    """
    preference = {CheckpointKind.V2: 2, CheckpointKind.CLASSIC: 1, CheckpointKind.MULTI_PART: 0}
    return max(
        candidates,
        key=lambda checkpoint: (checkpoint.version, preference[checkpoint.kind], checkpoint.locations),
        default=None,
    )
