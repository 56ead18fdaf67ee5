"""Locations and partition values of the files of a scan, from the log (protocol heading "Data Files").

"Actual partition values for a file must be read from the transaction log." The names of directories are never used. This
module does not use Spark.
"""

import re
from datetime import UTC, tzinfo

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.file_columns import partition_column
from cm_delta_dagster.protocol.actions.partition_values import canonical_partition_text
from cm_delta_dagster.protocol.actions.paths import resolve_path
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name
from cm_delta_dagster.protocol.schema.types import StructField
from cm_delta_dagster.remedies import ReadWithoutSpark

# Spark's listing silently omits these, even if they are named explicitly
# (HadoopFSUtils.shouldFilterOutPathName).
_HIDDEN_NAME = r"(^|/)(\.[^/]*|_[^/=]*|[^/]*\._COPYING_)$"
_PATH_WITH_COLON = r"^(?:[^:/]*://[^/]*)?/.*:"
PATTERN_LETTER = re.compile(r"[{}\[\]*?\\]")
"""Characters that Spark interprets as a glob pattern in a file name."""

_SPECIAL_PATH = r"%|^[A-Za-z][A-Za-z0-9+.\-]*:/|^/|(^|/)\.{0,2}(/|$)"


def absolute_locations(location: str, paths: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Decoded absolute location of each path of the log, in the scheme of the table."""
    array = one_chunk(paths)
    special = pc.match_substring_regex(array, _SPECIAL_PATH)
    joined = pc.binary_join_element_wise(pa.scalar(location.rstrip("/")), array, pa.scalar("/"))
    if not pc.any(special).as_py():
        return joined
    resolved = [resolve_path(location, path) for path in array.filter(special).to_pylist()]
    return pc.replace_with_mask(joined, special, pa.array(resolved, pa.string()))


def check_names(locations: pa.Array) -> None:
    """Raise UnsupportedFeatureError if a file has a name that Spark does not list or cannot open."""
    _check_visible(locations)
    _check_openable(locations)


def canonical_texts(files: pa.Table, field: StructField, mapping: ColumnMappingMode, zone: tzinfo = UTC) -> pa.Array:
    """The values of a partition column, one a file, in the text form that Spark's cast reads.

    Args:
        zone: time zone of ``timestamp`` partition values that state none.

    Raises:
        CorruptLogError: a partition value of the log is damaged.
    """
    return _canonical(one_chunk(partition_column(files, physical_name(field, mapping))), field, zone)


def _check_visible(locations: pa.Array) -> None:
    hidden = pc.match_substring_regex(locations, _HIDDEN_NAME)
    if pc.any(hidden).as_py():
        name = locations.filter(hidden)[0].as_py()
        raise UnsupportedFeatureError(
            f"The data file {name} has a name that Spark takes for hidden and would not read; nothing "
            "is read. Rewrite the table with a client that names data files without a leading '.' or '_'."
        )


def _check_openable(locations: pa.Array) -> None:
    """Raise UnsupportedFeatureError for a name that Hadoop parses as a URI with a scheme: one segment with a colon.

    Hadoop parses such names when it expands patterns and, on local disks, when it looks for the checksum of a file.
    """
    with_colon = pc.match_substring_regex(locations, _PATH_WITH_COLON)
    if not pc.any(with_colon).as_py():
        return
    for location in locations.filter(with_colon).to_pylist():
        is_local = location.startswith(("file:", "/"))
        if PATTERN_LETTER.search(location) or (is_local and ":" in location.rpartition("/")[2]):
            raise UnsupportedFeatureError(
                f"The data file {location} has a name with a colon, which Spark's file systems cannot open; nothing is read. "
                "Let its writer write the file again under another name, or use another engine."
            ).with_remedy(ReadWithoutSpark())


def _canonical(text: pa.Array, field: StructField, zone: tzinfo) -> pa.Array:
    """Each distinct text is rewritten once."""
    encoded = pc.dictionary_encode(text, null_encoding="encode")
    rewritten = [canonical_partition_text(value, field.type, zone=zone) for value in encoded.dictionary.to_pylist()]
    return pa.array(rewritten, pa.string()).take(encoded.indices)


def one_chunk(array: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The values as one array."""
    if isinstance(array, pa.ChunkedArray):
        return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array
