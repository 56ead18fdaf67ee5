"""Writers at once in each commit mode, on each file system by its own primitive; the rows are read with Arrow."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from cm_delta_dagster.storage.store import Store
from cm_delta_dagster.storage.stores import Stores, scheme_of
from tests.support.actions import add_file
from tests.support.creation import create_table

NAME = "main.test.t"
SCHEMA = StructType(fields=(StructField(name="id", type=PrimitiveType(name="long")),))
WRITERS, COMMITS = 4, 3


def append(client: DeltaClient, number: int) -> None:
    table = client.table(NAME)
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), buffer)
    data = buffer.getvalue().to_pybytes()
    path = f"{uuid.uuid4()}.parquet"
    table.store.write_if_absent(f"{table.location}/{path}", data)
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([add_file(path, size=len(data))])
    transaction.commit()


@pytest.mark.requirements("CM-C9")
@pytest.mark.parametrize("policy", ["staged", "put_if_absent"])
def test_size_and_time_of_accepted_commits_are_those_of_their_files(
    policy: str, store_and_root: tuple[Store, str], tmp_path: Path
) -> None:
    """Clients read a file by the size that the catalog returns; the clock of the store differs.

    Object stores do not return the time of an object with its creation: then the catalog has the time of the commit.
    """
    store, root = store_and_root
    is_known = store.write_if_absent(f"{root}/one", b"") is not None

    def clock() -> int:
        return 4_000_000_000_000

    catalog = SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=root, now_ms=clock)
    client = DeltaClient(catalog, stores=Stores({scheme_of(root): store}), now_ms=clock)
    table = create_table(client, identifier=NAME, schema=SCHEMA)
    log, table_id = f"{table.location}/_delta_log", table.table_id
    set_commit_policy(table, CommitPolicy.parse(policy))
    append(client, 1)
    for commit in catalog.coordinator.commit_records(table_id, start=0, end=1):
        place = f"{log}/_staged_commits" if commit.version and policy == "staged" else log
        file = store.stat(f"{place}/{commit.file_name}")
        time = file.modification_time if is_known else commit.in_commit_timestamp
        assert (commit.file_size, commit.file_modification_time) == (file.size, time)
    client.close()


@pytest.mark.requirements("CM-C3", "CM-C5", "CM-P1", "CM-P2", "CM-P3", "LOG-5")
@pytest.mark.parametrize("policy", ["inline", "auto:100", "put_if_absent"])
def test_concurrent_writers_have_all_their_rows_read_once(
    policy: str, store_and_root: tuple[Store, str], tmp_path: Path
) -> None:
    store, root = store_and_root
    stores = Stores({scheme_of(root): store})
    settings = ClientSettings(retry_initial_delay=timedelta(seconds=0.001))

    def connect() -> DeltaClient:
        catalog = SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=root)
        return DeltaClient(catalog, stores=stores, settings=settings)

    clients = [connect() for _ in range(WRITERS)]
    create_table(clients[0], identifier=NAME, schema=SCHEMA)
    set_commit_policy(clients[0].table(NAME), CommitPolicy.parse(policy))

    def write(writer: int) -> None:
        for commit in range(COMMITS):
            append(clients[writer], writer * COMMITS + commit)

    with ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(write, range(WRITERS)))
    table = clients[0].table(NAME)
    everything = list(range(WRITERS * COMMITS))
    assert table.snapshot().version == len(everything)
    assert sorted(read_arrow(open_scan(table)).column("id").to_pylist()) == everything
    commits = list(table.commits(1, len(everything)))
    assert [commit.actions.adds.num_rows for commit in commits] == [1] * len(everything)
    assert checkpoint(table).version == len(everything)
    for client in clients:
        client.close()
    fresh = connect()
    assert fresh.table(NAME).snapshot().num_files == len(everything)
    fresh.close()
