"""Commands of ``cm-delta`` for the feed of the catalog's events, webhooks and maintenance leases."""

import signal
import threading
from dataclasses import asdict
from typing import Any

import click

from cm_delta_dagster.catalog.event_feed import FeedEvent
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.catalog.webhooks import Webhook
from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.days import DAYS, days_in_ms, days_of
from cm_delta_dagster.cli.output import say, say_json
from cm_delta_dagster.cli.times import utc_second
from cm_delta_dagster.errors import FeedGapError
from cm_delta_dagster.operations.events.clean_feed import FEED_RETENTION_MS
from cm_delta_dagster.operations.events.clean_feed import clean_feed as delete_old
from cm_delta_dagster.operations.events.deliver_webhooks import (
    DeliverySettings,
    deliver_webhooks,
    failures_of,
    redeliver_failures,
    run_webhooks,
)
from cm_delta_dagster.operations.events.event_reader import EventReader, event_filter
from cm_delta_dagster.operations.events.receiver_addresses import check_new_webhook
from cm_delta_dagster.operations.recovery.display_text import counted

_DEFAULTS = DeliverySettings()
_KINDS = click.Choice([kind.value for kind in FeedKind], case_sensitive=False)
_kinds = click.option("--kind", "kinds", multiple=True, type=_KINDS, help="Only this kind; may be repeated.")
_scopes = click.option("--scope", "scopes", multiple=True, help="Only this catalog, schema or table; may be repeated.")
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.option("--after", type=click.IntRange(min=0), default=0, help="Begin after this position.")
@click.option("--follow", is_flag=True, help="Wait for new events, until interrupted.")
@_kinds
@_scopes
@_as_json
@click.pass_context
def feed(
    context: click.Context, after: int, follow: bool, kinds: tuple[str, ...], scopes: tuple[str, ...], as_json: bool
) -> None:
    """Print the events of the catalog, oldest first: commits, changes of tables and policies, refusals, leases.

    With --json each event is a line. If events were deleted since --after, the command says which, and continues.
    """
    with open_catalog(context) as catalog:
        wanted = event_filter(kinds, scopes)
        reader = EventReader(catalog, after=after, event_filter=wanted)
        while True:
            try:
                for event in reader.follow() if follow else reader:
                    _show_event(event, as_json=as_json)
                return
            except FeedGapError as gap:
                say(f"Warning: {gap}", err=True)
                reader = EventReader(catalog, after=gap.resume_after, event_filter=wanted)


def _show_event(event: FeedEvent, *, as_json: bool) -> None:
    if as_json:
        say_json(event.as_json())
        return
    subject = str(event.identifier or event.scope or "")
    version = "" if event.version is None else f" version {event.version}"
    operation = "" if event.summary is None else f" {event.summary.operation}"
    facts = "".join(f" {name}={value}" for name, value in event.details.items())
    actor = "" if event.actor is None else f" by {event.actor}"
    say(
        f"{event.position:>9}  {utc_second(event.at_ms)}  {event.kind:<16}  {subject}{version}{operation}{facts}{actor}"
    )


@click.command("clean-feed")
@click.option(
    "--days", type=DAYS, default=days_of(FEED_RETENTION_MS), show_default=True, help="Keep events of the last days."
)
@click.pass_context
def clean_feed(context: click.Context, days: float) -> None:
    """Delete old events from the feed, if FEED_CLEANUP is allowed in every catalog. The records of commits stay."""
    with open_client(context) as client:
        result = delete_old(client, retention_ms=days_in_ms(days))
    say(f"Deleted {counted(result.num_entries, 'event')}; the feed begins after position {result.deleted_up_to}.")


@click.command()
@_as_json
@click.pass_context
def leases(context: click.Context, as_json: bool) -> None:
    """List the maintenance leases."""
    with open_catalog(context) as catalog:
        found = catalog.leases()
    if as_json:
        say_json([{**asdict(lease), "identifier": str(lease.identifier)} for lease in found], indent=2)
        return
    for lease in found:
        state = "expired" if lease.expired else "held   "
        say(
            f"{state}  {lease.identifier}  {lease.kind}  until {utc_second(lease.expires_ms)}  token {lease.token}  {lease.owner}"
        )
    if not found:
        say("No lease is held.")


@click.command("expire-lease")
@click.argument("name")
@click.option("--owner", required=True, help="The holder, as `cm-delta leases` shows it.")
@click.option("--reason", default="", help="For the audit.")
@click.pass_context
def expire_lease(context: click.Context, name: str, owner: str, reason: str) -> None:
    """End the maintenance lease of another run on the table NAME: it can neither commit nor delete any more."""
    with open_catalog(context) as catalog:
        entry = catalog.load_table(TableIdentifier.parse(name))
        catalog.expire_lease(entry.table_id, owner=owner, reason=reason)
    say(f"The lease of {owner} on {name} is ended.")


