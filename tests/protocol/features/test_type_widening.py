"""Recorded type changes that can be read."""

import pytest

from cm_delta_dagster.errors import CorruptLogError, UnsupportedFeatureError
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.features.type_widening import (
    check_type_changes,
    iceberg_reads,
    is_widening,
    may_widen,
    widening_in_writes,
)
from cm_delta_dagster.protocol.schema.types import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    data_type_text,
)


@pytest.mark.requirements("UP-TW-2")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        *[("byte", wider) for wider in ("short", "integer", "long", "double", "decimal(10,0)", "decimal(12,2)")],
        *[("short", wider) for wider in ("integer", "long", "double", "decimal(10,0)")],
        *[("integer", wider) for wider in ("long", "double", "decimal(10,0)", "decimal(38,28)")],
        *[("long", wider) for wider in ("decimal(20,0)", "decimal(38,18)")],
        ("float", "double"),
        ("date", "timestamp_ntz"),
        ("decimal(5,2)", "decimal(6,2)"),
        ("decimal(5,2)", "decimal(10, 7)"),
        ("long", "long"),
    ],
)
def test_every_change_of_the_protocol_is_known(before: str, after: str) -> None:
    assert is_widening(before, after)


@pytest.mark.requirements("UP-TW-2", "UP-TW-5")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("long", "integer"),
        ("long", "double"),
        ("integer", "float"),
        ("double", "float"),
        ("integer", "decimal(9,0)"),
        ("integer", "decimal(11,2)"),
        ("long", "decimal(18,0)"),
        ("decimal(5,2)", "decimal(6,4)"),
        ("decimal(5,2)", "decimal(5,1)"),
        ("date", "timestamp"),
        ("string", "binary"),
        ("decimal(99,0)", "decimal(100,0)"),
    ],
)
def test_other_changes_are_unknown(before: str, after: str) -> None:
    assert not is_widening(before, after)


def _changed(changes: object) -> StructType:
    inner = StructType((StructField("x", LONG, True, {"delta.typeChanges": changes}),))
    return StructType((StructField("l", ArrayType(inner)),))


@pytest.mark.requirements("UP-TW-5")
def test_changes_are_checked_at_every_level() -> None:
    """All changes of a field, one after the other, and those inside of lists and maps."""
    good = {"fromType": "byte", "toType": "short"}
    check_type_changes(_changed([good, {"fromType": "short", "toType": "long", "fieldPath": "element"}]))
    with pytest.raises(UnsupportedFeatureError, match=r"'l\.element\.x' was changed from string to long"):
        check_type_changes(_changed([good, {"fromType": "string", "toType": "long"}]))


@pytest.mark.parametrize("changes", ["x", [1], [{}], [{"fromType": "byte"}], [{"fromType": 1, "toType": "long"}]])
def test_a_damaged_record_is_refused(changes: object) -> None:
    with pytest.raises(CorruptLogError, match="typeChanges"):
        check_type_changes(_changed(changes))


_KINDS = ("byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz", "string")
_DECIMALS = tuple(
    DecimalType(precision, scale) for precision in (5, 9, 10, 12, 20, 22) for scale in (0, 2, 4) if scale <= precision
)
_ALL: tuple[DataType, ...] = (*(PrimitiveType(name) for name in _KINDS), *_DECIMALS)


@pytest.mark.requirements("UP-TW-2")
@pytest.mark.parametrize(
    ("before", "after", "is_wider"),
    [
        *[
            (kind, DecimalType(precision, 0), precision >= 10)
            for kind in (BYTE, SHORT, INTEGER)
            for precision in (9, 10)
        ],
        *[(kind, DecimalType(12, scale), scale <= 2) for kind in (BYTE, SHORT, INTEGER) for scale in (2, 3)],
        *[(LONG, DecimalType(precision, 0), precision >= 20) for precision in (19, 20)],
        *[(DecimalType(5, 2), DecimalType(7, scale), scale in (2, 3, 4)) for scale in (1, 2, 3, 4, 5)],
        (DecimalType(5, 2), DecimalType(5, 2), False),
    ],
)
def test_a_decimal_holds_all_digits_of_what_it_replaces(before: DataType, after: DataType, is_wider: bool) -> None:
    assert may_widen(before, after) is is_wider


@pytest.mark.requirements("UP-TW-6")
@pytest.mark.parametrize(
    ("before", "after", "is_known"),
    [
        (INTEGER, LONG, True),
        (FLOAT, DOUBLE, True),
        (INTEGER, DOUBLE, False),
        (DATE, TIMESTAMP_NTZ, False),
        (INTEGER, DecimalType(10, 0), False),
        (DecimalType(5, 2), DecimalType(7, 2), True),
        (DecimalType(5, 2), DecimalType(7, 3), False),
    ],
)
def test_iceberg_has_fewer_changes(before: DataType, after: DataType, is_known: bool) -> None:
    assert iceberg_reads(before, after) is is_known


@pytest.mark.requirements("UP-TW-2", "UP-TW-5")
def test_every_change_that_is_made_can_be_read() -> None:
    """And a write may change what a user may change."""
    pairs = [(before, after) for before in _ALL for after in _ALL]
    made = {(_name(before), _name(after)) for before, after in pairs if may_widen(before, after)}
    writes = widening_in_writes(TableProperties({"delta.enableTypeWidening": "true"}))
    assert made == {(_name(before), _name(after)) for before, after in pairs if writes(before, after)}
    assert all(is_widening(*change) for change in made)
    for change in (
        ("integer", "double"),
        ("integer", "decimal(10,0)"),
        ("long", "decimal(20,0)"),
        ("byte", "decimal(12,2)"),
        ("decimal(5,2)", "decimal(9,4)"),
    ):
        assert change in made
    for change in (
        ("long", "decimal(12,0)"),
        ("integer", "decimal(9,0)"),
        ("decimal(9,2)", "decimal(10,4)"),
        ("long", "double"),
    ):
        assert change not in made


def _name(data_type: DataType) -> str:
    return data_type.name if isinstance(data_type, PrimitiveType) else data_type_text(data_type)


@pytest.mark.requirements("UP-TW-1", "SCHEVO-4")
def test_writes_widen_only_where_the_property_allows_it() -> None:
    on = {"delta.enableTypeWidening": "TRUE"}
    small, wide = DecimalType(5, 2), DecimalType(9, 4)
    assert not widening_in_writes(TableProperties({}))(small, wide)
    assert widening_in_writes(TableProperties(on))(small, wide)
