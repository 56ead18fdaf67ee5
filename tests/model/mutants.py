"""Deliberately broken clients and catalogs: each breaks one rule of the protocol, and the explorer has to find a schedule for it.

A broken client is the real one with a broken interface, or a member that does by hand what the package does with care; a
broken catalog is the real one behind a wrong answer.
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitPolicy, PolicyChange
from cm_delta_dagster.catalog.ratification import (
    CommitOutcome,
    CommitProposal,
    Ratified,
    RatifiedCommits,
    RatifiedTogether,
    VersionTaken,
)
from cm_delta_dagster.catalog.sql.database.schema import TABLES
from cm_delta_dagster.catalog.tables import TableEntry, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitRejectedError,
    CommitStateUnknownError,
    ObjectAlreadyExistsError,
    TableAlreadyExistsError,
)
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.storage.store import ObjectStatus, Store
from tests.model.casts import (
    NAME,
    SCHEMA,
    TWO,
    busy_writer,
    cast,
    cast_of_two,
    commit_row,
    creation,
    creator_with_rows,
    mode_changer,
    reader,
    row,
    rows_of,
    writer,
    writer_of_two,
)
from tests.model.explorer import Cast
from tests.model.observation import Cleaned, Created, Published, Read, ReadTogether, Wrote
from tests.model.reference import parse
from tests.model.runs import SHIPPED, Member
from tests.support.creation import create_table

_STAGED = re.compile(r".*/_staged_commits/(\d{20})\.[^/]+\.json")


class Forwarding:
    """Everything goes on to the real object unless a subclass does otherwise."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class CoordinatorWithoutVersionCheck(Forwarding):
    """Answers every proposer that it has won."""

    def commit(self, table_id: str, proposal: CommitProposal) -> CommitOutcome:
        outcome = self.real.commit(table_id, proposal)
        if isinstance(outcome, VersionTaken):
            won = outcome.winners
            return Ratified(
                version=proposal.version, latest_version=won.latest_version, published_version=won.published_version
            )
        return outcome


class CoordinatorOneByOne(Forwarding):
    """Ratifies the commits of several tables one after the other."""

    def commit_together(self, proposals: Mapping[str, CommitProposal]) -> RatifiedTogether:
        return RatifiedTogether(commits={of: self.real.commit(of, proposal) for of, proposal in proposals.items()})


class ForgetfulCoordinator(Forwarding):
    """Treats a commit as published once it is ratified, and no longer serves it."""

    def commit(self, table_id: str, proposal: CommitProposal) -> CommitOutcome:
        outcome: CommitOutcome = self.real.commit(table_id, proposal)
        if isinstance(outcome, Ratified):
            self.real.set_published_version(table_id, outcome.latest_version)
        return outcome


class CoordinatorThatForgetsSilently(Forwarding):
    """Serves no unpublished commit to readers, but goes on calling them unpublished."""

    def get_ratified_commits(self, table_id: str, **range_: Any) -> RatifiedCommits:
        answer: RatifiedCommits = self.real.get_ratified_commits(table_id, **range_)
        return replace(answer, commits=())


def with_coordinator(part: Callable[[Any], Forwarding]) -> Callable[[Any], Any]:
    """Makes of a catalog one with another coordinator."""
    return partial(with_part, "coordinator", part)


def with_part(name: str, part: Callable[[Any], Forwarding], real: Any) -> Forwarding:
    """A catalog with another part of that name."""
    catalog = Forwarding(real)
    setattr(catalog, name, part(getattr(real, name)))
    return catalog


class PoliciesWithoutBarrier(Forwarding):
    """Leaves put-if-absent at once, although writers may be about to create a file."""

    def change_commit_policy(self, table_id: str, policy: CommitPolicy | None) -> PolicyChange:
        answer: PolicyChange = self.real.change_commit_policy(table_id, policy)
        if answer is PolicyChange.BARRIER_FIRST:
            change = sa.update(TABLES).values(commit_policy=str(policy), barrier_after=None)
            self.real._database.write(lambda connection: connection.execute(change))
            return PolicyChange.DONE
        return answer


class PoliciesThatSwitchUnpublished(Forwarding):
    """Goes over to put-if-absent while ratified commits are not published."""

    def change_commit_policy(self, table_id: str, policy: CommitPolicy | None) -> PolicyChange:
        self.real.change_commit_policy(table_id, policy)
        change = sa.update(TABLES).values(commit_policy=str(policy))
        self.real._database.write(lambda connection: connection.execute(change))
        return PolicyChange.DONE


