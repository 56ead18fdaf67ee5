"""Reports to the reference model what happened: one call and its true answer at a time, and how members ended."""

import re
import typing
from dataclasses import dataclass

from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicyKind, PolicyChange
from cm_delta_dagster.catalog.ratification import (
    CommitPolicyChanged,
    CommitProposal,
    MultiTableOutcome,
    Ratified,
    RatifiedCommits,
    RatifiedTogether,
    VersionTaken,
)
from cm_delta_dagster.catalog.tables import TableEntry
from cm_delta_dagster.errors import CommitStateUnknownError, TableAlreadyExistsError
from tests.model.calls import CATALOG, Answer, Call
from tests.model.reference import Model, TableModel, Violation, parse, require
from tests.model.runs import Ended, Node

_LOG_FILE = re.compile(r"(?P<table>.+)/_delta_log/(?P<staged>_staged_commits/)?(?P<name>[^/]+)")
_COMMIT = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True)
class Wrote:
    """A writer's acknowledged commit: what it says of the version, and the snapshot that it handed out with it."""

    table_id: str
    version: int
    txn_id: str
    rows: frozenset[str]
    snapshot_rows: frozenset[str]
    timestamp: int


@dataclass(frozen=True)
class WroteTogether:
    """A writer's acknowledged commits to several tables."""

    parts: tuple[Wrote, ...]


@dataclass(frozen=True)
class ReadTogether:
    """One snapshot for each of several tables, of one moment. Of the rows in ``pairs`` each is in all of them or in none."""

    reads: tuple["Read", ...]
    pairs: frozenset[str]


@dataclass(frozen=True)
class Decided:
    """How a hold ended for a member that decided about it, or read it.

    Attributes:
        versions: by table id, the version and the txn id of the commit; empty for a hold that was not ratified.
        rows: that the hold adds to each of its tables.
        is_final: whether the hold cannot be ratified any more, if it was not.
    """

    versions: tuple[tuple[str, int, str], ...]
    rows: frozenset[str]
    is_final: bool


@dataclass(frozen=True)
class Read:
    """Snapshots that a reader was given: version, live paths, commit time; and versions with txn ids of the feed, if asked."""

    table_id: str
    snapshots: tuple[tuple[int, frozenset[str], int], ...]
    feed: tuple[tuple[int, str], ...] | None = None


@dataclass(frozen=True)
class Published:
    """What a publisher reports."""

    table_id: str
    published_version: int


@dataclass(frozen=True)
class Created:
    """A creator's table."""

    name: str
    table_id: str


@dataclass(frozen=True)
class Cleaned:
    """A cleaner's count of deleted files."""

    num_files: int


@dataclass(frozen=True)
class Chosen:
    """A commit policy that a member has set."""

    policy: str


def observe(model: Model, call: Call, answer: Answer, published_zero: typing.Callable[[str], bytes | None]) -> Model:
    """The model after a call that took effect. ``published_zero`` reads version 0 of a location as storage has it now."""
    if call.service == CATALOG:
        return model if answer.error is not None else _observe_catalog(model, call, answer, published_zero)
    if answer.error is None and call.method in ("write", "write_if_absent", "delete"):
        return _observe_change(model, call)
    return model


def _observe_change(model: Model, call: Call) -> Model:
    location = call.argument(0, "location")
    match = _LOG_FILE.fullmatch(location)
    if match is None:
        if call.method == "delete":
            for _, table in model.tables:
                if location.startswith(f"{table.location}/"):
                    table.delete_data(location.removeprefix(f"{table.location}/"))
        return model
    found = _table_at(model, match["table"])
    if found is None:
        return model
    table_id, table = found
    name, commit = match["name"], _COMMIT.fullmatch(match["name"])
    data = call.argument(1, "data")
    if match["staged"]:
        return model.with_table(table_id, table.delete_staged(name) if data is None else table.stage(name, data))
    if commit is None or data is None or not table.ratified:
        # Checkpoints and hints are judged by what is read with them, version 0 when the table gets its name; which old
        # commits may be deleted is judged by what is readable afterwards.
        cleaned = call.method == "delete" and commit is not None
        return model.with_table(table_id, table.clean(int(commit[1]))) if cleaned and commit is not None else model
    version = int(commit[1])
    if version == table.latest + 1:
        return model.with_table(table_id, table.create(version, name, data))
    return model.with_table(table_id, table.publish(version, data))


