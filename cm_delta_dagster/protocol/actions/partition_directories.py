"""Directory names of partition values (protocol heading "Partition Value Serialization").

Readers of the log do not use them: the values of a file are in its add action.

A directory is named after the value (``p=value``). File systems limit names to 255 bytes, so a longer value has its SHA-256 in the
name instead. Binary values that are not ASCII letters and digits have a digest too.
"""

import hashlib
import re

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.paths import HIVE_DEFAULT_PARTITION, hive_escape
from cm_delta_dagster.protocol.schema.types import BINARY, DataType

MAX_NAME_BYTES = 255
"""Longest name of a directory on common file systems."""
DIGEST_PREFIX = "cm-delta-sha256-"
DIGEST_BYTES = len(DIGEST_PREFIX) + 64

_SAFE_BYTES = re.compile(r"[0-9A-Za-z]+", re.ASCII)


def check_column_name(name: str) -> None:
    """Raises InvalidArgumentError if the name is too long for the name of a directory with a value."""
    if MAX_NAME_BYTES - name_bytes(name) < DIGEST_BYTES:
        raise InvalidArgumentError(
            f"The partition column {name!r} cannot be written: with {name_bytes(name) - 1} bytes its name is too long for the "
            f"directories of its values, whose names have at most {MAX_NAME_BYTES} bytes. Rename the column."
        )


def directory_name(name: str, text: str | None, data_type: DataType) -> str:
    """The directory of a partition value, ``name=value``; ``text`` as in the log."""
    if text is None:
        return f"{hive_escape(name)}={HIVE_DEFAULT_PARTITION}"
    named = f"{hive_escape(name)}={hive_escape(text)}"
    has_unsafe_bytes = data_type == BINARY and _SAFE_BYTES.fullmatch(text) is None
    if has_unsafe_bytes or is_digest(text) or len(named.encode()) > MAX_NAME_BYTES:
        return f"{hive_escape(name)}={digest_of(text)}"
    return named


def is_digest(text: str) -> bool:
    """Whether a directory is named after the digest of a value, not the value itself."""
    return text.startswith(DIGEST_PREFIX)


def digest_of(text: str) -> str:
    """What a directory has in the place of a value that cannot be in its name."""
    return DIGEST_PREFIX + hashlib.sha256(text.encode()).hexdigest()


def name_bytes(name: str) -> int:
    """Bytes of ``name=`` in a directory name."""
    return len(hive_escape(name).encode()) + 1