class CoordinatorWithoutReports(Forwarding):
    """The client does not report which files it has created and found."""

    def record_published(self, table_id: str, proposal: CommitProposal) -> Ratified:
        return Ratified(version=proposal.version, latest_version=proposal.version, published_version=proposal.version)


class StoreThatReusesStagedFile(Forwarding):
    """After a conflict the client offers its first commit again, under a name for the next version."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.first: bytes | None = None

    def write_if_absent(self, location: str, data: bytes, **how: bool) -> None:
        if _STAGED.fullmatch(location):
            self.first = data = self.first or data
        self.real.write_if_absent(location, data, **how)


class StoreThatRewritesWhatItPublishes(Forwarding):
    """Publishes a commit parsed and written again, instead of its bytes."""

    def write_if_absent(self, location: str, data: bytes, **how: bool) -> None:
        staged = _STAGED.fullmatch(location)
        content = data if staged else data.replace(b'"WRITE"', b'"write"')
        self.real.write_if_absent(location, content, **how)


class CoordinatorCallsThatGiveUp(Forwarding):
    """The client treats an unknown outcome as a refusal."""

    def commit(self, table_id: str, proposal: CommitProposal) -> CommitOutcome:
        try:
            return self.real.commit(table_id, proposal)
        except CatalogUnavailableError as error:
            raise CommitRejectedError("No answer, so it did not happen.") from error


class CoordinatorWithEarlyReports(Forwarding):
    """The client says with each commit that everything before is published, whether it is or not."""

    def commit(self, table_id: str, proposal: CommitProposal) -> CommitOutcome:
        early = replace(proposal, published_version=proposal.version - 1)
        return self.real.commit(table_id, early)


class CoordinatorThatMixesUpContents(Forwarding):
    """Serves the content of the newest commit for every version that it keeps."""

    def get_ratified_commits(self, table_id: str, **range_: Any) -> RatifiedCommits:
        answer: RatifiedCommits = self.real.get_ratified_commits(table_id, **range_)
        newest = (*answer.cached_commits, *answer.commits)[-1:]
        return replace(
            answer, cached_commits=tuple(replace(one, content=newest[0].content) for one in answer.cached_commits)
        )


class RegistrationThatGivesUp(Forwarding):
    """The client treats an unknown outcome as a name that is taken, and deletes the files of the table."""

    def register_table(self, table_id: str, identifier: TableIdentifier, **arguments: Any) -> TableEntry:
        try:
            return self.real.register_table(table_id, identifier, **arguments)
        except CatalogUnavailableError as error:
            raise TableAlreadyExistsError("No answer, so another client has the name.") from error


class StaleClock(Forwarding):
    """The client writes its clock into its commits, whatever the versions before say."""

    def __init__(self, real: Any, skew_ms: int) -> None:
        super().__init__(real)
        self.skew_ms = skew_ms

    def commit(self, table_id: str, proposal: CommitProposal) -> CommitOutcome:
        early = replace(proposal.summary, in_commit_timestamp=proposal.summary.in_commit_timestamp + self.skew_ms)
        return self.real.commit(table_id, replace(proposal, summary=early))


def writer_that_retries_what_may_have_happened(name: str) -> Member:
    """Treats an unknown outcome as a failure and starts again with a new commit."""

    def act(client: DeltaClient) -> Wrote:
        table = client.table(NAME)
        try:
            return commit_row(table, name)
        except CommitRejectedError:
            return commit_row(table, name)

    return Member(name=name, act=act, broken_catalog=with_coordinator(CoordinatorCallsThatGiveUp))


def writer_that_gives_up(name: str) -> Member:
    """Treats an unknown outcome as a failure and reports it."""
    return Member(
        name=name,
        act=lambda client: commit_row(client.table(NAME), name),
        broken_catalog=with_coordinator(CoordinatorCallsThatGiveUp),
    )


def writer_that_takes_unknown_for_success(name: str) -> Member:
    """Reports the version that it hoped for."""

    def act(client: DeltaClient) -> Wrote:
        table = client.table(NAME)
        snapshot = table.snapshot()
        try:
            return commit_row(table, name)
        except CommitStateUnknownError as error:
            found = re.search(r"txnId (\S+)", str(error))
            return Wrote(
                table.table_id,
                snapshot.version + 1,
                found[1] if found else "",
                frozenset([row(name)]),
                rows_of(snapshot) | {row(name)},
                max(client.now_ms(), snapshot.timestamp_ms + 1),
            )

    settings = ClientSettings(
        retry_initial_delay=timedelta(0), commit_lock_timeout=timedelta(0), max_resolve_attempts=1, read_threads=1
    )
    return Member(name=name, act=act, settings=settings)


def writer_without_catalog(name: str) -> Member:
    """Writes the next file of ``_delta_log`` itself, as a client does that knows paths only."""

    def act(client: DeltaClient) -> Cleaned:
        table = client.table(NAME)
        snapshot = table.snapshot()
        add = f'{{"add":{{"path":"{row(name)}","partitionValues":{{}},"size":1,"modificationTime":1,"dataChange":true}}}}\n'
        info = f'{{"commitInfo":{{"inCommitTimestamp":{snapshot.timestamp_ms + 1},"txnId":"{name}"}}}}\n'
        table.store.write_if_absent(_published(table, snapshot.version + 1), (info + add).encode())
        return Cleaned(0)

    return Member(name=name, act=act)


def publisher_of_the_newest_first() -> Member:
    """Publishes what is pending in descending order."""

    def act(client: DeltaClient) -> Published:
        table = client.table(NAME)
        ratified = client.coordinator.get_ratified_commits(table.table_id)
        for commit in reversed(ratified.commits):
            if commit.version > ratified.published_version:
                data = commit.content or table.store.read(_staged(table, commit.file_name))
                _copy(table.store, _published(table, commit.version), data)
        client.coordinator.set_published_version(table.table_id, ratified.latest_version)
        return Published(table.table_id, ratified.latest_version)

    return Member(name="publisher", act=act)


def publisher_that_announces_first() -> Member:
    """Reports to the catalog that everything is published, then publishes it."""

    def act(client: DeltaClient) -> Published:
        table = client.table(NAME)
        ratified = client.coordinator.get_ratified_commits(table.table_id)
        client.coordinator.set_published_version(table.table_id, ratified.latest_version)
        for commit in ratified.commits:
            data = commit.content or table.store.read(_staged(table, commit.file_name))
            _copy(table.store, _published(table, commit.version), data)
        return Published(table.table_id, ratified.latest_version)

    return Member(name="publisher", act=act)


def reader_of_staged_files() -> Member:
    """Takes a staged file of the next version for a commit."""

    def act(client: DeltaClient) -> Read:
        table = client.table(NAME)
        snapshot = table.snapshot()
        version, rows, timestamp = snapshot.version, rows_of(snapshot), snapshot.timestamp_ms
        for status in table.store.list_from(log_files.staged_commits_directory(table.location)):
            if status.name.startswith(f"{version + 1:020d}."):
                content = parse(table.store.read(status.location))
                return _one(table, version + 1, (rows - content.removed) | content.added, content.timestamp)
        return _one(table, version, rows, timestamp)

    return Member(name="reader", act=act)


def reader_of_the_directory() -> Member:
    """Reads every commit that ``_delta_log`` holds, also above the catalog's latest version."""

    def act(client: DeltaClient) -> Read:
        table = client.table(NAME)
        snapshot = table.snapshot()
        version, rows, timestamp = snapshot.version, rows_of(snapshot), snapshot.timestamp_ms
        names = [status.name for status in table.store.list_from(log_files.log_directory(table.location))]
        while log_files.commit_file_name(version + 1) in names:
            version += 1
            content = parse(table.store.read(_published(table, version)))
            rows, timestamp = (rows - content.removed) | content.added, content.timestamp
        return _one(table, version, rows, timestamp)

    return Member(name="reader", act=act)


