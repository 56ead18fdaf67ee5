"""Offsets of streams: how far a stream has read a table.

The JSON format is that of delta-spark's ``DeltaSourceOffset``, including its legacy field names. An offset does not identify the
consumer; each consumer stores its own.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.json_fields import long, text

BEFORE_FIRST = -1
"""``index`` of an offset before every file of its version."""

_WRITTEN = 1
_FIRST_WITH_OTHER_BASE = 3
_BASE_IN_3 = -100
_FIELDS = frozenset(("sourceVersion", "reservoirId", "reservoirVersion", "index", "isStartingVersion"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """A position in the files of a table: the stream has read all files up to it and none after it.

    Invariants: ``version`` >= 0 and ``index`` >= ``BEFORE_FIRST``. Positions of a stream are ordered by version and index; all
    files of the initial snapshot precede those of later versions.

    Attributes:
        table_id: ``id`` in the table's metadata.
        version: the version of the last file that was read, or the next version.
        index: index of the last file of ``version`` that was read, from 0 on.
        is_initial: whether ``index`` counts the files of the snapshot of ``version`` and not those added by its commit.
    """

    table_id: str
    version: int
    index: int = BEFORE_FIRST
    is_initial: bool = False

    @property
    def position(self) -> tuple[int, int]:
        """Sort key of the offsets of one stream."""
        return self.version, self.index

    def to_json(self) -> str:
        """Encode the offset as delta-spark does; :func:`parse_offset` is the inverse."""
        return json.dumps(
            {
                "sourceVersion": _WRITTEN,
                "reservoirId": self.table_id,
                "reservoirVersion": self.version,
                "index": self.index,
                "isStartingVersion": self.is_initial,
            },
            separators=(",", ":"),
        )


def parse_offset(content: str) -> StreamOffset:
    """Decode an offset that :meth:`StreamOffset.to_json` or delta-spark wrote.

    Raises:
        InvalidArgumentError: ``content`` is not an offset, or has an unknown format.
    """
    try:
        fields = json.loads(content)
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid(content, f"it is not JSON ({error})") from error
    if not isinstance(fields, dict):
        raise _invalid(content, "it is not a JSON object")
    return _from_fields(fields, content)


def _from_fields(fields: Mapping[str, Any], content: str) -> StreamOffset:
    if set(fields) != _FIELDS:
        named = ", ".join(sorted(set(fields) ^ _FIELDS))
        raise _invalid(content, f"these fields are missing or unknown: {named}")
    try:
        source_version = long(fields, "sourceVersion")
        table_id, version, index = text(fields, "reservoirId"), long(fields, "reservoirVersion"), long(fields, "index")
    except (TypeError, ValueError) as error:
        raise _invalid(content, str(error)) from error
    if not isinstance(fields["isStartingVersion"], bool):
        raise _invalid(content, "isStartingVersion is not true or false")
    if source_version not in (_WRITTEN, _FIRST_WITH_OTHER_BASE):
        raise _invalid(content, f"sourceVersion {source_version} is not supported")
    if source_version == _FIRST_WITH_OTHER_BASE:
        index = BEFORE_FIRST if index == _BASE_IN_3 else index if index >= 0 else _refused_index(content, index)
    if version < 0 or index < BEFORE_FIRST:
        raise _invalid(content, f"version {version} and index {index} are not a valid position")
    return StreamOffset(table_id=table_id, version=version, index=index, is_initial=fields["isStartingVersion"])


def _refused_index(content: str, index: int) -> int:
    raise _invalid(content, f"index {index} is a barrier of delta-spark's schema tracking log, which is not supported")


def _invalid(content: object, reason: str) -> InvalidArgumentError:
    shown = content if isinstance(content, str) and len(content) <= 200 else f"{str(content)[:200]}..."
    return InvalidArgumentError(
        f"{shown!r} is not an offset of a stream: {reason}. Pass the text to which the offset was encoded, or none to start "
        "a new stream."
    )
