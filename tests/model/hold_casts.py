"""Members that hold commits of two tables, read, ratify and discard them, and casts of them."""

from typing import Any

from cm_delta_dagster.catalog.holds import HOLD_DURATION_MS, HoldState
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.multi_table_commit import MultiTableCommit, TableCommit
from cm_delta_dagster.errors import HoldClosedError
from cm_delta_dagster.operations.tables.ratify_hold import RatifiedHold, held_tables, ratify_hold
from tests.model.casts import TWO, founder, publisher, reader_of_two, row, rows_of, transaction_of
from tests.model.explorer import Cast
from tests.model.observation import Decided
from tests.model.reference import require
from tests.model.runs import Member

HOLDER = "h"
_NOTHING = Decided(versions=(), rows=frozenset(), is_final=False)


def holder(**more: Any) -> Member:
    """Holds a file for each of two tables as one group."""

    def act(client: DeltaClient) -> Decided:
        parts = []
        for name in TWO:
            table = client.table(name)
            table.store.write_if_absent(f"{table.location}/{row(HOLDER)}", b"rows")
            parts.append(TableCommit(committer=table.committer, transaction=transaction_of(table, HOLDER)))
        together = MultiTableCommit(parts, coordinator=client.coordinator, settings=client.settings)
        together.hold(duration_ms=HOLD_DURATION_MS)
        return Decided(versions=(), rows=frozenset([row(HOLDER)]), is_final=False)

    return Member(name=HOLDER, act=act, **more)


def ratifier(name: str, *, discarded: bool = False, **more: Any) -> Member:
    """Reads the hold and ratifies it; nothing if there is none yet."""

    def act(client: DeltaClient) -> Decided:
        waiting = client.holds.holds(with_closed=True)
        if not waiting:
            return _NOTHING
        if waiting[0].state is HoldState.PENDING:
            for opened in held_tables(client, waiting[0].hold_id).values():
                require(row(HOLDER) in rows_of(opened.latest), "the hold was read without its rows")
        return _ratified(ratify_hold(client, waiting[0].hold_id))

    may_fail = (
        HoldClosedError,
    )  # Of the reading, if the other one was faster; of the ratification only after a discard.
    return Member(name=name, act=act, may_fail=may_fail, **more)


def late_ratifier() -> Member:
    """Comes when all others have gone: a hold that waits becomes versions, and one that was ratified is answered with them."""

    def act(client: DeltaClient) -> Decided:
        for hold in client.holds.holds(with_closed=True):
            if hold.state is HoldState.DISCARDED:
                return Decided(versions=(), rows=frozenset([row(HOLDER)]), is_final=True)
            done = ratify_hold(client, hold.hold_id)
            require(done.repeated is (hold.state is HoldState.COMMITTED), "a hold was ratified twice, or not at all")
            return _ratified(done)
        return _NOTHING

    return Member(name="late ratifier", act=act)


def _ratified(done: RatifiedHold) -> Decided:
    parts = tuple((part.table_id, part.version or 0, part.txn_id) for part in done.hold.tables)
    require(done.hold.state is HoldState.COMMITTED, f"a ratified hold is {done.hold.state}")
    return Decided(versions=parts, rows=frozenset([row(HOLDER)]), is_final=True)


def discarder(**more: Any) -> Member:
    """Discards the hold; nothing if there is none yet."""

    def act(client: DeltaClient) -> Decided:
        for hold in client.holds.holds(with_closed=True):
            client.holds.discard_hold(hold.hold_id, reason="checked")
            return Decided(versions=(), rows=frozenset([row(HOLDER)]), is_final=True)
        return _NOTHING

    return Member(name="discarder", act=act, may_fail=(HoldClosedError,), **more)


def cast_of_hold(name: str, *members: Member, mode: str, before: tuple[Member, ...] = (), **limits: Any) -> Cast:
    """``members`` on two tables of that commit mode, of which a hold adds the same file to both or to none."""
    return Cast(
        name=f"{name}, {mode}",
        members=members,
        setup=(*(founder(mode, {}, of=of) for of in TWO), *before),
        observer=reader_of_two(HOLDER),
        recovery=(late_ratifier(), *(publisher(f"late publisher of {of}", of=of) for of in TWO)),
        rows={member.name: frozenset([row(member.name)]) for member in members if member.name not in _WITHOUT_ROWS},
        **limits,
    )


_WITHOUT_ROWS = frozenset({HOLDER, "discarder"})
"""Members whose rows may become versions by the ratification of another."""