def reader_of_published_files_only() -> Member:
    """Passes an older state off as the latest version while commits are not published."""

    def act(client: DeltaClient) -> Read:
        table = client.table(NAME)
        ratified = client.coordinator.get_ratified_commits(table.table_id)
        old = table.snapshot(version=ratified.published_version)
        return _one(table, ratified.latest_version, rows_of(old), old.timestamp_ms)

    return Member(name="reader", act=act)


def cleaner_of_everything_staged() -> Member:
    """Deletes every staged file that it finds."""

    def act(client: DeltaClient) -> Cleaned:
        table = client.table(NAME)
        found = table.store.list_from(log_files.staged_commits_directory(table.location))
        for status in found:
            table.store.delete(status.location)
        return Cleaned(len(found))

    return Member(name="cleaner", act=act)


def cleaner_of_what_the_catalog_does_not_name() -> Member:
    """Deletes staged files that the catalog does not serve, without a look at their versions."""

    def act(client: DeltaClient) -> Cleaned:
        table = client.table(NAME)
        found = table.store.list_from(log_files.staged_commits_directory(table.location))
        named = {commit.file_name for commit in client.coordinator.get_ratified_commits(table.table_id).commits}
        gone = [status for status in found if status.name not in named]
        for status in gone:
            table.store.delete(status.location)
        return Cleaned(len(gone))

    return Member(name="cleaner", act=act)


