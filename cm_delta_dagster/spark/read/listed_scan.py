"""Reading data files by their names, where Spark has no file index; what the log has for a file is joined with its rows."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.schema.types import BINARY, StructField
from cm_delta_dagster.spark.expressions.columns import (
    Names,
    named,
    padded,
    table_column,
)
from cm_delta_dagster.spark.expressions.nullability import non_null
from cm_delta_dagster.spark.expressions.partition_text import typed_column
from cm_delta_dagster.spark.library import Column, DataFrame, F
from cm_delta_dagster.spark.read.bitmaps import bit_batches, bitmap_words
from cm_delta_dagster.spark.read.file_values import (
    BASE_ROW_ID_COLUMN,
    COMMIT_VERSION_COLUMN,
    FILE_COLUMN,
    OWN_PREFIX,
    POSITION_COLUMN,
    WORDS_COLUMN,
    file_path,
    is_marked,
    join_file_values,
    known,
    row_index,
    word_lists,
)
from cm_delta_dagster.spark.read.layout import absolute_locations, canonical_texts, check_names, one_chunk
from cm_delta_dagster.spark.read.load import load_files, made_nullable
from cm_delta_dagster.spark.read.scan_parts import (
    Scan,
    by_names,
    check_own_names,
    early_condition,
    row_ids,
    stored_columns,
)
from cm_delta_dagster.spark.session.plans import selected


def listed_parts(scan: Scan, files: pa.Table) -> Iterator[DataFrame]:
    """As :func:`indexed_parts`; all values of files are joined with the rows."""
    for names, named_alike in by_names(scan, files):
        has_bitmap = scan.has_bitmap(named_alike)
        if (plain := named_alike.filter(pc.invert(has_bitmap))).num_rows:
            yield _read(scan, names, plain, {})
        if (deleted := named_alike.filter(has_bitmap)).num_rows:
            bitmaps = scan.bitmaps(deleted)
            for rows in bit_batches(bitmaps):
                part = deleted.slice(rows.start, rows.stop - rows.start)
                words = word_lists([bitmap_words(bitmap) for bitmap in bitmaps[rows]])
                yield _read(scan, names, part, {WORDS_COLUMN: words})


def _read(scan: Scan, names: Names, files: pa.Table, values: Mapping[str, pa.Array]) -> DataFrame:
    schema = scan.stored(names)
    stored = made_nullable(schema)
    locations = absolute_locations(scan.layout.location, files["path"])
    check_names(locations)
    frame = load_files(
        scan.session, schema, store=scan.store, storage=scan.storage, locations=locations, sizes=files["size"]
    )
    stored_by_name = dict(stored_columns(scan, stored))
    if scan.predicate is not None and (condition := early_condition(scan, stored, stored_by_name)) is not None:
        frame = frame.where(condition)
    texts = {item.name: f"{OWN_PREFIX}value{number}" for number, item in enumerate(scan.partitions)}
    for item in scan.partitions:
        texts_of_files = canonical_texts(files, item, scan.layout.mapping, scan.zone)
        values = {**values, texts[item.name]: texts_of_files}
    if scan.row_tracking is not None:
        values = {
            **values,
            BASE_ROW_ID_COLUMN: one_chunk(files["baseRowId"]),
            COMMIT_VERSION_COLUMN: one_chunk(files["defaultRowCommitVersion"]),
        }
    if values:
        check_own_names(scan, stored)
        frame = frame.select(
            "*", file_path(frame, scan.storage).alias(FILE_COLUMN), row_index(frame).alias(POSITION_COLUMN)
        )
        frame = join_file_values(scan.session, frame, locations, values)
    elif scan.with_files:
        frame = frame.select(
            "*", file_path(frame, scan.storage).alias(FILE_COLUMN), row_index(frame).alias(POSITION_COLUMN)
        )
    if WORDS_COLUMN in values:
        frame = frame.where(f"{is_marked()} = {int(scan.returns_marked)}")
    outputs: list[Column | str] = [
        _from_text(item, F.expr(known(texts[item.name], "STRING")))
        if item.name in texts
        else table_column(item, stored_by_name[item.name])
        for item in scan.schema.fields
    ]
    if scan.row_tracking is not None:
        outputs += row_ids(
            scan.row_tracking, known(BASE_ROW_ID_COLUMN, "BIGINT"), known(COMMIT_VERSION_COLUMN, "BIGINT")
        )
    return selected(frame, [*outputs, *([FILE_COLUMN, POSITION_COLUMN] if scan.with_files else [])])


def _from_text(item: StructField, text: Column) -> Column:
    value = F.encode(text, "ISO-8859-1") if item.type == BINARY else typed_column(text, item.type)
    return named(padded(value if item.nullable else non_null(value, item.type, item.name), item), item)
