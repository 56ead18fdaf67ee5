"""What the rules for catalogs work with.

A rule gets a :class:`Bench`: a way to open any number of clients of one empty catalog, and the clock that they share.
"""

import json
import multiprocessing
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import (
    CommitProposal,
    CommitSummary,
)
from cm_delta_dagster.catalog.tables import TableEntry, TableIdentifier

NAME = TableIdentifier("main", "sales", "orders")
OTHER = TableIdentifier("main", "sales", "renamed")
SPAWN = multiprocessing.get_context("spawn")


@dataclass
class Clock:
    """Epoch milliseconds that stand still until moved."""

    now: int = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@dataclass
class Bench:
    """``connect(clock)`` opens another client of the same catalog; it can be sent to other processes."""

    connect: Callable[[Callable[[], int]], Catalog]
    clock: Clock = field(default_factory=Clock)

    @contextmanager
    def client(self) -> Iterator[Catalog]:
        catalog = self.connect(self.clock)
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
    """A proposal that carries its commit, ``size`` bytes longer than need be."""
    one = proposal(version, timestamp=timestamp)
    info = {"txnId": one.summary.txn_id, "inCommitTimestamp": one.summary.in_commit_timestamp}
    content = json.dumps({"commitInfo": info}).encode() + b" " * size + b"\n"
    return replace(one, mode=CommitMode.INLINE, content=content, file_size=len(content))


def created(version: int, *, operation: str = "WRITE") -> CommitProposal:
    """What is told of a commit that the creation of its published file has made."""
    one = proposal(version)
    name = f"{version:020d}.json"
    return replace(
        one,
        mode=CommitMode.PUT_IF_ABSENT,
        file_name=name,
        summary=replace(one.summary, operation=operation, data_change=operation == "WRITE"),
    )


def create(catalog: Catalog, identifier: TableIdentifier = NAME) -> TableEntry:
    staging = catalog.create_staging_table(identifier)
    return catalog.register_table(staging.table_id, identifier, summary=summary(1000))
