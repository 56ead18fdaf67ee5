"""A client fails at every call of the adoption of a folder of Parquet files, or of an export; a repetition completes the work.

The folder is one of plain files or a managed table, and its data files stay as they are. An export is a table of some exported
version, or there is none.
"""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import TableNotFoundError
from cm_delta_dagster.operations.doctor import doctor
from cm_delta_dagster.operations.onboarding.adopt import adopt
from cm_delta_dagster.operations.onboarding.export import export
from cm_delta_dagster.operations.onboarding.parquet_folder import FolderOptions
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from tests.faults.nth_call import Fault, World
from tests.faults.test_onboarding_crashes import FAULTS, LOCATION, NAME, by_name, by_path, paths, worlds_after_faults
from tests.support.actions import add_file

pytestmark = pytest.mark.slow
BY_DAY = FolderOptions(partition_by={"day": "date"})
TARGET = "memory://lake/exports/t"
FILES = {"day=2026-03-09/a.parquet": [1, 2], "day=2026-03-10/b.parquet": [3], "day=2026-03-10/c.parquet": [4, 5]}


@pytest.fixture(scope="module")
def folder_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A folder with Hive partitions, and an empty catalog."""
    world = World(tmp_path_factory.mktemp("folder") / "template")
    for path, ids in FILES.items():
        buffer = io.BytesIO()
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), buffer)
        world.memory.write(f"{LOCATION}/{path}", buffer.getvalue())
    with world.client() as client:
        assert client.registry.list_tables() == ()
    return world


@pytest.fixture(scope="module")
def exported_world(folder_world: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The folder under the catalog and its export; since then one file has gone and another one has come."""
    world = folder_world.copy(tmp_path_factory.mktemp("export") / "template")
    with world.client() as client:
        table = adopt(client, location=LOCATION, identifier=NAME, folder=BY_DAY)
        assert export(client, table, target=TARGET).target_version == 0
        snapshot = table.snapshot()
        transaction = table.start_transaction(snapshot, operation="WRITE")
        transaction.remove_files(removes_of(snapshot.files.slice(0, 1), data_change=True))
        transaction.add_files([add_file("day=2026-03-11/d.parquet", size=10, partition_values={"day": "2026-03-11"})])
        transaction.commit()
    return world


def data_files(world: World) -> dict[str, bytes]:
    """The bytes of the data files of the table."""
    return {
        path: world.memory.read(f"{LOCATION}/{path}")
        for path in world.objects(LOCATION)
        if not path.startswith("_delta_log/")
    }


def exported(client: DeltaClient) -> Snapshot | None:
    """The latest version of the export; None if there is none."""
    try:
        return open_path_table(client.stores, TARGET).snapshot()
    except TableNotFoundError:
        return None


def live_files(client: DeltaClient) -> set[str]:
    """The files that an export of the latest version names."""
    return {f"{LOCATION}/{path}" for path in paths(client.table(NAME).snapshot())}


def export_it(client: DeltaClient) -> object:
    return export(client, client.table(NAME), target=TARGET)


@pytest.mark.requirements("CM-C5", "CM-C15")
@pytest.mark.parametrize(
    ("fault", "crash"), [FAULTS[0], *(pytest.param(*fault, marks=pytest.mark.exhaustive) for fault in FAULTS[1:])]
)
def test_an_adoption_of_parquet_files_that_fails_at_any_call_is_completed(
    fault: Fault, crash: bool, folder_world: World, tmp_path: Path
) -> None:
    def act(client: DeltaClient) -> object:
        return adopt(client, location=LOCATION, identifier=NAME, folder=BY_DAY)

    before = data_files(folder_world)
    after = worlds_after_faults(folder_world, tmp_path, act, fault, crash=crash)
    assert len(after) > 10
    for world, where in after:
        assert data_files(world) == before, where
        with world.client() as client:
            named = by_name(client)
            assert named is None or paths(named) == set(FILES), where
            if world.objects(f"{LOCATION}/_delta_log"):
                assert by_path(client) is None, where
            else:
                assert named is None, where
            act(client)
            table = client.table(NAME)
            rows = read_arrow(open_scan(table)).sort_by("id")
            assert rows["id"].to_pylist() == [1, 2, 3, 4, 5], where
            assert [day.day for day in rows["day"].to_pylist()] == [9, 9, 10, 10, 10], where
            assert table.snapshot().version == 0 and by_path(client) is None, where
            assert len(client.feed.feed(after=0, limit=9)) == 1, where
            report = doctor(table)
            assert report.healthy, (where, report.findings)
        assert data_files(world) == before, where


@pytest.mark.requirements("CM-C5")
@pytest.mark.parametrize(("fault", "crash"), FAULTS)
def test_a_first_export_that_fails_at_any_call_is_completed(
    fault: Fault, crash: bool, exported_world: World, tmp_path: Path
) -> None:
    world = exported_world.copy(tmp_path / "template")
    for path in world.objects(TARGET):
        world.memory.delete(f"{TARGET}/{path}")
    check_exports(world, tmp_path, fault, crash=crash, versions=(None, 0))


@pytest.mark.requirements("CM-C5")
@pytest.mark.parametrize(("fault", "crash"), FAULTS)
def test_a_repeated_export_that_fails_at_any_call_is_completed(
    fault: Fault, crash: bool, exported_world: World, tmp_path: Path
) -> None:
    check_exports(exported_world, tmp_path, fault, crash=crash, versions=(0, 1))


def check_exports(
    template: World, tmp_path: Path, fault: Fault, *, crash: bool, versions: tuple[int | None, int]
) -> None:
    """After a fault the export has the first or the second of ``versions``, each complete; a repetition leaves the second."""
    before, (former, latest) = data_files(template), versions
    with template.client() as client:
        wanted = {former: set() if former is None else paths(found(exported(client))), latest: live_files(client)}
    assert wanted[former] != wanted[latest]
    after = worlds_after_faults(template, tmp_path, export_it, fault, crash=crash)
    assert len(after) > 3
    seen = set()
    for world, where in after:
        with world.client() as client:
            snapshot = exported(client)
            version = None if snapshot is None else snapshot.version
            seen.add(version)
            assert (set() if snapshot is None else paths(snapshot)) == wanted[version], where
            export_it(client)
            repeated = found(exported(client))
            assert (repeated.version, paths(repeated)) == (latest, wanted[latest]), where
            export_it(client)
            assert found(exported(client)).version == latest, where
            assert "catalogManaged" not in str(repeated.protocol), where
        assert data_files(world) == before, where
    assert former in seen
    assert fault is Fault.FAILS or latest in seen


def found(snapshot: Snapshot | None) -> Snapshot:
    assert snapshot is not None
    return snapshot
