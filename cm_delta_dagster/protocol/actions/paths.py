"""Paths of data files (protocol heading "Add File and Remove File").

There are three forms: the *path* of the log (percent-encoded, relative or absolute), the *location* (absolute URI with a decoded
path, as storage expects it), and the *key* (normalised location, equal for all spellings of one file). Nothing here accesses
storage: ``storage.other_names`` resolves links, where it matters that two locations do not name one object.
"""

import re
import unicodedata
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import CorruptLogError

HIVE_DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Directory name of a null partition value."""

OBJECT_STORE_SCHEMES: Mapping[str, str] = MappingProxyType(
    {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
)
"""Schemes of locations in object stores; schemes of the same kind of store have the same value."""

# The characters that RFC 2396 allows in a path besides letters, digits and `_.-~`, except the colon: in the first segment
# of a relative path it would end a scheme.
_SAFE_IN_PATH = "/=!$&'()*+,;@"
_SCHEME_TEXT = r"([A-Za-z][A-Za-z0-9+.\-]*):"
_SCHEME = re.compile(rf"{_SCHEME_TEXT}(?=/)")
# Not for Azure, where container and account are written differently too.
_ONE_SPELLING = {scheme: store for scheme, store in OBJECT_STORE_SCHEMES.items() if store != "az"}
_AZURE_SCHEMES = frozenset({"az", "abfs", "abfss", "wasb", "wasbs"})
_DEFAULT_PORTS: Mapping[str, str] = MappingProxyType({"hdfs": "8020", "http": "80", "https": "443"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DRIVE = re.compile(r"[A-Za-z]:\\")
_RELATIVE_FILE_URI = re.compile(r"file:(?!/)", re.IGNORECASE)
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PLAIN = re.compile(r"[A-Za-z0-9_=\-][A-Za-z0-9_=+,\-]*(?:[./][A-Za-z0-9_=+,\-]+)*")
"""Most relative paths; none of them has a flaw."""
_SUSPECT = (
    r"%([^0-9A-Fa-f]|.[^0-9A-Fa-f]|.?$|00|2[Ff]|[89A-Fa-f])|(^|/)(\.|%2[Ee]){2}(/|$)"
    r"|^([A-Za-z][A-Za-z0-9+.\-]*:)?(/+[^/]*)?(/|\.|%2[Ee])*$"
)
"""What paths with a flaw match, and some others."""
_TAIL = "%[89ABab][0-9A-Fa-f]"
_CHARACTER = (
    rf"%(?:[Cc][2-9A-Fa-f]|[Dd][0-9A-Fa-f]){_TAIL}"
    rf"|%(?:[Ee]0%[ABab][0-9A-Fa-f]|[Ee][1-9A-Ca-cEeFf]{_TAIL}|[Ee][Dd]%[89][0-9A-Fa-f]){_TAIL}"
    rf"|%(?:[Ff]0%[9ABab][0-9A-Fa-f]|[Ff][1-3]{_TAIL}|[Ff]4%8[0-9A-Fa-f]){_TAIL}{_TAIL}"
)
"""A character beyond ASCII in UTF-8, percent-encoded."""
_SUSPECT_NAMES = r"^[./]*[%_]|/$"
_SUSPECT_PLAIN = ((pc.starts_with, "_"), (pc.match_substring, "\0"))
"""Paths of the log, of directories and with U+0000 match, and some others."""
_HIVE_UNSAFE = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
_HIVE_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_SLASH, _DOT, _COLON, _PERCENT = b"/.:%"
_BLOCK_ROWS = 65_536
"""This many paths fit into the processor's cache."""


def encode_path(relative: str) -> str:
    """``path`` of the log for a decoded path relative to the table root."""
    return quote(relative, safe=_SAFE_IN_PATH)


def decode_path(path: str) -> str:
    """``path`` of the log, percent-decoded exactly once as UTF-8. ``+`` stays a plus sign.

    Raises:
        CorruptLogError: an escape is incomplete, or the decoded bytes are not UTF-8.
    """
    if "%" not in path:
        return path
    if _BROKEN_ESCAPE.search(path):
        raise CorruptLogError(
            f"The path {path!r} in the log has an incomplete percent escape; the log entry is damaged."
        )
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError as error:
        raise CorruptLogError(
            f"The path {path!r} in the log is not percent-encoded UTF-8; the entry is damaged."
        ) from error


