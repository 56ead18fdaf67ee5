"""A raw file with a fault, as a supplier may deliver one: the temperatures of a month are in tenths of a degree."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from resources.raw_data import RawData


@contextmanager
def faulty_weather(raw: RawData, month: int) -> Iterator[None]:
    """Within the block, the raw file of the weather has ten times the temperatures in this month."""
    file = Path(raw.local_path("weather"))
    right = file.read_bytes()
    rows = pl.read_csv(file, null_values="NA", infer_schema_length=None)
    wrong = pl.when(pl.col("month") == month).then(pl.col("temp") * 10).otherwise(pl.col("temp"))
    try:
        rows.with_columns(temp=wrong).write_csv(file, null_value="NA")
        yield
    finally:
        file.write_bytes(right)
