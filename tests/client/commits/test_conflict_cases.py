"""The table of ``conflict_cases`` with real transactions: two clients of one catalog, both started on one snapshot."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CommitConflictError
from cm_delta_dagster.protocol.actions.actions import (
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from cm_delta_dagster.protocol.commits.conflicts import IsolationLevel
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.stores import Stores
from tests.support.conflict_cases import BASE, FEATURES, PARTITION_COLUMNS, SCHEMA, TABLES, WHOLE_TABLE, Act, CaseTable
from tests.support.creation import create_table

_numbers = itertools.count()
_SETTINGS = ClientSettings(retry_initial_delay=timedelta(seconds=0.0001), retry_max_delay=timedelta(seconds=0.0002))

_WINNERS = [(name, winner) for name, table in TABLES.items() for winner in table.acts]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DeltaClient, DeltaClient]]:
    """Two clients of one catalog with nothing in common but what is there."""
    url = f"sqlite:///{tmp_path_factory.mktemp('cases')}/catalog.db"
    stores = Stores({"memory": MemoryStore()})
    both = [DeltaClient(SqlCatalog(url, warehouse="memory://lake"), stores=stores, settings=_SETTINGS) for _ in "ab"]
    yield both[0], both[1]
    for client in both:
        client.close()


def _new_table(client: DeltaClient, cases: CaseTable, isolation: IsolationLevel) -> Table:
    features = {f"delta.feature.{name}": "supported" for name in FEATURES}
    table = create_table(
        client,
        identifier=f"main.test.t{next(_numbers)}",
        schema=SCHEMA,
        partition_columns=PARTITION_COLUMNS,
        properties={**features, "delta.isolationLevel": isolation.value},
    )
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files(BASE.values())
    metadata = transaction.snapshot.metadata
    transaction.set_metadata(replace(metadata, configuration={**metadata.configuration, **cases.properties}))
    assert transaction.commit().version == 1
    return table


def _started(table: Table, act: Act, role: str) -> Transaction:
    snapshot = table.snapshot()
    transaction = table.start_transaction(snapshot, operation=role)
    for condition in act.reads:
        if condition == WHOLE_TABLE:
            transaction.read_whole_table()
        else:
            transaction.read(parse_predicate(condition, SCHEMA))
    for action in act.actions(role, snapshot.protocol, snapshot.metadata):
        match action:
            case AddFile():
                transaction.add_files([action])
            case RemoveFile():
                transaction.remove_files([action])
            case Metadata():
                transaction.set_metadata(action)
            case Protocol():
                transaction.set_protocol(action)
            case SetTransaction():
                transaction.set_transaction(action)
            case DomainMetadata():
                transaction.set_domain(action)
    return transaction


def _files(table: Table, version: int) -> set[str]:
    return set(table.snapshot(version=version).files["path"].to_pylist())


@pytest.mark.requirements(
    "OCC-3",
    "OCC-5",
    "OCC-6",
    "OCC-7",
    "OCC-8",
    "OCC-9",
    "OCC-10",
    "OCC-11",
    "OCC-12",
    "OCC-13",
    "OCC-14",
    "OCC-15",
    "DOM-7",
    "CM-C3",
)
@pytest.mark.parametrize(("name", "winner"), _WINNERS)
def test_every_pair_of_transactions_comes_out_as_the_table_says(
    clients: tuple[DeltaClient, DeltaClient], name: str, winner: str
) -> None:
    """A loser that stands is one version later and loses nothing of the winner's."""
    cases = TABLES[name]
    for isolation in (IsolationLevel.WRITE_SERIALIZABLE, IsolationLevel.SERIALIZABLE):
        expected = {
            case.loser: case.expected for case in cases.cases() if case.winner == winner and case.isolation is isolation
        }
        refused = [loser for loser, kind in expected.items() if kind is not None]
        mine = _new_table(clients[0], cases, isolation)
        theirs = clients[1].table(str(mine.identifier))
        losers = {loser: _started(mine, cases.acts[loser], "loser") for loser in refused}
        won = _started(theirs, cases.acts[winner], "winner").commit()
        for loser, transaction in losers.items():
            with pytest.raises(
                CommitConflictError, match=rf"conflicts with version {won.version} .*{won.txn_id}"
            ) as caught:
                transaction.commit()
            assert (loser, caught.value.kind) == (loser, str(expected[loser]))
            assert caught.value.winning_version == won.version
        assert mine.snapshot().version == won.version
        if isolation is IsolationLevel.SERIALIZABLE and not cases.acts[winner].is_blind_append:
            continue  # The levels differ in nothing else.
        for loser in expected.keys() - set(refused):
            _stands(clients, cases, isolation, loser, winner)


def _stands(
    clients: tuple[DeltaClient, DeltaClient], cases: CaseTable, isolation: IsolationLevel, loser: str, winner: str
) -> None:
    mine = _new_table(clients[0], cases, isolation)
    theirs = clients[1].table(str(mine.identifier))
    late = _started(mine, cases.acts[loser], "loser")
    won = _started(theirs, cases.acts[winner], "winner").commit()
    stood = late.commit()
    assert (stood.version, stood.retries) == (won.version + 1, 1), (loser, winner)
    assert stood.in_commit_timestamp > won.in_commit_timestamp
    act, other = cases.acts[loser], cases.acts[winner]
    gone = {BASE[file].path for file in (*act.removes, *other.removes)}
    kept = {file.path for file in BASE.values()} - gone
    added = {f"{role}{n}.parquet" for role, it in (("loser", act), ("winner", other)) for n in range(len(it.adds))}
    assert _files(theirs, stood.version) == kept | added, (loser, winner)