@click.group()
def webhooks() -> None:
    """Subscribe URLs to the feed, and deliver events to them."""


@webhooks.command("set")
@click.argument("name")
@click.argument("url")
@click.option("--secret", required=True, help="Where the secret for signatures is: env:NAME or file:/path.")
@click.option(
    "--after", type=click.IntRange(min=0), help="Position after which a new subscription begins; default: now."
)
@_kinds
@_scopes
@click.pass_context
def set_webhook(
    context: click.Context,
    name: str,
    url: str,
    secret: str,
    after: int | None,
    kinds: tuple[str, ...],
    scopes: tuple[str, ...],
) -> None:
    """Subscribe URL as NAME, or change the subscription NAME, which keeps its position."""
    with open_catalog(context) as catalog:
        check_new_webhook(url)
        start = catalog.latest_feed_position() if after is None else after
        wanted = event_filter(kinds, scopes)
        catalog.put_webhook(Webhook(name=name, url=url, secret=secret, wanted=wanted, position=start))
    say(f"{name} is set. `cm-delta webhooks run` delivers the events.")


@webhooks.command("list")
@_as_json
@click.pass_context
def list_webhooks(context: click.Context, as_json: bool) -> None:
    """List the subscriptions, with how many events lie after their positions."""
    with open_catalog(context) as catalog:
        latest = catalog.latest_feed_position()
        found = [(webhook, len(catalog.webhook_failures(webhook.name))) for webhook in catalog.webhooks()]
    if as_json:
        say_json([_as_object(webhook, failures, latest) for webhook, failures in found], indent=2)
        return
    for webhook, failures in found:
        say(
            f"{webhook.name}  {webhook.shown_url}  at position {webhook.position} of {latest}, {counted(failures, 'failure')}"
        )
    if not found:
        say("No webhook is set.")


def _as_object(webhook: Webhook, failures: int, latest: int) -> dict[str, Any]:
    return {
        "name": webhook.name,
        "url": webhook.shown_url,
        "secret": webhook.secret,
        "kinds": sorted(kind.value for kind in webhook.wanted.kinds),
        "scopes": list(webhook.wanted.scopes),
        "position": webhook.position,
        "latest_position": latest,
        "failures": failures,
    }


@webhooks.command("remove")
@click.argument("name")
@click.pass_context
def remove_webhook(context: click.Context, name: str) -> None:
    """Delete the subscription NAME with its failures."""
    with open_catalog(context) as catalog:
        catalog.remove_webhook(name)
    say(f"{name} is removed.")


@webhooks.command("run")
@click.option("--once", is_flag=True, help="Deliver what the feed has now, and end.")
@click.option("--attempts", default=_DEFAULTS.max_attempts, show_default=True, type=click.IntRange(min=1))
@click.option("--timeout", default=_DEFAULTS.timeout_s, show_default=True, help="Seconds for the answer to an event.")
@click.pass_context
def run(context: click.Context, once: bool, attempts: int, timeout: float) -> None:
    """Deliver events to the subscribers, until SIGTERM or Ctrl-C; the exit code with --once is 1 if a delivery failed."""
    with open_client(context) as client:
        settings = DeliverySettings(max_attempts=attempts, timeout_s=timeout)
        if not once:
            stop = threading.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: stop.set())
            run_webhooks(client, settings=settings, stop=stop)
            return
        reports = deliver_webhooks(client, settings=settings)
    for report in reports:
        error = "" if report.error is None else f": {report.error}"
        say(f"{report.name}: {report.num_delivered} delivered, {report.num_failed} failed{error}")
    if any(report.num_failed or report.error for report in reports):
        context.exit(1)


@webhooks.command("failures")
@click.argument("name")
@click.option("--redeliver", is_flag=True, help="Send them again, once each; those that are accepted are deleted.")
@_as_json
@click.pass_context
def failures(context: click.Context, name: str, redeliver: bool, as_json: bool) -> None:
    """List the events that the subscriber NAME did not accept after all attempts."""
    with open_client(context) as client:
        if redeliver:
            accepted, refused = redeliver_failures(client, name)
            say(f"{accepted} accepted, {refused} refused.", err=as_json)
        found = failures_of(client, name)
    if as_json:
        say_json([asdict(failure) for failure in found], indent=2)
        return
    for failure in found:
        say(f"{failure.position:>9}  {utc_second(failure.failed_ms)}  {failure.error}")
