"""Ratification of commits in order, exactly one for each version.

Protocol heading "Catalog Responsibilities". Functions over an open connection; the caller opens the transaction.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy
from cm_delta_dagster.catalog.ratification import (
    CACHED_CONTENT_BYTES,
    CommitOutcome,
    CommitPolicyChanged,
    CommitProposal,
    CommitSummary,
    InitialCommit,
    MultiTableOutcome,
    Ratified,
    RatifiedCommits,
    RatifiedTogether,
    RefusedTogether,
    VersionTaken,
)
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.database.callers import caller_of
from cm_delta_dagster.catalog.sql.database.prepared import Call, Prepared, run_in_order
from cm_delta_dagster.catalog.sql.database.schema import COMMITS, TABLES, identifier_of
from cm_delta_dagster.catalog.sql.feed import entries
from cm_delta_dagster.catalog.sql.ratification import (
    cached_content,
    checks,
    grant_check,
    holds,
    order_check,
    validation,
)
from cm_delta_dagster.catalog.sql.ratification.check_reads import CheckReads, locked_for_checks
from cm_delta_dagster.catalog.sql.ratification.context import Accepted, CommitContext, ProposalKind, context_of
from cm_delta_dagster.catalog.sql.rows import application_ids, definitions, marks
from cm_delta_dagster.catalog.sql.rows.commits import (
    COMMIT_COLUMNS,
    HEAD_COLUMNS,
    THE_TABLE,
    ratified_commit,
    ratified_commits_of,
    values_of,
)
from cm_delta_dagster.catalog.sql.rows.errors import unknown_table
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import (
    CatalogError,
    CommitRejectedError,
    InvalidArgumentError,
)
from cm_delta_dagster.protocol.log import log_files

_ADVANCE = Prepared(
    sa.update(TABLES)
    .where(TABLES.c.table_id == sa.bindparam("of_table"))
    .values(
        latest_version=sa.bindparam("new_version"),
        latest_data_version=sa.bindparam("new_data_version"),
        latest_in_commit_timestamp=sa.bindparam("new_timestamp"),
        published_version=sa.bindparam("published"),
        content_from=sa.bindparam("new_content_from"),
    )
)
_INSERT = Prepared(sa.insert(COMMITS).inline())
_WINNERS = (
    sa.select(*COMMIT_COLUMNS)
    .where(COMMITS.c.table_id == sa.bindparam("of_table"), COMMITS.c.version >= sa.bindparam("first"))
    .order_by(COMMITS.c.version)
)
_PUBLISH = (
    sa.update(TABLES)
    .where(
        THE_TABLE,
        TABLES.c.published_version < sa.bindparam("published"),
        TABLES.c.latest_version >= sa.bindparam("published"),
    )
    .values(published_version=sa.bindparam("published"))
)
_PUBLISH_WITHOUT_GRANTS = _PUBLISH.where(~guard.IS_ENABLED.element)
_HEAD = sa.select(*HEAD_COLUMNS).where(THE_TABLE)


def ratify(connection: sa.Connection, proposals: Mapping[str, CommitProposal]) -> MultiTableOutcome:
    """Compare and set the latest version of each table, under the locks of their rows: all of them or none.

    The rows are locked in the order of the ids, so that commits do not wait for each other in a circle.
    """
    locked = locked_for_checks(connection, sorted(proposals))
    answers = {
        table_id: _answer_without_effect(connection, table_id, proposals[table_id], head, reads)
        for table_id, (head, reads) in locked.items()
    }
    repeated = {table_id: answer for table_id, answer in answers.items() if isinstance(answer, Ratified)}
    if len(repeated) == len(proposals):
        return RatifiedTogether(commits=repeated)
    if repeated:
        raise _partly_ratified(proposals, repeated)
    refusals = {
        table_id: answer
        for table_id, answer in answers.items()
        if isinstance(answer, VersionTaken | CommitPolicyChanged)
    }
    if refusals:
        return RefusedTogether(refusals=refusals)
    locked_holds = holds.lock_holds(connection, proposals)
    accepted = {
        table_id: _accept(connection, table_id, proposals[table_id], head, reads, locked_holds)
        for table_id, (head, reads) in locked.items()
    }
    return RatifiedTogether(commits=accepted)


def _partly_ratified(proposals: Iterable[str], ratified: Iterable[str]) -> CatalogError:
    """The error if some of the proposals that are to be ratified together are ratified."""
    return CatalogError(
        f"Of the proposals for {', '.join(proposals)}, which are to be ratified together, those for {', '.join(ratified)} are "
        "ratified and the others are not. Nothing was changed. A part of the catalog was restored from an older state; "
        "compare the history of the tables."
    )


def _answer_without_effect(
    connection: sa.Connection, table_id: str, proposal: CommitProposal, head: Any, reads: CheckReads
) -> CommitOutcome | None:
    """The answer to a proposal that is not ratified now; None if it is for the next version and the policy accepts it."""
    if proposal.version <= head.latest_version:
        _require_read(connection, table_id, reads)
        return _taken_or_repeated(connection, table_id, proposal, head)
    policy = CommitPolicy.parse(head.commit_policy)
    return None if policy.through_catalog else CommitPolicyChanged(policy=policy)


def _require_read(connection: sa.Connection, table_id: str, reads: CheckReads) -> None:
    """Refuse a caller that may not read the commits which have the proposed version. Raises OperationRefusedError."""
    if grant_check.NAME in reads.active:
        guard.require_on_table(connection, guard.Operation.READ, table_id)


def _accept(
    connection: sa.Connection,
    table_id: str,
    proposal: CommitProposal,
    head: Any,
    reads: CheckReads,
    locked_holds: Mapping[tuple[str, str], Any],
) -> Ratified:
    """Ratify the proposal if it is consistent and passes the checks. Raises CommitRejectedError, CommitRefusedError."""
    published = order_check.published_version(table_id, proposal, head)
    order_check.check_clock(
        connection, table_id, proposal.version, proposal.summary, previous=head.latest_in_commit_timestamp
    )
    context = _context(connection, table_id, proposal, head, identifier=identifier_of(head), reads=reads)
    holds.close_ratified(connection, context, locked_holds)
    accepted = checks.run(connection, context)
    validation.check_definition(connection, table_id, proposal, head)
    marks.check(connection, table_id, proposal, head)
    _ratify(connection, table_id, accepted, head, published=published)
    return Ratified(version=proposal.version, latest_version=proposal.version, published_version=published)


def _context(
    connection: sa.Connection,
    table_id: str,
    proposal: CommitProposal,
    head: Any,
    *,
    identifier: TableIdentifier,
    reads: CheckReads | None = None,
) -> CommitContext:
    """What the checks of a proposal know of it. Without a head it is the registration of the table."""
    kind = ProposalKind.PUBLISHED if proposal.mode is CommitMode.PUT_IF_ABSENT else ProposalKind.PROPOSED
    return context_of(connection, table_id, proposal, head, identifier=identifier, kind=kind, reads=reads)


def record_published(connection: sa.Connection, table_id: str, proposal: CommitProposal) -> Ratified | VersionTaken:
    """Record a commit, whose published file exists, as ratified and published, under the lock of the table's row."""
    head, reads = locked_for_checks(connection, [table_id])[table_id]
    if proposal.version <= head.latest_version:
        _require_read(connection, table_id, reads)
        rows = connection.execute(_WINNERS, {"of_table": table_id, "first": proposal.version}).all()
        if rows and rows[0].txn_id == proposal.summary.txn_id:
            return _repeated(proposal, head)
        return VersionTaken(proposed_version=proposal.version, winners=_winners(head, rows))
    policy = CommitPolicy.parse(head.commit_policy)
    if policy.through_catalog or head.published_version != head.latest_version:
        raise CommitRejectedError(
            f"Version {proposal.version} of table {table_id} was reported as made by creating its file, but commits of that "
            f"table are made {policy.kind.value} and it is published up to version {head.published_version} of "
            f"{head.latest_version}. A writer added the file to its _delta_log without the catalog."
        )
    context = _context(connection, table_id, proposal, head, identifier=identifier_of(head), reads=reads)
    accepted = checks.run(connection, context)
    _ratify(connection, table_id, accepted, head, published=proposal.version)
    return Ratified(version=proposal.version, latest_version=proposal.version, published_version=proposal.version)


