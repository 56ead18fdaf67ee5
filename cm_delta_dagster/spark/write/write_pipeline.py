"""What happens to rows between a verb and the data files.

Every write takes the same steps: cast to the schema, fill ``char`` strings with blanks, check the rules for rows, take the
blanks away again, and give the columns the names and the order that files have. A step that has nothing to do returns the frame
unchanged, so that rows which fit add nothing to the plan.
"""

from collections.abc import Sequence

from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.types import VOID, StructField, StructType
from cm_delta_dagster.spark.expressions.align import align
from cm_delta_dagster.spark.expressions.partition_text import with_empty_text_as_null
from cm_delta_dagster.spark.expressions.physical_columns import stored_column
from cm_delta_dagster.spark.expressions.schema import quoted
from cm_delta_dagster.spark.library import Column, DataFrame, F, pyspark_errors
from cm_delta_dagster.spark.rules.char_lengths import without_blanks
from cm_delta_dagster.spark.rules.constraints import check_evaluable
from cm_delta_dagster.spark.rules.guards import checked_columns
from cm_delta_dagster.spark.session.query_logs import without_query_logs
from cm_delta_dagster.spark.write.partition_directories import directory_column
from cm_delta_dagster.spark.write.stored_values import cast_and_padded, guarded


def rows_to_store(
    frame: DataFrame,
    layout: TableLayout,
    *,
    guard: Predicate | None = None,
    checked: bool = True,
    hidden_columns: tuple[StructField, ...] = (),
) -> DataFrame:
    """``frame`` with the columns of the schema and the hidden ones, with row checks; ``frame`` itself if it needs neither.

    Args:
        checked: whether the rows are new; rows that only move to another file are neither changed nor checked.

    Raises:
        InvalidArgumentError: a constraint of the table cannot be evaluated.
        SchemaMismatchError: two columns of the frame differ only in case, or a type that Delta does not have.
    """
    schema = StructType((*layout.schema.fields, *hidden_columns))
    if not checked:
        return without_blanks(align(frame, schema), layout)
    stored = cast_and_padded(frame, schema)
    # Conditions are evaluated on the rows as they will be read.
    as_stored = with_empty_text_as_null(stored, layout.schema, layout.partition_columns)
    columns = checked_columns(as_stored, layout)
    if not columns and guard is None:
        return without_blanks(stored, layout)
    try:
        # A separate projection: the conditions must see the original values of every column.
        with without_query_logs():
            rows = as_stored.withColumns(columns) if columns else as_stored
            return without_blanks(rows if guard is None else guarded(rows, layout.schema, guard), layout)
    except pyspark_errors.AnalysisException:
        check_evaluable(as_stored, layout)
        raise


def columns_of_files(rows: DataFrame, layout: TableLayout, hidden_columns: tuple[StructField, ...] = ()) -> DataFrame:
    """Rows of :func:`rows_to_store` with partition columns as text, physical names and without void columns.

    ``rows`` itself if the files have its columns.
    """
    fields, mapping = layout.schema.fields, layout.mapping
    partitions = {name.lower() for name in layout.partition_columns}
    if not partitions and mapping is ColumnMappingMode.NONE and not any(item.type == VOID for item in fields):
        return rows
    hidden = [F.col(quoted(item.name)) for item in hidden_columns]
    if layout.stores_partitions:
        return _with_partitions(rows, layout, hidden)
    return rows.select(*[_stored(item, partitions, mapping) for item in fields if item.type != VOID], *hidden)


def _with_partitions(rows: DataFrame, layout: TableLayout, hidden: Sequence[Column]) -> DataFrame:
    """With the partition columns after the others, and their texts once more for the names of directories."""
    parts = layout.partition_fields
    names = {item.name for item in parts}
    data = [item for item in layout.schema.fields if item.name not in names and item.type != VOID]
    stored = [stored_column(item, layout.mapping) for item in data]
    kept = [stored_column(item, layout.mapping) for item in parts]
    texts = [directory_column(item).alias(name) for item, name in zip(parts, directory_names(layout), strict=True)]
    return rows.select(*stored, *hidden, *kept, *texts)


def directory_names(layout: TableLayout) -> list[str]:
    """The names of the columns that Spark names directories after, in the order of the partition columns.

    Spark does not write them to files; if files hold the partition columns, these are further columns.
    """
    if layout.stores_partitions:
        return [f"__cm_delta_partition_{number}" for number, _ in enumerate(layout.partition_columns)]
    mapped = layout.mapping is not ColumnMappingMode.NONE
    fields = zip(layout.partition_columns, layout.partition_fields, strict=True)
    return [physical_name(item, layout.mapping) if mapped else name for name, item in fields]


def _stored(item: StructField, partitions: set[str], mapping: ColumnMappingMode) -> Column:
    if item.name.lower() in partitions:
        return directory_column(item).alias(physical_name(item, mapping))
    return stored_column(item, mapping)
