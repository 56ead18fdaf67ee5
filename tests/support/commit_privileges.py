"""Which privileges a commit requires, and what the catalog rejects: one table of cases for every database."""

import json
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
METADATA = {"metaData": {"id": "5d1a", "format": {"provider": "parquet", "options": {}}, "schemaString": "{}"}}
TRACKED = {"add": {**ADD["add"], "baseRowId": 3, "stats": '{"numRecords":2}'}}
NO_ROWS = {"add": {**ADD["add"], "path": "b", "baseRowId": 5, "stats": '{"numRecords":0}'}}


CHANGED_ROWS = {"cdc": {"path": "_change_data/x", "partitionValues": {}, "size": 1, "dataChange": False}}


def add(**fields: Any) -> dict[str, Any]:
    """An add with other fields; None leaves a field out."""
    values = {**ADD["add"], **fields}
    return {"add": {name: value for name, value in values.items() if value is not None}}


def domain(configuration: str, *, name: str = "delta.rowTracking", removed: bool = False) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": configuration, "removed": removed}}


MARK = domain('{"rowIdHighWaterMark":4}')


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCase:
    """The actions of a commit with the privileges that it requires.

    Attributes:
        lines: JSON texts after the actions.
        rejected: what the message says if no privilege permits the commit.
    """

    name: str
    actions: tuple[Mapping[str, Any], ...] = ()
    lines: tuple[str, ...] = ()
    requires: frozenset[Privilege] = frozenset()
    rejected: str = ""

    def proposal(self, version: int) -> CommitProposal:
        """An inline proposal of these actions."""
        one = commit_of(version, *self.actions)
        if METADATA in self.actions:
            one = replace(one, metadata=decode_commit(json.dumps(METADATA).encode(), version=version).metadata)
        if not self.lines:
            return one
        return of_bytes(one, (one.content or b"") + "".join(f"{line}\n" for line in self.lines).encode())


def case(
    name: str, *actions: Mapping[str, Any], requires: tuple[Privilege, ...], lines: tuple[str, ...] = ()
) -> CommitCase:
    return CommitCase(name=name, actions=actions, lines=lines, requires=frozenset(requires))


CASES = (
    case("nothing", requires=(APPEND,)),
    case("a transaction", {"txn": {"appId": "job", "version": 1}}, requires=(APPEND,)),
    case("a file", ADD, requires=(APPEND,)),
    case("a file without dataChange", add(path="c", dataChange=None), requires=(MODIFY, ALTER)),
    case("a removal without dataChange", {"remove": {"path": "a"}}, requires=(MODIFY, ALTER)),
    case("a removal", REMOVE, requires=(MODIFY,)),
    case("an update", ADD, REMOVE, requires=(MODIFY,)),
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
    case("a mark with another key", TRACKED, domain('{"rowIdHighWaterMark":4,"x":1}'), requires=(ALTER, APPEND)),
    case("a mark that is not a number", TRACKED, domain('{"rowIdHighWaterMark":true}'), requires=(ALTER, APPEND)),
    case("a mark that is not JSON", TRACKED, domain("{"), requires=(ALTER, APPEND)),
    case("no mark", TRACKED, domain("{}"), requires=(ALTER, APPEND)),
    case("two marks", TRACKED, MARK, MARK, requires=(ALTER, APPEND)),
    case("a removed mark", TRACKED, domain('{"rowIdHighWaterMark":4}', removed=True), requires=(ALTER, APPEND)),
    case("an unknown action", {"future": {}}, requires=(MODIFY, ALTER)),
    case("two actions in a line", {**ADD, "txn": {"appId": "job", "version": 1}}, requires=(MODIFY, ALTER)),
    case("a null beside an action", requires=(MODIFY, ALTER), lines=(json.dumps({**ADD, "remove": None}),)),
    case("a file without size", add(path="s", size=None), requires=(MODIFY, ALTER)),
    case("a size that is a text", add(path="s", size="1"), requires=(MODIFY, ALTER)),
    case("a transaction without version", {"txn": {"appId": "job"}}, requires=(MODIFY, ALTER)),
    CommitCase(name="a line that is not JSON", lines=("{",), rejected="content that is not a commit"),
    CommitCase(name="a line that is a list", lines=("[]",), rejected="content that is not a commit"),
    CommitCase(name="two metadata actions", actions=(METADATA, METADATA), rejected="was proposed inline with content"),
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
