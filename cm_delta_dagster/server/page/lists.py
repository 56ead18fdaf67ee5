"""The feed of commits, the rules, the refusals and the tokens."""

from collections.abc import Sequence
from itertools import dropwhile

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from cm_delta_dagster.catalog.audit import AuditOutcome
from cm_delta_dagster.catalog.tokens import AccessToken
from cm_delta_dagster.server.page.callers import PageCaller, SignedIn

router = APIRouter(include_in_schema=False)

SHOWN = 100
"""Entries of a page."""

RULES_SHOWN = 500
"""Rules of each kind on a page. A scope leads to others."""


@router.get("/page/feed")
def feed(caller: SignedIn, scope: str = "", before: int | None = None) -> HTMLResponse:
    """The commits of tables that the caller may read, the newest first."""
    scope = caller.scope(scope)
    entries = caller.catalog.overview.newest_commits(scope, before=before, limit=SHOWN + 1)
    shown = entries[:SHOWN]
    last = None if len(entries) == len(shown) else shown[-1].position
    return caller.show("feed.html", scope=scope, before=before, entries=shown, next=last)


@router.get("/page/rules")
def rules(caller: SignedIn, scope: str = "") -> HTMLResponse:
    """What is demanded of commits, how they are made, and which maintenance is permitted."""
    scope = caller.scope(scope)
    catalog = caller.catalog
    commit_rules = catalog.commit_rules.commit_rules(scope)
    policies = [rule for rule in catalog.commit_policies.commit_policies() if _concerns(rule.scope, scope)]
    maintenance = [rule for rule in catalog.maintenance_policies.maintenance_rules() if _concerns(rule.scope, scope)]
    return caller.show(
        "rules.html",
        scope=scope,
        commit_rules=commit_rules[:RULES_SHOWN],
        policies=policies[:RULES_SHOWN],
        maintenance=maintenance[:RULES_SHOWN],
        most=RULES_SHOWN,
        is_cut=max(map(len, (commit_rules, policies, maintenance))) > RULES_SHOWN,
    )


def _concerns(of_rule: str, scope: str) -> bool:
    """Whether a rule applies at, above or below the scope."""
    return not scope or f"{scope}.".startswith(f"{of_rule}.") or f"{of_rule}.".startswith(f"{scope}.")


@router.get("/page/refusals")
def refusals(caller: SignedIn, scope: str = "", before: int | None = None) -> HTMLResponse:
    """What the catalog has refused, the newest first. For owners of the scope."""
    scope = caller.scope(scope)
    newest = caller.catalog.audit_log.audit(scope=scope, outcome=AuditOutcome.REFUSED, before=before, limit=SHOWN + 1)[
        ::-1
    ]
    shown = newest[:SHOWN]
    last = None if len(newest) == len(shown) else shown[-1].entry_id
    return caller.show("refusals.html", scope=scope, before=before, entries=shown, next=last)


@router.get("/page/tokens")
def tokens(caller: SignedIn, after: str = "") -> HTMLResponse:
    """The tokens with their last use, the oldest first. For owners of the whole catalog."""
    entries = _after(caller.catalog.tokens.tokens(), after)
    shown = entries[:SHOWN]
    last = None if len(entries) == len(shown) else shown[-1].token_id
    states = {token.token_id: _state(caller, token) for token in shown}
    return caller.show("tokens.html", after=after, tokens=shown, states=states, next=last)


def _after(tokens: Sequence[AccessToken], token_id: str) -> Sequence[AccessToken]:
    """The tokens after this one, which no list loses."""
    return [*dropwhile(lambda token: token.token_id != token_id, tokens)][1:] if token_id else tokens


def _state(caller: PageCaller, token: AccessToken) -> str:
    if token.revoked_ms is not None:
        return "revoked"
    is_over = token.expires_ms is not None and token.expires_ms <= caller.catalog.coordinator.now_ms()
    return "expired" if is_over else "valid"