def _observe_catalog(
    model: Model, call: Call, answer: Answer, published_zero: typing.Callable[[str], bytes | None]
) -> Model:
    value = answer.value
    if call.method == "create_staging_table":
        return model.reserve(value.table_id, value.location)
    if call.method == "register_table":
        identifier = call.argument(1, "identifier")
        registered = model.register(value.table_id, str(identifier), published_zero(value.location))
        _check_entry(registered, value)
        return registered
    for entry in value if isinstance(value, tuple) else (value,):
        if isinstance(entry, TableEntry):
            _check_entry(model, entry)
    if isinstance(value, RatifiedCommits):
        table = model.table(call.argument(0, "table_id"))
        _check_served(table, value, start=call.named.get("start") or 0, end=call.named.get("end"))
    if call.method == "set_published_version":
        table_id = call.argument(0, "table_id")
        return model.with_table(table_id, model.table(table_id).announce(call.argument(1, "version")))
    if call.method == "commit":
        return _observe_commit(model, call.argument(0, "table_id"), call.argument(1, "proposal"), value)
    if call.method == "commit_together":
        return _observe_together(model, call.argument(0, "proposals"), value)
    if call.method == "record_published":
        return _observe_record(model, call, value)
    if call.method == "change_commit_policy" and value is PolicyChange.DONE:
        table_id, policy = call.argument(0, "table_id"), call.argument(1, "policy")
        creates = policy is not None and policy.kind is CommitPolicyKind.PUT_IF_ABSENT
        return model.with_table(table_id, model.table(table_id).choose(creates=creates))
    return model


def _observe_record(model: Model, call: Call, outcome: Ratified | VersionTaken) -> Model:
    table_id, proposal = call.argument(0, "table_id"), call.argument(1, "proposal")
    if isinstance(outcome, VersionTaken):
        return model.with_table(table_id, model.table(table_id).refuse(proposal.version, proposal.summary.txn_id))
    table = model.table(table_id).record(proposal.version, proposal.summary.txn_id, repeated=outcome.repeated)
    require(
        outcome.latest_version == table.recorded, f"the catalog knows {table.recorded}, not {outcome.latest_version}"
    )
    return model.with_table(table_id, table)


def _observe_together(
    model: Model, proposals: typing.Mapping[str, CommitProposal], outcome: MultiTableOutcome
) -> Model:
    answers = outcome.commits if isinstance(outcome, RatifiedTogether) else outcome.refusals
    if isinstance(outcome, RatifiedTogether):
        require(answers.keys() == proposals.keys(), f"{len(answers)} of {len(proposals)} commits were ratified")
        require(len({answer.repeated for answer in outcome.commits.values()}) == 1, "some were ratified before")
    require(bool(answers), "commits were refused for no table")
    for table_id, answer in answers.items():
        model = _observe_commit(model, table_id, proposals[table_id], answer)
    return model


def _observe_commit(
    model: Model, table_id: str, proposal: CommitProposal, outcome: Ratified | VersionTaken | CommitPolicyChanged
) -> Model:
    table = model.table(table_id)
    if isinstance(outcome, CommitPolicyChanged):
        require(not outcome.policy.through_catalog, f"a proposal was refused under the policy {outcome.policy}")
        return model
    if isinstance(outcome, VersionTaken):
        require(proposal.version <= table.latest, f"version {proposal.version} was refused as taken but it is free")
        _check_served(table, outcome.winners, start=proposal.version)
        return model
    require(outcome.version == proposal.version, f"{outcome.version} was ratified, {proposal.version} was proposed")
    if outcome.repeated:
        same = proposal.version <= table.latest and table.ratified[proposal.version].name == proposal.file_name
        require(same, f"version {proposal.version} was called ratified already, but it is another commit")
    else:
        if proposal.mode is CommitMode.STAGED and proposal.content is not None:
            copied = dict(table.staged).get(proposal.file_name) == proposal.content
            require(copied, f"version {proposal.version} was proposed with a copy that is not its staged file")
        if proposal.published_version is not None:
            table = table.announce(proposal.published_version)
        table = table.ratify(
            proposal.version,
            proposal.file_name,
            proposal.content if proposal.mode is CommitMode.INLINE else None,
            txn_id=proposal.summary.txn_id,
            timestamp=proposal.summary.in_commit_timestamp,
        )
    require(
        outcome.latest_version == table.latest, f"the latest version is {table.latest}, not {outcome.latest_version}"
    )
    require(
        outcome.published_version <= table.published,
        f"published is {table.published}, the catalog answers {outcome.published_version}",
    )
    return model.with_table(table_id, table)


def _check_entry(model: Model, entry: TableEntry) -> None:
    holder = dict(model.names).get(str(entry.identifier))
    require(holder == entry.table_id, f"{entry.identifier} resolves to {entry.table_id}, it is {holder}")
    _check_served(model.table(entry.table_id), entry.ratified)