def resolve_path(table_location: str, path: str) -> str:
    """Absolute decoded location of a ``path`` of the log.

    Args:
        table_location: decoded URI of the table root, with or without a trailing slash.
        path: percent-encoded, relative to the root or absolute.

    Raises:
        CorruptLogError: the path does not name a file, cannot be decoded, or has a ``..`` segment.
    """
    decoded, segments = _checked(path)
    # The scheme is matched before decoding, because an encoded colon belongs to a file name.
    scheme = _SCHEME.match(path)
    if scheme is not None:
        return normalise_location(decoded) if scheme[1].lower() == "file" else decoded
    if path.startswith("/"):
        return _root_of(table_location) + decoded
    return f"{table_location.rstrip('/')}/{'/'.join(segments)}"


def _checked(path: str) -> tuple[str, list[str]]:
    """``path`` decoded, and its segments without empty ones and ``.``. Raises CorruptLogError as :func:`resolve_path`."""
    decoded = decode_path(path)
    scheme = _SCHEME.match(path)
    below = decoded if scheme is None else decoded[scheme.end() :]
    if scheme is not None and below.startswith("//"):
        below = below[2:].partition("/")[2]
    segments = [segment for segment in below.split("/") if segment not in ("", ".")]
    if not segments:
        raise CorruptLogError(f"The path {path!r} in the log does not name a file; the log entry is damaged.")
    if ".." in segments:
        # Refused in absolute paths too: operations that compare locations, such as vacuum, would treat it as another file.
        raise CorruptLogError(
            f"The path {path!r} in the log has a '..' segment and may leave the table; it is refused, because the file may "
            "belong to another table. A file outside of the table must be named by an absolute URI."
        )
    return decoded, segments


def flaw_of_log_path(path: str) -> str | None:
    """Why no file can have ``path`` in a log; None if one can. See :func:`resolve_path`."""
    if _PLAIN.fullmatch(path):
        return None
    try:
        _checked(path)
    except CorruptLogError as error:
        return str(error)
    return None


def first_flaw(paths: pa.ChunkedArray | pa.Array) -> tuple[int, str] | None:
    """Row and :func:`flaw_of_log_path` of the first path that no file can have. Nulls are left out.

    The paths that may have a flaw are found without a Python object per path.
    """
    array = _combined(paths)
    suspects = _are_suspect(array)
    for row in np.flatnonzero(suspects.to_numpy(zero_copy_only=False)).tolist():
        flaw = flaw_of_log_path(array[row].as_py())
        if flaw is not None:
            return row, flaw
    return None


def suspect_paths(paths: pa.ChunkedArray) -> pa.Array:
    """Those of the paths that may have a flaw, or name a directory, a file of the log or U+0000."""
    special = _special_paths(paths)
    return pa.concat_arrays(
        [
            special.filter(pc.or_(_are_suspect(special), pc.match_substring_regex(special, _SUSPECT_NAMES))),
            *(_combined(paths.filter(chosen(paths, text))) for chosen, text in _SUSPECT_PLAIN),
        ]
    )


def _special_paths(paths: pa.ChunkedArray) -> pa.Array:
    array = _combined(paths)
    rows = _special_rows(array)
    return array.take(pa.array([] if rows is None else rows, pa.int64()))


def _are_suspect(paths: pa.Array) -> pa.BooleanArray:
    are_suspect = pc.fill_null(pc.match_substring_regex(paths, _SUSPECT), False)
    if not pc.any(are_suspect).as_py():
        return are_suspect
    # Neither a hexadecimal digit nor a part of another form: what is damaged around a character stays damaged.
    without = pc.replace_substring_regex(paths.filter(are_suspect), _CHARACTER, "x")
    return pc.replace_with_mask(are_suspect, are_suspect, pc.match_substring_regex(without, _SUSPECT))


def is_absolute_path(path: str) -> bool:
    """Whether the ``path`` of a log does not begin at the root of its table."""
    return path.startswith("/") or _SCHEME.match(path) is not None


def absolute_paths_of(paths: pa.ChunkedArray) -> pa.Array:
    """Those of the paths for which :func:`is_absolute_path`."""
    special = _special_paths(paths)
    return special.filter(pc.match_substring_regex(special, rf"^(/|{_SCHEME_TEXT}/)"))


def encode_location(location: str) -> str:
    """Absolute ``path`` of the log for a decoded location: its path is percent-encoded."""
    match = _SCHEME.match(location)
    if match is None:
        return "file://" + quote(location, safe=f"{_SAFE_IN_PATH}:")
    return match[0] + quote(location[match.end() :], safe=f"{_SAFE_IN_PATH}:")


