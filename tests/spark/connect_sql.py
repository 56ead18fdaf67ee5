"""SQL over tables of the catalog on Spark Connect; run as a process of its own. Prints one JSON object with what it saw."""

import json
import sys
import warnings

from pyspark.sql import SparkSession

from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.spark.session.session import is_connect


def main(root: str) -> None:
    warnings.simplefilter("ignore")
    spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    lake = connect(f"sqlite:///{root}/catalog.db", warehouse=f"{root}/warehouse", spark=spark)
    orders = lake.create_table_as("main.sales.orders", spark.sql("SELECT id, id * 10 AS amount FROM range(3)"))
    lake.create_table_as("main.sales.refunds", spark.sql("SELECT 1L AS id, 'late' AS why"))
    text = (
        "WITH o AS (SELECT * FROM main.sales.orders VERSION AS OF 0) SELECT o.id, refunds.why, '{x}' FROM o "
        "JOIN main.sales.refunds ON main.sales.refunds.id = o.id WHERE amount >= :least"
    )
    frame = lake.sql(text, {"least": 10})
    orders.delete("id = 1")
    errors = []
    for wrong in ("SELECT * FROM main.sales.order", "SELECT no FROM main.sales.orders", "SELECT FROM WHERE\n x y z"):
        try:
            lake.sql(wrong)
        except CmDeltaError as error:
            errors.append(f"{type(error).__name__}: {error}")
    lake.sql("CREATE TABLE main.sales.w (id bigint, n string DEFAULT 'x', g bigint GENERATED ALWAYS AS (id + 1))")
    lake.sql("INSERT INTO main.sales.w (id, n) VALUES (:id, DEFAULT), (2, 'b')", {"id": 1})
    merge = "MERGE INTO main.sales.w t USING main.sales.refunds r ON t.id = r.id WHEN MATCHED THEN UPDATE SET n = r.why"
    written = [
        list(lake.sql("UPDATE main.sales.w SET n = upper(n) WHERE id = 2").collect()[0]),
        list(lake.sql(merge).collect()[0]),
        list(lake.sql("DELETE FROM main.sales.w WHERE id > 5").collect()[0]),
        lake.sql("ALTER TABLE main.sales.w ADD COLUMN more int").collect(),
        [list(row) for row in lake.sql("SELECT * FROM main.sales.w ORDER BY id").collect()],
    ]
    lake.sql("ALTER TABLE main.sales.refunds SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    refunds = lake.table("main.sales.refunds")
    held = refunds.update({"why": "'early'"}, "id = 1", hold=True)
    by_id = f"SELECT why FROM main.sales.refunds VERSION AS OF '{held.hold_id}'"
    hold = {
        "scan": [list(row) for row in held.scan(where="why = 'early'").to_df().collect()],
        "sql": [row.why for row in lake.sql(by_id).collect()],
        "changes": sorted(row._change_type for row in held.changes().to_df().collect()),
        "seen early": [row.why for row in refunds.to_df().collect()],
        "ratified": held.ratify().version,
        "after": [row.why for row in refunds.to_df().collect()],
    }
    seen = {
        "held": hold,
        "written": written,
        "connect": is_connect(spark),
        "rows": [list(row) for row in frame.collect()],
        "again": [list(row) for row in frame.select("why").collect()],
        "now": [row.id for row in lake.sql("SELECT id FROM main.sales.orders ORDER BY id").collect()],
        "positional": lake.sql("SELECT count(*) FROM main.sales.orders WHERE id > ?", [0]).collect()[0][0],
        "explained": "Parquet" in lake.sql("EXPLAIN SELECT * FROM main.sales.orders").collect()[0][0],
        "history": [row.operation for row in lake.sql("DESCRIBE HISTORY main.sales.orders").collect()],
        "views": [view.name for view in spark.catalog.listTables()],
        "errors": errors,
    }
    lake.close()
    print(json.dumps(seen))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
