"""Subscriptions to the feed by webhook. Functions over an open connection."""

import json
import re
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import WHOLE_CATALOG
from cm_delta_dagster.catalog.event_feed import EventFilter, checked_position
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.sql.access import audit, guard
from cm_delta_dagster.catalog.sql.database.schema import WEBHOOK_FAILURES, WEBHOOKS
from cm_delta_dagster.catalog.sql.feed import commits
from cm_delta_dagster.catalog.sql.rows import names
from cm_delta_dagster.catalog.webhooks import Webhook, WebhookFailure, is_deliverable, webhook_not_found
from cm_delta_dagster.errors import InvalidArgumentError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,120}", re.ASCII)
_SECRET = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/.+", re.ASCII)


def checked(webhook: Webhook) -> Webhook:
    """The subscription. Raises InvalidArgumentError for what cannot be delivered."""
    texts = {"name": webhook.name, "URL": webhook.url, "secret": webhook.secret}
    wrong = next((what for what, value in texts.items() if not isinstance(value, str)), None)
    if wrong is not None:
        raise InvalidArgumentError(f"The {wrong} of a webhook is {texts[wrong]!r}; give a text. Nothing was changed.")
    checked_position(webhook.position, name="The position of a webhook")
    if not _NAME.fullmatch(webhook.name):
        raise InvalidArgumentError(
            f"{webhook.name!r} cannot name a webhook: use 1 to 120 letters, digits, '_' and '-'. Nothing was changed."
        )
    if not is_deliverable(webhook.url):
        raise InvalidArgumentError(
            f"The webhook {webhook.name} cannot be delivered to its URL: give http://host/path or https://host/path without "
            "user and password, with at most a port up to 65535, and in ASCII (write other characters percent-encoded, and a host "
            "in its form xn--...). Nothing was changed."
        )
    if not _SECRET.fullmatch(webhook.secret) or not webhook.secret.isprintable():
        raise InvalidArgumentError(
            f"The secret of the webhook {webhook.name} must be a reference, env:NAME or file:/path, which the delivering "
            "process resolves. The catalog stores no secrets. Nothing was changed."
        )
    for scope in webhook.wanted.scopes:
        names.scope_parts(scope)
    return webhook


def put(connection: sa.Connection, webhook: Webhook, *, now_ms: int) -> None:
    """Insert the subscription, or replace all but its position."""
    guard.require(connection, guard.Operation.MANAGE_WEBHOOKS, WHOLE_CATALOG)
    values = {
        "url": webhook.url,
        "secret": webhook.secret,
        "kinds": json.dumps(sorted(kind.value for kind in webhook.wanted.kinds)),
        "scopes": json.dumps(list(webhook.wanted.scopes)),
    }
    changed = connection.execute(sa.update(WEBHOOKS).where(WEBHOOKS.c.name == webhook.name).values(values)).rowcount
    if not changed:
        _refuse_position_after_end(connection, webhook)
        row = {"name": webhook.name, "position": webhook.position, "created_ms": now_ms, **values}
        connection.execute(sa.insert(WEBHOOKS).values(row))
    change = audit.Change(action="set webhook", scope=WHOLE_CATALOG, after=f"{webhook.name} to {webhook.shown_url}")
    audit.record(connection, change, now_ms=now_ms)


def _refuse_position_after_end(connection: sa.Connection, webhook: Webhook) -> None:
    latest = commits.head(connection).latest_position
    if webhook.position > latest:
        raise InvalidArgumentError(
            f"The webhook {webhook.name} cannot begin after position {webhook.position}: the feed ends at position {latest}. "
            "Nothing was changed."
        )


def remove(connection: sa.Connection, name: str, *, now_ms: int) -> None:
    """Delete the subscription and its failures."""
    guard.require(connection, guard.Operation.MANAGE_WEBHOOKS, WHOLE_CATALOG)
    if not connection.execute(sa.delete(WEBHOOKS).where(WEBHOOKS.c.name == name)).rowcount:
        raise webhook_not_found(name)
    connection.execute(sa.delete(WEBHOOK_FAILURES).where(WEBHOOK_FAILURES.c.name == name))
    audit.record(connection, audit.Change(action="remove webhook", scope=WHOLE_CATALOG, before=name), now_ms=now_ms)


def webhooks(connection: sa.Connection) -> tuple[Webhook, ...]:
    """Every subscription, by name."""
    return tuple(_webhook(row) for row in connection.execute(sa.select(WEBHOOKS).order_by(WEBHOOKS.c.name)))


def lease(connection: sa.Connection, name: str, *, owner: str, until_ms: int, now_ms: int) -> bool:
    """Lease or renew, unless another owner has an unexpired lease."""
    free = sa.or_(WEBHOOKS.c.leased_by == owner, WEBHOOKS.c.leased_until_ms <= now_ms)
    leased = sa.update(WEBHOOKS).where(WEBHOOKS.c.name == name, free).values(leased_by=owner, leased_until_ms=until_ms)
    return bool(connection.execute(leased).rowcount)


def advance(connection: sa.Connection, name: str, *, owner: str, position: int, failure: WebhookFailure | None) -> bool:
    """Set the position if ``owner`` has the lease, and insert the failure with it."""
    mine = (WEBHOOKS.c.name == name, WEBHOOKS.c.leased_by == owner, WEBHOOKS.c.position < position)
    if not connection.execute(sa.update(WEBHOOKS).where(*mine).values(position=position)).rowcount:
        return False
    if failure is not None:
        same = (WEBHOOK_FAILURES.c.name == name, WEBHOOK_FAILURES.c.position == failure.position)
        connection.execute(sa.delete(WEBHOOK_FAILURES).where(*same))
        connection.execute(
            sa.insert(WEBHOOK_FAILURES).values(
                name=name,
                position=failure.position,
                body=failure.body,
                error=failure.error,
                failed_ms=failure.failed_ms,
            )
        )
    return True


def release(connection: sa.Connection, name: str, *, owner: str) -> None:
    """End the lease of ``owner``."""
    mine = (WEBHOOKS.c.name == name, WEBHOOKS.c.leased_by == owner)
    connection.execute(sa.update(WEBHOOKS).where(*mine).values(leased_by=None, leased_until_ms=0))


def failures(connection: sa.Connection, name: str) -> tuple[WebhookFailure, ...]:
    """The failures of a subscription, by position."""
    found = sa.select(WEBHOOK_FAILURES).where(WEBHOOK_FAILURES.c.name == name).order_by(WEBHOOK_FAILURES.c.position)
    return tuple(
        WebhookFailure(name=row.name, position=row.position, body=row.body, error=row.error, failed_ms=row.failed_ms)
        for row in connection.execute(found)
    )


def forget_failure(connection: sa.Connection, name: str, position: int) -> None:
    """Delete the failure if there is one."""
    same = (WEBHOOK_FAILURES.c.name == name, WEBHOOK_FAILURES.c.position == position)
    connection.execute(sa.delete(WEBHOOK_FAILURES).where(*same))


def _webhook(row: Any) -> Webhook:
    kinds = frozenset(FeedKind(kind) for kind in json.loads(row.kinds))
    wanted = EventFilter(kinds=kinds, scopes=tuple(json.loads(row.scopes)))
    return Webhook(name=row.name, url=row.url, secret=row.secret, wanted=wanted, position=row.position)
