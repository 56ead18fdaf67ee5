"""Validates a commit before it is written or ratified (protocol headings "Delta Log Entries", "Action Reconciliation").

:func:`encode_checked` is for the actions that this package writes; the lines that another writer proposes are checked by
``proposal_checks``. Both apply the rules in :mod:`~cm_delta_dagster.protocol.commits.proposal_rules`.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from cm_delta_dagster.errors import IllegalCommitError
from cm_delta_dagster.protocol.actions.action_fields import to_fields
from cm_delta_dagster.protocol.actions.actions import Action
from cm_delta_dagster.protocol.actions.commit_json import encode_fields
from cm_delta_dagster.protocol.actions.stats_text import MAX_DIGITS
from cm_delta_dagster.protocol.commits.proposal_rules import RULES, ActionRules, flaw_of_action


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFlaw:
    """Why a commit must not be made.

    Attributes:
        action, field: what is wrong, by the names in the log; empty if it is the whole line or the whole action.
        why: a sentence without a subject, e.g. ``is not a whole number``.
        line: number of the line, from 1; 0 if several lines contradict each other.
    """

    action: str
    field: str
    why: str
    line: int = 0

    def __str__(self) -> str:
        if not self.action:
            return f"line {self.line} {self.why}" if self.line else self.why
        return (
            f"the field {self.field} of the action {self.action} {self.why}"
            if self.field
            else f"{self.action} {self.why}"
        )


def encode_checked(actions: Sequence[Action]) -> bytes:
    """The content of a commit file with these actions: one action per line in UTF-8, with a newline after each.

    Raises:
        IllegalCommitError: the actions are invalid; the message names the action and the field. Nothing was written.
    """
    named = [to_fields(action) for action in actions]
    flaw = flaw_of_actions([(number, *action) for number, action in enumerate(named, 1)])
    if flaw is not None:
        raise IllegalCommitError(f"The commit would be invalid: {flaw}. Nothing was written.")
    return "".join(f"{encode_fields(name, fields)}\n" for name, fields in named).encode()


def checked_line(action: Action) -> str:
    """The line of one action, without its newline. Raises IllegalCommitError as :func:`encode_checked`."""
    name, fields = to_fields(action)
    wrong = flaw_of_action(name, fields)
    if wrong is not None:
        flaw = CommitFlaw(action=name, field=wrong[0], why=wrong[1])
        raise IllegalCommitError(f"The commit would be invalid: {flaw}. Nothing was written.")
    return encode_fields(name, fields)


def flaw_of_commit_info(fields: Mapping[str, Any]) -> CommitFlaw | None:
    """Which field that a catalog needs the first action of a commit, a commitInfo, lacks."""
    for field in ("txnId", "inCommitTimestamp"):
        if fields.get(field) is None:
            return CommitFlaw(action="commitInfo", field=field, why="is missing", line=1)
    return None


NumberedAction: TypeAlias = tuple[int, str, Mapping[str, Any]]
"""The number of a line from 1, the name of its action, and the fields."""


class FlawFoundError(Exception):
    """A line is not an action."""

    def __init__(self, flaw: CommitFlaw) -> None:
        super().__init__(str(flaw))
        self.flaw = flaw


def numbered_lines(data: bytes) -> Iterable[tuple[int, bytes]]:
    """The lines of a commit with their numbers."""
    return enumerate(data.split(b"\n"), 1)


def parsed_lines(lines: Iterable[tuple[int, bytes]]) -> list[NumberedAction]:
    """The actions of the lines; blank lines, which readers ignore, have none. Raises FlawFoundError."""
    actions: list[NumberedAction] = []
    for number, line in lines:
        if not line.strip():
            continue
        try:
            actions.append((number, *_parsed(line)))
        except _LineError as error:
            raise FlawFoundError(
                CommitFlaw(action=error.action, field=error.field, why=str(error), line=number)
            ) from None
    return actions


class _LineError(Exception):
    def __init__(self, why: str, *, action: str = "", field: str = "") -> None:
        super().__init__(why)
        self.action, self.field = action, field


class _Duplicates(dict[str, Any]):
    """An object in which a key occurs twice."""

    def __init__(self, pairs: Iterable[tuple[str, Any]], key: str) -> None:
        super().__init__(pairs)
        self.key = key


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    counts = Counter(key for key, _ in pairs)
    return _Duplicates(pairs, next(key for key, _ in pairs if counts[key] > 1))


def _integer(text: str) -> int | float:
    """An integer of too many digits becomes infinite, which no field may be."""
    return int(text) if len(text) <= MAX_DIGITS else float("inf")


def _parsed(line: bytes) -> tuple[str, Mapping[str, Any]]:
    """The name and the fields of an action. Raises _LineError."""
    try:
        action = json.loads(line.decode(), object_pairs_hook=_object, parse_int=_integer)
    except RecursionError:
        raise _LineError("nests too many objects and arrays") from None
    except ValueError as error:
        raise _LineError(f"is not JSON ({error})") from None
    if not isinstance(action, dict) or len(action) != 1 or isinstance(action, _Duplicates):
        raise _LineError("is not an object with exactly one action")
    ((name, fields),) = action.items()
    if not isinstance(fields, dict):
        raise _LineError("is not an object", action=name)
    if isinstance(fields, _Duplicates):
        raise _LineError("occurs twice", action=name, field=fields.key)
    for field, value in fields.items():
        key = _duplicate_in(value)
        if key is not None:
            raise _LineError(f"has the key {key!r} twice", action=name, field=field)
    return name, fields


def flaw_of_embedded_json(text: str) -> str | None:
    """What parsers would read differently in the JSON text within a field, as the predicate of a sentence; None if nothing is.

    It may nest as deeply as this parser reads.
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_int=_short_integer, parse_float=_finite, parse_constant=_finite
        )
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        return "nests too many objects and arrays"
    except UnicodeEncodeError:
        return "contains half of a surrogate pair, which is not a character"
    except ValueError as error:
        return f"is not JSON ({error})"
    key = _duplicate_in(value)
    return None if key is None else f"has the key {key!r} twice"


