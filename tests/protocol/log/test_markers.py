"""Markers of warehouses and tables: encoding, decoding, invalid markers."""

import json

import pytest

from cm_delta_dagster.protocol.log.markers import (
    MarkedState,
    TableMarker,
    WarehouseMarker,
    decode_table_marker,
    decode_warehouse_marker,
    encode_marker,
)

WAREHOUSE = WarehouseMarker(catalog_id="c-1")
TABLE = TableMarker(table_id="t-1", name="main.sales.überweisung", catalog_id="c-1", state=MarkedState.DROPPED)


def test_an_encoded_marker_is_decoded() -> None:
    assert decode_warehouse_marker(encode_marker(WAREHOUSE)) == WAREHOUSE
    assert decode_table_marker(encode_marker(TABLE)) == TABLE
    assert json.loads(encode_marker(TABLE))["format"] == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"nothing",
        b"[" * 100_000,
        encode_marker(WAREHOUSE)[:-5],
        encode_marker(TABLE).replace(b'"format": 1', b'"format": 2'),
        encode_marker(WAREHOUSE).replace(b'"format": 1', b'"format": 2'),
        encode_marker(WAREHOUSE).replace(b'"c-1"', b"7"),
        encode_marker(TABLE).replace(b'"dropped"', b'"sold"'),
        encode_marker(TABLE).replace(b'"t-1"', b"null"),
    ],
)
def test_an_invalid_marker_is_ignored(data: bytes) -> None:
    assert decode_table_marker(data) is None
    if b"table_id" not in data:
        assert decode_warehouse_marker(data) is None