def creator_that_registers_first(name: str) -> Member:
    """Gives the table its name before version 0 is there."""

    class Late(Forwarding):
        def __init__(self, real: Any) -> None:
            super().__init__(real)
            self.kept: list[tuple[str, bytes]] = []

        def write_if_absent(self, location: str, data: bytes, **how: bool) -> ObjectStatus:
            self.kept.append((location, data))
            return ObjectStatus(location=location, size=len(data), modification_time=1)

    late: list[Late] = []

    def broken_store(real: Store) -> Late:
        late[:] = [Late(real)]
        return late[0]

    def act(client: DeltaClient) -> Created:
        table = create_table(client, identifier=NAME, schema=SCHEMA)
        for location, data in late[0].kept:
            late[0].real.write_if_absent(location, data)
        return Created(NAME, table.table_id)

    return Member(name=name, act=act, broken_store=broken_store)


def reader_of_two_one_by_one() -> Member:
    """Reads two tables one after the other."""

    def act(client: DeltaClient) -> ReadTogether:
        found = [client.table(name).snapshot() for name in TWO]
        reads = tuple(
            _one(client.table(of), s.version, rows_of(s), s.timestamp_ms) for of, s in zip(TWO, found, strict=True)
        )
        return ReadTogether(reads, frozenset([row("a")]))

    return Member(name="reader", act=act)


def shipped_reader() -> Member:
    return replace(reader(), settings=SHIPPED)


@dataclass(frozen=True)
class Mutant:
    """A broken cast, a pattern of the violation that it has to be caught by, and the modes in which it is one."""

    cast: Callable[[str], Cast]
    violation: str
    modes: tuple[str, ...] = ("staged",)


BOTH = ("staged", "inline")


def _published(table: Table, version: int) -> str:
    return f"{log_files.log_directory(table.location)}/{log_files.commit_file_name(version)}"


def _staged(table: Table, name: str) -> str:
    return f"{log_files.staged_commits_directory(table.location)}/{name}"


def _copy(store: Store, location: str, data: bytes) -> None:
    with contextlib.suppress(ObjectAlreadyExistsError):
        store.write_if_absent(location, data)


def _one(table: Table, version: int, rows: frozenset[str], timestamp: int) -> Read:
    return Read(table.table_id, ((version, rows, timestamp),))


def _with_catalog(broken: Callable[[Any], Catalog], *members: Member) -> Callable[[str], Cast]:
    return lambda mode: replace(cast("mutant", *members, mode=mode), broken=broken)


def _of(*members: Member, crashes: int = 1, losses: int = 0) -> Callable[[str], Cast]:
    return lambda mode: cast("mutant", *members, mode=mode, crashes=crashes, losses=losses)


def _broken(name: str, store: Callable[[Any], Any]) -> Member:
    return replace(writer(name), broken_store=store)


