"""The text of ``stats`` in file actions: what a commit may contain, and statistics of other writers in that form.

Protocol heading "Per-file Statistics". Readers ignore members that they cannot use; what is committed again must not contain them,
because another parser may refuse the whole commit.
"""

import json
from typing import Any

from cm_delta_dagster.protocol.actions.json_fields import MAX_EXACT
from cm_delta_dagster.protocol.actions.json_text import MAX_DEPTH

MAX_DIGITS = 1000
"""Digits of an integer in a field that the protocol does not define."""

_MAX_ROWS = 2**63 - 1
_ROWS = '"numRecords"'


def flaw_of_stats(text: str, *, is_foreign: bool = False, is_removed: bool = False) -> str | None:
    """What is wrong with the statistics of a new commit, as the predicate of a sentence; None if nothing is.

    Args:
        is_foreign: another implementation has written them. Numbers that JSON does not have, such as ``NaN``, and a whole number of
            rows in another notation, such as ``2.0``, are then right: readers ignore the first and understand the second.
        is_removed: they are those of a file that is removed, which may state the number of rows twice.
    """
    try:
        decoded = _FOREIGN_DECODER.decode(text) if is_foreign else _decoded(text)
    except (ValueError, RecursionError) as error:
        return f"is not JSON ({str(error)[:200]})"
    if not isinstance(decoded, dict):
        return "is not the JSON of an object"
    if text.count("{") + text.count("[") > MAX_DEPTH and _depth(decoded) > MAX_DEPTH:
        return f"nests more than {MAX_DEPTH} objects and arrays"
    if text.count(_ROWS) > 1 and not is_removed and _is_repeated(text):
        return f"has the key {_ROWS} twice"
    rows = decoded.get("numRecords")
    if rows is None:
        return None
    if is_foreign and isinstance(rows, float) and rows.is_integer():
        rows = int(rows)
    if type(rows) is not int:
        return "has a numRecords that is not a whole number"
    return None if 0 <= rows <= _MAX_ROWS else f"has a numRecords that is not between 0 and {_MAX_ROWS}"


def _is_repeated(text: str) -> bool:
    """Whether the number of rows is stated twice: readers differ in which one they take. A column may have the same name."""
    repeated = False

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        repeated = sum(key == "numRecords" for key, _ in pairs) > 1  # The outermost object ends last.
        return dict(pairs)

    json.loads(text, object_pairs_hook=members, parse_int=_digits)
    return repeated


def _depth(value: Any) -> int:
    """Objects and arrays that ``value`` nests."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


def repeatable_stats(text: str | None) -> str | None:
    """The statistics of a live file in a form that may be committed again; all other members stay exactly as they are.

    Numbers that JSON does not have, such as ``NaN``, become null, which readers treat alike. A whole number of rows in another
    notation, such as ``2.0``, becomes an integer; another value that is no number of rows is left out. None if the text is not
    the JSON of an object.
    """
    if text is None or flaw_of_stats(text) is None:
        return text
    try:
        members = _TEXT_DECODER.decode(text)
        if not isinstance(members, dict):
            return None
        rows = _rows(members.pop("numRecords", None))
        changed = _encoded(members if rows is None else {"numRecords": _NumberText(rows), **members})
    except (ValueError, RecursionError):
        return None
    return changed if flaw_of_stats(changed) is None else None


class _NumberText(str):
    """The text of a number."""


def _rows(value: Any) -> int | None:
    if not isinstance(value, _NumberText):
        return None
    if value.removeprefix("-").isdigit():
        rows = int(value) if len(value) <= MAX_DIGITS else -1
    else:
        number = float(value)
        rows = int(number) if number.is_integer() and abs(number) <= MAX_EXACT else -1
    return rows if 0 <= rows <= _MAX_ROWS else None


def _encoded(value: Any) -> str:
    if isinstance(value, _NumberText):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_encoded(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_encoded, value)) + "]"
    return json.dumps(value)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _digits(text: str) -> int | float:
    """An integer; of one with more digits than Python parses, which a bound of a column may have, any number."""
    return int(text) if len(text) <= MAX_DIGITS else 0.0


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_SLOW_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_digits)
"""For bounds of decimals with more digits than Python parses."""
_FOREIGN_DECODER = json.JSONDecoder(parse_int=_digits)
_TEXT_DECODER = json.JSONDecoder(parse_constant=lambda name: None, parse_int=_NumberText, parse_float=_NumberText)
"""Keeps the text of each number."""


def _decoded(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return _SLOW_DECODER.decode(text)
