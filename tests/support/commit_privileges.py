"""Which privileges a commit requires, and what the catalog rejects: one table of cases for every database."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.protocol.actions.commit_json import decode_commit
from tests.support.commit_builder import ADD, REARRANGE, REMOVE, commit_of, of_bytes

APPEND, MODIFY, ALTER, MAINTAIN = Privilege.APPEND, Privilege.MODIFY, Privilege.ALTER, Privilege.MAINTAIN
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 1,
    "sizeInBytes": 40,
    "cardinality": 2,
}
_SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
METADATA = {
    "metaData": {
        "id": "5d1a",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(_SCHEMA),
        "partitionColumns": [],
        "configuration": {"delta.enableInCommitTimestamps": "true"},
    }
}
TRACKED = {"add": {**ADD["add"], "baseRowId": 3, "stats": '{"numRecords":2}'}}
NO_ROWS = {"add": {**ADD["add"], "path": "b", "baseRowId": 5, "stats": '{"numRecords":0}'}}


CHANGED_ROWS = {"cdc": {"path": "_change_data/x", "partitionValues": {}, "size": 1, "dataChange": False}}


def add(**fields: Any) -> dict[str, Any]:
    """An add with other fields; None leaves a field out."""
    values = {**ADD["add"], **fields}
    return {"add": {name: value for name, value in values.items() if value is not None}}


def domain(configuration: str, *, name: str = "delta.rowTracking", removed: bool = False) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": configuration, "removed": removed}}


def _txn(app_id: str, version: int = 1) -> dict[str, Any]:
    return {"txn": {"appId": app_id, "version": version}}


MARK = domain('{"rowIdHighWaterMark":4}')


def _with_later_ids(action: Mapping[str, Any], version: int) -> Mapping[str, Any]:
    """The action with row ids above those of earlier versions: marks of a table do not fall."""
    offset = 10 * version
    kind, fields = next(iter(action.items()))
    if "baseRowId" in fields:
        return {kind: {**fields, "baseRowId": fields["baseRowId"] + offset}}
    if kind != "domainMetadata":
        return action
    configuration = re.sub(r"(?<=Mark\":)\d+", lambda mark: str(int(mark[0]) + offset), fields["configuration"])
    return {kind: {**fields, "configuration": configuration}}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCase:
    """The actions of a commit with the privileges that it requires.

    Attributes:
        before: actions that the owner of the table commits first.
        lines: JSON texts after the actions.
        rejected: what the message says if no privilege permits the commit.
        illegal: what the message says if the commit is not valid; without a privilege it is refused first.
    """

    name: str
    actions: tuple[Mapping[str, Any], ...] = ()
    before: tuple[Mapping[str, Any], ...] = ()
    lines: tuple[str, ...] = ()
    requires: frozenset[Privilege] = frozenset()
    rejected: str = ""
    illegal: str = ""

    def proposal(self, version: int) -> CommitProposal:
        """An inline proposal of these actions."""
        one = commit_of(version, *(_with_later_ids(action, version) for action in self.actions))
        if METADATA in self.actions:
            one = replace(one, metadata=decode_commit(json.dumps(METADATA).encode(), version=version).metadata)
        if not self.lines:
            return one
        return of_bytes(one, (one.content or b"") + "".join(f"{line}\n" for line in self.lines).encode())


def illegal(name: str, *actions: Mapping[str, Any], why: str, lines: tuple[str, ...] = ()) -> CommitCase:
    return CommitCase(name=name, actions=actions, lines=lines, illegal=why)


def case(
    name: str, *actions: Mapping[str, Any], requires: tuple[Privilege, ...], lines: tuple[str, ...] = ()
) -> CommitCase:
    return CommitCase(name=name, actions=actions, lines=lines, requires=frozenset(requires))


CASES = (
    case("nothing", requires=(APPEND,)),
    case("a transaction", {"txn": {"appId": "job", "version": 1}}, requires=(APPEND,)),
    case("a file and several transactions", ADD, _txn("job"), _txn("other"), requires=(APPEND,)),
    CommitCase(
        name="a transaction of another principal",
        actions=(_txn("of another"),),
        before=(_txn("of another"),),
        requires=frozenset({APPEND, ALTER}),
    ),
    CommitCase(
        name="a removal and a transaction of another principal, beside another one",
        actions=(REMOVE, _txn("job"), _txn("of another", 2)),
        before=(_txn("of another"),),
        requires=frozenset({MODIFY, ALTER}),
    ),
    case("a file", ADD, requires=(APPEND,)),
    illegal("a file without dataChange", add(path="c", dataChange=None), why="dataChange of the action add is missing"),
    illegal(
        "a removal without dataChange", {"remove": {"path": "a"}}, why="dataChange of the action remove is missing"
    ),
    case("a removal", REMOVE, requires=(MODIFY,)),
    case("an update", add(deletionVector=VECTOR), REMOVE, requires=(MODIFY,)),
    case("a file with a vector", add(path="v", deletionVector=VECTOR), requires=(MODIFY, APPEND)),
    case(
        "changed rows",
        CHANGED_ROWS,
        requires=(MODIFY,),
    ),
    case("rearranged files", REARRANGE, requires=(MAINTAIN,)),
    case("rearranged and added files", REARRANGE, add(path="n"), requires=(MAINTAIN, APPEND)),
    case("a domain", domain("{}", name="team"), requires=(ALTER,)),
    case("metadata", METADATA, requires=(ALTER,)),
    case("metadata and a file", METADATA, ADD, requires=(ALTER, APPEND)),
    case("row ids", TRACKED, MARK, requires=(APPEND,)),
    case("row ids by the key of the protocol", TRACKED, domain('{"highWaterMark":4}'), requires=(APPEND,)),
    case("row ids of a file without rows", TRACKED, NO_ROWS, MARK, requires=(APPEND,)),
    case("a mark above the files", TRACKED, domain('{"rowIdHighWaterMark":5}'), requires=(ALTER, APPEND)),
    case("a mark below the files", TRACKED, domain('{"rowIdHighWaterMark":3}'), requires=(ALTER, APPEND)),
    case("a mark without files", MARK, requires=(ALTER,)),
    case("a mark beside files without ids", ADD, MARK, requires=(ALTER, APPEND)),
    illegal("a mark with another key", TRACKED, domain('{"rowIdHighWaterMark":4,"x":1}'), why="configuration"),
    illegal("a mark that is not a number", TRACKED, domain('{"rowIdHighWaterMark":true}'), why="configuration"),
    illegal("a mark that is not JSON", TRACKED, domain("{"), why="configuration"),
    illegal("no mark", TRACKED, domain("{}"), why="configuration"),
    illegal("two marks", TRACKED, MARK, MARK, why="two actions for domainMetadata"),
    case("a removed mark", TRACKED, domain('{"rowIdHighWaterMark":4}', removed=True), requires=(ALTER, APPEND)),
    case("an unknown action", {"future": {}}, requires=(MODIFY, ALTER)),
    illegal("two actions in a line", {**ADD, "txn": {"appId": "job", "version": 1}}, why="exactly one action"),
    illegal("a null beside an action", lines=(json.dumps({**ADD, "remove": None}),), why="exactly one action"),
    illegal("a file without size", add(path="s", size=None), why="size of the action add is missing"),
    illegal("a size that is a text", add(path="s", size="1"), why="is not a whole number"),
    illegal("a transaction without version", {"txn": {"appId": "job"}}, why="version of the action txn is missing"),
    illegal("a line that is not JSON", lines=("{",), why="is not JSON"),
    illegal("a line that is a list", lines=("[]",), why="exactly one action"),
    illegal("two metadata actions", METADATA, METADATA, why="two actions for metaData"),
    CommitCase(name="a carriage return", lines=(json.dumps(ADD) + "\r",), rejected="carriage return"),
)


def other_content(version: int) -> tuple[CommitProposal, ...]:
    """Staged proposals that say something else than their content, which the catalog rejects."""
    one = replace(commit_of(version, ADD, mode=CommitMode.STAGED), content=None)
    return (
        replace(one, summary=replace(one.summary, txn_id="other")),
        replace(one, summary=replace(one.summary, in_commit_timestamp=one.summary.in_commit_timestamp + 1)),
    )


def case_of(name: str) -> CommitCase:
    """The case with this name."""
    (found,) = (one for one in CASES if one.name == name)
    return found
