"""The commit that takes the place of one that no reader can use (protocol headings "Delta Log Entries", "Actions").

A later commit cannot help: readers parse every commit. So its content is replaced by another one of the same version, with the same
``txnId`` and in-commit timestamp, that every reader understands and that says what was taken back.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cm_delta_dagster.errors import CorruptLogError, IllegalCommitError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.commit_json import encode_fields
from cm_delta_dagster.protocol.actions.json_fields import MAX_EXACT
from cm_delta_dagster.protocol.actions.json_text import parse_json
from cm_delta_dagster.protocol.commits.proposal_rules import NOT_IN_COMMITS, RULES, flaw_of_action, flaw_of_value
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.features.metadata_validation import check_metadata
from cm_delta_dagster.protocol.features.table_features import is_catalog_managed, shape_fault

TAG = "takenBack"
"""Key in ``commitInfo.tags`` that says what a superseding commit leaves out."""

_SHOWN = 5
_MALFORMED = re.compile(r"^(Version \d+ holds a malformed action|Line \d+ of version \d+ is damaged): ")
_FILES = ("add", "remove", "cdc")
_ALONE = ("txn", "domainMetadata", "commitInfo", *sorted(NOT_IN_COMMITS))
"""Actions that can be left out without a consequence for the other actions of their commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitIdentity:
    """What the catalog's record says about a commit; ``in_commit_timestamp`` in epoch milliseconds."""

    version: int
    txn_id: str
    in_commit_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SupersedingCommit:
    """The new content of a version.

    Attributes:
        data: the content of the commit file.
        taken_back: each action that it leaves out, and each field of commitInfo that it changes, in words.
        num_kept: actions of the commit that it keeps, without commitInfo.
        data_change: whether it still changes rows or metadata.
        has_unknown_lines: whether a line of the commit is not JSON, so that it is not known what it was to do.
    """

    data: bytes
    taken_back: tuple[str, ...]
    num_kept: int
    data_change: bool
    has_unknown_lines: bool

    @property
    def summary(self) -> str:
        """What is taken back, as a list for one line of text."""
        shown = "; ".join(self.taken_back[:_SHOWN])
        more = len(self.taken_back) - _SHOWN
        return f"{shown}; and {more} more" if more > 0 else shown


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One action of the commit. ``flaw`` says why readers cannot use it; None if they can. ``name`` is empty if it is unknown."""

    name: str
    fields: Any
    flaw: str | None = None

    @property
    def text(self) -> str:
        path = self.fields.get("path") if isinstance(self.fields, dict) else None
        return (
            f"{self.name} of {str(path)[:200]!r}" if path is not None and self.name in _FILES else self.name or "a line"
        )


def superseding_commit(data: bytes | None, identity: CommitIdentity) -> SupersedingCommit:
    """The commit that takes the place of ``data``.

    Actions that are valid by themselves stay, if the commit still does what it was to do without the others: an append loses the
    files that cannot be read, and no rows of other files. A commit that also removes files or changes the metadata is taken back as
    a whole, because rows would be lost or doubled otherwise. The supported features and the row id high-water mark always stay.

    Args:
        data: the ratified content; None if no copy of it exists, so that everything is taken back.
        identity: of the commit.
    """
    entries = [] if data is None else _entries(data, identity.version)
    rest = [entry for entry in entries if entry.name != "commitInfo"]
    bad = [entry for entry in rest if entry.flaw is not None]
    takes_all = _takes_all(rest, bad)
    kept = [entry for entry in rest if entry.flaw is None and (not takes_all or _always_stays(entry))]
    taken = [_left_out(entry) for entry in rest if entry not in kept]
    if data is None:
        taken.append("all of it, because no copy of the commit exists")
    info, changed = _commit_info(entries, identity)
    taken += changed
    info["tags"] = {**info.get("tags", {}), TAG: "; ".join(taken)[:1000]}
    content = _content([_Entry(name="commitInfo", fields=info), *kept])
    commit = commit_json.decode_commit(content, version=identity.version)
    return SupersedingCommit(
        data=content,
        taken_back=tuple(taken),
        num_kept=len(kept),
        data_change=commit.metadata is not None or commit.has_data_change,
        has_unknown_lines=any(not entry.name for entry in bad),
    )


def _takes_all(rest: Sequence[_Entry], bad: Sequence[_Entry]) -> bool:
    if all(entry.name in _ALONE for entry in bad):
        return False
    is_append = all(
        entry.name == "add" and not _has_vector(entry) for entry in rest if entry.name in (*_FILES, "metaData", "")
    )
    return not is_append or any(entry.name not in (*_ALONE, "add") for entry in bad)


def _has_vector(entry: _Entry) -> bool:
    return isinstance(entry.fields, dict) and entry.fields.get("deletionVector") is not None


def _always_stays(entry: _Entry) -> bool:
    """Later commits may rely on the features of a table and on row ids that were assigned."""
    return entry.name == "protocol" or (
        entry.name == "domainMetadata" and entry.fields.get("domain") == row_tracking.DOMAIN
    )


def _left_out(entry: _Entry) -> str:
    return f"{entry.text}, because the commit is atomic" if entry.flaw is None else f"{entry.text} ({entry.flaw})"


def _entries(data: bytes, version: int) -> list[_Entry]:
    entries: list[_Entry] = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            actions = parse_json(line.decode())
        except ValueError as error:
            entries.append(_Entry(name="", fields=None, flaw=f"line {number} is not JSON: {error}"))
            continue
        if not isinstance(actions, dict):
            entries.append(_Entry(name="", fields=None, flaw=f"line {number} is not an object"))
            continue
        entries += [_entry(name, fields, version) for name, fields in actions.items() if fields is not None]
    for name in ("metaData", "protocol"):
        if sum(entry.name == name for entry in entries) > 1:
            several = f"the commit has several {name} actions"
            entries = [
                _Entry(name=name, fields=entry.fields, flaw=several) if entry.name == name else entry
                for entry in entries
            ]
    return entries


def _entry(name: str, fields: Any, version: int) -> _Entry:
    if isinstance(fields, dict):
        fields = {
            key: _whole(value)
            for key, value in fields.items()
            if key in RULES.get(name, {}) or flaw_of_value({key: value}) is None
        }
    try:
        line = encode_fields(name, fields)
        commit = commit_json.decode_commit(line.encode(), version=version)
        if commit.metadata is not None:
            check_metadata(commit.metadata, "of the commit")
        flaw = next(flaws_of_rules(commit), None)
        if flaw is not None:
            return _Entry(name=name, fields=fields, flaw=flaw.removesuffix("."))
    except (CorruptLogError, IllegalCommitError, UnsupportedFeatureError) as error:
        return _Entry(name=name, fields=fields, flaw=_MALFORMED.sub("", str(error)).removesuffix("."))
    return _Entry(name=name, fields=fields)


def flaws_of_rules(commit: commit_json.CommitActions) -> Iterator[str]:
    """What is wrong with actions that can be decoded, so that no client can continue from them, as sentences."""
    if commit.protocol is not None:
        fault = shape_fault(commit.protocol)
        if fault is not None:
            yield f"the protocol action is not valid: {fault}."
        elif not is_catalog_managed(commit.protocol):
            yield "the protocol action does not list the feature catalogManaged, and a catalog manages the table."
    for domain in commit.domains:
        if domain.domain == row_tracking.DOMAIN and (flaw := row_tracking.flaw_of_mark(domain)) is not None:
            yield flaw


def _whole(value: Any) -> Any:
    """A whole number in decimal form, such as ``1e2``, as an integer."""
    return int(value) if type(value) is float and value.is_integer() and abs(value) <= MAX_EXACT else value


def _commit_info(entries: Sequence[_Entry], identity: CommitIdentity) -> tuple[dict[str, Any], list[str]]:
    """The valid fields of the commitInfo with the identity of the record, and which fields were changed."""
    logged = next((entry.fields for entry in entries if entry.name == "commitInfo"), None)
    fields: Mapping[str, Any] = logged if isinstance(logged, dict) else {}
    certain = {
        "inCommitTimestamp": identity.in_commit_timestamp,
        "timestamp": identity.in_commit_timestamp,
        "txnId": identity.txn_id,
    }
    valid: dict[str, Any] = {}
    changed = []
    for name, value in fields.items():
        if value is None or name in certain:
            continue
        if flaw_of_action("commitInfo", {name: value}) is None:
            valid[name] = value
        else:
            changed.append(f"commitInfo.{name}")
    if logged is None and entries:
        changed.append("commitInfo, which the commit lacks")
    if logged is not None:
        changed += [
            f"commitInfo.{name}, which becomes {value!r} as in the catalog"
            for name, value in certain.items()
            if name in RULES["commitInfo"] and name != "timestamp" and fields.get(name) != value
        ]
    return {**certain, "operation": "WRITE", **valid}, changed


def readable_actions(data: bytes, *, version: int) -> commit_json.CommitActions:
    """The actions of a commit that readers can use, of a commit that they cannot use as a whole.

    Raises:
        CorruptLogError: a line is not JSON, so that it is not known what it contains.
    """
    entries = _entries(data, version)
    unknown = next((entry.flaw for entry in entries if not entry.name), None)
    if unknown is not None:
        raise CorruptLogError(f"Version {version} cannot be read: {unknown}.", version=version)
    return commit_json.decode_commit(
        _content([entry for entry in entries if entry.flaw is None and entry.name in _FILES]), version=version
    )


def _content(entries: Sequence[_Entry]) -> bytes:
    return "".join(f"{encode_fields(entry.name, entry.fields)}\n" for entry in entries).encode()
