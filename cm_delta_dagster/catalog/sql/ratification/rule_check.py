"""The check of a proposal against the commit rules of its table."""

from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation, RuleViolation
from cm_delta_dagster.catalog.ratification import TableCounts
from cm_delta_dagster.catalog.rules.kinds import violations
from cm_delta_dagster.catalog.rules.rule_kind import CommitAuthor, GuardedCommit
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.database.prepared import Prepared
from cm_delta_dagster.catalog.sql.database.schema import COMMITS
from cm_delta_dagster.catalog.sql.ratification.context import CommitContext, ProposalKind
from cm_delta_dagster.catalog.sql.rows.definitions import metadata_of
from cm_delta_dagster.catalog.sql.rules import held_commits, rule_rows
from cm_delta_dagster.errors import ApprovalRequiredError, CommitRefusedError
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.refusals import Refusal

NAME = rule_rows.CHECK

_COUNTS = Prepared(
    sa.select(COMMITS.c.num_rows, COMMITS.c.num_files, COMMITS.c.size_bytes).where(
        COMMITS.c.table_id == sa.bindparam("of_table"), COMMITS.c.version == sa.bindparam("of_version")
    )
)
_NAMES = sa.select(guard.NAMES.c.name)


def check(connection: sa.Connection, context: CommitContext) -> None:
    """Check the proposal against the rules of its table. An approval holds for the rules of its request alone.

    Raises:
        CommitRefusedError: it violates a rule that refuses it, or one that its request was not made for.
        ApprovalRequiredError: an approval lets it pass, and there is none.
    """
    if context.kind is ProposalKind.PUBLISHED:
        return  # It is a commit already. No rule covers a table whose commits are made so.
    violated = violations_of(connection, context)
    refuse(context, [violation for violation in violated if violation.rule.on_violation is OnViolation.REFUSE])
    if not violated:
        return
    hold_id = context.proposal.hold_id
    approved = None if hold_id is None else held_commits.approved_rules(connection, hold_id, context.table_id)
    if approved is not None:
        # ``commits`` checks that the request is pending and belongs to this commit, and closes it.
        _require_covered(context, violated, approved)
        return
    if context.kind is ProposalKind.REGISTERED:
        refuse(context, violated)
    raise ApprovalRequiredError(
        f"The commit of version {context.proposal.version} to {context.identifier} needs an approval: "
        f"{'; '.join(map(str, violated))}.",
        what=tuple(map(str, violated)),
        rules=tuple(violation.rule.demand for violation in violated),
        ask=contacts(connection, context, violated),
        refusal=_refusal(context, violated),
    )


def violations_of(connection: sa.Connection, context: CommitContext) -> tuple[RuleViolation, ...]:
    """What the proposal does against the rules of its table."""
    rules = context.reads.rules
    actions = context.actions if rules else None
    if actions is None:
        return tuple(_of_unknown_content(rule) for rule in rules)
    return violations(rules, _guarded(connection, context, rules, actions))


def _require_covered(context: CommitContext, violated: Sequence[RuleViolation], covered: frozenset[str]) -> None:
    """Refuse an approved commit that violates a rule of which its request says nothing. Raises CommitRefusedError."""
    others = [violation for violation in violated if violation.rule.demand not in covered]
    if not others:
        return
    refusal = _refusal(context, others)
    raise CommitRefusedError(
        f"{refusal} The request {context.proposal.hold_id} was not made for this rule as it is now, and it still waits. Reject the "
        "request and run the write again, which asks for a new approval, or change the rule.",
        refusal=refusal,
    )


def refuse(context: CommitContext, violated: Sequence[RuleViolation]) -> None:
    """Refuse the proposal if it violates a rule. Raises CommitRefusedError."""
    if violated:
        refusal = _refusal(context, violated)
        remedy = next((violation.remedy for violation in violated if violation.remedy is not None), None)
        raise CommitRefusedError(str(refusal), refusal=refusal).with_remedy(remedy)


def _refusal(context: CommitContext, violated: Sequence[RuleViolation]) -> Refusal:
    rule = violated[0].rule
    refusal = context.refusal(rule=rule.label, scope=rule.scope, reason=_reason(violated))
    return replace(refusal, set_by=rule.set_by or None, ask=(rule.whom_to_ask,))


def contacts(connection: sa.Connection, context: CommitContext, violated: Sequence[RuleViolation]) -> tuple[str, ...]:
    """Whom to ask for an approval: the contacts of the rules, else the owners."""
    named = [violation.rule.contact for violation in violated if violation.rule.contact]
    owners = guard.owners(connection, str(context.identifier), context.table_id)
    return tuple(dict.fromkeys(named or owners or [violation.rule.whom_to_ask for violation in violated]))


def _reason(violated: Sequence[RuleViolation]) -> str:
    """What the commit does, with the reasons of the rules; the first rule is named by the refusal itself."""
    first, *others = violated
    because = f", and the rule says: {first.rule.reason}" if first.rule.reason else ""
    also = "".join(f"; {violation}" for violation in others)
    return f"it {first.what}{because}{also}"


def _of_unknown_content(rule: CommitRule) -> RuleViolation:
    return RuleViolation(rule=rule, what="has a content that the catalog cannot read")


def _guarded(
    connection: sa.Connection, context: CommitContext, rules: Sequence[CommitRule], actions: CommitActions
) -> GuardedCommit:
    """The commit with what ``rules`` need to know of the table; an append needs nothing from the database."""
    after = context.proposal.summary.counts
    if context.kind is ProposalKind.REGISTERED:
        return GuardedCommit(
            actions=actions, before=actions.metadata, counts=None, counts_after=after, author=CommitAuthor()
        )
    changes_metadata = actions.metadata is not None
    needs_metadata = changes_metadata or any(rule.kind is CommitRuleKind.REQUIRED_CONSTRAINTS for rule in rules)
    return GuardedCommit(
        actions=actions,
        before=metadata_of(connection, context.table_id) if needs_metadata else None,
        counts=_counts(connection, context) if actions.removes.num_rows else None,
        counts_after=after,
        author=_author(connection, context) if changes_metadata else CommitAuthor(),
    )


def _counts(connection: sa.Connection, context: CommitContext) -> TableCounts | None:
    if context.head is None:
        return None
    rows = _COUNTS.rows(connection, {"of_table": context.table_id, "of_version": context.head.latest_version})
    if not rows or rows[0].num_files is None:
        return None
    return TableCounts(num_rows=rows[0].num_rows, num_files=rows[0].num_files, size_bytes=rows[0].size_bytes)


def _author(connection: sa.Connection, context: CommitContext) -> CommitAuthor:
    names = connection.execute(_NAMES, guard.caller_parameters(connection)).scalars()
    is_owner = not guard.is_enabled(connection) or Privilege.OWN in context.reads.privileges
    return CommitAuthor(principal=context.caller or "", names=frozenset(names), is_owner=is_owner)
