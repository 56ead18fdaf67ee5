"""Which columns of a data file get a dictionary (protocol heading "Data Files")."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pat

SAMPLED_ROWS = 10_000
"""The first rows of a file with at least so many decide which columns get a dictionary. Smaller files have one for each."""
_MOST_DISTINCT = 0.8
"""The part of distinct values among them above which a dictionary would only take time and space."""

_COUNTED = (pat.is_integer, pat.is_floating, pat.is_string, pat.is_binary, pat.is_temporal)
"""Types whose distinct values Arrow counts."""


def columns_with_dictionary(table: pa.Table) -> bool | list[str]:
    """The columns that get a dictionary, as pyarrow takes them: all but those whose first values are almost all distinct."""
    sample = table.slice(0, SAMPLED_ROWS)
    distinct = {
        name
        for name, column in zip(sample.column_names, sample.columns, strict=True)
        if _is_counted(column.type) and pc.count_distinct(column).as_py() > _MOST_DISTINCT * SAMPLED_ROWS
    }
    if not distinct:
        return True
    sink = pa.BufferOutputStream()
    pq.write_metadata(table.schema, sink)
    leaves = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return [path for leaf in leaves if (path := leaf.path) not in distinct]


def _is_counted(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in _COUNTED)
