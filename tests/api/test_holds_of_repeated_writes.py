"""Held writes that are repeated with their ``Idempotency``: before and after the ratification, and out of order. Without Spark."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from cm_delta_dagster import HeldCommit
from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.catalog.holds import HoldState
from cm_delta_dagster.client.commits.context import Idempotency
from cm_delta_dagster.errors import CommitConflictError, CommitRejectedError, InvalidArgumentError

ORDERS, TOTALS = "main.sales.orders", "main.sales.totals"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse") as connection:
        for name in (ORDERS, TOTALS):
            connection.create_table_as(name, rows(0))
        yield connection


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def job(version: int) -> Idempotency:
    return Idempotency(app_id="job", version=version)


def numbers(lake: Connection, name: str = ORDERS) -> list[int]:
    return sorted(lake.table(name).scan().to_arrow()["n"].to_pylist())


def hold_both(lake: Connection, version: int) -> HeldCommit:
    with lake.transaction(hold=True) as tx:
        for name in (ORDERS, TOTALS):
            tx.table(name).append(rows(version), idempotency=job(version))
    return tx.held


@pytest.mark.requirements("WAP-2", "WAP-7")
def test_a_repeated_transaction_gives_the_hold_also_after_its_ratification(lake: Connection) -> None:
    first = hold_both(lake, 1)
    assert hold_both(lake, 1).hold_id == first.hold_id
    first.ratify()
    again = hold_both(lake, 1)
    assert (again.hold_id, again.state) == (first.hold_id, HoldState.COMMITTED)
    assert again.versions == {ORDERS: 1, TOTALS: 1} and again.ratify().repeated
    assert numbers(lake) == numbers(lake, TOTALS) == [0, 1] and lake.rules.held() == ()


@pytest.mark.requirements("WAP-2")
def test_a_repeated_transaction_that_was_not_one_hold_says_what_was_committed(lake: Connection) -> None:
    lake.table(ORDERS).append(rows(1), idempotency=job(1))
    lake.table(TOTALS).append(rows(1), idempotency=job(1), hold=True).ratify()
    with pytest.raises(InvalidArgumentError, match=r"committed before, and not as one hold.*version 1 of 'job'"):
        hold_both(lake, 1)
    assert numbers(lake) == numbers(lake, TOTALS) == [0, 1]


@pytest.mark.requirements("WAP-2")
def test_rows_of_a_hold_do_not_vanish_when_a_later_one_of_its_application_is_ratified(lake: Connection) -> None:
    table = lake.table(ORDERS)
    earlier = table.append(rows(1), idempotency=job(1), hold=True)
    later = table.append(rows(2), idempotency=job(2), hold=True)  # Made on the same version as the earlier one.
    with pytest.raises(CommitRejectedError, match=f"Ratify or discard {earlier.hold_id} first"):
        later.ratify()
    assert {hold.hold_id for hold in lake.rules.held()} == {earlier.hold_id, later.hold_id} and numbers(lake) == [0]
    earlier.ratify()
    later.ratify()
    assert numbers(lake) == [0, 1, 2]


@pytest.mark.requirements("WAP-2")
@pytest.mark.parametrize("ends", ["discarded", "conflicting"])
def test_rows_of_a_hold_that_ended_are_not_taken_for_committed(lake: Connection, ends: str) -> None:
    table = lake.table(ORDERS)
    earlier = table.append(rows(1), idempotency=job(1), hold=True)
    if ends == "discarded":
        earlier.discard("bad month")
        table.append(rows(2), idempotency=job(2), hold=True).ratify()
    else:
        table.append(rows(2), idempotency=job(2))
        with pytest.raises(CommitConflictError, match="txn of the same application 'job'"):
            earlier.ratify()
    for hold in (True, False):
        with pytest.raises(InvalidArgumentError, match=f"{earlier.hold_id}, which is {ends} and no version"):
            table.append(rows(1), idempotency=job(1), hold=hold)  # type: ignore[call-overload]
    table.append(rows(1), idempotency=job(3))
    assert numbers(lake) == [0, 1, 2]
