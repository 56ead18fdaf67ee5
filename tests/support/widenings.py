"""Values of a column before and after a write whose schema evolution makes the column wider, or does not."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Widening:
    """``value`` is stored in a column of type ``before``; then ``offered`` is written. ``after`` is the type of the column then."""

    before: str
    value: str
    offered: str
    after: str


WIDENINGS: tuple[Widening, ...] = tuple(
    Widening(before=before, value=value, offered=offered, after=after)
    for before, value, offered, after in (
        ("tinyint", "3Y", "300S", "smallint"),
        ("tinyint", "3Y", "70000", "int"),
        ("smallint", "3S", "70000", "int"),
        ("smallint", "3S", "5000000000", "bigint"),
        ("int", "3", "5000000000", "bigint"),
        ("float", "0.5F", "1e300D", "double"),
        ("tinyint", "3Y", "1.5D", "double"),
        ("smallint", "3S", "1.5D", "double"),
        ("int", "3", "1.5D", "double"),
        ("date", "DATE '2020-01-01'", "TIMESTAMP_NTZ '2020-01-02 05:00:00'", "timestamp_ntz"),
        ("decimal(5,2)", "1.25BD", "CAST(12345.25 AS DECIMAL(7,2))", "decimal(7,2)"),
        ("decimal(5,2)", "1.25BD", "CAST(123.2525 AS DECIMAL(7,4))", "decimal(7,4)"),
        ("int", "3", "CAST(3.25 AS DECIMAL(12,2))", "decimal(12,2)"),
        ("smallint", "3S", "CAST(3 AS DECIMAL(10,0))", "decimal(10,0)"),
        ("bigint", "3L", "CAST(3.5 AS DECIMAL(22,1))", "decimal(22,1)"),
        # These are not wider; the value is cast.
        ("int", "3", "CAST(7 AS DECIMAL(5,0))", "int"),
        ("bigint", "3L", "7.5D", "bigint"),
        ("double", "1.5D", "2.5F", "double"),
        ("date", "DATE '2020-01-01'", "TIMESTAMP '2020-01-02 05:00:00'", "date"),
        ("decimal(5,2)", "1.25BD", "CAST(12.2525 AS DECIMAL(6,4))", "decimal(5,2)"),
        ("string", "'a'", "5", "string"),
    )
)

COLUMNS = ", ".join(f"c{place} {one.before}" for place, one in enumerate(WIDENINGS))
STORED = ", ".join(f"{one.value} AS c{place}" for place, one in enumerate(WIDENINGS))
OFFERED = ", ".join(f"{one.offered} AS c{place}" for place, one in enumerate(WIDENINGS))
STORED_AS = ", ".join(f"CAST({one.value} AS {one.after}) AS c{place}" for place, one in enumerate(WIDENINGS))
OFFERED_AS = ", ".join(f"CAST({one.offered} AS {one.after}) AS c{place}" for place, one in enumerate(WIDENINGS))
