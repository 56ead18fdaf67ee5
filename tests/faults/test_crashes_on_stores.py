"""Writers whose warehouse is in an object store, killed with SIGKILL at each call: each acknowledged commit exists once."""

import datetime
import random
import signal
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from tests.faults.crashing_writer import Place, Writer
from tests.faults.test_crashes import SCHEMA, TABLE, check, check_published
from tests.support.creation import create_table
from tests.support.object_stores import make_bucket, object_store

MODES = (CommitMode.STAGED, CommitMode.INLINE, CommitMode.PUT_IF_ABSENT)
ENOUGH = 30
OTHERS = ("azure", "gcs", "gofakes3")
LOCATIONS = {"s3": "s3://{}/w", "gofakes3": "s3://{}/w", "azure": "az://{}/w", "gcs": "gs://{}/w"}


@pytest.fixture
def kind() -> str:
    """Which store; a test can have it as a parameter."""
    return "s3"


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    bucket = f"b-{uuid.uuid4().hex}"
    store = object_store(kind, request)
    make_bucket(store, bucket)
    url = f"sqlite:///{tmp_path}/catalog.db"
    return Place(url=url, warehouse=LOCATIONS[kind].format(bucket), options=store.options)


@pytest.fixture
def client(place: Place) -> Iterator[DeltaClient]:
    client = DeltaClient(SqlCatalog(place.url, warehouse=place.warehouse), stores=place.stores())
    create_table(client, identifier=TABLE, schema=SCHEMA)
    yield client
    client.close()


def kill_at(client: DeltaClient, place: Place, directory: Path, mode: CommitMode, calls: Sequence[int]) -> int:
    """Kill a writer at each of the calls, before and after in turn; return the first call that no writer reached."""
    set_commit_policy(client.table(TABLE), CommitPolicy.parse(mode.value))
    acknowledged: list[str] = []
    attempted: set[str] = set()
    for die_at in calls:
        when = ("before", "after")[die_at % 2]
        tag = f"{mode.value}{die_at}"
        writer = Writer(place, table=TABLE, directory=directory, commits=1, tag=tag, die_at=die_at, when=when)
        ended = writer.wait()
        attempted.add(f"{tag}-0.parquet")
        acknowledged += writer.acknowledged()
        assert ended in (0, -signal.SIGKILL)
        check(client, acknowledged=acknowledged, attempted=attempted)
        check_published(client)  # Also publishes all, so that the next writer makes the same calls.
        if ended == 0:
            break
    return die_at


@pytest.mark.requirements("CM-C1", "CM-C5", "CM-C6", "CM-C15", "CM-W5", "CM-P5")
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_writer_killed_at_any_call_loses_nothing_in_s3(
    client: DeltaClient, place: Place, tmp_path: Path, mode: CommitMode
) -> None:
    assert 4 <= kill_at(client, place, tmp_path, mode, range(1, ENOUGH)) < ENOUGH - 1


@pytest.mark.requirements("CM-C1", "CM-C5", "CM-C6", "CM-C15", "CM-W5", "CM-P5")
@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        pytest.param(OTHERS[0], CommitMode.PUT_IF_ABSENT, marks=pytest.mark.exhaustive),
        *(pytest.param(kind, CommitMode.PUT_IF_ABSENT, marks=pytest.mark.exhaustive) for kind in OTHERS[1:]),
        *(
            pytest.param(kind, mode, marks=pytest.mark.exhaustive)
            for kind in OTHERS
            for mode in (CommitMode.STAGED, CommitMode.INLINE)
        ),
    ],
)
def test_a_writer_killed_at_any_call_loses_nothing_in_other_stores(
    client: DeltaClient, place: Place, tmp_path: Path, mode: CommitMode
) -> None:
    assert 4 <= kill_at(client, place, tmp_path, mode, range(1, ENOUGH)) < ENOUGH - 1


@pytest.mark.requirements("CM-C1", "CM-C15")
def test_a_writer_killed_at_some_call_loses_nothing_in_s3(client: DeltaClient, place: Place, tmp_path: Path) -> None:
    """Mode and call chosen by the day; the slow test tries each."""
    chance = random.Random(str(datetime.date.today()))
    kill_at(client, place, tmp_path, chance.choice(MODES), [chance.randrange(1, 5)])
