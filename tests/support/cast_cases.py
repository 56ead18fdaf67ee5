"""Texts and what Spark's CAST makes of them without ANSI mode, in the time zone Europe/Berlin, as texts; None for NULL.

Dates are days and timestamps microseconds since 1970. A test with Spark checks the table itself.
"""

import json
from collections.abc import Mapping
from pathlib import Path

ZONE = "Europe/Berlin"
CAST_CASES: Mapping[str, Mapping[str, str | None]] = json.loads(
    (Path(__file__).parent / "cast_cases.json").read_text(encoding="utf-8")
)
"""The cases by SQL type."""
