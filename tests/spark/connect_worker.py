"""Writes, merges and reads over Spark Connect; run as a process of its own, because a process has one kind of session.

Prints one JSON object with what it saw.
"""

import json
import sys
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.api.table.merge_builder import MergeBuilder
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.operations.writing.merge import MergeMode, merge
from cm_delta_dagster.operations.writing.row_change import RowChange
from cm_delta_dagster.operations.writing.update import update
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table, table_to_adds
from cm_delta_dagster.protocol.features.deletion_vectors import encode_inline
from cm_delta_dagster.protocol.features.table_layout import ScanRequest
from cm_delta_dagster.spark.read.scan import scan
from cm_delta_dagster.spark.session.session import is_connect
from cm_delta_dagster.storage.stores import Stores
from tests.support.builders import TableBuilder, rows_of


def main(root: str) -> None:
    spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    catalog = SqlCatalog(f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}/warehouse")
    client = DeltaClient(catalog, stores=Stores())
    builder = TableBuilder(client, spark, "id long, p string, t timestamp", partition_by=["p"])
    frame = spark.sql("SELECT id, concat('p', id % 2) p, timestamp_micros(id) t FROM range(10)").coalesce(1)
    append(builder.table, frame=frame)
    overwrite(builder.table, frame=frame.where("p = 'p1'").limit(2), where="p = 'p1'")
    source = spark.sql("SELECT 0L id, 'p0' p, timestamp_micros(77) t UNION ALL SELECT 99L, 'p0', null")
    merge(builder.table, frame=source, keys=["id"], mode=MergeMode.UPSERT)
    update(builder.table, spark=spark, assignments={"t": F.timestamp_micros(F.lit(5))}, where=F.col("id") == 2)
    change = RowChange(
        source=spark.sql("SELECT 4L id UNION ALL SELECT 50L"),
        on=F.col("t.id") == F.col("s.id"),
        target_alias="t",
        source_alias="s",
    )
    MergeBuilder(builder.table, change=change).when_matched_delete("s.id < 9").when_not_matched_insert(
        {"id": "id", "p": F.lit("p0")}
    ).execute()
    rows = rows_of(builder.table_frame().selectExpr("id", "p", "unix_micros(t)"))
    broken = ""
    try:
        overwrite(builder.table, frame=frame, where="p = 'p1'")
    except CmDeltaError as error:
        broken = f"{type(error).__name__}: {error}"
    snapshot = builder.table.snapshot()
    whole = [add for add in table_to_adds(snapshot.files) if add.deletion_vector is None]
    adds = [replace(add, deletion_vector=encode_inline([0])) for add in whole]
    store, layout = builder.table.store, snapshot.layout
    stored, survivors = (
        scan(spark, store=store, layout=layout, request=ScanRequest(files=adds_to_table(files))).count()
        for files in (whole, adds)
    )
    setting = spark.conf.get("spark.sql.parquet.outputTimestampType", None)
    client.close()
    seen = {
        "connect": is_connect(spark),
        "rows": rows,
        "error": broken,
        "stored": stored,
        "survivors": survivors,
        "files": len(adds),
        "setting": setting,
    }
    print(json.dumps(seen))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
