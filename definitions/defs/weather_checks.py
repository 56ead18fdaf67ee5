"""What the audit of the weather checks before readers see a month."""

import dagster as dg
import polars as pl

from definitions.defs.months import MONTHS

LOWEST, HIGHEST = -30, 120
"""Temperatures in New York in degrees Fahrenheit; the records are -15 and 106."""

_SAMPLE = 5


@dg.asset_check(
    asset=["nyc", "weather"],
    blocking=True,
    partitions_def=MONTHS,
    description=f"Temperatures are between {LOWEST} and {HIGHEST} degrees Fahrenheit.",
)
def plausible_temperatures(weather: pl.DataFrame) -> dg.AssetCheckResult:
    """The rows of the months that the run writes, which no reader sees yet; a temperature may be unknown."""
    wrong = weather.filter(~pl.col("temp").is_between(LOWEST, HIGHEST))
    sample = wrong.select("origin", "time_hour", "temp").head(_SAMPLE)
    metadata: dict[str, dg.MetadataValue] = {"failing_rows": dg.MetadataValue.int(wrong.height)}
    if wrong.height:
        rows = "".join(f"\n| {' | '.join(map(str, row))} |" for row in sample.rows())
        metadata["sample"] = dg.MetadataValue.md(f"| origin | time_hour | temp |\n|---|---|---|{rows}")
    return dg.AssetCheckResult(
        passed=not wrong.height,
        description=f"{wrong.height:,} of {weather.height:,} temperatures are not between {LOWEST} and {HIGHEST} degrees.",
        metadata=metadata,
    )
