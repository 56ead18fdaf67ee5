"""Grants that PostgreSQL itself enforces: functions, row-level security, and commits through the functions.

Once grants are enabled, the tables of the catalog have no right for any role but their owner, except for reading rows of tables
that the caller may read. Commits and publication are calls of ``SECURITY DEFINER`` functions, which find out by
``session_user`` who calls, and evaluate the commit rules of the table. A commit is one call, without any other statement.
"""

import json
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from cm_delta_dagster.catalog.rules.required_user_metadata import PORTABLE_PATTERN
from cm_delta_dagster.catalog.sql import (
    approvals,
    commit_content,
    commits,
    definitions,
    feed_entries,
    foreign_objects,
    guard,
    guarded_proposals,
    leases,
)
from cm_delta_dagster.catalog.sql.commit_rows import unknown_table, values_of
from cm_delta_dagster.catalog.sql.schema import AUDIT, FEED_WAITERS, METADATA
from cm_delta_dagster.catalog.version_pins import PIN_LIFETIME_MS
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
"""The answer to a proposal which commit rules do not permit, or whose content is not sent along, before it is checked here."""

_SQL = Path(__file__).parent / "postgres"
_SCHEMA = sa.text(
    "SELECT quote_ident(n.nspname) AS schema, pg_has_role(session_user, c.relowner, 'USAGE') AS is_owner "
    "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = CAST(:tables AS oid)"
)
_TABLES = sa.text("SELECT CAST(to_regclass('cm_delta_tables') AS oid)")
_SEARCH_PATH = sa.text("SELECT current_setting('search_path')")
_SET_SEARCH_PATH = sa.text("SELECT set_config('search_path', :names, true)")
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
    """Create functions and policies.

    Raises:
        OperationRefusedError: the caller does not own the tables.
        InvalidArgumentError: objects of other roles could act with the rights of the owner; see :mod:`foreign_objects`.
    """
    with _only_built_in_names(connection) as tables:
        schema = _owned_schema(connection, tables)
        foreign_objects.refuse(connection, tables)
        _run(connection, "remove_grants.sql", schema=schema)
        _install_in(connection, schema)
        # The tables are locked now, and PUBLIC may not create objects: none is added before the transaction ends.
        foreign_objects.refuse(connection, tables)


def _install_in(connection: sa.Connection, schema: str) -> None:
    _run(
        connection,
        "install_feed_and_leases.sql",
        schema=schema,
        channel=feed_entries.CHANNEL,
        place_limit=str(feed_entries.PLACE_LIMIT),
        lease_kinds=", ".join(f"'{kind.value}'" for kind in MaintenanceKind),
    )
    _run(connection, "install_pins.sql", schema=schema, pin_lifetime_ms=str(PIN_LIFETIME_MS))
    pattern = PORTABLE_PATTERN.replace("\\", "\\\\")
    _run(connection, "install_rules.sql", schema=schema, portable_pattern=f"E'{pattern}'")
    _run(connection, "install_approvals.sql", schema=schema)
    _run(
        connection,
        "install_grants.sql",
        schema=schema,
        readable=", ".join(f"{schema}.{name}" for name in (*_READABLE, AUDIT.name, "cm_delta_alembic_version")),
        max_ahead_ms=str(MAX_CLOCK_DIFFERENCE_MS),
        cached_bytes=str(CACHED_CONTENT_BYTES),
        cached_commits=str(CACHED_COMMITS),
        slides_by=str(commit_content.SLIDES_BY),
    )


def remove(connection: sa.Connection) -> None:
    """Delete functions and policies. Raises OperationRefusedError unless the caller owns the tables."""
    with _only_built_in_names(connection) as tables:
        _run(connection, "remove_grants.sql", schema=_owned_schema(connection, tables))


@contextmanager
def _only_built_in_names(connection: sa.Connection) -> Iterator[int]:
    """Use only built-in functions and operators in the block. Yields the object id of ``cm_delta_tables``."""
    tables = int(connection.execute(_TABLES).scalar_one())
    names = connection.execute(_SEARCH_PATH).scalar_one()
    connection.execute(_SET_SEARCH_PATH, {"names": "pg_catalog"})
    yield tables
    connection.execute(_SET_SEARCH_PATH, {"names": names})  # After an error the transaction is rolled back.


