"""How far the changes of a range of versions can be read with one schema (protocol headings "Change Metadata", "Column Mapping").

The schema is that of the last version. Where it cannot represent the rows of an earlier version, the range breaks: what comes
before is read with a schema of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cm_delta_dagster.errors import SchemaMismatchError
from cm_delta_dagster.protocol.changes.schema_compatibility import VersionDefinition, incompatibility, unreadable_column


class ReplacedRowsError(SchemaMismatchError):
    """A commit replaced the schema and deleted rows that the new schema cannot represent, so its own changes cannot be read."""

    def __init__(self, message: str, *, version: int) -> None:
        super().__init__(message)
        self.version = version


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaBreak:
    """The first version of a range whose schema cannot represent the rows before it; ``reason`` says why, for a message."""

    version: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionStep:
    """A definition of a range of versions.

    Attributes:
        definition: that of its commit and of the versions up to the next step.
        removed_from: the previous definition, if the commit removes rows, which were stored under it.
    """

    definition: VersionDefinition
    removed_from: VersionDefinition | None = None

    def conflict(self, newest: VersionDefinition) -> str | None:
        """Why rows of this step cannot be read with ``newest``; None if they can."""
        reason = incompatibility(self.definition, newest)
        if reason is None and self.removed_from is not None:
            reason = unreadable_column(self.removed_from, newest)
        return reason


def up_to_break(steps: Sequence[DefinitionStep], table: str) -> tuple[Sequence[DefinitionStep], SchemaBreak | None]:
    """The first steps whose rows can be read with the last one of them, and where the others begin.

    Args:
        steps: the definitions of the range, oldest first; at least one.
        table: for messages.

    Raises:
        ReplacedRowsError: the first commit removes rows that its own schema cannot represent.
    """
    stopped_before = None
    while steps:
        newest = steps[-1].definition
        conflicts = [
            (index, reason) for index, step in enumerate(steps) if (reason := step.conflict(newest)) is not None
        ]
        if not conflicts:
            return steps, stopped_before
        last, reason = conflicts[-1]
        kept = min(last + 1, len(steps) - 1)
        stopped_before = SchemaBreak(version=steps[kept].definition.version, reason=reason)
        steps = steps[:kept]
    assert stopped_before is not None, "there was a step"
    version = stopped_before.version
    raise ReplacedRowsError(
        f"The changes of version {version} of {table} cannot be read: it replaced the schema and deleted rows that the new schema "
        f"cannot represent ({stopped_before.reason}). Read all rows of version {version} instead, and the "
        f"changes from version {version + 1} on.",
        version=version,
    )