def _short_integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is a number that JSON does not have, or beyond the range of a double")
    return number


def _duplicate_in(value: Any) -> str | None:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, _Duplicates):
            return item.key
        if isinstance(item, dict):
            pending += item.values()
        elif isinstance(item, list):
            pending += item
    return None


def flaw_of_actions(actions: Sequence[NumberedAction], rules: ActionRules = RULES) -> CommitFlaw | None:
    """The first flaw of the actions of a commit, the first of which must be commitInfo."""
    seen: set[tuple[str, ...]] = set()
    for line, action, fields in actions:
        wrong = flaw_of_action(action, fields, rules)
        if wrong is not None:
            return CommitFlaw(action=action, field=wrong[0], why=wrong[1], line=line)
        for key in _identities(action, fields):
            if key in seen:
                return CommitFlaw(action="", field="", why=f"it contains two actions for {' '.join(key)}")
            seen.add(key)
    if not actions or actions[0][:2] != (1, "commitInfo"):
        return CommitFlaw(action="", field="", why="its first action is not commitInfo")
    return None


def _identities(action: str, fields: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    """What an action is about. A commit must not contain two actions about one object."""
    match action:
        case "add" | "remove":
            vector = fields.get("deletionVector")
            unique_id = "" if vector is None else _unique_id(vector)
            yield (action, "of", fields["path"])
            yield ("file", fields["path"], unique_id)
        case "cdc":
            yield ("cdc", "of", fields["path"])
        case "metaData" | "protocol" | "commitInfo" | "transactionGroup":
            yield (action,)
        case "txn":
            yield ("txn", fields["appId"])
        case "domainMetadata":
            yield ("domainMetadata", fields["domain"])


def _unique_id(vector: Mapping[str, Any]) -> str:
    base, offset = f"{vector['storageType']}{vector['pathOrInlineDv']}", vector.get("offset")
    return base if offset is None else f"{base}@{offset}"
