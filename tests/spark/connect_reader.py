"""Reads a foreign table over Spark Connect; run as a process of its own, because a process has one kind of session.

Prints one JSON object with what it saw.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.protocol.features.deletion_vectors import encode_inline
from cm_delta_dagster.spark.session.session import is_connect
from tests.support.builders import rows_of
from tests.support.foreign import ForeignTable, array, mapped, struct, with_id


def main(root: str) -> None:
    spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    seen = {"connect": is_connect(spark)}
    for mode in ("name", "id"):
        table = foreign_table(Path(root) / mode, mode)
        before = {row["key"]: row["value"] for row in spark.sql("SET").collect()}
        frame = read(open_scan(table.open()), spark=spark)
        after = {row["key"]: row["value"] for row in spark.sql("SET").collect()}
        some = read(open_scan(table.open(), columns=["Id", "_row_id"], where="place.City = 'b' OR Id = 3"), spark=spark)
        seen[mode] = {
            "settings": before == after,
            "schema": json.loads(frame.schema.json()) == table.schema,
            "rows": rows_of(frame),
            "some": rows_of(some),
        }
    (table.root / "f.parquet").write_bytes(b"")
    try:
        read(open_scan(table.open()), spark=spark).collect()
    except CmDeltaError as error:
        seen["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(seen))
    spark.stop()


def foreign_table(root: Path, mode: str) -> ForeignTable:
    """Nested columns with NOT NULL inside, under names that only the log knows, two rows deleted."""
    place = struct(mapped("City", "string", 3, "c3", comment="inner"), mapped("Zip", "long", 4, "c4", nullable=False))
    table = ForeignTable(
        root,
        mapped("Id", "long", 1, "c1", nullable=False, comment="key"),
        mapped("place", place, 2, "c2"),
        mapped("tags", array(struct(mapped("Name", "string", 6, "c6")), nullable=False), 5, "c5"),
        features=["columnMapping", "deletionVectors"],
        writer_features=["rowTracking", "domainMetadata"],
        properties={
            "delta.columnMapping.mode": mode,
            "delta.enableRowTracking": "true",
            "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1",
            "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-1",
        },
    )
    inner = pa.struct([with_id("c4", pa.int64(), 4), with_id("c3", pa.string(), 3)])
    tags = pa.list_(pa.struct([with_id("c6", pa.string(), 6)]))
    schema = pa.schema([with_id("c5", tags, 5), with_id("c2", inner, 2), with_id("c1", pa.int64(), 1)])
    content = {
        "c5": [[{"c6": letter}] for letter in "abcde"],
        "c2": [{"c4": number, "c3": letter} for number, letter in enumerate("abcde")],
        "c1": list(range(5)),
    }
    vector = encode_inline([0, 4])
    stored = {
        "storageType": "i",
        "pathOrInlineDv": vector.path_or_inline_dv,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }
    values = {"baseRowId": 100, "defaultRowCommitVersion": 1}
    table.add("f.parquet", pa.table(content, schema=schema), deletionVector=stored, **values)
    return table


if __name__ == "__main__":
    main(sys.argv[1])
