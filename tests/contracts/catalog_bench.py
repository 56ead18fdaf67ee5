"""Builders for the catalog contracts.

A rule takes a :class:`Bench`, which opens clients of one empty catalog, and the clock that they share.
"""

import json
import multiprocessing
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.ratification import (
    CommitProposal,
    CommitSummary,
    InitialCommit,
)
from cm_delta_dagster.catalog.tables import TableEntry, TableIdentifier
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol

NAME = TableIdentifier("main", "sales", "orders")
OTHER = TableIdentifier("main", "sales", "renamed")
FORKSERVER = multiprocessing.get_context("forkserver")
"""Forks from a process that has imported what a bench needs: a start takes milliseconds."""

FORKSERVER.set_forkserver_preload(
    ["tests.catalog.test_catalog_contract", "tests.catalog.rest.test_http_catalog_contract"]
)
PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("catalogManaged",),
    writer_features=("catalogManaged", "inCommitTimestamp"),
)


@dataclass
class Clock:
    """Epoch milliseconds; a test sets them."""

    now: int = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@dataclass
class Bench:
    """``connect(clock)`` opens a client of the catalog; it can be pickled.

    ``connect_as(clock, name)`` opens one of a principal. Of ten thousand commits, the first ``recorded_together`` are recorded as
    recovery does it: a request for each takes half a minute.
    """

    connect: Callable[[Callable[[], int]], Catalog]
    connect_as: Callable[[Callable[[], int], str], Catalog] | None = None
    clock: Clock = field(default_factory=Clock)
    recorded_together: int = 0

    @contextmanager
    def client(self) -> Iterator[Catalog]:
        catalog = self.connect(self.clock)
        try:
            yield catalog
        finally:
            catalog.close()

    @contextmanager
    def client_of(self, principal: str) -> Iterator[Catalog]:
        assert self.connect_as is not None
        catalog = self.connect_as(self.clock, principal)
        try:
            yield catalog
        finally:
            catalog.close()


Rule = Callable[[Bench], None]


def summary(timestamp: int, *, data_change: bool = True, tags: dict[str, str] | None = None) -> CommitSummary:
    return CommitSummary(
        txn_id=str(uuid.uuid4()),
        in_commit_timestamp=timestamp,
        operation="WRITE",
        data_change=data_change,
        metrics={"numFiles": "1"},
        tags=tags or {},
    )


def proposal(version: int, *, data_change: bool = True, timestamp: int | None = None) -> CommitProposal:
    return CommitProposal(
        version=version,
        file_name=f"{version:020d}.{uuid.uuid4()}.json",
        file_size=100 + version,
        file_modification_time=5000 + version,
        summary=summary(1000 + version if timestamp is None else timestamp, data_change=data_change),
    )


def inline(version: int, *, timestamp: int | None = None, size: int = 0) -> CommitProposal:
    """An inline proposal, with ``size`` bytes of padding in its content."""
    one = proposal(version, timestamp=timestamp)
    info = {"txnId": one.summary.txn_id, "inCommitTimestamp": one.summary.in_commit_timestamp}
    content = json.dumps({"commitInfo": info}).encode() + b" " * size + b"\n"
    return replace(one, mode=CommitMode.INLINE, content=content, file_size=len(content))


def created(version: int, *, operation: str = "WRITE") -> CommitProposal:
    """The record of a commit that was made put-if-absent."""
    one = proposal(version)
    name = f"{version:020d}.json"
    return replace(
        one,
        mode=CommitMode.PUT_IF_ABSENT,
        file_name=name,
        summary=replace(one.summary, operation=operation, data_change=operation == "WRITE"),
    )


def create(catalog: Catalog, identifier: TableIdentifier = NAME) -> TableEntry:
    staging = catalog.registry.create_staging_table(identifier)
    return catalog.registry.register_table(staging.table_id, identifier, summary=summary(1000))


def metadata(*columns: str, **properties: str) -> Metadata:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in columns]
    configuration = {"delta.enableInCommitTimestamps": "true", **properties}
    return Metadata(
        id="5d1a", schema_string=json.dumps({"type": "struct", "fields": fields}), configuration=configuration
    )


def defined(catalog: Catalog, *, content: bytes | None = None) -> TableEntry:
    staging = catalog.registry.create_staging_table(NAME)
    initial = InitialCommit(
        file_size=200 if content is None else len(content),
        file_modification_time=77,
        metadata=metadata("id"),
        protocol=PROTOCOL,
        content=content,
    )
    return catalog.registry.register_table(staging.table_id, NAME, summary=summary(1000), initial=initial)


def copied(version: int, *, size: int = 0) -> CommitProposal:
    """A staged proposal with a copy of its content."""
    return replace(inline(version, size=size), mode=CommitMode.STAGED)


def allow_purge(catalog: Catalog) -> None:
    """Allow to purge the tables of the catalog ``main``."""
    rule = MaintenanceRule(scope="main", kind=MaintenanceKind.TABLE_PURGE, allowed=True)
    catalog.maintenance_policies.set_maintenance_rule(rule)
