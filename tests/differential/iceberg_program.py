"""Writes rows of an Iceberg schema as an Arrow IPC stream; a program of the environment ``iceberg``."""

import json
import sys

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType


def main() -> None:
    rows = json.load(sys.stdin)
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
    table = pa.Table.from_pylist(rows, schema=schema_to_pyarrow(schema))
    with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as writer:
        writer.write_table(table)


if __name__ == "__main__":
    main()
