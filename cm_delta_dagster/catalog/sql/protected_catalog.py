"""Grants that PostgreSQL itself enforces: functions, row-level security, and commits through the functions.

Once grants are enabled, the tables of the catalog have no right for any role but their owner, except for reading rows of tables
that the caller may read. Commits and publication are calls of ``SECURITY DEFINER`` functions, which find out by
``session_user`` who calls. A commit is one call, without any other statement.
"""

import json
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.ratification import (
    CACHED_COMMITS,
    CACHED_CONTENT_BYTES,
    MAX_CLOCK_DIFFERENCE_MS,
    CommitOutcome,
    CommitProposal,
    MultiTableOutcome,
    Ratified,
    RatifiedTogether,
    RefusedTogether,
    VersionTaken,
)
from cm_delta_dagster.catalog.sql import commit_content, commits, definitions, feed_entries, guard, leases
from cm_delta_dagster.catalog.sql.commit_rows import unknown_table, values_of
from cm_delta_dagster.catalog.sql.schema import AUDIT, FEED_WAITERS, METADATA
from cm_delta_dagster.errors import (
    ApprovalRequiredError,
    CommitRefusedError,
    CommitRejectedError,
    InvalidArgumentError,
    OperationRefusedError,
    Refusal,
)

MAX_SENT_BYTES = 16 * 1024 * 1024
"""Size of the largest commit whose content is sent along to be examined. A larger one requires modify and alter."""

_CHECK_FIRST = "check_first"
"""The answer to a proposal that the function would accept, and that has not passed the checks of commit rules."""

_SQL = Path(__file__).parent / "postgres"
_SCHEMA = sa.text(
    "SELECT quote_ident(n.nspname) AS schema, pg_has_role(session_user, c.relowner, 'USAGE') AS is_owner "
    "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('cm_delta_tables')"
)
_COMMIT = sa.text(
    "SELECT cm_delta_commit(CAST(:tables AS text[]), CAST(:proposals AS jsonb[]), CAST(:contents AS bytea[]))"
)
_PUBLISH = sa.text("SELECT cm_delta_publish(:of_table, :up_to)")
_RECORD_REFUSAL = sa.text("SELECT cm_delta_record_refusal(:action, :scope, :of_table, :reason)")
_PLACE = sa.text("SELECT cm_delta_place()")
_IS_RESTRICTED = sa.text(
    "SELECT to_regproc('cm_delta_place') IS NOT NULL AND NOT has_table_privilege('cm_delta_feed_counter', 'UPDATE')"
)
_READABLE = sorted(name for name in METADATA.tables if name not in (AUDIT.name, FEED_WAITERS.name))


def install(connection: sa.Connection) -> None:
    """Create functions and policies. Raises OperationRefusedError unless the caller owns the tables."""
    schema = _owned_schema(connection)
    readable = ", ".join(f"{schema}.{name}" for name in (*_READABLE, AUDIT.name, "cm_delta_alembic_version"))
    _run(connection, "remove_grants.sql", schema=schema)
    _run(
        connection,
        "install_feed_and_leases.sql",
        schema=schema,
        channel=feed_entries.CHANNEL,
        place_limit=str(feed_entries.PLACE_LIMIT),
        lease_kinds=", ".join(f"'{kind.value}'" for kind in MaintenanceKind),
    )
    _run(
        connection,
        "install_grants.sql",
        schema=schema,
        readable=readable,
        max_ahead_ms=str(MAX_CLOCK_DIFFERENCE_MS),
        cached_bytes=str(CACHED_CONTENT_BYTES),
        cached_commits=str(CACHED_COMMITS),
        slides_by=str(commit_content.SLIDES_BY),
    )


def remove(connection: sa.Connection) -> None:
    """Delete functions and policies. Raises OperationRefusedError unless the caller owns the tables."""
    _run(connection, "remove_grants.sql", schema=_owned_schema(connection))


def is_restricted(connection: sa.Connection) -> bool:
    """Whether the catalog is protected and the role of the connection does not own its tables."""
    return connection.dialect.name == "postgresql" and bool(connection.execute(_IS_RESTRICTED).scalar_one())


def place(connection: sa.Connection) -> bool:
    """Give committed entries of the feed their positions by the function; see :func:`feed_entries.place`."""
    return bool(connection.execute(_PLACE).scalar_one())


def _owned_schema(connection: sa.Connection) -> str:
    row = connection.execute(_SCHEMA).one()
    if not row.is_owner:
        refusal = Refusal(
            what="The change of the protection of the catalog",
            reason="the database role does not own the catalog's tables",
            rule=guard.RULE,
            scope="*",
        )
        raise OperationRefusedError(str(refusal), refusal=refusal)
    return str(row.schema)


def _run(connection: sa.Connection, name: str, **values: str) -> None:
    driver: Any = connection.connection.dbapi_connection
    try:
        driver.execute((_SQL / name).read_text().format(**values))
    except connection.dialect.loaded_dbapi.Error as error:
        raise sa.exc.DBAPIError.instance(
            name, None, error, connection.dialect.loaded_dbapi.Error, dialect=connection.dialect
        ) from error


def commit(connection: sa.Connection, table_id: str, proposal: CommitProposal, *, now_ms: int) -> CommitOutcome:
    """Ratify one proposal by the function. After an unknown outcome the call can run again: it answers that it is ratified."""
    answer = _answers(connection, {table_id: proposal}, now_ms=now_ms)[0]
    return _outcome(connection, table_id, proposal, answer)


