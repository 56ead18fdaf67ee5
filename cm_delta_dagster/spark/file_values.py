"""What the log knows of a file, brought to each of its rows (DV-4, ROWTRK-10, LOG-11). Room: spark.

A small table keyed by the location of the file is joined, by broadcast, with the rows of the files. Every row must find
its file there; one that does not stops the query, because it would be returned undeleted or without its values.
"""

from collections.abc import Mapping
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.protocol.path_encoding import normalise_location
from cm_delta_dagster.spark.errors import Violation, violation_text

FILE_COLUMN = "__cm_delta_file"
"""Name of the extra column of ``scan_with_files``: the location of the row's file as Spark spells it."""
POSITION_COLUMN = "__cm_delta_position"
"""Zero-based position of the row in its file, before any filter (DV-5)."""
WORDS_COLUMN = "__cm_delta_words"
BASE_ROW_ID_COLUMN = "__cm_delta_base_row_id"
COMMIT_VERSION_COLUMN = "__cm_delta_commit_version"
_KEY_COLUMN = "__cm_delta_key"
_KNOWN_COLUMN = "__cm_delta_known"

_UNMATCHED = violation_text(
    Violation.ENGINE,
    "Spark spells the location of a data file in an unexpected way, so the values that the log has for it were not "
    "found. Nothing was read. Rename the table's directory to plain letters, or report this.",
)


def spark_file_key(spelled: str) -> str:
    """Normalised key, as of ``path_encoding.file_keys``, of a file location as Spark's ``_metadata.file_path`` spells
    it."""
    return normalise_location(unquote(spelled))


def spark_file_path(location: str) -> str:
    """How Spark's ``_metadata.file_path`` spells a decoded absolute location: Java's ``URI.toString``."""
    scheme, separator, rest = location.partition("://")
    if not separator:
        scheme, rest = "file", location
    authority, _, path = rest.partition("/")
    prefix = f"{scheme}:/" if not authority else f"{scheme}://{authority}/"
    return prefix + "".join(map(_java_quoted, path))


def _java_quoted(character: str) -> str:
    legal = character.isascii() and (character.isalnum() or character in "-_.!~*'():@&=+$,;/")
    other = not character.isascii() and not character.isspace() and not "\x80" <= character <= "\x9f"
    return character if legal or other else "".join(f"%{byte:02X}" for byte in character.encode())


def file_path(frame: DataFrame) -> Column:
    """Location of the row's file as Spark spells it."""
    # Not F.col("_metadata"): a data column may have that name.
    return frame.metadataColumn("_metadata").getField("file_path")


def row_index(frame: DataFrame) -> Column:
    """Position of the row in its file."""
    return frame.metadataColumn("_metadata").getField("row_index")


def join_file_values(
    session: SparkSession, frame: DataFrame, locations: pa.Array, values: Mapping[str, pa.Array]
) -> DataFrame:
    """``frame``, which has :data:`FILE_COLUMN`, with a column for each of ``values`` (one value a file).

    The first use of a value must go through :func:`known`.
    """
    keys = pa.array([spark_file_path(location) for location in locations.to_pylist()], pa.string())
    table = session.createDataFrame(pa.table({_KEY_COLUMN: keys, **values}))
    table = table.select("*", F.lit(True).alias(_KNOWN_COLUMN))
    return frame.join(F.broadcast(table), F.col(FILE_COLUMN) == F.col(_KEY_COLUMN), "left")


def known(value: Column, sql_type: str) -> Column:
    """``value``, computed from joined columns; an error in rows of a file that the joined table does not have."""
    missed = F.raise_error(F.lit(_UNMATCHED)).cast(sql_type)
    return F.when(F.col(_KNOWN_COLUMN).isNull(), missed).otherwise(value)


def is_deleted() -> Column:
    """1 for rows whose position is set in the joined bitmap, else 0."""
    row = F.col(POSITION_COLUMN)
    word = F.get(F.col(WORDS_COLUMN), F.shiftright(row, 6).cast("int"))
    bit = F.coalesce(F.getbit(word, row.bitwiseAND(63).cast("int")), F.lit(0).cast("tinyint"))
    return known(bit, "tinyint")


def word_lists(words: list[pa.Array]) -> pa.Array:
    """Bitmap words of files as one column."""
    offsets = [0]
    for value in words:
        offsets.append(offsets[-1] + len(value))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.concat_arrays(words))
