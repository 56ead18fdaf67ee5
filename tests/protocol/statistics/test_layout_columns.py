"""Which columns rows can be clustered and Z-ordered by."""

import pytest

from cm_delta_dagster.errors import InvalidArgumentError, SchemaMismatchError
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.schema.types import (
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
)
from cm_delta_dagster.protocol.statistics.layout_columns import (
    check_clustering_columns,
    check_keeps_columns,
    check_layout_columns,
)

SCHEMA = StructType(
    (
        StructField("Id", LONG),
        StructField("s", StructType((StructField("t", STRING), StructField("n", DecimalType(5, 2))))),
        StructField("flag", PrimitiveType("boolean")),
        StructField("bytes", PrimitiveType("binary")),
        StructField("list", ArrayType(INTEGER, True)),
        StructField("p", STRING),
        StructField("last", INTEGER),
    )
)


def _layout(partitions: tuple[str, ...] = (), **properties: str) -> TableLayout:
    known = {f"delta.{key}": value for key, value in properties.items()}
    return TableLayout(location="", schema=SCHEMA, partition_columns=partitions, properties=TableProperties(known))


def test_columns_are_found_whatever_their_case() -> None:
    assert check_layout_columns(_layout(), ["ID", "S.n", "s.T"], verb="Z-ordered") == (("Id",), ("s", "n"), ("s", "t"))


@pytest.mark.requirements("OPT-5")
@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("nope", "no column 'nope'"),
        ("s.nope", "no column 's.nope'"),
        ("flag", "no bounds of type boolean"),
        ("bytes", "no bounds of type binary"),
        ("list", "no bounds"),
        ("s", "no bounds"),
        ("p", "is a partition column"),
    ],
)
def test_other_columns_are_refused(column: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        check_layout_columns(_layout(("p",)), [column], verb="Z-ordered")


@pytest.mark.requirements("OPT-5", "CLUST-4")
def test_columns_without_statistics_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'last'.*no statistics"):
        check_clustering_columns(_layout(dataSkippingNumIndexedCols="2"), ["last"])
    with pytest.raises(InvalidArgumentError, match=r"'Id'.*no statistics"):
        check_layout_columns(_layout(dataSkippingStatsColumns="last"), ["id"], verb="Z-ordered")


@pytest.mark.requirements("CLUST-1")
def test_clustering_takes_four_columns_each_once_and_no_partitions() -> None:
    assert len(check_clustering_columns(_layout(), ["id", "s.t", "s.n", "p"])) == 4
    assert check_clustering_columns(_layout(("p",)), []) == ()
    with pytest.raises(InvalidArgumentError, match="at most 4"):
        check_clustering_columns(_layout(), ["id", "s.t", "s.n", "p", "last"])
    with pytest.raises(InvalidArgumentError, match="twice"):
        check_clustering_columns(_layout(), ["id", "ID"])
    with pytest.raises(InvalidArgumentError, match="partitioned by p"):
        check_clustering_columns(_layout(("p",)), ["id"])


def test_a_new_schema_keeps_the_clustering_columns() -> None:
    check_keeps_columns("t", SCHEMA, [("Id",), ("s", "t")])
    other = StructType((StructField("id", LONG), StructField("s", STRING)))
    for path in (("Id",), ("s", "t"), ("gone",)):
        with pytest.raises(SchemaMismatchError, match=r"clustering column.*cluster_by"):
            check_keeps_columns("t", other, [path])
    without_bounds = StructType((StructField("Id", ArrayType(LONG, True)),))
    with pytest.raises(SchemaMismatchError, match="'Id'"):
        check_keeps_columns("t", without_bounds, [("Id",)])
