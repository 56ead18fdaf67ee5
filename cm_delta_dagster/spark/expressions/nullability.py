"""NOT NULL columns on read (protocol heading "Column Invariants").

Spark relies on NOT NULL: it drops IS NULL tests, and if a file holds a null it computes with undefined values. A column is
therefore passed to Spark as NOT NULL only if the statistics of every file prove that it holds no null; otherwise each value
is checked, and a null is an error instead of a wrong result.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode
from cm_delta_dagster.protocol.predicates.predicates import IsNull, Or, Predicate, quote_column
from cm_delta_dagster.protocol.schema.interval_types import YEAR_MONTH_NAMES
from cm_delta_dagster.protocol.schema.types import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructType
from cm_delta_dagster.protocol.statistics.data_skipping import keep_mask
from cm_delta_dagster.protocol.statistics.file_index import FileIndex
from cm_delta_dagster.spark.expressions.schema import spark_type
from cm_delta_dagster.spark.library import Column, F
from cm_delta_dagster.spark.session.errors import Violation, violation_text

# Two different values of each type: if they were equal, Spark would remove the check as redundant.
_VALUES: dict[str, tuple[str, str]] = {
    "string": ("''", "'x'"),
    "long": ("0L", "1L"),
    "integer": ("0", "1"),
    "short": ("0S", "1S"),
    "byte": ("0Y", "1Y"),
    "float": ("0F", "1F"),
    "double": ("0D", "1D"),
    "boolean": ("false", "true"),
    "binary": ("X''", "X'00'"),
    "date": ("DATE'1970-01-01'", "DATE'1970-01-02'"),
    "timestamp": ("timestamp_micros(0L)", "timestamp_micros(1L)"),
    "timestamp_ntz": ("TIMESTAMP_NTZ'1970-01-01 00:00:00'", "TIMESTAMP_NTZ'1970-01-02 00:00:00'"),
    "variant": ("CAST(0 AS VARIANT)", "CAST(1 AS VARIANT)"),
}


def proven(
    files: pa.Table,
    paths: Iterator[tuple[str, ...]],
    *,
    schema: StructType,
    partition_columns: tuple[str, ...],
    mapping: ColumnMappingMode,
) -> frozenset[tuple[str, ...]]:
    """The ``paths`` that hold no null in any of ``files``, by their statistics."""
    tests = {path: IsNull(quote_column(path)) for path in paths}
    index = FileIndex()

    def never(predicate: Predicate) -> bool:
        possible = keep_mask(
            files, predicate, schema=schema, partition_columns=partition_columns, mapping=mapping, index=index
        )
        return not pc.any(possible, min_count=0).as_py()

    # Most tables have no null in any of these columns, so that one pass over the statistics is enough.
    if not tests or never(Or(tuple(tests.values()))):
        return frozenset(tests)
    return frozenset(path for path, predicate in tests.items() if never(predicate))


def non_null(value: Column, data_type: DataType, where: str) -> Column:
    """``value`` as a non-nullable column; a null raises an error that names the column ``where``."""
    text = violation_text(
        Violation.NOT_NULL,
        f"Column {where!r} is NOT NULL by the schema of the table, and a data file holds a null in it. The file or the "
        "schema is wrong; rewrite the rows, or make the column nullable.",
    )
    literal = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    failing = f"if(raise_error({literal}) IS NULL, {_constant(data_type, 0)}, {_constant(data_type, 1)})"
    fallback = F.expr(failing)
    nested = isinstance(data_type, StructType | ArrayType | MapType)
    # The cast adds the metadata of inner fields, without which the two types would differ.
    return F.coalesce(value, fallback.cast(spark_type(data_type)) if nested else fallback)


def _constant(data_type: DataType, which: int) -> str:
    match data_type:
        case PrimitiveType(name) if name.startswith("interval "):
            unit = "YEAR" if name in YEAR_MONTH_NAMES else "DAY"
            return f"CAST(INTERVAL '{which}' {unit} AS {name})"
        case PrimitiveType(name):
            return _VALUES[name][which]
        case DecimalType(precision, scale):
            digit = str(which + 1)
            whole, fraction = digit * (precision - scale), digit * scale
            return f"{whole or '0'}{'.' + fraction if fraction else ''}BD"
        case ArrayType(element_type=element):
            return f"array({_constant(element, which)})"
        case MapType(key_type=key, value_type=value):
            return f"map({_constant(key, which)}, {_constant(value, which)})"
        case StructType():
            return _struct_constant(data_type, which)


def _struct_constant(data_type: StructType, which: int) -> str:
    parts = []
    for item in data_type.fields:
        name = "'" + item.name.replace("\\", "\\\\").replace("'", "\\'") + "'"
        void = item.type == PrimitiveType("void")
        parts.append(f"{name}, {'CAST(NULL AS VOID)' if void else _constant(item.type, which)}")
    return f"named_struct({', '.join(parts)})" if parts else "named_struct()"
