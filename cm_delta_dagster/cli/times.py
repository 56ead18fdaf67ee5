"""How commands print times."""

from cm_delta_dagster.protocol.predicates.timestamps import utc_text


def utc_second(epoch_ms: int) -> str:
    """``2026-01-31T12:00:00Z``; the number of milliseconds if the calendar does not have that time."""
    text = utc_text(epoch_ms)
    return f"{text[:-5]}Z" if text.endswith("Z") else text
