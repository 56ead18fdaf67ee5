"""Counts and times as messages of recovery and doctor show them. Values that programs read stay numbers."""

import datetime


def counted(number: int, noun: str) -> str:
    """``1 file`` or ``2 files``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def utc_text(epoch_ms: int) -> str:
    """``2026-01-31 12:00:00.000 UTC``; the number of milliseconds if the calendar does not have that time."""
    try:
        moment = datetime.datetime.fromtimestamp(epoch_ms // 1000, tz=datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{epoch_ms} ms since 1970"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{epoch_ms % 1000:03d} UTC"
