"""Held writes over the server, with rows of Spark: who may read, ratify and discard them by its token."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.catalog.holds import HoldState
from cm_delta_dagster.errors import CommitRefusedError, HoldClosedError, InvalidArgumentError, OperationRefusedError
from cm_delta_dagster.server.settings import ServerSettings
from tests.support.live_server import LiveServer

ORDERS, TOTALS = "main.sales.orders", "main.sales.totals"


@pytest.fixture
def server_settings(sqlite_url: str, tmp_path: Path) -> ServerSettings:
    return ServerSettings(catalog=sqlite_url, warehouse=f"file://{tmp_path}/warehouse")


@pytest.fixture
def as_principal(server: LiveServer, spark: SparkSession) -> Iterator[Callable[..., Connection]]:
    """Opens the server by a token of a principal."""
    with ExitStack() as stack:

        def open_as(principal: str, *, read_only: bool = False) -> Connection:
            token = server.token_for(principal, read_only=read_only, by="owner")
            return stack.enter_context(connect(server.url, token=token, spark=spark))

        yield open_as


@pytest.fixture
def owner(as_principal: Callable[..., Connection], spark: SparkSession) -> Connection:
    """Owns two tables, of which ``etl`` and ``other`` may change rows, and ``keeper`` maintains the files."""
    lake = as_principal("owner")
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id int, text string").coalesce(1)
    for name in (ORDERS, TOTALS):
        lake.create_table_as(name, frame)
    lake.table(ORDERS).alter.set_properties({"delta.enableChangeDataFeed": "true"})
    lake.access.enable_grants(owner="owner")
    for principal, privilege in (("etl", "modify"), ("other", "modify"), ("keeper", "maintain")):
        lake.access.grant(privilege, "main.sales", to=principal)
    return lake


@pytest.mark.slow
@pytest.mark.requirements("WAP-1", "WAP-2")
def test_who_made_a_hold_reads_and_ratifies_it_by_its_token(
    owner: Connection, as_principal: Callable[..., Connection]
) -> None:
    held = as_principal("etl").table(ORDERS).update({"text": "'z'"}, "id = 1", hold=True)
    etl = as_principal("etl")  # Another process with another token.
    (found,) = etl.rules.held("main.sales")
    assert (found.hold_id, found.requested_by) == (held.hold_id, "etl")
    assert found.scan(where="text = 'z'").to_arrow().to_pylist() == [{"id": 1, "text": "z"}]
    assert found.scan().to_df().count() == found.scan().count() == len(found.scan().duckdb().fetchall()) == 2
    assert sorted(found.changes().to_arrow()["_change_type"].to_pylist()) == ["update_postimage", "update_preimage"]
    by_id = f"SELECT text FROM {ORDERS} VERSION AS OF '{held.hold_id}' ORDER BY id"
    assert [row.text for row in etl.sql(by_id).collect()] == ["z", "b"]
    other = as_principal("other")
    assert other.rules.held() == ()
    with pytest.raises(InvalidArgumentError, match="There is no hold"):
        other.rules.hold(held.hold_id)
    keeper = as_principal("keeper").rules.hold(held.hold_id)
    for refused in (keeper.ratify, lambda: keeper.discard("not mine")):
        with pytest.raises(OperationRefusedError):
            refused()
    with pytest.raises(CommitRefusedError, match="read-only"):
        as_principal("etl", read_only=True).rules.hold(held.hold_id).ratify()
    assert owner.table(ORDERS).to_arrow(["text"])["text"].to_pylist() == ["a", "b"]
    done = found.ratify(tags={"audited_by": "etl"})
    assert (done.version, held.ratify().repeated) == (2, True)
    assert owner.table(ORDERS).scan(where="text = 'z'").count() == 1


@pytest.mark.slow
@pytest.mark.requirements("WAP-2")
def test_an_owner_decides_about_the_hold_of_several_tables_of_another(
    owner: Connection, as_principal: Callable[..., Connection]
) -> None:
    etl = as_principal("etl")
    ids = []
    for _ in range(2):
        with etl.transaction(hold=True) as tx:
            tx.table(ORDERS).delete("id = 1")
            tx.table(TOTALS).update({"text": "'z'"})
        ids.append(tx.held.hold_id)
    assert owner.rules.hold(ids[0]).discard("bad month").state is HoldState.DISCARDED
    with pytest.raises(HoldClosedError, match="bad month"):
        etl.rules.hold(ids[0]).ratify()
    assert owner.rules.hold(ids[1]).scan(["text"], table=TOTALS).to_arrow()["text"].to_pylist() == ["z", "z"]
    done = owner.rules.hold(ids[1]).ratify()
    assert not done.repeated and (etl.table(ORDERS).version(), etl.table(TOTALS).version()) == (2, 1)
    assert etl.rules.hold(ids[1]).state is HoldState.COMMITTED