def _ratify(connection: sa.Connection, table_id: str, accepted: Accepted, head: Any, *, published: int) -> None:
    proposal = accepted.proposal
    order_check.check_next(table_id, proposal, head)
    if accepted.forgets_definition:
        definitions.forget(connection, table_id)
    definitions.record(
        connection,
        table_id,
        metadata=proposal.metadata,
        protocol=proposal.protocol,
        version=proposal.version,
        in_commit_timestamp=proposal.summary.in_commit_timestamp,
        changed_by_commit=True,
    )
    content_from = cached_content.content_from_after(proposal, head.content_from)
    writes = _commit_writes(
        connection,
        table_id,
        proposal,
        data_version=proposal.version if proposal.summary.data_change else head.latest_data_version,
        published=published,
        content_from=content_from,
    )
    writes += marks.writes(table_id, proposal, head)
    writes += cached_content.deletions(
        table_id,
        published=(head.published_version, published),
        content_from=(head.content_from, content_from),
        keeps_inline=accepted.keeps_inline,
    )
    entries.append_at_end(connection, entries.of_commit(connection, table_id, proposal.version), after=writes)


def _commit_writes(
    connection: sa.Connection,
    table_id: str,
    proposal: CommitProposal,
    *,
    data_version: int,
    published: int,
    content_from: int,
) -> list[Call]:
    """The statements that advance the table and insert the commit. The caller holds the lock of the table's row."""
    advance = {
        "of_table": table_id,
        "new_version": proposal.version,
        "new_data_version": data_version,
        "new_timestamp": proposal.summary.in_commit_timestamp,
        "published": published,
        "new_content_from": content_from,
    }
    values = values_of(connection, table_id, proposal, principal=caller_of(connection))
    return [
        (_ADVANCE, advance),
        (_INSERT, values | {"data_version": data_version}),
        *application_ids.writes(connection, table_id, proposal),
    ]