def is_restricted(connection: sa.Connection) -> bool:
    """Whether the catalog is protected and the role of the connection does not own its tables."""
    return connection.dialect.name == "postgresql" and bool(connection.execute(_IS_RESTRICTED).scalar_one())


def place(connection: sa.Connection) -> bool:
    """Give committed entries of the feed their positions by the function; see :func:`feed_entries.place`."""
    return bool(connection.execute(_PLACE).scalar_one())


def _owned_schema(connection: sa.Connection, tables: int) -> str:
    row = connection.execute(_SCHEMA, {"tables": tables}).one()
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
    """Ratify one proposal by the function. After an unknown outcome the call can run again: it answers that it is ratified.

    Raises also ApprovalClosedError, and OperationRefusedError for an approved proposal whose table the caller does not own.
    """
    if proposal.approval_id is not None:
        guarded_proposals.check_approval(connection, table_id, proposal, now_ms=now_ms)
    answer = _answers(connection, {table_id: proposal}, now_ms=now_ms)[0]
    return outcome_of(connection, table_id, proposal, answer, now_ms=now_ms)


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
        table_id: outcome_of(connection, table_id, proposals[table_id], answer, now_ms=now_ms)
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
    checked: dict[str, str] = {}
    while True:
        answers = _call(connection, proposals, checked)
        unchecked = {
            table_id: answer["rules"]
            for table_id, answer in zip(proposals, answers, strict=True)
            if answer is not None and answer["answer"] == _CHECK_FIRST
        }
        refused = [None if answer is not None and answer["answer"] == _CHECK_FIRST else answer for answer in answers]
        if not unchecked or any(refused):
            return refused
        # They violate rules, or have too much content to be sent along. The checks here say what to do about it.
        for table_id in unchecked:
            guarded_proposals.check(connection, table_id, proposals[table_id], now_ms=now_ms)
        checked |= unchecked


def _call(
    connection: sa.Connection, proposals: Mapping[str, CommitProposal], checked: Mapping[str, str]
) -> Sequence[Any]:
    parameters = {
        "tables": list(proposals),
        "proposals": [
            json.dumps({**described(table_id, proposal), "checked_rules": checked.get(table_id)})
            for table_id, proposal in proposals.items()
        ],
        "contents": [sent_content(proposal) for proposal in proposals.values()],
    }
    answers = value_of(connection.execute(_COMMIT, parameters).scalar_one())
    if any(answer is not None and answer.get("has_waiters") for answer in answers):
        feed_entries.notify(connection)
    return typing.cast(Sequence[Any], answers)


def value_of(found: Any) -> Any:
    """The JSON value that a function returned, whether or not the driver has decoded it."""
    return json.loads(found) if isinstance(found, str) else found


def described(table_id: str, proposal: CommitProposal) -> Mapping[str, Any]:
    """The proposal, without its content, as the functions take it."""
    values = values_of(table_id, proposal, now_ms=0)
    del values["content"]
    return {
        **values,
        "reported": proposal.published_version,
        "lease_token": proposal.lease_token,
        "approval_id": proposal.approval_id,
        "keeps_content": proposal.content is not None,
        "metadata": definitions.line_of(proposal.metadata),
        "protocol": definitions.line_of(proposal.protocol),
    }


def sent_content(proposal: CommitProposal) -> bytes | None:
    """The content that is sent along to be examined; None if it is not known, or too large."""
    content = proposal.content_to_check if proposal.content is None else proposal.content
    return None if content is None or len(content) > MAX_SENT_BYTES else content


def outcome_of(
    connection: sa.Connection, table_id: str, proposal: CommitProposal, answer: Any, *, now_ms: int
) -> CommitOutcome:
    """The outcome that an answer of the functions stands for; a refusal is an error."""
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
            refusal = _refusal(table_id, answer, rule=answer.get("rule", guard.RULE))
            raise CommitRefusedError(str(refusal), refusal=refusal)
        case "lease_lost":
            raise leases.refused_commit(_refusal(table_id, answer, rule=leases.RULE))
        case "approval_closed":
            raise approvals.not_pending(connection, str(proposal.approval_id), now_ms=now_ms)
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
        set_by=answer.get("set_by"),
        ask=tuple(answer.get("ask", ()))[:3],
        table_id=table_id,
        is_recorded=True,
    )
