"""Tables whose latest version cannot be read: what of them still can.

A commit that no reader can use, such as one of a faulty writer, must not take the earlier versions with it.
"""

from collections.abc import Callable

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.actions import CommitInfo
from cm_delta_dagster.protocol.features.table_features import is_catalog_managed
from cm_delta_dagster.protocol.log.action_reconciliation import TableState


def newest_readable(load: Callable[[int], TableState], *, latest: int) -> TableState:
    """The state of ``latest``, or of the newest version below it, if commits above it cannot be used or a ratified one is lost.

    Args:
        load: builds the state of a version.

    Raises:
        CorruptLogError: the log has a gap or was altered, or no version can be built; the error is then that of ``latest``.
    """
    first: CorruptLogError | None = None
    version = latest
    while version >= 0:
        try:
            return load(version)
        except CorruptLogError as error:
            if error.action is None:
                raise
            first = first or error
            # The versions from the damaged commit on cannot be built either.
            version = min(version, version if error.version is None else error.version) - 1
    assert first is not None
    raise first


def newest_managed(load: Callable[[int], TableState], *, latest: int) -> TableState:
    """As :func:`newest_readable`, for a table of a catalog: versions whose protocol lacks ``catalogManaged`` do not count."""

    def managed(version: int) -> TableState:
        state = load(version)
        if not is_catalog_managed(state.protocol):
            raise CorruptLogError(
                f"The protocol of version {version} does not list the feature catalogManaged, and a catalog manages the table.",
                version=version,
                action="protocol",
            )
        return state

    return newest_readable(managed, latest=latest)


def flaw_of_time(info: CommitInfo | None) -> str:
    """Why a commit has no in-commit timestamp, as the end of a sentence that begins with the version."""
    stated = None if info is None else info.extra.get("inCommitTimestamp")
    if stated is None:
        return "has no inCommitTimestamp in the commitInfo that must be its first action"
    return f"has the commitInfo.inCommitTimestamp {str(stated)[:100]!r}, which is not a whole number of 64 bits"


def without_time(version: int, table: object, info: CommitInfo | None, why: str) -> CorruptLogError:
    """The error for a commit that must have an in-commit timestamp and has none.

    Args:
        why: which commits must have one, as a relative clause without its pronoun.
    """
    return CorruptLogError(
        f"Version {version} of {table} {flaw_of_time(info)}; every commit {why} needs it. The commit is corrupt.",
        version=version,
        action="commitInfo",
        field="inCommitTimestamp",
    )