def commit_together(
    connection: sa.Connection, proposals: Mapping[str, CommitProposal], *, now_ms: int
) -> MultiTableOutcome:
    """Ratify all proposals by one call of the function, or none."""
    ordered = dict(sorted(proposals.items()))
    try:
        answers = dict(zip(ordered, _answers(connection, ordered, now_ms=now_ms), strict=True))
    except ApprovalRequiredError as needed:
        raise commits.cannot_wait(needed) from needed
    found = {
        table_id: _outcome(connection, table_id, proposals[table_id], answer)
        for table_id, answer in answers.items()
        if answer is not None
    }
    ratified = {table_id: outcome for table_id, outcome in found.items() if isinstance(outcome, Ratified)}
    if len(ratified) == len(proposals):
        return RatifiedTogether(commits=ratified)
    if ratified:
        raise commits.partly_ratified(proposals, ratified)
    return RefusedTogether(
        refusals={table_id: outcome for table_id, outcome in found.items() if not isinstance(outcome, Ratified)}
    )


def set_published_version(connection: sa.Connection, table_id: str, version: int) -> None:
    """Raise the published version by the function."""
    answer = connection.execute(_PUBLISH, {"of_table": table_id, "up_to": version}).scalar_one()
    if answer == "unknown_table":
        raise unknown_table(table_id)
    if answer == "not_ratified":
        raise InvalidArgumentError(
            f"Version {version} of table {table_id} was reported as published, and was not ratified. Publish only ratified commits."
        )
    if answer == "refused":
        guard.require_on_table(connection, guard.Operation.PUBLISH, table_id)


def record_refusal(connection: sa.Connection, action: str, refusal: Refusal) -> None:
    """Write the entry of the audit by the function."""
    reason = f"{refusal.what}: {refusal.reason}"
    connection.execute(
        _RECORD_REFUSAL,
        {"action": action, "scope": refusal.scope, "of_table": refusal.table_id, "reason": reason},
    )


def _answers(connection: sa.Connection, proposals: Mapping[str, CommitProposal], *, now_ms: int) -> Sequence[Any]:
    """The answer for each proposal; None for one that waits for those that were refused."""
    answers = _call(connection, proposals, is_checked=False)
    unchecked = [answer is not None and answer["answer"] == _CHECK_FIRST for answer in answers]
    refused = [None if skipped else answer for answer, skipped in zip(answers, unchecked, strict=True)]
    if not any(unchecked) or any(refused):
        return refused
    # The database examines grants only; the other checks run here.
    for (table_id, proposal), is_missing in zip(proposals.items(), unchecked, strict=True):
        if is_missing:
            commits.check_without_lock(connection, table_id, proposal, now_ms=now_ms)
    return _call(connection, proposals, is_checked=True)


def _call(connection: sa.Connection, proposals: Mapping[str, CommitProposal], *, is_checked: bool) -> Sequence[Any]:
    parameters = {
        "tables": list(proposals),
        "proposals": [
            json.dumps({**_described(table_id, proposal), "is_checked": is_checked})
            for table_id, proposal in proposals.items()
        ],
        "contents": [_sent_content(proposal) for proposal in proposals.values()],
    }
    found = connection.execute(_COMMIT, parameters).scalar_one()
    answers = json.loads(found) if isinstance(found, str) else found
    if any(answer is not None and answer.get("has_waiters") for answer in answers):
        feed_entries.notify(connection)
    return typing.cast(Sequence[Any], answers)


def _described(table_id: str, proposal: CommitProposal) -> Mapping[str, Any]:
    values = values_of(table_id, proposal, now_ms=0)
    del values["content"]
    return {
        **values,
        "reported": proposal.published_version,
        "lease_token": proposal.lease_token,
        "keeps_content": proposal.content is not None,
        "metadata": definitions.line_of(proposal.metadata),
        "protocol": definitions.line_of(proposal.protocol),
    }


def _sent_content(proposal: CommitProposal) -> bytes | None:
    content = proposal.content_to_check if proposal.content is None else proposal.content
    return None if content is None or len(content) > MAX_SENT_BYTES else content


def _outcome(connection: sa.Connection, table_id: str, proposal: CommitProposal, answer: Any) -> CommitOutcome:
    match answer["answer"]:
        case "ratified" | "repeated" as name:
            return Ratified(
                version=proposal.version,
                latest_version=answer["latest"],
                published_version=answer["published"],
                repeated=name == "repeated",
            )
        case "taken":
            return VersionTaken(
                proposed_version=proposal.version, winners=commits.winners(connection, table_id, proposal.version)
            )
        case "unknown_table":
            raise unknown_table(table_id)
        case "refused":
            refusal = _refusal(table_id, answer, rule=guard.RULE)
            raise CommitRefusedError(str(refusal), refusal=refusal)
        case "lease_lost":
            raise leases.refused_commit(_refusal(table_id, answer, rule=leases.RULE))
        case _:
            raise CommitRejectedError(
                f"Version {proposal.version} of table {table_id} was rejected by the catalog's database: {answer['reason']}. "
                "Nothing was ratified. Propose the commit with its own values against a fresh snapshot."
            )


def _refusal(table_id: str, answer: Any, *, rule: str) -> Refusal:
    return Refusal(
        what=answer["what"],
        reason=answer["reason"],
        rule=rule,
        scope=answer["scope"],
        ask=tuple(answer.get("ask", ()))[:3],
        table_id=table_id,
        is_recorded=True,
    )
