"""Parquet bytes of the log: round trips, and errors for damaged bytes."""

import io
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cm_delta_dagster.errors import CorruptLogError, InvalidDataError, ObjectNotFoundError
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.parquet import count_rows, decode_parquet, encode_parquet, leaf_columns

_TABLE = pa.table(
    {
        "add": pa.array(
            [{"path": "a", "tags": [("k", None)], "empty": None}, None],
            pa.struct({"path": pa.string(), "tags": pa.map_(pa.string(), pa.string()), "empty": pa.string()}),
        ),
        "stamp": pa.array([datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)]),
        "local": pa.array([datetime(2020, 1, 1, 0, 0, 0, 1), None]),
        "day": pa.array([date(1, 1, 1), None]),
        "exact": pa.array([Decimal("12345678901234567890123456.123456789012"), None], pa.decimal128(38, 12)),
    }
)


@pytest.mark.requirements("CKPT-7", "UP-TP-1")
@pytest.mark.parametrize("compression", ["zstd", "snappy"])
def test_a_table_is_encoded_and_decoded_unchanged(compression: str) -> None:
    data = encode_parquet(_TABLE, compression=compression)
    assert decode_parquet(data).equals(_TABLE)
    assert pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(0).compression == compression.upper()


@pytest.mark.requirements("CKPT-2")
def test_only_requested_columns_are_read_and_unknown_ones_are_ignored() -> None:
    table = decode_parquet(encode_parquet(_TABLE), columns=["add.path", "absent"])
    assert table.to_pylist() == [{"add": {"path": "a"}}, {"add": None}]


@pytest.mark.requirements("CKPT-12")
def test_the_leaf_columns_are_read_from_the_footer() -> None:
    assert {"add.path", "add.empty"} <= set(leaf_columns(encode_parquet(_TABLE)))


@pytest.mark.requirements("CKPT-12", "FILE-1")
def test_an_empty_map_is_not_read_as_null() -> None:
    table = pa.table({"m": pa.array([[]], pa.map_(pa.string(), pa.string()))})
    data = encode_parquet(table)
    assert decode_parquet(data, columns=leaf_columns(data)).equals(table)


@pytest.mark.requirements("CKPT-11")
def test_int96_timestamps_outside_of_the_nanosecond_range_are_read() -> None:
    sink = io.BytesIO()
    pq.write_table(_TABLE.select(["local"]), sink, use_deprecated_int96_timestamps=True)
    assert decode_parquet(sink.getvalue())["local"].to_pylist() == [datetime(2020, 1, 1, 0, 0, 0, 1), None]


@pytest.mark.requirements("CKPT-17")
@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-9], lambda data: b"PAR1" + data[200:]])
def test_damaged_bytes_raise_a_corrupt_log_error(damage: Callable[[bytes], bytes]) -> None:
    data = damage(encode_parquet(_TABLE))
    with pytest.raises(CorruptLogError):
        decode_parquet(data)
    with pytest.raises(CorruptLogError):
        leaf_columns(damage(b"x" * 5))


@pytest.mark.requirements("STATS-1")
@pytest.mark.parametrize("columns", [1, 2000])
def test_rows_are_counted_from_a_footer_of_any_length(columns: int) -> None:
    """A data file without statistics; the larger footer is longer than the first read."""
    store = MemoryStore()
    table = pa.table({f"a column with a long name {number}": [1, 2, 3] for number in range(columns)})
    store.write("memory://t/f.parquet", encode_parquet(table))
    assert count_rows(store, "memory://t/f.parquet") == 3


@pytest.mark.parametrize("cut", [0, 3, 20, -1])
def test_the_error_of_a_truncated_data_file_has_its_location(cut: int) -> None:
    store = MemoryStore()
    store.write("memory://t/f.parquet", encode_parquet(pa.table({"a": [1]}))[:cut])
    with pytest.raises(InvalidDataError, match=r"memory://t/f\.parquet"):
        count_rows(store, "memory://t/f.parquet")
    with pytest.raises(ObjectNotFoundError, match=r"gone\.parquet"):
        count_rows(store, "memory://t/gone.parquet")