def _check_served(table: TableModel, answer: RatifiedCommits, *, start: int = 0, end: int | None = None) -> None:
    served = [(commit.version, commit.file_name) for commit in answer.commits]
    versions = [version for version, _ in served]
    for commit in (*answer.cached_commits, *answer.commits):
        if commit.content is not None and commit.version <= table.recorded:
            same = commit.content == table.ratified[commit.version].data
            require(same, f"the catalog serves another content of version {commit.version} than was ratified")
    kept = [commit.version for commit in answer.cached_commits]
    last = answer.published_version if end is None else min(end, answer.published_version)
    whole = all(commit.content is not None for commit in answer.cached_commits) and kept == list(
        range(last + 1 - len(kept), last + 1)
    )
    require(whole, f"kept are {kept}, published is {answer.published_version}")
    require(versions == list(range(versions[0], versions[0] + len(versions))) if versions else True, "a gap is served")
    table.check_served(answer.latest_version, answer.published_version, served, start=start, end=end)


def _table_at(model: Model, location: str) -> tuple[str, TableModel] | None:
    return next(((table_id, table) for table_id, table in model.tables if table.location == location), None)


def check_end(model: Model, node: Node, *, rows: frozenset[str]) -> int:
    """Judge how a member ended; ``rows`` is what it would have written. Returns the number of reads compared."""
    ended = node.reached
    assert isinstance(ended, Ended)
    if ended.error is not None:
        _check_error(model, node, ended, rows)
        return 0
    result = ended.result
    if isinstance(result, Wrote | WroteTogether):
        parts = (result,) if isinstance(result, Wrote) else result.parts
        for wrote in parts:
            _check_wrote(model, wrote)
        return len(parts)
    if isinstance(result, ReadTogether):
        for read in result.reads:
            _check_read(model, node, read)
        rows = {read.snapshots[0][1] & result.pairs for read in result.reads}
        require(len(rows) == 1, f"of commits to several tables a part was read: {sorted(map(sorted, rows))}")
        return len(result.reads)
    if isinstance(result, Read):
        _check_read(model, node, result)
        return len(result.snapshots)
    if isinstance(result, Decided):
        for table_id, version, txn_id in result.versions:
            model.table(table_id).check_acknowledged(version, txn_id, result.rows)
        for _, table in model.tables if result.is_final and not result.versions else ():
            table.check_absent(result.rows)
        return len(result.versions)
    if isinstance(result, Published):
        real = model.table(result.table_id).published
        require(result.published_version <= real, f"{result.published_version} reported as published, {real} is")
    if isinstance(result, Created):
        holder = dict(model.names).get(result.name)
        require(holder == result.table_id, f"{result.name} was created as {result.table_id} but belongs to {holder}")
    return 0


def _check_wrote(model: Model, wrote: Wrote) -> None:
    table = model.table(wrote.table_id)
    require(wrote.table_id in dict(model.names).values(), f"{wrote.rows} were acknowledged in a table without a name")
    table.check_acknowledged(wrote.version, wrote.txn_id, wrote.rows)
    table.check_read(wrote.version, wrote.snapshot_rows, wrote.timestamp)


def _check_error(model: Model, node: Node, ended: Ended, rows: frozenset[str]) -> None:
    error = ended.error
    if isinstance(error, CommitStateUnknownError):
        require(node.lost, f"{node.member.name} knows nothing of its commit although nothing was lost: {error}")
        return
    for _, table in model.tables:
        table.check_absent(rows)
    if isinstance(error, TableAlreadyExistsError):
        require(bool(model.names), "a creation was refused because of a table that no member has created")
    if not node.lost and not isinstance(error, node.member.may_fail):
        raise Violation(f"{node.member.name} failed although nothing was lost: {type(error).__name__}: {error}")


def _check_read(model: Model, node: Node, result: Read) -> None:
    table = model.table(result.table_id)
    for version, rows, timestamp in result.snapshots:
        table.check_read(version, rows, timestamp)
    if result.feed is not None:
        ratified = tuple((version, parse(commit.data).txn_id) for version, commit in enumerate(table.ratified))
        require(result.feed == ratified, f"the feed shows {result.feed}, ratified were {ratified}")
    answered = set()
    for answer in node.answers:
        for value in answer.value if isinstance(answer.value, tuple) else (answer.value,):
            served = value.ratified if isinstance(value, TableEntry) else value
            if isinstance(served, RatifiedCommits):
                answered.add(served.latest_version)
    newest = max(version for version, _, _ in result.snapshots)
    require(newest in answered, f"version {newest} was read, the catalog had answered {sorted(answered)}")