MUTANTS: Mapping[str, Mutant] = {
    "a catalog that skips the version check": Mutant(
        _with_catalog(with_coordinator(CoordinatorWithoutVersionCheck), writer("a"), writer("b")),
        "was ratified after version",
        BOTH,
    ),
    "a writer that commits to two tables one after the other": Mutant(
        lambda mode: cast_of_two(
            "mutant", replace(writer_of_two("a"), broken_catalog=with_coordinator(CoordinatorOneByOne)), mode=mode
        ),
        "IllegalCommitError: .* names version 1 of table",  # The catalog refuses a part of the transaction.
        BOTH,
    ),
    "a reader of two tables that reads them one after the other": Mutant(
        lambda mode: cast_of_two(
            "mutant", writer_of_two("a"), reader_of_two_one_by_one(), mode=mode, single=("reader",)
        ),
        "a part was read",
        ("inline",),
    ),
    "a catalog that forgets before publishing": Mutant(
        _with_catalog(with_coordinator(ForgetfulCoordinator), writer("a"), reader()), "published", BOTH
    ),
    "a catalog that serves no unpublished commits": Mutant(
        _with_catalog(with_coordinator(CoordinatorThatForgetsSilently), writer("a"), reader()), "serves no commit", BOTH
    ),
    "a catalog that leaves put-if-absent without a barrier": Mutant(
        _with_catalog(
            partial(with_part, "commit_policies", PoliciesWithoutBarrier), writer("a"), mode_changer("staged")
        ),
        "published but not ratified|not the ratified|did not know of every commit",
        ("put-if-absent",),
    ),
    "a catalog that goes into put-if-absent unpublished": Mutant(
        _with_catalog(
            partial(with_part, "commit_policies", PoliciesThatSwitchUnpublished),
            writer("a"),
            mode_changer("put_if_absent"),
        ),
        "before everything was published|reported as not committed",
        BOTH,
    ),
    "a writer that does not report to the catalog what it finds": Mutant(
        _of(writer("a"), replace(writer("b"), broken_catalog=with_coordinator(CoordinatorWithoutReports))),
        "failed although nothing was lost",
        ("put-if-absent",),
    ),
    "a writer that does not ask the catalog": Mutant(
        _of(writer_without_catalog("a"), reader()), "published but not ratified", BOTH
    ),
    "a publisher that starts with the newest": Mutant(
        _of(writer("a"), writer("b"), publisher_of_the_newest_first(), crashes=2), "was published after version", BOTH
    ),
    "a publisher that announces before it publishes": Mutant(
        _of(writer("a"), publisher_that_announces_first()), "reported as published", BOTH
    ),
    "a publisher that changes the bytes": Mutant(
        _of(_broken("a", StoreThatRewritesWhatItPublishes)), "are not the ratified", BOTH
    ),
    "a writer that reports what is not published": Mutant(
        _of(
            replace(
                busy_writer("x", "a", settings=SHIPPED), broken_catalog=with_coordinator(CoordinatorWithEarlyReports)
            )
        ),
        "reported as published",
        ("inline",),
    ),
    "a catalog that mixes up the contents that it keeps": Mutant(
        _with_catalog(
            with_coordinator(CoordinatorThatMixesUpContents), busy_writer("x", "a", settings=SHIPPED), shipped_reader()
        ),
        "serves another content",
        BOTH,
    ),
    "a reader that trusts _staged_commits": Mutant(_of(writer("a"), reader_of_staged_files()), "was read"),
    "a reader that goes above the catalog's latest version": Mutant(
        _of(writer("a"), reader_of_the_directory()), "the catalog had answered", ("staged", "inline", "put-if-absent")
    ),
    "a reader that sees published commits only": Mutant(
        _of(writer("a"), reader_of_published_files_only()), "was read as", BOTH
    ),
    "a writer that reuses its staged file after a conflict": Mutant(
        _of(writer("b"), _broken("a", StoreThatReusesStagedFile)), "version 2 says"
    ),
    "a writer whose commit says another time than its proposal": Mutant(
        _of(replace(writer("a"), broken_catalog=with_coordinator(partial(StaleClock, skew_ms=1)))), "version 1 says"
    ),
    "a writer that retries after an unknown outcome": Mutant(
        _of(writer_that_retries_what_may_have_happened("a"), losses=1), "a second time", BOTH
    ),
    "a writer that treats an unknown outcome as a failure": Mutant(
        _of(writer_that_gives_up("a"), losses=1), "reported as not committed", BOTH
    ),
    "a writer that takes unknown for success": Mutant(
        _of(writer_that_takes_unknown_for_success("a"), losses=1), "was acknowledged", BOTH
    ),
    "a cleaner that deletes every staged file": Mutant(
        _of(writer("a"), cleaner_of_everything_staged()), "still serves|does not exist"
    ),
    "a cleaner that deletes proposals under way": Mutant(
        _of(writer("a"), cleaner_of_what_the_catalog_does_not_name()), "still serves|does not exist"
    ),
    "a creator that deletes its files after an unknown outcome": Mutant(
        lambda mode: creation(
            "mutant",
            replace(creator_with_rows("a"), broken_catalog=partial(with_part, "registry", RegistrationThatGivesUp)),
            losses=1,
        ),
        "reported as not committed|which the latest version reads|cannot be built|there is no log at that location",
    ),
    "a creator that registers before version 0 is written": Mutant(
        lambda mode: creation("mutant", creator_that_registers_first("a")), "before version 0"
    ),
}
