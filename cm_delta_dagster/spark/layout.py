"""Grouping the files of a scan by how Spark reads them (protocol heading "Data Files").

"Actual partition values for a file must be read from the transaction log." Spark's partition discovery from directory names
is fast, so it is used for files whose directory names equal the values in the log; this module compares them directory by
directory, without an object per file. All other files are read without discovery and get their values from the log. This
module does not use Spark.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import CorruptLogError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.file_columns import partition_column
from cm_delta_dagster.protocol.actions.partition_values import parse_partition_value, serialize_partition_value
from cm_delta_dagster.protocol.actions.paths import HIVE_DEFAULT_PARTITION, decode_path, hive_unescape, resolve_path
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name
from cm_delta_dagster.protocol.schema.types import TRANSACTION_COLUMN, StructField
from cm_delta_dagster.spark.partition_text import canonical_pattern

# Spark's listing silently omits these, even if they are named explicitly
# (HadoopFSUtils.shouldFilterOutPathName).
_HIDDEN_NAME = r"(^|/)(\.[^/]*|_[^/=]*|[^/]*\._COPYING_)$"
_PATH_WITH_COLON = r"^(?:[^:/]*://[^/]*)?/.*:"
PATTERN_LETTER = re.compile(r"[{}\[\]*?\\]")
"""Characters that Spark interprets as a glob pattern in a file name."""

_SPECIAL_PATH = r"%|^[A-Za-z][A-Za-z0-9+.\-]*:/|^/|(^|/)\.{0,2}(/|$)"
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:/|/")


class LayoutKind(StrEnum):
    """How the directories of a file relate to its partition values."""

    TRANSACTION = "transaction"
    """``delta.txn=<hex>/a=1/b=2/file``: the layout that this package writes."""

    HIVE = "hive"
    """``a=1/b=2/file``: the layout of most other writers."""

    LOG_ONLY = "log-only"
    """Directories are ignored; the values come from the log. Also for every file of a table without partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Files that one scan can read.

    Attributes:
        locations: absolute decoded location of each file of ``files``, in order.
        values: canonical partition texts by row, one array for each partition column; only for LOG_ONLY.
    """

    kind: LayoutKind
    files: pa.Table
    locations: pa.Array
    values: tuple[pa.Array, ...] = ()

    def part(self, rows: slice) -> "FileGroup":
        """The files at consecutive positions."""
        start, length = rows.start, rows.stop - rows.start
        return FileGroup(
            kind=self.kind,
            files=self.files.slice(start, length),
            locations=self.locations.slice(start, length),
            values=tuple(item.slice(start, length) for item in self.values),
        )


def absolute_locations(location: str, paths: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Decoded absolute location of each path of the log, in the scheme of the table."""
    array = one_chunk(paths)
    special = pc.match_substring_regex(array, _SPECIAL_PATH)
    joined = pc.binary_join_element_wise(pa.scalar(location.rstrip("/")), array, pa.scalar("/"))
    if not pc.any(special).as_py():
        return joined
    resolved = [resolve_path(location, path) for path in array.filter(special).to_pylist()]
    return pc.replace_with_mask(joined, special, pa.array(resolved, pa.string()))


def group_files(
    files: pa.Table,
    *,
    location: str,
    partition_fields: Sequence[StructField],
    mapping: ColumnMappingMode = ColumnMappingMode.NONE,
    discover: bool = True,
    zone: tzinfo = UTC,
) -> list[FileGroup]:
    """Split live files by how they can be read.

    Args:
        discover: whether to use partition discovery; if False, every file is LOG_ONLY.
        zone: time zone of ``timestamp`` partition values that state none.

    Raises:
        CorruptLogError: a path or a partition value of the log is damaged.
        UnsupportedFeatureError: a file has a name that Spark does not list or cannot open.
    """
    if not files.num_rows:
        return []
    locations = absolute_locations(location, files["path"])
    _check_visible(locations)
    _check_openable(locations)
    if not partition_fields or files.num_rows == 0:
        return [FileGroup(kind=LayoutKind.LOG_ONLY, files=files, locations=locations)]
    names = [physical_name(field, mapping) for field in partition_fields]
    texts = [one_chunk(partition_column(files, name)) for name in names]
    if discover:
        kinds = _agreeing_kinds(one_chunk(files["path"]), texts, partition_fields, names)
    else:
        kinds = pa.repeat(pa.scalar(LayoutKind.LOG_ONLY.value), files.num_rows)
    groups = []
    for kind in LayoutKind:
        mask = pc.equal(kinds, kind.value)
        if not pc.any(mask).as_py():
            continue
        values: tuple[pa.Array, ...] = ()
        if kind is LayoutKind.LOG_ONLY:
            values = tuple(
                _canonical(text.filter(mask), field, zone) for text, field in zip(texts, partition_fields, strict=True)
            )
        groups.append(FileGroup(kind=kind, files=files.filter(mask), locations=locations.filter(mask), values=values))
    return groups