def absolute_paths(table_location: str, paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Each ``path`` of the log of the table as an absolute one, which names the same file from the log of another table.

    Paths that have a scheme are returned as they are.
    """
    root = encode_location(table_location.rstrip("/"))
    empty = pa.scalar("")
    below = pc.binary_join_element_wise(pa.scalar(f"{root}/"), paths, empty)
    rooted = pc.binary_join_element_wise(pa.scalar(_root_of(table_location)), paths, empty)
    without_scheme = pc.if_else(pc.starts_with(paths, "/"), rooted, below)
    return pc.if_else(pc.match_substring_regex(paths, rf"^{_SCHEME_TEXT}/"), paths, without_scheme)


def flaw_of_path(text: object) -> str | None:
    """Why a directory or URI that a user gave cannot be meant as it is written; None if it can."""
    if not isinstance(text, str):
        return f"it is of type {type(text).__name__}, not a text"
    if not text.strip():
        return "it is empty"
    if _CONTROL.search(text):
        return "it has a line break or another control character"
    if not text.isprintable() and text.encode(errors="replace").decode() != text:
        return "it has a character that no Unicode text has, such as a byte of a file name in another encoding"
    if text != text.strip():
        return "it begins or ends with a space"
    if text.startswith("~"):
        return "only a shell replaces '~' by the home directory; write the directory in full, or './~...' if it has that name"
    if _DRIVE.match(text):
        return "it begins with the drive of another system; write a directory of this machine, or a URI"
    if _RELATIVE_FILE_URI.match(text):
        return "'file:' is followed by a relative path; write file:///path, or the path alone"
    return None


def normalise_location(uri: str) -> str:
    """The normal form of a decoded location. For example, ``file:/x``, ``file://localhost/x`` and ``/x`` become ``file:///x``.

    The scheme is lower-cased; repeated and trailing slashes and ``.`` segments are removed, as Hadoop does. ``s3a`` and
    ``s3n``, which are Hadoop's names of the same store, become ``s3``, and ``gcs`` becomes ``gs``.
    """
    match = _SCHEME.match(uri)
    if match is None:
        return "file://" + _clean(uri) if uri.startswith("/") else uri
    scheme = match[1].lower()
    rest = uri[match.end() :]
    authority = ""
    if rest.startswith("//"):
        authority, slash, tail = rest[2:].partition("/")
        rest = slash + tail
    if scheme == "file" and authority.lower() == "localhost":
        authority = ""
    scheme = _ONE_SPELLING.get(scheme, scheme)
    return f"{scheme}://{authority}{_clean(rest)}"


def canonical_location(location: str) -> str:
    """The form of a decoded location in which all its spellings are equal. It is compared only: engines may not accept it.

    Other than :func:`normalise_location`, it has no credentials and no default port, and Azure's schemes and hosts have one form,
    ``az://container@account/path``. An account that the location does not name is left out.
    """
    scheme, separator, rest = normalise_location(location).partition("://")
    if not separator or scheme == "file":
        return f"{scheme}{separator}{rest}"
    authority, slash, path = rest.partition("/")
    user, _, host = authority.rpartition("@")
    if scheme in _AZURE_SCHEMES:
        scheme = "az"
        host = f"{user}@{host.lower().partition('.')[0].partition(':')[0]}" if user else host
    else:
        host = host.removesuffix(f":{_DEFAULT_PORTS.get(scheme, '')}")
    return f"{scheme}://{host}{slash}{path}"


def folded_name(name: str) -> str:
    """A file name without what file systems and writers may change: case, the form of accents, and percent-encoding."""
    while (decoded := unquote(name)) != name:
        name = decoded
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def folded_names(locations: pa.Array) -> pa.Array:
    """:func:`folded_name` of the last segment of each location; only names that are not plain ASCII are taken one by one."""
    names = pc.replace_substring_regex(locations.cast(pa.string()), "(?s)^.*/", "")
    folded = pc.utf8_lower(names)
    special = pc.or_(pc.match_substring(names, "%"), pc.invert(pc.string_is_ascii(names)))
    if not pc.any(special, min_count=0).as_py():
        return folded
    values = [folded_name(name) for name in names.filter(special).to_pylist()]
    return pc.replace_with_mask(folded, special, pa.array(values, pa.string()))


def file_keys(location: str, paths: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The key of each ``path`` in the log of the table at ``location``; all spellings of one file have the same key.

    Plain relative paths, which are nearly all in practice, are joined without a Python object per file.

    Raises:
        CorruptLogError: as :func:`resolve_path`.
    """
    array = _combined(paths)
    if not len(array):
        return array
    keys = pc.binary_join_element_wise(pa.scalar(normalise_location(location) + "/"), array, pa.scalar(""))
    special = _special_rows(array)
    return keys if special is None else _replaced(keys, special, _keys_of(location, array, special))


def _combined(paths: pa.ChunkedArray | pa.Array) -> pa.Array:
    array = paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    return array.cast(pa.string())


def relative_file_keys(location: str, paths: pa.Array) -> pa.Array:
    """As :func:`file_keys`, but relative to the table for files below it; plain paths are not copied.

    Absolute keys contain ``//`` and relative keys do not, so a relative key never equals an absolute one.

    Raises:
        CorruptLogError: as :func:`resolve_path`.
    """
    special = _special_rows(paths)
    if special is None:
        return paths
    prefix = normalise_location(location) + "/"
    keys = [None if key is None else key.removeprefix(prefix) for key in _keys_of(location, paths, special)]
    return _replaced(paths, special, keys)


def _replaced(keys: pa.Array, special: np.ndarray, values: list[str | None]) -> pa.Array:
    mask = np.zeros(len(keys), dtype=bool)
    mask[special] = True
    return pc.replace_with_mask(keys, pa.array(mask), pa.array(values, type=pa.string()))


def _special_rows(paths: pa.Array) -> np.ndarray | None:
    """Row numbers of all paths that are not plain relative ones, and possibly of some that are; None for no rows.

    A path is not plain if it is null or empty, or has an escape, a scheme, a leading or trailing slash, dot segments or double
    slashes. The bytes of all paths are compared together, which takes an eighth of the time of a regular expression.
    """
    _, offset_buffer, data_buffer = paths.buffers()
    if not len(paths):
        return None
    offsets = np.frombuffer(offset_buffer, np.int32)[paths.offset : paths.offset + len(paths) + 1]
    special = [np.flatnonzero(offsets[1:] == offsets[:-1])]
    if paths.null_count:
        special.append(np.flatnonzero(pc.is_null(paths).to_numpy(zero_copy_only=False)))
    data = np.frombuffer(data_buffer or b"", np.uint8)
    for first in range(0, len(paths), _BLOCK_ROWS):
        ends = offsets[first : first + _BLOCK_ROWS + 1]
        rows = _special_in(data[ends[0] : ends[-1]], ends - ends[0])
        if len(rows):
            special.append(rows + first)
    rows_of_paths = np.unique(np.concatenate(special))
    return rows_of_paths if len(rows_of_paths) else None


def _special_in(data: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Special rows of one block. ``data`` contains its concatenated texts; ``ends`` are their starts and the end of the last."""
    if not len(data):
        return np.array([], dtype=np.int64)
    slashes = np.flatnonzero(data == _SLASH)
    after = data.take(slashes + 1, mode="clip")
    before = data.take(slashes - 1, mode="clip")
    odd = (after == _SLASH) | (after == _DOT) | (before == _COLON)
    places = [np.flatnonzero(data == _PERCENT), slashes[odd]]
    rows = [np.searchsorted(ends, place, side="right") - 1 for place in places if len(place)]
    first = data.take(ends[:-1], mode="clip")
    last = data.take(ends[1:] - 1, mode="clip")
    rows.append(np.flatnonzero((first == _SLASH) | (first == _DOT) | (last == _SLASH)))
    return np.concatenate(rows)


def _keys_of(location: str, paths: pa.Array, rows: np.ndarray) -> list[str | None]:
    """:func:`file_key` of the paths in ``rows``. Each directory is resolved once, because partitions repeat them."""
    directories: dict[str, str] = {}
    keys: list[str | None] = []
    for path in paths.take(pa.array(rows)).to_pylist():
        directory, _, name = (path or "").rpartition("/")
        if path is None:
            keys.append(None)
        elif not directory or directory.endswith("/") or "%" in name or name in ("", ".", ".."):
            keys.append(file_key(location, path))
        else:
            prefix = directories.get(directory)
            if prefix is None:
                prefix = directories[directory] = file_key(location, directory + "/x")[:-1]
            keys.append(prefix + name)
    return keys


def file_key(location: str, path: str) -> str:
    """The key of one path, as :func:`file_keys`. Raises CorruptLogError as :func:`resolve_path`."""
    return normalise_location(resolve_path(location, path))


def hive_escape(value: str) -> str:
    """A name or value of a partition directory ``name=value``, escaped as Hive does."""
    return _HIVE_UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", value)


def hive_unescape(value: str) -> str:
    """The inverse of :func:`hive_escape`; invalid escape sequences are kept."""
    return _HIVE_ESCAPE.sub(lambda match: chr(int(match[1], 16)), value)


def _root_of(table_location: str) -> str:
    """Scheme and host of a location, which an absolute path without a scheme is relative to."""
    match = _SCHEME.match(table_location)
    if match is None:
        return "file://"
    rest = table_location[match.end() :]
    authority = rest[2:].partition("/")[0] if rest.startswith("//") else ""
    return f"{match[1]}://{authority}"


def _clean(path: str) -> str:
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    return "/" + "/".join(segments) if segments else ""
