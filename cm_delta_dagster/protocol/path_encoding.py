"""Paths of data files (protocol headings "Add File and Remove File", "URI encoding"; section PATH).

Three spellings are kept apart: the *path* of the log (percent-encoded, relative or absolute), the *location* (absolute
URI with a decoded path, as storage takes it), and the *key* (the normalised location by which two spellings of one file
are recognised as equal). Nothing here looks at storage.
"""

import re
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import CorruptLogError

HIVE_DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Directory name of a null partition value."""

# What RFC 2396 allows in a path besides letters, digits and `_.-~`. The colon is allowed too but encoded all the same:
# in the first segment of a relative path it would be taken for the end of a scheme.
_SAFE_IN_PATH = "/=!$&'()*+,;@"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?=/)")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HIVE_UNSAFE = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
_HIVE_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
# Any of these makes a path more than a plain relative one: an escape, a scheme, a leading slash, dot segments, double
# slashes.
_NOT_PLAIN = r"%|^[A-Za-z][A-Za-z0-9+.\-]*:/|^/|(^|/)\.{0,2}(/|$)"


def encode_path(relative: str) -> str:
    """``path`` of the log for a decoded path relative to the table root (PATH-2)."""
    return quote(relative, safe=_SAFE_IN_PATH)


def decode_path(path: str) -> str:
    """``path`` of the log, percent-decoded exactly once as UTF-8 (PATH-1). ``+`` stays a plus sign.

    Raises:
        CorruptLogError: an escape is incomplete or does not give UTF-8.
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
    """Absolute decoded location of a ``path`` of the log (PATH-3).

    Args:
        table_location: decoded URI of the table root, with or without a trailing slash.
        path: percent-encoded, relative to the root or absolute.

    Raises:
        CorruptLogError: the path is empty, cannot be decoded, or has a ``..`` segment (PATH-5).
    """
    decoded = decode_path(path)
    # The scheme is looked for before decoding: an encoded colon belongs to a file name.
    scheme = _SCHEME.match(path)
    segments = [segment for segment in decoded.split("/") if segment not in ("", ".")]
    if not segments:
        raise CorruptLogError(f"The path {path!r} in the log names no file; the log entry is damaged.")
    if ".." in segments:
        # Refused in absolute paths too: whoever compares locations, as vacuum does, would take it for another file.
        raise CorruptLogError(
            f"The path {path!r} in the log has a '..' segment and may leave the table {table_location!r}; it is "
            "refused, because such a file may belong to somebody else. A file outside of the table must be named by an "
            "absolute URI."
        )
    if scheme is not None:
        return normalise_location(decoded) if scheme[1].lower() == "file" else decoded
    if path.startswith("/"):
        return _root_of(table_location) + decoded
    return f"{table_location.rstrip('/')}/{'/'.join(segments)}"


def normalise_location(uri: str) -> str:
    """One spelling for a decoded location: ``file:/x``, ``file:///x``, ``file://localhost/x`` and ``/x`` are
    ``file:///x``.

    The scheme is lower-cased; repeated and trailing slashes and ``.`` segments go, as Hadoop drops them. ``s3a`` and
    ``s3n`` are ``s3``: the Hadoop names of the same store.
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
    scheme = "s3" if scheme in ("s3a", "s3n") else scheme
    return f"{scheme}://{authority}{_clean(rest)}"


def file_keys(location: str, paths: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Normalised key of each ``path`` of the log, relative to the table at ``location``; equal files have equal keys
    (REC-14).

    Plain relative paths, which is nearly all of them in practice, are joined without a Python object per file.

    Raises:
        CorruptLogError: as :func:`resolve_path`.
    """
    array = paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    array = array.cast(pa.string())
    prefix = normalise_location(location) + "/"
    if not len(array):
        return array
    special = pc.fill_null(pc.match_substring_regex(array, _NOT_PLAIN), False)
    keys = pc.binary_join_element_wise(pa.scalar(prefix), array, pa.scalar(""))
    if not pc.any(special).as_py():
        return keys
    resolved = [file_key(location, path) for path in array.filter(special).to_pylist()]
    return pc.replace_with_mask(keys, special, pa.array(resolved, type=pa.string()))


def file_key(location: str, path: str) -> str:
    """:func:`file_keys` for one path. Raises CorruptLogError as :func:`resolve_path`."""
    return normalise_location(resolve_path(location, path))


def hive_escape(value: str) -> str:
    """One part (name or value) of a partition directory ``name=value``, escaped as Hive does (PART-9)."""
    return _HIVE_UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", value)


def hive_unescape(value: str) -> str:
    """The inverse of :func:`hive_escape`; sequences that are no escape stay as they are."""
    return _HIVE_ESCAPE.sub(lambda match: chr(int(match[1], 16)), value)


def partition_directory(values: "list[tuple[str, str | None]]") -> str:
    """Decoded directory ``a=1/b=x`` of the given (name, text) pairs; empty for none. Null has Hive's name for it
    (PART-9)."""
    return "/".join(
        f"{hive_escape(name)}={HIVE_DEFAULT_PARTITION if not text else hive_escape(text)}" for name, text in values
    )


def _root_of(table_location: str) -> str:
    """Scheme and host of a location: what an absolute path without a scheme belongs to."""
    match = _SCHEME.match(table_location)
    if match is None:
        return "file://"
    rest = table_location[match.end() :]
    authority = rest[2:].partition("/")[0] if rest.startswith("//") else ""
    return f"{match[1]}://{authority}"


def _clean(path: str) -> str:
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    return "/" + "/".join(segments) if segments else ""
