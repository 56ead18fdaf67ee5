"""The checks that a commit is the next one of its table: its version, its in-commit timestamp, and the version that is published.

Protocol headings "Catalog Responsibilities", "In-Commit Timestamps". They hold for every table, and cannot be turned off.
"""

from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.ratification import MAX_CLOCK_DIFFERENCE_MS, CommitProposal, CommitSummary
from cm_delta_dagster.catalog.sql.database.callers import now_of
from cm_delta_dagster.errors import CommitRejectedError
from cm_delta_dagster.protocol.predicates.timestamps import utc_text


def check_next(table_id: str, proposal: CommitProposal, head: Any) -> None:
    """Refuse a version that leaves a gap, and a timestamp that is not later than that of the version before.

    Args:
        head: the locked head of the table, whose latest version is below the proposed one.

    Raises:
        CommitRejectedError: nothing was ratified.
    """
    latest, latest_timestamp = head.latest_version, head.latest_in_commit_timestamp
    if proposal.version > latest + 1:
        raise CommitRejectedError(
            f"Version {proposal.version} of table {table_id} was proposed, but the latest is {latest}: versions are "
            f"ratified one after the other. Propose {latest + 1} against a fresh snapshot."
        )
    if proposal.summary.in_commit_timestamp <= latest_timestamp:
        raise CommitRejectedError(
            f"Version {proposal.version} of table {table_id} was proposed with the in-commit timestamp "
            f"{utc_text(proposal.summary.in_commit_timestamp)}, not later than {utc_text(latest_timestamp)} of version "
            f"{latest}: each must be greater than the one before."
        )


def published_version(table_id: str, proposal: CommitProposal, head: Any) -> int:
    """The published version after the proposal. Raises CommitRejectedError if it is above the latest ratified one."""
    reported = head.published_version if proposal.published_version is None else proposal.published_version
    if reported > head.latest_version:
        raise CommitRejectedError(
            f"Version {proposal.version} of table {table_id} was proposed with the published version {reported}, "
            f"but the latest ratified version is {head.latest_version}. Publish only ratified commits."
        )
    return max(reported, int(head.published_version))


def check_clock(
    connection: sa.Connection, table_id: str, version: int, summary: CommitSummary, *, previous: int | None
) -> None:
    """Refuse an in-commit timestamp too far ahead of the catalog's clock: every later one must be greater.

    A timestamp one millisecond after the previous one is accepted, because no earlier one is possible.

    Args:
        previous: in-commit timestamp of the version before; None for version 0.

    Raises:
        CommitRejectedError: the timestamp is more than ``MAX_CLOCK_DIFFERENCE_MS`` ahead of the clock.
    """
    timestamp, now_ms = summary.in_commit_timestamp, now_of(connection)
    if timestamp - now_ms <= MAX_CLOCK_DIFFERENCE_MS or (previous is not None and timestamp == previous + 1):
        return
    raise CommitRejectedError(
        f"Version {version} of table {table_id} was proposed with the in-commit timestamp {utc_text(timestamp)}, which lies "
        f"{(timestamp - now_ms) / 1000:.0f} seconds ahead of the catalog's clock ({utc_text(now_ms)}); the catalog allows "
        f"{MAX_CLOCK_DIFFERENCE_MS / 1000:.0f} seconds, because every later commit must have a later timestamp. Nothing was "
        "committed. Set the clock of the writer's machine, and keep ClientSettings.max_clock_difference within "
        "that bound."
    )
