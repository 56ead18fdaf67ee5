"""The result of ALTER TABLE."""

from dataclasses import dataclass, field

from cm_delta_dagster.client.snapshots.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterResult:
    """The result of an alteration.

    Attributes:
        version: the version that the last commit made; without a commit, the version that was read.
        versions: the versions of all commits, ascending; empty if the table was already as wanted.
        snapshot: the table afterwards.
    """

    table_id: str
    version: int
    versions: tuple[int, ...] = ()
    snapshot: Snapshot = field(repr=False)
