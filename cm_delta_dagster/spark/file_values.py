"""Joining values that the log has for a file (deletion vector, partition values, row ids) with the rows of the file.

A small table of files is joined, by broadcast, with the rows. A row whose file is not in the table fails the query, because
it would be returned although it is deleted, or without its values. The join key is a number, which Spark looks up much
faster than a text: the size of the file, or a hash of its location if several files have the same size. The location of each
row is then compared with the location of the file found; this check is omitted only if Spark has listed exactly these files
with these sizes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.protocol.actions.paths import OBJECT_STORE_SCHEMES, normalise_location
from cm_delta_dagster.spark.errors import Violation, violation_suffix
from cm_delta_dagster.spark.object_stores import SparkStorage

OWN_PREFIX = "__cm_delta_"
"""Prefix of the names of all columns that are added to those of files."""
FILE_COLUMN = "__cm_delta_file"
"""Name of the extra column of ``scan_with_files``: the location of the file, quoted as Spark does."""
SIZE_COLUMN = "__cm_delta_size"
"""Size in bytes of the file, as Spark has listed it."""
POSITION_COLUMN = "__cm_delta_position"
"""Zero-based position of the row in its file, before any filter."""
WORDS_COLUMN = "__cm_delta_words"
BASE_ROW_ID_COLUMN = "__cm_delta_base_row_id"
COMMIT_VERSION_COLUMN = "__cm_delta_commit_version"
_KEY_COLUMN = "__cm_delta_key"
_LOCATION_COLUMN = "__cm_delta_location"
_FOUND_COLUMN = "__cm_delta_found"
_MAX_NAMED = 8

_UNMATCHED = (
    "What the log has for the data file {} was not found while its rows were read: the file was replaced in the meantime, "
    "its size is not the one that the log states, or Spark spells its location in an unexpected way. Nothing was read. Read "
    "again; if that does not help, restore the file, or rename the directory of the table to plain letters."
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


def file_size(frame: DataFrame) -> Column:
    """Bytes of the row's file."""
    return frame.metadataColumn("_metadata").getField("file_size")


def join_file_values(
    session: SparkSession,
    frame: DataFrame,
    locations: pa.Array,
    values: Mapping[str, pa.Array],
    *,
    sizes: pa.Array | None = None,
    are_listed: bool = False,
) -> DataFrame:
    """``frame``, which has :data:`FILE_COLUMN`, with a column for each of ``values`` (one value a file).

    The first use of a value must go through :func:`known`.

    Args:
        sizes: of each file as Spark has listed it, for a frame that has :data:`SIZE_COLUMN`; makes the join faster.
        are_listed: it is proven that Spark has listed the files with these ``sizes``, and no others.
    """
    spelled = [spark_file_path(location) for location in locations.to_pylist()]
    columns = {_LOCATION_COLUMN: pa.array(spelled, pa.string()), **values}
    exact = _exact_keys(sizes.to_pylist(), spelled) if sizes is not None and are_listed else None
    if exact is not None:
        key, keys = exact
        table = session.createDataFrame(pa.table({**columns, _KEY_COLUMN: keys}))
        found = f"{_KEY_COLUMN} IS NOT NULL"
    else:
        key = _hashed_key(sizes)
        known_sizes = {} if sizes is None else {SIZE_COLUMN: sizes}
        table = session.createDataFrame(pa.table({**columns, **known_sizes}))
        table = table.selectExpr(*columns, f"{key.format(_LOCATION_COLUMN)} AS {_KEY_COLUMN}")
        found = f"{FILE_COLUMN} = {_LOCATION_COLUMN}"
    same_key = F.expr(f"{key.format(FILE_COLUMN)} = {_KEY_COLUMN}")
    return frame.join(F.broadcast(table), same_key, "left").withColumn(_FOUND_COLUMN, F.expr(found))


def _exact_keys(sizes: Sequence[int], spelled: Sequence[str]) -> tuple[str, pa.Array] | None:
    """SQL text of a key that no two of these files share, and the keys: the size, or less than 0 if several files have it.

    None if too many files share a size, or if a location has characters that need escaping in SQL.
    """
    counts = Counter(sizes)
    again = {path: -number for number, path in enumerate(spelled, 1) if counts[sizes[number - 1]] > 1}
    if not again:
        return SIZE_COLUMN, pa.array(sizes, pa.int64())
    if len(again) > _MAX_NAMED or any(letter in path for path in again for letter in "'\\{}"):
        return None
    cases = " ".join(f"WHEN '{path}' THEN {number}L" for path, number in again.items())
    shared = ", ".join(str(size) for size, count in counts.items() if count > 1)
    key = f"CASE WHEN {SIZE_COLUMN} IN ({shared}) THEN CASE {FILE_COLUMN} {cases} END ELSE {SIZE_COLUMN} END"
    return key, pa.array([again.get(path, size) for path, size in zip(spelled, sizes, strict=True)], pa.int64())


def _hashed_key(sizes: pa.Array | None) -> str:
    """SQL text of a number that identifies the file whose location replaces ``{}``, except for hash collisions."""
    return "xxhash64({})" if sizes is None or pc.count_distinct(sizes).as_py() < len(sizes) else SIZE_COLUMN


def known(value: str, sql_type: str) -> str:
    """SQL text of ``value``, computed from joined columns; it raises an error for rows of a file that is not in the joined table.

    Expressions are text, because Spark parses a text in one call, while a tree of columns takes dozens of calls.
    """
    before, _, after = _UNMATCHED.partition("{}")
    text = f"concat('{before}', {FILE_COLUMN}, '{after}{violation_suffix(Violation.ENGINE)}')"
    error = f"CAST(raise_error({text}) AS {sql_type})"
    return f"CASE WHEN {_FOUND_COLUMN} THEN {value} ELSE {error} END"


def is_deleted() -> str:
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
