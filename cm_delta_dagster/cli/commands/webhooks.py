"""Commands of ``cm-delta`` for webhooks."""

import signal
import threading
from typing import Any

import click

from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.webhooks import Webhook
from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.printer import note, output, show, show_records
from cm_delta_dagster.operations.events.deliver_webhooks import (
    DeliverySettings,
    deliver_webhooks,
    failures_of,
    redeliver_failures,
    run_webhooks,
)
from cm_delta_dagster.operations.events.event_reader import event_filter
from cm_delta_dagster.operations.events.receiver_addresses import check_new_webhook

_DEFAULTS = DeliverySettings()
_KINDS = click.Choice([kind.value for kind in FeedKind], case_sensitive=False)
_kinds = click.option("--kind", "kinds", multiple=True, type=_KINDS, help="Only this kind; may be repeated.")
_scopes = click.option("--scope", "scopes", multiple=True, help="Only this catalog, schema or table; may be repeated.")


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
@output("an object: name")
def set_webhook(
    name: str,
    url: str,
    secret: str,
    after: int | None,
    kinds: tuple[str, ...],
    scopes: tuple[str, ...],
) -> None:
    """Subscribe URL as NAME, or change the subscription NAME, which keeps its position."""
    with open_catalog() as catalog:
        check_new_webhook(url)
        start = catalog.latest_feed_position() if after is None else after
        catalog.put_webhook(
            Webhook(name=name, url=url, secret=secret, wanted=event_filter(kinds, scopes), position=start)
        )
    show({"name": name}, f"{name} is set. `cm-delta webhooks run` delivers the events.")


@webhooks.command("list")
@output("an array with an object for each: name, url, secret, kinds, scopes, position, latest_position, failures")
def list_webhooks() -> None:
    """List the subscriptions, with how many events lie after their positions."""
    with open_catalog() as catalog:
        latest = catalog.latest_feed_position()
        subscriptions = [(webhook, len(catalog.webhook_failures(webhook.name))) for webhook in catalog.webhooks()]
    records = [_as_object(webhook, failures, latest) for webhook, failures in subscriptions]
    show_records(records, "name url position latest_position failures", empty="No webhook is set.")


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
@output("an object: name")
def remove_webhook(name: str) -> None:
    """Delete the subscription NAME with its failures."""
    with open_catalog() as catalog:
        catalog.remove_webhook(name)
    show({"name": name}, f"{name} is removed.")


@webhooks.command("run")
@click.option("--once", is_flag=True, help="Deliver what the feed has now, and end.")
@click.option("--attempts", default=_DEFAULTS.max_attempts, show_default=True, type=click.IntRange(min=1))
@click.option("--timeout", default=_DEFAULTS.timeout_s, show_default=True, help="Seconds for the answer to an event.")
@output("an array with the attributes of each DeliveryReport")
@click.pass_context
def run(context: click.Context, once: bool, attempts: int, timeout: float) -> None:
    """Deliver events to the subscribers, until SIGTERM or Ctrl-C; the exit code with --once is 1 if a delivery failed."""
    with open_client() as client:
        settings = DeliverySettings(max_attempts=attempts, timeout_s=timeout)
        if not once:
            stop = threading.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: stop.set())
            run_webhooks(client, settings=settings, stop=stop)
            return
        reports = deliver_webhooks(client, settings=settings)
    lines = []
    for report in reports:
        error = "" if report.error is None else f": {report.error}"
        lines.append(f"{report.name}: {report.num_delivered} delivered, {report.num_failed} failed{error}")
    show(list(reports), *lines)
    if any(report.num_failed or report.error for report in reports):
        context.exit(1)


@webhooks.command("failures")
@click.argument("name")
@click.option("--redeliver", is_flag=True, help="Send them again, once each; those that are accepted are deleted.")
@output("an array with the attributes of each WebhookFailure")
def failures(name: str, redeliver: bool) -> None:
    """List the events that the subscriber NAME did not accept after all attempts."""
    with open_client() as client:
        if redeliver:
            accepted, refused = redeliver_failures(client, name)
            note(f"{accepted} accepted, {refused} refused.")
        failed = failures_of(client, name)
    show_records(failed, "position failed_ms error")
