"""Variants as JSON."""

import pyarrow as pa

from cm_delta_dagster.arrow.variant import json_texts
from cm_delta_dagster.protocol.schema.types import VARIANT, StructType, walk_types


def variant_columns_to_json(table: pa.Table, schema: StructType) -> pa.Table:
    """``table``, with every top-level column that holds a variant at any depth as JSON text.

    Args:
        table: rows of ``schema`` (or of some of its columns) as the readers of this package return them.

    Raises:
        CorruptLogError: the bytes of a variant are damaged.
    """
    for position, name in enumerate(table.column_names):
        item = schema.field(name)
        if item is not None and VARIANT in walk_types(item.type):
            chunks = [pa.array(json_texts(chunk, item.type), pa.string()) for chunk in table.column(position).chunks]
            table = table.set_column(position, name, pa.chunked_array(chunks, pa.string()))
    return table
