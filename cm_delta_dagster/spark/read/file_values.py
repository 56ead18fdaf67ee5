"""Joining values that the log has for a file (deletion vector, partition values, row ids) with the rows of the file.

A small table of files is joined, by broadcast, with the rows. A row whose file is not in the table fails the query, because
it would be returned although it is deleted, or without its values. The key is a hash of the location, and the location of
each row is then compared with the location of the file found. With a file index nothing is joined: the index has the values.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa

from cm_delta_dagster.protocol.actions.paths import OBJECT_STORE_SCHEMES, normalise_location
from cm_delta_dagster.spark.library import Column, DataFrame, F, SparkSession
from cm_delta_dagster.spark.session.errors import Violation, violation_suffix
from cm_delta_dagster.spark.stores.object_stores import SparkStorage

OWN_PREFIX = "__cm_delta_"
"""Prefix of the names of all columns that are added to those of files."""
FILE_COLUMN = "__cm_delta_file"
"""Name of the extra column of ``scan_with_files``: the location of the file, quoted as Spark does."""
POSITION_COLUMN = "__cm_delta_position"
"""Zero-based position of the row in its file, before any filter."""
WORDS_COLUMN = "__cm_delta_words"
READER_POSITION_COLUMN = "_tmp_metadata_row_index"
"""The name under which Spark's Parquet reader returns the position of a row in its file."""
BASE_ROW_ID_COLUMN = "__cm_delta_base_row_id"
COMMIT_VERSION_COLUMN = "__cm_delta_commit_version"
_KEY_COLUMN = "__cm_delta_key"
_LOCATION_COLUMN = "__cm_delta_location"
_FOUND_COLUMN = "__cm_delta_found"

_UNMATCHED = (
    "What the log has for the data file {} was not found while its rows were read: Spark spells its location in an unexpected "
    "way. Nothing was read. Rename the directory of the table to plain letters, or read the table without Spark."
)


def spark_file_key(spelled: str) -> str:
    """Normalised key, as of ``paths.file_keys``, of a file location as Spark returns it in
    ``_metadata.file_path``.
    """
    return normalise_location(unquote(spelled))


def spark_file_path(location: str) -> str:
    """A decoded absolute location as :func:`file_path` has it: in the form of Java's ``URI.toString``, S3 always as ``s3``."""
    scheme, separator, rest = location.partition("://")
    if not separator:
        scheme, rest = "file", location
    scheme = "s3" if OBJECT_STORE_SCHEMES.get(scheme) == "s3" else scheme
    authority, _, path = rest.partition("/")
    prefix = f"{scheme}:/" if not authority else f"{scheme}://{authority}/"
    return prefix + "".join(map(_java_quoted, path))


def _java_quoted(character: str) -> str:
    legal = character.isascii() and (character.isalnum() or character in "-_.!~*'():@&=+$,;/")
    other = not character.isascii() and not character.isspace() and not "\x80" <= character <= "\x9f"
    return character if legal or other else "".join(f"%{byte:02X}" for byte in character.encode())


def file_path(frame: DataFrame, storage: SparkStorage) -> Column:
    """Location of the row's file, in the catalog's scheme, as Spark quotes it."""
    # Not F.col("_metadata"): a data column may have that name.
    return storage.catalog_column(frame.metadataColumn("_metadata").getField("file_path"))


def row_index(frame: DataFrame) -> Column:
    """Position of the row in its file."""
    return frame.metadataColumn("_metadata").getField("row_index")


def join_file_values(
    session: SparkSession, frame: DataFrame, locations: pa.Array, values: Mapping[str, pa.Array]
) -> DataFrame:
    """``frame``, which has :data:`FILE_COLUMN`, with a column for each of ``values`` (one value a file).

    The first use of a value must go through :func:`known`.
    """
    spelled = [spark_file_path(location) for location in locations.to_pylist()]
    columns = {_LOCATION_COLUMN: pa.array(spelled, pa.string()), **values}
    table = session.createDataFrame(pa.table(columns))
    table = table.selectExpr(*columns, f"xxhash64({_LOCATION_COLUMN}) AS {_KEY_COLUMN}")
    same_key = F.expr(f"xxhash64({FILE_COLUMN}) = {_KEY_COLUMN}")
    same_location = F.expr(f"{FILE_COLUMN} = {_LOCATION_COLUMN}")
    return frame.join(F.broadcast(table), same_key, "left").withColumn(_FOUND_COLUMN, same_location)


def known(value: str, sql_type: str) -> str:
    """SQL text of ``value``, computed from joined columns; it raises an error for rows of a file that is not in the joined table.

    Expressions are text, because Spark parses a text in one call, while a tree of columns takes dozens of calls.
    """
    before, _, after = _UNMATCHED.partition("{}")
    text = f"concat('{before}', {FILE_COLUMN}, '{after}{violation_suffix(Violation.ENGINE)}')"
    error = f"CAST(raise_error({text}) AS {sql_type})"
    return f"CASE WHEN {_FOUND_COLUMN} THEN {value} ELSE {error} END"


def is_marked() -> str:
    """SQL text: 1 for rows whose position is set in the joined bitmap, else 0."""
    word = f"get({WORDS_COLUMN}, CAST(shiftright({POSITION_COLUMN}, 6) AS INT))"
    bit = f"coalesce(getbit({word}, CAST({POSITION_COLUMN} & 63 AS INT)), CAST(0 AS TINYINT))"
    return known(bit, "TINYINT")


def word_lists(words: Sequence[pa.Array]) -> pa.Array:
    """Bitmap words of files as one column."""
    offsets = [0]
    for value in words:
        offsets.append(offsets[-1] + len(value))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.concat_arrays(words))
