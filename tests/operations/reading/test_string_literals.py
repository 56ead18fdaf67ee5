"""String literals in conditions: Spark and the readers without Spark read them in the same way."""

from pathlib import Path

from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from tests.support.string_literals import CONDITIONS, LITERALS, ROWS


def test_spark_gives_each_literal_the_value_that_is_expected(spark: SparkSession) -> None:
    columns = [f"{literal} AS c{place}" for place, literal in enumerate(LITERALS)]
    (row,) = spark.sql(f"SELECT {', '.join(columns)}").collect()
    assert dict(zip(LITERALS, row, strict=True)) == LITERALS


def test_every_reader_finds_the_rows_of_a_condition_with_text_that_spark_finds(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's own SELECT, our reads through Spark, Arrow and polars."""
    with connect(f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w", spark=spark) as lake:
        lake.sql(
            "CREATE TABLE main.s.t (n int, s string, `a``b` string) TBLPROPERTIES ('delta.columnMapping.mode'='name')"
        )
        table = lake.table("main.s.t")
        rows = spark.createDataFrame(
            [(n, s, s) for n, s in enumerate(ROWS)], "n int, s string, `a``b` string"
        ).coalesce(1)
        table.append(rows)
        columns = [f"({condition}) AS c{place}" for place, condition in enumerate(CONDITIONS)]
        answers = rows.selectExpr("n", *columns).collect()
        for place, condition in enumerate(CONDITIONS):
            expected = sorted(row["n"] for row in answers if row[f"c{place}"])
            assert sorted(table.to_arrow(where=condition)["n"].to_pylist()) == expected, condition
            assert sorted(table.to_polars(where=condition)["n"].to_list()) == expected, condition
        both = " OR ".join(f"({condition})" for condition in CONDITIONS[:9])
        found = sorted(row["n"] for row in table.to_df(where=both).collect())
        assert found == sorted(row["n"] for row in answers if any(row[f"c{place}"] for place in range(9)))
