"""Commands of ``cm-delta events``: the feed of the catalog's events."""

from datetime import timedelta

import click

from cm_delta_dagster.catalog.durations import milliseconds_of, span_text
from cm_delta_dagster.catalog.event_feed import FeedEvent
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.options import DURATION, renamed_option
from cm_delta_dagster.cli.printer import output, show, warn
from cm_delta_dagster.cli.values import utc_second
from cm_delta_dagster.errors import FeedGapError
from cm_delta_dagster.operations.events.clean_feed import FEED_RETENTION_MS
from cm_delta_dagster.operations.events.clean_feed import clean_feed as delete_old
from cm_delta_dagster.operations.events.event_reader import EventReader, event_filter
from cm_delta_dagster.operations.recovery.display_text import counted

_KINDS = click.Choice([kind.value for kind in FeedKind], case_sensitive=False)


@click.command()
@click.option("--after", type=click.IntRange(min=0), default=0, help="Begin after this position.")
@click.option("--follow", is_flag=True, help="Wait for new events, until interrupted.")
@click.option("--kind", "kinds", multiple=True, type=_KINDS, help="Only this kind; may be repeated.")
@click.option("--scope", "scopes", multiple=True, help="Only this catalog, schema or table; may be repeated.")
@output(
    "for each event a line with an object: position, kind, at_ms, and what is known of table, table_id, version, scope, actor, "
    "details, operation, data_change, in_commit_timestamp, txn_id"
)
def feed(after: int, follow: bool, kinds: tuple[str, ...], scopes: tuple[str, ...]) -> None:
    """Print the events of the catalog, oldest first: commits, changes of tables and policies, refusals, leases.

    If events were deleted since --after, the command says which, and continues.
    """
    with open_catalog() as catalog:
        selection = event_filter(kinds, scopes)
        reader = EventReader(catalog.events, after=after, event_filter=selection)
        while True:
            try:
                for event in reader.follow() if follow else reader:
                    show(event.as_json(), _line(event))
                return
            except FeedGapError as gap:
                warn(str(gap))
                reader = EventReader(catalog.events, after=gap.resume_after, event_filter=selection)


def _line(event: FeedEvent) -> str:
    subject = str(event.identifier or event.scope or "")
    version = "" if event.version is None else f" version {event.version}"
    operation = "" if event.summary is None else f" {event.summary.operation}"
    facts = "".join(f" {name}={value}" for name, value in event.details.items())
    actor = "" if event.actor is None else f" by {event.actor}"
    return (
        f"{event.position:>9}  {utc_second(event.at_ms)}  {event.kind:<16}  {subject}{version}{operation}{facts}{actor}"
    )


@click.command("clean-feed")
@click.option(
    "--retention",
    type=DURATION,
    default=span_text(FEED_RETENTION_MS),
    show_default=True,
    help="Keep the events of the last time.",
)
@renamed_option("--days", "--retention")
@output("an object with the attributes of CleanFeedResult")
def clean_feed(retention: timedelta) -> None:
    """Delete old events from the feed, if FEED_CLEANUP is allowed in every catalog. The records of commits stay."""
    with open_client() as client:
        result = delete_old(client, retention_ms=milliseconds_of(retention))
    show(
        result,
        f"Deleted {counted(result.num_entries, 'event')}; the feed begins after position {result.deleted_up_to}.",
    )
