"""A client fails at every call of an adoption or a release: the table is always one of its path or a managed one, and complete.

A repetition by another client completes the work.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import CatalogManagedAccessError, CmDeltaError, NotCatalogManagedError, TableNotFoundError
from cm_delta_dagster.operations.doctor import doctor
from cm_delta_dagster.operations.onboarding.adopt import adopt
from cm_delta_dagster.operations.onboarding.release import release
from tests.faults.nth_call import Fault, Plan, World
from tests.support.actions import add_file
from tests.support.foreign_log import add, info, lines, metadata

pytestmark = pytest.mark.slow
NAME, LOCATION, MOST_CALLS = "main.test.t", "memory://lake/outside/t", 200
FAULTS = [(Fault.FAILS, True), (Fault.LOSES_THE_ANSWER, True), (Fault.LOSES_THE_ANSWER, False)]


@pytest.fixture(scope="module")
def path_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A table of another writer with two versions, and an empty catalog."""
    world = World(tmp_path_factory.mktemp("adopt") / "template")
    for name in ("a", "b", "c"):
        world.memory.write(f"{LOCATION}/{name}.parquet", b"0123456789")
    plain = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    for version, actions in enumerate(((plain, metadata(), add("a.parquet")), (add("b.parquet"),))):
        world.memory.write(f"{LOCATION}/_delta_log/{version:020d}.json", lines(info(), *actions))
        world.now += 1000
    with world.client() as client:
        assert client.registry.list_tables() == ()
    return world


@pytest.fixture(scope="module")
def managed_world(path_world: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The table under the catalog, with one more commit."""
    world = path_world.copy(tmp_path_factory.mktemp("release") / "template")
    with world.client() as client:
        table = adopt(client, location=LOCATION, identifier=NAME)
        transaction = table.start_transaction(table.snapshot(), operation="WRITE")
        transaction.add_files([add_file("c.parquet", size=10)])
        transaction.commit()
    return world


def by_path(client: DeltaClient) -> Snapshot | None:
    """The table of the path; None if a catalog manages it."""
    try:
        return open_path_table(client.stores, LOCATION).snapshot()
    except CatalogManagedAccessError:
        return None


def by_name(client: DeltaClient) -> Snapshot | None:
    """The table of the catalog; None if there is none, or if its log says that no catalog manages it."""
    try:
        return client.table(NAME).snapshot()
    except (TableNotFoundError, NotCatalogManagedError):
        return None


def worlds_after_faults(
    template: World, tmp_path: Path, act: Callable[[DeltaClient], object], fault: Fault, *, crash: bool
) -> list[tuple[World, str]]:
    """The world after a fault at each call, with the call."""
    found = []
    for at in range(1, MOST_CALLS):
        world, plan = template.copy(tmp_path / f"{at}"), Plan(at=at, fault=fault, is_crash=crash)
        with world.client(plan) as client:
            try:
                act(client)
            except CmDeltaError:
                pass
        if plan.hit is None:
            return found
        found.append((world, f"call {at}: {plan.hit}, {fault}"))
    raise AssertionError("the operation does not end")


def paths(snapshot: Snapshot) -> set[str]:
    return set(snapshot.files["path"].to_pylist())


@pytest.mark.requirements("CM-C5", "CM-C15")
@pytest.mark.parametrize(("fault", "crash"), FAULTS)
def test_an_adoption_that_fails_at_any_call_is_completed_by_a_repetition(
    fault: Fault, crash: bool, path_world: World, tmp_path: Path
) -> None:
    def act(client: DeltaClient) -> object:
        return adopt(client, location=LOCATION, identifier=NAME)

    after = worlds_after_faults(path_world, tmp_path, act, fault, crash=crash)
    assert len(after) > 10
    for world, where in after:
        with world.client() as client:
            path, name = by_path(client), by_name(client)
            assert path is None or name is None, where
            found = path or name
            assert found is None or paths(found) == {"a.parquet", "b.parquet"}, where
            act(client)
            table = client.table(NAME)
            assert (table.snapshot().version, paths(table.snapshot())) == (2, {"a.parquet", "b.parquet"}), where
            assert by_path(client) is None, where
            assert len(client.feed.feed(after=0, limit=9)) == 1, where
            report = doctor(table)
            assert report.healthy, (where, report.findings)


@pytest.mark.requirements("CM-C5", "CM-C15", "CM-P1")
@pytest.mark.parametrize(
    ("fault", "crash"), [FAULTS[0], *(pytest.param(*fault, marks=pytest.mark.exhaustive) for fault in FAULTS[1:])]
)
def test_a_release_that_fails_at_any_call_is_completed_by_a_repetition(
    fault: Fault, crash: bool, managed_world: World, tmp_path: Path
) -> None:
    def act(client: DeltaClient) -> object:
        return release(client, identifier=NAME)

    files = {"a.parquet", "b.parquet", "c.parquet"}
    after = worlds_after_faults(managed_world, tmp_path, act, fault, crash=crash)
    assert len(after) > 20
    for world, where in after:
        with world.client() as client:
            path, name = by_path(client), by_name(client)
            assert (path is None) is not (name is None), where
            found = path or name
            assert found is not None and paths(found) == files, where
            try:
                act(client)
            except TableNotFoundError:
                assert path is not None, where
            assert by_name(client) is None, where
            path = by_path(client)
            assert path is not None and paths(path) == files, where
            assert adopt(client, location=LOCATION, identifier=NAME).snapshot().version == path.version + 1, where
