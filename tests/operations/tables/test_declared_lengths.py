"""``char(n)`` and ``varchar(n)`` in nested fields of a table whose columns change."""

import pytest

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.tables.alter import alter_table
from cm_delta_dagster.operations.tables.alterations import (
    AddColumns,
    Alteration,
    ChangeColumn,
    DropColumns,
    NewColumn,
    RenameColumn,
)
from cm_delta_dagster.protocol.schema.alterations import Position
from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA as CHAR
from cm_delta_dagster.protocol.schema.type_text import parse_column_type
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType, walk_fields
from tests.support.lake import Lake

_DECLARED = "struct<v:varchar(2),n:int,c:char(3),`a b`:array<char(4)>,s:struct<m:map<string,varchar(5)>>>"


def _declared_table(lake: Lake) -> Table:
    parsed = parse_column_type(_DECLARED)
    fields = (StructField("st", parsed.type, True, parsed.metadata), StructField("id", LONG))
    return lake.new_table(
        schema=StructType(fields), partition_columns=(), properties={"delta.columnMapping.mode": "name"}
    )


def _declared(table: Table, column: str = "st") -> str | None:
    item = table.snapshot().schema.field(column)
    assert item is not None
    assert not [path for path, inner in walk_fields(StructType((item,))) if len(path) > 1 and CHAR in inner.metadata]
    return item.metadata.get(CHAR)


@pytest.mark.requirements("UP-TW-2")
@pytest.mark.parametrize(
    ("alteration", "expected"),
    [
        (RenameColumn("st", "whole"), _DECLARED),
        (RenameColumn("st.v", "c2"), _DECLARED.replace("v:", "c2:")),
        (RenameColumn("st.a b", "x.y"), _DECLARED.replace("`a b`", "`x.y`")),
        (DropColumns(["st.v"]), _DECLARED.replace("v:varchar(2),", "")),
        (AddColumns([NewColumn("st.z", "varchar(7)", first=True)]), _DECLARED.replace("<v", "<z:varchar(7),v", 1)),
        (AddColumns([NewColumn("st.s.z", "char(1)")]), _DECLARED.replace("(5)>>", "(5)>,z:char(1)>")),
        (ChangeColumn(column="st.v", position=Position(after="n")), _DECLARED.replace("v:varchar(2),n:int", "n:int,v:varchar(2)")),
        (ChangeColumn(column="st.v", type="varchar(9)"), _DECLARED.replace("v:varchar(2)", "v:varchar(9)")),
        (ChangeColumn(column="st.v", type="string"), _DECLARED.replace("v:varchar(2)", "v:string")),
        (ChangeColumn(column="st.c", comment="c"), _DECLARED),
    ],
)  # fmt: skip
def test_declared_lengths_follow_the_fields_that_change(lake: Lake, alteration: Alteration, expected: str) -> None:
    """Spark reads declared lengths from the metadata of the column, and finds the fields by name or position."""
    table = _declared_table(lake)
    alter_table(table, alteration)
    assert _declared(table, "whole" if alteration == RenameColumn("st", "whole") else "st") == expected


def test_fields_that_swap_names_keep_their_own_lengths(lake: Lake) -> None:
    table = _declared_table(lake)
    for old, new in (("v", "x"), ("c", "v"), ("x", "c")):
        alter_table(table, RenameColumn(f"st.{old}", new))
    assert _declared(table) == _DECLARED.replace("c:", "q:").replace("v:", "c:").replace("q:", "v:")
    alter_table(table, DropColumns(["st.v", "st.c", "st.a b", "st.s"]))
    assert _declared(table) is None


@pytest.mark.parametrize(
    ("column", "wanted"),
    [("st.v", "varchar(1)"), ("st.c", "varchar(2)"), ("st.a b.element", "varchar(9)"), ("st.s.m.value", "string")],
)
def test_declared_lengths_that_cannot_change_are_refused(lake: Lake, column: str, wanted: str) -> None:
    table = _declared_table(lake)
    with pytest.raises(InvalidArgumentError, match=r"cannot change from (var)?char"):
        alter_table(table, ChangeColumn(column=column, type=wanted))
    assert table.snapshot().version == 0