def insert_initial_commit(
    connection: sa.Connection,
    table_id: str,
    identifier: TableIdentifier,
    *,
    summary: CommitSummary,
    initial: InitialCommit | None,
) -> None:
    """Insert version 0, which is already published, under its published name. Raises CommitRefusedError."""
    proposal = CommitProposal(
        version=0,
        file_name=log_files.commit_file_name(0),
        file_size=0 if initial is None else initial.file_size,
        file_modification_time=0 if initial is None else initial.file_modification_time,
        summary=summary,
        content=None if initial is None or initial.file_size > CACHED_CONTENT_BYTES else initial.content,
        metadata=None if initial is None else initial.metadata,
        protocol=None if initial is None else initial.protocol,
        sha256=None if initial is None else initial.sha256,
        content_to_check=None if initial is None else initial.content_to_check or initial.content,
        checked=None if initial is None else initial.checked,
    )
    checks.run(connection, _context(connection, table_id, proposal, None, identifier=identifier))
    writes = _commit_writes(
        connection,
        table_id,
        proposal,
        data_version=0,
        published=0,
        content_from=cached_content.content_from_after(proposal, 0),
    )
    run_in_order(connection, [*writes, *marks.writes(table_id, proposal, None)])
    entries.append(connection, entries.of_commit(connection, table_id, 0))
    if initial is not None:
        definitions.record(
            connection,
            table_id,
            metadata=initial.metadata,
            protocol=initial.protocol,
            version=0,
            in_commit_timestamp=summary.in_commit_timestamp,
            changed_by_commit=False,
        )


def _taken_or_repeated(connection: sa.Connection, table_id: str, proposal: CommitProposal, head: Any) -> CommitOutcome:
    rows = connection.execute(_WINNERS, {"of_table": table_id, "first": proposal.version}).all()
    if rows and (rows[0].file_name, rows[0].file_size) == (proposal.file_name, proposal.file_size):
        return _repeated(proposal, head)
    return VersionTaken(proposed_version=proposal.version, winners=_winners(head, rows))


def _winners(head: Any, rows: Sequence[Any]) -> RatifiedCommits:
    """The winning commits, published or not, with the content that the catalog has."""
    return replace(ratified_commits_of(head, ()), commits=tuple(ratified_commit(row) for row in rows))


def _repeated(proposal: CommitProposal, head: Any) -> Ratified:
    return Ratified(
        version=proposal.version,
        latest_version=head.latest_version,
        published_version=head.published_version,
        repeated=True,
    )


def set_published_version(connection: sa.Connection, table_id: str, version: int) -> None:
    """Raise the published version, at most to the latest one, and delete the content that is no longer needed."""
    parameters = {"of_table": table_id, "published": version}
    if connection.execute(_PUBLISH_WITHOUT_GRANTS, parameters).rowcount:
        run_in_order(connection, [cached_content.deletion(table_id, version)])
        return
    guard.require_on_table(connection, guard.Operation.PUBLISH, table_id)
    if connection.execute(_PUBLISH, parameters).rowcount:
        keeps_inline = grant_check.keeps_inline(connection, table_id)
        run_in_order(connection, [cached_content.deletion(table_id, version, keeps_inline=keeps_inline)])
        return
    head = connection.execute(_HEAD, {"of_table": table_id}).one_or_none()
    if head is None:
        raise unknown_table(table_id)
    if version > head.latest_version:
        raise InvalidArgumentError(
            f"Version {version} of table {table_id} was reported as published, but the latest ratified version is "
            f"{head.latest_version}. Publish only ratified commits."
        )
