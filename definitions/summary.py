"""The summary of the demo: the tables, and checks of what they hold against the raw files."""

from collections.abc import Sequence

import polars as pl

from cm_delta_dagster import Connection
from definitions.console import text_table
from definitions.defs.flights import FLIGHT_KEY
from definitions.defs.months import month_key
from definitions.defs.weather_checks import HIGHEST
from definitions.demo import CONCURRENT_MONTHS, FLIGHTS, JOINED, WEATHER, Demo
from definitions.late_corrections import JUNE
from resources.raw_data import RawData

_TABLE_COLUMNS = ("table", "rows", "version", "data version", "published", "files")


def summarize(demo: Demo, raw: RawData) -> bool:
    """Print tables and checks. Returns whether all checks hold."""
    snapshots = {name: demo.lake.table(name).snapshot() for name in demo.lake.tables()}
    rows = [
        (name, found.num_rows or 0, found.version, found.data_version, found.published_version, found.num_files)
        for name, found in snapshots.items()
    ]
    print(f"\n{text_table(rows, _TABLE_COLUMNS)}\n")
    compacted = [(table, before, after) for table, (before, after) in demo.files.items()]
    print(f"{text_table(compacted, ('compacted', 'files before', 'after'))}\n")
    lines = [
        *_raw_rows(demo.lake, raw),
        _months(demo.lake, raw),
        _joined(demo.lake),
        _audited(demo),
        _report(demo.lake),
        _concurrent(demo),
        _checks(demo),
    ]
    for holds, text in lines:
        print(f"{'ok ' if holds else 'BAD'} {text}")
    return all(holds for holds, _ in lines)


def _raw_rows(lake: Connection, raw: RawData) -> list[tuple[bool, str]]:
    """Each table has as many rows as its raw file; the flights have one more, which the script added."""
    lines = []
    for name in ("flights", "weather", "planes", "airports", "airlines"):
        expected = _raw(raw, name, "*").height
        more = 1 if name == "flights" else 0
        table = lake.table(f"main.nyc.{name}")
        found = table.to_arrow(table.snapshot().schema.names[:1]).num_rows
        extra = " + 1 late flight" if more else ""
        text = f"main.nyc.{name}: {found:,} rows; the raw file has {expected:,}{extra}"
        lines.append((found == expected + more, text))
    return lines


def _months(lake: Connection, raw: RawData) -> tuple[bool, str]:
    """Each month of 2013 is in the partition of the month with the same number."""
    expected = {
        month_key(number): rows for number, rows in _raw(raw, "flights", "month")["month"].value_counts().rows()
    }
    expected[month_key(JUNE)] += 1
    found = {str(month): rows for month, rows in _rows(lake, FLIGHTS, ["month"])["month"].value_counts().rows()}
    first, last = min(expected), max(expected)
    return (
        found == expected,
        f"{FLIGHTS}: {len(found)} months from {first} to {last}, each with the rows of its month in the raw file",
    )


def _joined(lake: Connection) -> tuple[bool, str]:
    """The joined table has the flights with the corrections."""
    columns = [*FLIGHT_KEY, "dep_delay", "arr_delay"]
    flights, joined = _rows(lake, FLIGHTS, columns), _rows(lake, JOINED, columns)
    different = _missing(flights, joined) + _missing(joined, flights) + abs(flights.height - joined.height)
    return not different, f"{JOINED}: {different:,} rows differ from the corrected flights"


def _report(lake: Connection) -> tuple[bool, str]:
    """The report is that of the corrected flights."""
    flights = _rows(lake, FLIGHTS, ["month", "carrier", "dep_delay"])
    counts = (
        pl.len().cast(pl.Int64).alias("flights"),
        pl.col("dep_delay").null_count().cast(pl.Int64).alias("cancelled"),
    )
    expected = flights.group_by("month", "carrier").agg(*counts)
    found = _rows(lake, "main.nyc.carrier_months", expected.columns)
    different = _missing(expected, found) + _missing(found, expected)
    return not different, f"main.nyc.carrier_months: {found.height} rows, {different} differ from what the flights give"


def _audited(demo: Demo) -> tuple[bool, str]:
    """The audit passed for the right months and failed for the faulty one, whose rows are not in the table."""
    highest = _rows(demo.lake, WEATHER, ["temp"])["temp"].max()
    of_year, of_month = ("passed" if passed else "failed" for passed in demo.audits)
    is_right = demo.audits == [True, False] and isinstance(highest, float) and highest <= HIGHEST
    return (
        is_right,
        f"{WEATHER}: its audit {of_year}, that of a faulty month {of_month}; highest temperature: {highest!s} degrees",
    )


def _concurrent(demo: Demo) -> tuple[bool, str]:
    """One of two concurrent commits was rebased onto the other, and both are in the table."""
    written = " and ".join(
        f"{month} (conflict retries: {number})" for month, number in zip(CONCURRENT_MONTHS, demo.retries, strict=True)
    )
    return any(demo.retries), f"{FLIGHTS}: two concurrent runs wrote {written}"


def _checks(demo: Demo) -> tuple[bool, str]:
    """The check of unpublished commits failed after the corrections and passed after maintenance."""
    results = " and ".join("passed" if passed else "failed" for passed in demo.checks)
    return demo.checks == [False, True], f"check unpublished_commits: {results}, before and after maintenance"


def _raw(raw: RawData, name: str, column: str) -> pl.DataFrame:
    wanted = None if column == "*" else [column]
    return pl.read_csv(raw.local_path(name), columns=wanted, null_values="NA", infer_schema_length=None)


def _rows(lake: Connection, table: str, columns: Sequence[str]) -> pl.DataFrame:
    frame = pl.from_arrow(lake.table(table).to_arrow(columns))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _missing(rows: pl.DataFrame, others: pl.DataFrame) -> int:
    """Number of rows that are not among the others."""
    return rows.join(others, on=rows.columns, how="anti", nulls_equal=True).height
