"""JSON of other writers as Python values, within limits of Python's parser (protocol heading "Delta Log Entries").

JSON limits neither the digits of a number nor the depth of a value. Python's parser refuses integers of more than 4,300 digits and
values that are nested more deeply than its stack. Both may stand in fields that the protocol does not define, which readers ignore.
"""

import json
import re
from typing import Any

MAX_DEPTH = 64
"""Objects and arrays that :func:`parse_json` nests; no field of the protocol comes near it."""

_MAX_DIGITS = 1000
_STRUCTURE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}"]', re.DOTALL)
_CLOSING = {"[": "]", "{": "}"}


def parse_json(text: str) -> Any:
    """The value of a JSON text.

    If Python's parser cannot represent the text, integers of more digits than it accepts become infinite, which no field of the
    protocol can be, and objects and arrays at a greater depth than ``MAX_DEPTH`` become None.

    Raises:
        ValueError: the text is not JSON.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError):
        return json.loads(_without_deep_values(text), parse_int=_number)


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def _without_deep_values(text: str) -> str:
    """``text`` with ``null`` in place of each object and array below ``MAX_DEPTH`` levels."""
    parts: list[str] = []
    expected: list[str] = []
    start = 0
    for match in _STRUCTURE.finditer(text):
        token = match[0]
        if token in _CLOSING:
            expected.append(_CLOSING[token])
            if len(expected) == MAX_DEPTH + 1:
                parts.append(text[start : match.start()])
        elif token in ("]", "}"):
            if not expected or expected.pop() != token:
                raise ValueError(f"{token} at character {match.start()} closes nothing")
            if len(expected) == MAX_DEPTH:
                parts.append("null")
                start = match.end()
        elif len(token) == 1:
            raise ValueError(f"the text that begins at character {match.start()} does not end")
    if expected:
        raise ValueError(f"{expected[-1]} is missing at the end")
    return "".join([*parts, text[start:]])
