"""How far a stream has read a table (section STREAM).

The JSON form is that of delta-spark's ``DeltaSourceOffset``, names of the beta period included. It says nothing about the
consumer: every consumer keeps an offset of its own.
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
    """A position in the files of a table: everything up to it was read, what comes after it was not.

    Invariants: ``version`` >= 0 and ``index`` >= ``BEFORE_FIRST``. Positions of one stream are ordered by version and index;
    the initial snapshot comes to an end before the version after it begins.

    Attributes:
        table_id: ``id`` of the table's metadata.
        version: the version that is being read.
        index: of the last file of that version that was read, from 0 on.
        is_initial: whether the files are those of the snapshot of ``version``, not those that its commit added.
    """

    table_id: str
    version: int
    index: int = BEFORE_FIRST
    is_initial: bool = False

    @property
    def position(self) -> tuple[int, int]:
        """What offsets of one stream are ordered by."""
        return self.version, self.index

    def to_json(self) -> str:
        """The text from which :func:`parse_offset` makes this value again; of the form that delta-spark writes."""
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
    """The offset that :meth:`StreamOffset.to_json`, or delta-spark, wrote.

    Raises:
        InvalidArgumentError: it is no offset, or one of a form that is not known here.
    """
    try:
        fields = json.loads(content)
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid(content, f"it is no JSON ({error})") from error
    if not isinstance(fields, dict):
        raise _invalid(content, "it is no JSON object")
    return _from_fields(fields, content)


def _from_fields(fields: Mapping[str, Any], content: str) -> StreamOffset:
    if set(fields) != _FIELDS:
        named = ", ".join(sorted(set(fields) ^ _FIELDS))
        raise _invalid(content, f"these fields are missing in it, or unknown: {named}")
    try:
        source_version = long(fields, "sourceVersion")
        table_id, version, index = text(fields, "reservoirId"), long(fields, "reservoirVersion"), long(fields, "index")
    except (TypeError, ValueError) as error:
        raise _invalid(content, str(error)) from error
    if not isinstance(fields["isStartingVersion"], bool):
        raise _invalid(content, "isStartingVersion is not true or false")
    if source_version not in (_WRITTEN, _FIRST_WITH_OTHER_BASE):
        raise _invalid(content, f"sourceVersion {source_version} is of a form that this client does not know")
    if source_version == _FIRST_WITH_OTHER_BASE:
        index = BEFORE_FIRST if index == _BASE_IN_3 else index if index >= 0 else _refused_index(content, index)
    if version < 0 or index < BEFORE_FIRST:
        raise _invalid(content, f"version {version} and index {index} are no position")
    return StreamOffset(table_id=table_id, version=version, index=index, is_initial=fields["isStartingVersion"])


def _refused_index(content: str, index: int) -> int:
    raise _invalid(content, f"index {index} is a barrier of delta-spark's schema tracking log, which is not read here")


def _invalid(content: object, reason: str) -> InvalidArgumentError:
    shown = content if isinstance(content, str) and len(content) <= 200 else f"{str(content)[:200]}..."
    return InvalidArgumentError(
        f"{shown!r} is no offset of a stream: {reason}. Give the text that the stream's offset was written as, or none to "
        "start anew."
    )
