"""Writers killed with SIGKILL at each call, and concurrent writers: each acknowledged commit exists once."""

import itertools
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.history import iterate_history
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from cm_delta_dagster.storage.stores import Stores
from tests.faults.crashing_writer import Place, Writer
from tests.support.covering import covering
from tests.support.creation import create_table

TABLE = "main.test.t"
SCHEMA = StructType(fields=(StructField(name="id", type=PrimitiveType(name="long")),))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def client_catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Both databases, regardless of the options of the run."""
    return f"sqlite:///{tmp_path}/catalog.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def client(client_catalog_url: str, tmp_path: Path) -> Iterator[DeltaClient]:
    client = DeltaClient(SqlCatalog(client_catalog_url, warehouse=f"file://{tmp_path}/warehouse"), stores=Stores())
    create_table(client, identifier=TABLE, schema=SCHEMA)
    yield client
    client.close()


@pytest.fixture
def start(client_catalog_url: str, tmp_path: Path) -> Callable[..., Writer]:
    """Starts a writer; arguments as for :class:`Writer`."""
    place = Place(url=client_catalog_url, warehouse=f"file://{tmp_path}/warehouse")
    return lambda table=TABLE, **how: Writer(place, table=table, directory=tmp_path, **how)


def check(client: DeltaClient, *, acknowledged: list[str], attempted: set[str]) -> None:
    """Check that versions are contiguous, times increase, and each acknowledged file exists once and no unknown file."""
    table = client.table(TABLE)
    snapshot = table.snapshot()
    entries = list(iterate_history(table))
    assert [entry.version for entry in entries] == list(range(snapshot.version, -1, -1))
    times = [entry.timestamp_ms or 0 for entry in entries]
    assert times == sorted(set(times), reverse=True)
    counts = Counter(snapshot.files.column("path").to_pylist())
    assert not [path for path in acknowledged if counts[path] != 1]
    assert set(counts) <= attempted
    assert max(counts.values(), default=1) == 1
    assert snapshot.num_files == snapshot.version


def check_published(client: DeltaClient) -> None:
    """Publish, and check that the log holds the ratified commits."""
    table = client.table(TABLE)
    publish(table)
    snapshot = table.snapshot()
    log = f"{table.location}/_delta_log"
    for commit in client.coordinator.commit_records(table.table_id, start=1, end=snapshot.version):
        data = table.store.read(f"{log}/{commit.version:020d}.json")
        assert len(data) == commit.file_size
        assert f'"txnId":"{commit.txn_id}"'.encode() in data
        if commit.mode is CommitMode.STAGED:
            assert data == table.store.read(f"{log}/_staged_commits/{commit.file_name}")


KILLED = (
    ("sqlite", CommitMode.STAGED, "before"),
    ("sqlite", CommitMode.INLINE, "after"),
    ("postgres", CommitMode.STAGED, "after"),
    ("postgres", CommitMode.PUT_IF_ABSENT, "before"),
)
"""Each mode, and each database before and after a call; the other combinations are exhaustive."""


@pytest.mark.requirements("CM-C1", "CM-C5", "CM-C6", "CM-C15", "CM-W5", "CM-P5")
@pytest.mark.parametrize(
    ("client_catalog_url", "mode", "when"),
    [
        pytest.param(
            *combination,
            marks=[
                *([pytest.mark.postgres] if combination[0] == "postgres" else []),
                *([pytest.mark.exhaustive] if combination not in KILLED else []),
            ],
        )
        for combination in itertools.product(["sqlite", "postgres"], CommitMode, ["before", "after"])
    ],
    indirect=["client_catalog_url"],
)
def test_a_writer_killed_at_any_call_loses_nothing_acknowledged(
    client: DeltaClient, start: Callable[..., Writer], when: str, mode: CommitMode
) -> None:
    """Two commits, killed at each of their calls."""
    set_commit_policy(client.table(TABLE), CommitPolicy.parse(mode.value))
    acknowledged: list[str] = []
    attempted: set[str] = set()
    for die_at in range(1, 40):
        tag = f"{when}{die_at}"
        writer = start(commits=2, tag=tag, die_at=die_at, when=when)
        ended = writer.wait()
        attempted |= {f"{tag}-{number}.parquet" for number in range(2)}
        acknowledged += writer.acknowledged()
        assert ended in (0, -signal.SIGKILL)
        check(client, acknowledged=acknowledged, attempted=attempted)
        if ended == 0:
            break
        if die_at % 3 == 0:  # Otherwise a writer would have to publish more commits than it makes calls.
            check_published(client)
    assert ended == 0
    assert die_at > 4
    check_published(client)


@pytest.mark.requirements("OCC-3", "CM-C3", "CM-C15")
def test_concurrent_processes_lose_nothing(client: DeltaClient, start: Callable[..., Writer]) -> None:
    """Four processes with ten commits each, and a process that is killed."""
    writers = [start(commits=10, tag=f"w{number}") for number in range(4)]
    victim = start(commits=1000, tag="victim")
    assert [writer.wait() for writer in writers] == [0] * 4
    victim.kill()
    acknowledged = [path for writer in (*writers, victim) for path in writer.acknowledged()]
    attempted = {f"w{number}-{index}.parquet" for number in range(4) for index in range(10)}
    attempted |= {f"victim-{index}.parquet" for index in range(1000)}
    assert len(acknowledged) >= 40
    check(client, acknowledged=acknowledged, attempted=attempted)
    check_published(client)


@pytest.mark.requirements("CM-D1", "CM-D4", "CM-D5")
@pytest.mark.parametrize(
    ("client_catalog_url", "when"),
    covering(["sqlite", "postgres"], ["before", "after"]),
    indirect=["client_catalog_url"],
)
def test_a_creation_killed_at_any_call_is_complete_or_absent(
    client: DeltaClient, start: Callable[..., Writer], when: str
) -> None:
    """The first write of a table, killed at each of its calls and then repeated."""
    for die_at in range(1, 20):
        name = f"main.created.t{die_at}"
        writer = start(name, commits=1, tag="a", die_at=die_at, when=when)
        ended = writer.wait()
        assert ended in (0, -signal.SIGKILL)
        found = [str(identifier) for identifier in client.registry.list_tables("main.created")]
        if writer.acknowledged():
            assert name in found
        if name in found:
            snapshot = client.table(name).snapshot()
            assert (snapshot.version, snapshot.files.column("path").to_pylist()) == (0, ["a-0.parquet"])
        if ended == 0:
            break
        assert start(name, commits=1, tag="b").wait() == 0
        files = client.table(name).snapshot().files.column("path").to_pylist()
        assert files == (["a-0.parquet", "b-0.parquet"] if name in found else ["b-0.parquet"])
    assert ended == 0
    assert die_at > 3


@pytest.mark.requirements("CM-D3", "CM-C15")
def test_processes_that_create_the_same_table_all_write_to_it(
    client: DeltaClient, start: Callable[..., Writer], tmp_path: Path
) -> None:
    name = "main.created.t"
    writers = [start(name, commits=2, tag=f"w{number}") for number in range(3)]
    assert [writer.wait() for writer in writers] == [0] * 3
    snapshot = client.table(name).snapshot()
    assert snapshot.version == 5
    assert sorted(snapshot.files.column("path").to_pylist()) == [
        f"w{n}-{i}.parquet" for n in range(3) for i in range(2)
    ]
    (location,) = (tmp_path / "warehouse" / "main" / "created").iterdir()
    assert snapshot.location == f"file://{location}"