def top_directory(locations: pa.Array, location: str) -> pa.Array:
    """For TRANSACTION files: the absolute location of each file's ``delta.txn=...`` directory."""
    root = location.rstrip("/") + "/"
    rest = pc.utf8_slice_codeunits(locations, len(root))
    return pc.binary_join_element_wise(pa.scalar(root), pc.replace_substring_regex(rest, r"/.*$", ""), pa.scalar(""))


def is_visible(relative: str) -> bool:
    """Whether Spark's listing of a directory shows the file at ``relative`` below it."""
    return not any(re.search(_HIDDEN_NAME, segment) for segment in relative.split("/"))


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
                "Read the table without Spark (to_arrow), or let its writer write the file again under another name."
            )


def _agreeing_kinds(
    paths: pa.Array, texts: Sequence[pa.Array], fields: Sequence[StructField], names: Sequence[str]
) -> pa.Array:
    """Layout kind of each file: discovery only if all directory texts equal the log's and are canonical."""
    directories = pc.dictionary_encode(pc.replace_substring_regex(paths, r"[^/]*$", ""))
    parsed = [_parse_directory(directory, names) for directory in directories.dictionary.to_pylist()]
    kinds = pa.array([kind.value for kind, _ in parsed], pa.string()).take(directories.indices)
    usable = pc.not_equal(kinds, LayoutKind.LOG_ONLY.value)
    if TRANSACTION_COLUMN in {name.lower() for name in names}:
        usable = pc.and_(usable, pa.scalar(False))
    for position, (text, field) in enumerate(zip(texts, fields, strict=True)):
        directory_text = pa.array([values[position] for _, values in parsed], pa.string()).take(directories.indices)
        same = pc.or_(
            pc.fill_null(pc.equal(directory_text, text), False), pc.and_(pc.is_null(directory_text), pc.is_null(text))
        )
        usable = pc.and_(pc.and_(usable, same), _is_canonical(text, field))
    return pc.if_else(usable, kinds, pa.scalar(LayoutKind.LOG_ONLY.value))


def _parse_directory(directory: str, names: Sequence[str]) -> tuple[LayoutKind, tuple[str | None, ...]]:
    """Layout and partition texts in the name of an encoded directory (with its closing slash)."""
    nothing = (LayoutKind.LOG_ONLY, (None,) * len(names))
    if _ABSOLUTE.match(directory):
        return nothing
    segments = decode_path(directory).split("/")[:-1]
    kind = LayoutKind.HIVE
    if segments and segments[0].startswith(f"{TRANSACTION_COLUMN}="):
        kind, segments = LayoutKind.TRANSACTION, segments[1:]
    if len(segments) != len(names):
        return nothing
    values: list[str | None] = []
    for segment, name in zip(segments, names, strict=True):
        key, separator, escaped = segment.partition("=")
        # An empty text is NULL in the log and an empty string in Spark.
        if not separator or not escaped or hive_unescape(key) != name:
            return nothing
        values.append(None if escaped == HIVE_DEFAULT_PARTITION else hive_unescape(escaped))
    return kind, tuple(values)


def _is_canonical(text: pa.Array, field: StructField) -> pa.Array:
    pattern = canonical_pattern(field.type)
    if pattern is None:
        return pc.is_null(text)
    if not pattern:
        return pc.is_valid(text) if not text.null_count else pa.repeat(pa.scalar(True), len(text))
    return pc.fill_null(pc.match_substring_regex(text, pattern), True)


def _canonical(text: pa.Array, field: StructField, zone: tzinfo) -> pa.Array:
    """The same values in the text form that Spark's cast reads; each distinct text is rewritten once."""
    encoded = pc.dictionary_encode(text, null_encoding="encode")
    if not isinstance(encoded, pa.DictionaryArray):
        encoded = encoded.combine_chunks()
    rewritten = [_rewritten(value, field, zone) for value in encoded.dictionary.to_pylist()]
    return pa.array(rewritten, pa.string()).take(encoded.indices)


def _rewritten(text: str | None, field: StructField, zone: tzinfo) -> str | None:
    value = parse_partition_value(text, field.type, zone=zone)
    if value is None:
        return None
    canonical = serialize_partition_value(value, field.type)
    if canonical is None:
        raise CorruptLogError(f"The partition value {text!r} of column {field.name!r} has no readable form.")
    return canonical


def distinct_values(group: FileGroup) -> Iterator[tuple[tuple[str | None, ...], pa.Array]]:
    """Each combination of partition texts of a LOG_ONLY group with the positions of its files."""
    keys = [str(position) for position in range(len(group.values))]
    table = pa.table([pa.array(range(len(group.locations)), pa.int64()), *group.values], names=["row", *keys])
    grouped = table.group_by(keys).aggregate([("row", "list")])
    lists = grouped["row_list"]
    for row, values in enumerate(zip(*(grouped[key].to_pylist() for key in keys), strict=True)):
        yield values, lists[row].values


def count_distinct_values(group: FileGroup) -> int:
    """Number of combinations that :func:`distinct_values` gives."""
    keys = [str(position) for position in range(len(group.values))]
    return int(pa.table(list(group.values), names=keys).group_by(keys).aggregate([]).num_rows)


def one_chunk(array: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The values as one array."""
    if isinstance(array, pa.ChunkedArray):
        return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array
