"""Adopting tables of other writers: one commit, no data file touched, and each bad input refused with nothing changed."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from cm_delta_dagster import connect
from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import CatalogIdentity, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.client.warehouse import absolute_location, read_table_marker, write_warehouse_marker
from cm_delta_dagster.errors import (
    CatalogBehindStorageError,
    CatalogManagedAccessError,
    CmDeltaError,
    CorruptLogError,
    InvalidArgumentError,
    PurgeRefusedError,
    RecoveryError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
    WarehouseMismatchError,
)
from cm_delta_dagster.operations.doctor import doctor
from cm_delta_dagster.operations.onboarding.adopt import adopt
from cm_delta_dagster.operations.onboarding.adopt_plan import AdoptState, explain, plan_adopt
from cm_delta_dagster.operations.onboarding.release import plan_release, release
from cm_delta_dagster.operations.recovery.recover_warehouse import plan_warehouse_recovery, recover_warehouse
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.purge import plan_purge
from cm_delta_dagster.operations.tables.restore import restore
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.protocol.features.table_features import is_catalog_managed
from cm_delta_dagster.storage.stores import Stores
from tests.operations.onboarding.worlds import NAME, managed, objects, path_table, put_commit, put_file
from tests.support.foreign_log import lines, metadata, protocol
from tests.support.lake import DAY_MS, Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.mark.requirements("CM-2", "TF-11", "ICT-6")
def test_a_path_table_becomes_managed_by_one_commit_without_touching_files(lake: Lake) -> None:
    """Protocol heading "Catalog-managed tables"."""
    location = path_table(lake)
    before = objects(lake)
    path = open_path_table(lake.client.stores, location).snapshot()
    plan = plan_adopt(lake.client, location=location, identifier=NAME)
    assert objects(lake) == before, "the dry run"
    assert (plan.state, plan.version, plan.adopted_version, plan.num_files) == (AdoptState.PATH_TABLE, 1, 2, 2)
    assert set(plan.added_features) == {"catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"}
    assert "version 2 adds" in next(iter(explain(plan)))
    table = adopt(lake.client, location=location, identifier=NAME)
    snapshot = table.snapshot()
    assert is_catalog_managed(snapshot.protocol) and snapshot.version == 2
    assert snapshot.files.equals(path.files) and snapshot.metadata.id == path.metadata.id
    properties = snapshot.metadata.configuration
    assert properties["delta.inCommitTimestampEnablementVersion"] == "2"
    assert properties["delta.inCommitTimestampEnablementTimestamp"] == str(snapshot.timestamp_ms)
    changed = {name for name, data in objects(lake).items() if before.get(name) != data}
    assert {name.rpartition("/")[2] for name in changed} == {f"{2:020d}.json", "_cm_delta_table"}
    with pytest.raises(CatalogManagedAccessError):
        open_path_table(lake.client.stores, location).snapshot()
    entry = lake.client.registry.load_table(TableIdentifier.parse(NAME))
    assert (entry.location, entry.ratified.latest_version, entry.ratified.published_version) == (location, 2, 2)
    assert [found.summary.operation for found in lake.sql_catalog.feed.feed(after=0, limit=9)] == ["ADOPT TABLE"]


def test_an_adopted_table_is_written_read_and_checked_as_any_other(lake: Lake) -> None:
    location = path_table(lake)
    adopt(lake.client, location=location, identifier=NAME)
    table = lake.reopened().table(NAME)
    lake.append(table, partition_values={})
    for client in (lake.client, lake.reopened()):
        found = client.table(NAME)
        assert [found.snapshot(version=version).num_files for version in range(4)] == [1, 2, 2, 3]
        times = [entry.timestamp_ms for entry in found.commits(0, 3)]
        assert times == sorted(times)
        assert found.snapshot(timestamp_ms=times[1]).version == 1
    report = doctor(table)
    assert report.healthy, report.findings


def test_adopting_again_does_nothing_and_another_name_is_refused(lake: Lake) -> None:
    location = path_table(lake)
    table = adopt(lake.client, location=location, identifier=NAME)
    lake.append(table, partition_values={})
    lake.client.wait_for_background()
    before = objects(lake)
    again = adopt(lake.reopened(), location=f"{location}/", identifier=NAME)
    assert (again.table_id, again.snapshot().version) == (table.table_id, 3)
    assert plan_adopt(lake.client, location=location, identifier=NAME).state is AdoptState.ADOPTED
    with pytest.raises(TableAlreadyExistsError, match=r"main\.test\.adopted of this catalog"):
        adopt(lake.client, location=location, identifier="main.test.other")
    drop_table(lake.client, identifier=NAME)
    with pytest.raises(TableAlreadyExistsError, match="undrop"):
        adopt(lake.client, location=location, identifier=NAME)
    assert {name for name in objects(lake) if before.get(name) != objects(lake)[name]} <= {
        f"{location}/_delta_log/_cm_delta_table"
    }


def _no_table(lake: Lake) -> str:
    return "memory://lake/outside/absent"


def _taken_name(lake: Lake) -> str:
    lake.new_table("adopted")
    return path_table(lake)


def _inside_a_table(lake: Lake) -> str:
    return path_table(lake, root=lake.new_table("other").location)


def _above_a_table(lake: Lake) -> str:
    inner = path_table(lake, "t/inner")
    adopt(lake.client, location=inner, identifier="main.test.inner")
    return path_table(lake)


def _below_a_path_table(lake: Lake) -> str:
    return path_table(lake, root=f"{path_table(lake, 'outer')}/deep")


def _managed_elsewhere(lake: Lake) -> str:
    return path_table(lake, first=managed())


def _unknown_feature(lake: Lake) -> str:
    return path_table(lake, first=protocol("someNewFeature", reader=1))


def _damaged_commit(lake: Lake) -> str:
    location = path_table(lake)
    lake.memory.write(f"{location}/_delta_log/{1:020d}.json", b'{"add":{"path"')
    return location


def _empty_commit(lake: Lake) -> str:
    location = path_table(lake)
    lake.memory.write(f"{location}/_delta_log/{1:020d}.json", b"")
    return location


def _with_property(lake: Lake, **properties: str) -> str:
    location = path_table(lake)
    put_commit(lake, location, 2, metadata(**properties))
    return location


def _id_of_another_catalog(lake: Lake) -> str:
    return _with_property(lake, io__unitycatalog__tableId="11111111-2222-3333-4444-555555555555")


def _older_id_of_another_catalog(lake: Lake) -> str:
    return _with_property(lake, ucTableId="11111111-2222-3333-4444-555555555555")


def _commit_coordinator(lake: Lake) -> str:
    return _with_property(lake, **{"delta__coordinatedCommits__commitCoordinator-preview": "dynamodb"})


def _wrong_checksum(lake: Lake) -> str:
    location = path_table(lake)
    lake.memory.write(f"{location}/_delta_log/{1:020d}.crc", _CRC)
    return location


_CRC = (
    b'{"tableSizeBytes":1,"numFiles":7,"numMetadata":1,"numProtocol":1,'
    b'"metadata":{"id":"x","format":{"provider":"parquet","options":{}},"schemaString":"{}","partitionColumns":[],'
    b'"configuration":{}},"protocol":{"minReaderVersion":1,"minWriterVersion":2}}'
)


def _other_warehouse(lake: Lake) -> str:
    identity = CatalogIdentity(catalog_id="another", warehouse="memory://lake/theirs")
    write_warehouse_marker(lake.memory, "memory://lake/theirs", identity)
    return path_table(lake, "deep/t", root="memory://lake/theirs")


BAD = [
    (_no_table, TableNotFoundError, "neither a Delta table.*nor a directory with Parquet"),
    (_taken_name, TableAlreadyExistsError, "exists already"),
    (_inside_a_table, RecoveryError, "overlaps"),
    (_above_a_table, RecoveryError, "overlaps"),
    (_below_a_path_table, InvalidArgumentError, "below the Delta table memory://lake/outside/outer,"),
    (_managed_elsewhere, CatalogManagedAccessError, "Another catalog manages it"),
    (_unknown_feature, UnsupportedFeatureError, "someNewFeature"),
    (_damaged_commit, CorruptLogError, "1"),
    (_empty_commit, CorruptLogError, "is empty"),
    (_id_of_another_catalog, CatalogManagedAccessError, r"io\.unitycatalog\.tableId is '11111111"),
    (_older_id_of_another_catalog, CatalogManagedAccessError, "ucTableId"),
    (_commit_coordinator, CatalogManagedAccessError, "coordinatedCommits"),
    (_wrong_checksum, CorruptLogError, "checksum"),
    (_other_warehouse, WarehouseMismatchError, "another"),
]


@pytest.mark.parametrize(("prepare", "error", "text"), BAD, ids=[case[0].__name__.strip("_") for case in BAD])
def test_what_cannot_be_adopted_is_refused_and_nothing_changes(
    prepare: Callable[[Lake], str], error: type[CmDeltaError], text: str, lake: Lake
) -> None:
    location = prepare(lake)
    lake.client.wait_for_background()
    before, names = objects(lake), lake.client.registry.list_tables()
    for act in (plan_adopt, adopt):
        with pytest.raises(error, match=text):
            act(lake.client, location=location, identifier=NAME)
    assert objects(lake) == before and lake.client.registry.list_tables() == names


@pytest.mark.requirements("CM-C5")
def test_a_commit_of_another_writer_comes_first(lake: Lake) -> None:
    """Of two who create the file of a version one succeeds."""
    location = path_table(lake)

    def overtake(method: str, argument: object) -> None:
        if method == "write_if_absent" and str(argument).endswith(f"{2:020d}.json"):
            put_commit(lake, location, 2, put_file(lake, location, "c.parquet"))

    lake.store.fails = overtake
    table = adopt(lake.client, location=location, identifier=NAME)
    assert (table.snapshot().version, table.snapshot().num_files) == (3, 3)


def test_a_name_that_is_taken_meanwhile_leaves_a_table_that_another_name_completes(lake: Lake) -> None:
    location = path_table(lake)

    def take(method: str, argument: object) -> None:
        if method == "adopt_table":
            lake.catalog.fails = lambda *_: None
            lake.new_table("adopted")

    lake.catalog.fails = take
    with pytest.raises(TableAlreadyExistsError, match="under another name"):
        adopt(lake.client, location=location, identifier=NAME)
    assert plan_adopt(lake.client, location=location, identifier="main.test.free").state is AdoptState.UNFINISHED
    assert adopt(lake.client, location=location, identifier="main.test.free").snapshot().num_files == 2


@pytest.mark.parametrize("name", [NAME, "main.test.other"])
def test_an_adoption_that_another_client_completes_first(lake: Lake, name: str) -> None:
    """The other client finds the commit, registers the table under its name and commits to it."""
    location = path_table(lake)

    def complete(method: str, argument: object) -> None:
        if method == "adopt_table":
            lake.catalog.fails = lambda *_: None
            lake.append(adopt(lake.reopened(), location=location, identifier=name), partition_values={})

    lake.catalog.fails = complete
    if name == NAME:
        assert adopt(lake.client, location=location, identifier=NAME).snapshot().version == 3
    else:
        with pytest.raises(TableAlreadyExistsError, match=rf"it is the table {name} of this catalog"):
            adopt(lake.client, location=location, identifier=NAME)
    marker = read_table_marker(lake.memory, location)
    assert marker is not None and marker.name == name
    assert [str(found) for found in lake.client.registry.list_tables()] == [name]


def test_an_adoption_of_two_clients_under_one_name_succeeds_for_both(lake: Lake) -> None:
    """Databases report the entry of the other client as a name that is taken."""
    location = path_table(lake)

    def complete(method: str, argument: object) -> Exception | None:
        if method != "adopt_table":
            return None
        lake.catalog.fails = lambda *_: None
        adopt(lake.reopened(), location=location, identifier=NAME)
        return TableAlreadyExistsError(f"{NAME} exists already, for the test.")

    lake.catalog.fails = complete
    assert adopt(lake.client, location=location, identifier=NAME).snapshot().version == 2


def test_a_symbolic_link_does_not_hide_that_locations_overlap(tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    deltalake.write_deltalake(str(inner), pa.table({"id": [1]}))
    link = tmp_path / "link"
    link.symlink_to(outer)
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse") as lake:
        lake.onboarding.adopt(str(inner), "main.test.inner")
        deltalake.write_deltalake(str(outer), pa.table({"id": [1]}))
        before = sorted(outer.rglob("*"))
        for path in (outer, link):
            with pytest.raises(RecoveryError, match="overlaps"):
                lake.onboarding.adopt(str(path), "main.test.outer")
        assert sorted(outer.rglob("*")) == before and lake.tables() == ("main.test.inner",)


def test_a_table_that_is_registered_through_a_link_overlaps_its_real_path(tmp_path: Path) -> None:
    """Below the directory and at it; a table beside it does not overlap."""
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(real)
    deltalake.write_deltalake(str(real / "t"), pa.table({"id": [1]}))
    deltalake.write_deltalake(str(tmp_path / "real2"), pa.table({"id": [1]}))
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse") as lake:
        lake.onboarding.adopt(str(link / "t"), "main.test.t")
        deltalake.write_deltalake(str(real), pa.table({"id": [1]}))
        before = sorted(real.rglob("*"))
        for path, why in (
            (real / "t", "is main.test.t of this catalog"),
            (real, f"overlaps .* file://{link}/t of main"),
        ):
            with pytest.raises(RecoveryError, match=why):
                lake.onboarding.adopt(str(path), "main.test.other")
        with pytest.raises(InvalidArgumentError, match="cannot be exported"):
            lake.onboarding.export("main.test.t", str(real / "t"))
        assert sorted(real.rglob("*")) == before and lake.tables() == ("main.test.t",)
        lake.onboarding.adopt(str(tmp_path / "real2"), "main.test.beside")


def test_spellings_of_a_local_path_are_one_location(tmp_path: Path) -> None:
    expected = f"file://{tmp_path}/t"
    spellings = (f"{tmp_path}/t/", f"{tmp_path}/x/../t", f"file:{tmp_path}/t", f"file://{tmp_path}/x/..//t/")
    assert {absolute_location(text).rstrip("/") for text in spellings} == {expected}
    assert absolute_location("s3a://bucket/x/../t") == "s3://bucket/x/../t", "the name of an object"
    with pytest.raises(InvalidArgumentError, match="it is empty"):
        absolute_location(" ")


@pytest.mark.requirements("ICT-6")
def test_a_table_with_in_commit_timestamps_keeps_when_they_were_enabled(lake: Lake) -> None:
    first = protocol("inCommitTimestamp", "appendOnly", reader=1)
    location = "memory://lake/outside/timed"
    lake.clock.now += 1000
    enabled = metadata(delta__enableInCommitTimestamps="true")
    at = lake.clock.now
    lake.memory.write(
        f"{location}/_delta_log/{0:020d}.json",
        b'{"commitInfo":{"inCommitTimestamp":%d,"txnId":"x"}}\n' % at + lines(first, enabled),
    )
    snapshot = adopt(lake.client, location=location, identifier=NAME).snapshot()
    assert "delta.inCommitTimestampEnablementVersion" not in snapshot.metadata.configuration
    assert snapshot.timestamp_ms > at


@pytest.mark.requirements("CM-R5")
def test_files_of_a_writer_that_ignores_the_protocol_are_found_and_never_read(lake: Lake) -> None:
    location = path_table(lake)
    adopt(lake.client, location=location, identifier=NAME)
    put_commit(lake, location, 3, put_file(lake, location, "c.parquet"))
    table = lake.reopened().table(NAME)
    assert (table.snapshot().version, table.snapshot().num_files) == (2, 2)
    with pytest.raises(CatalogBehindStorageError, match=r"main\.test\.adopted"):
        lake.append(table, partition_values={})
    assert any(finding.version == 3 or "3" in finding.where for finding in doctor(table).findings)
    mode = lake.client.table(NAME).snapshot().commit_policy
    for act in (plan_release, release):
        with pytest.raises(CatalogBehindStorageError, match="version 3"):
            act(lake.reopened(), identifier=NAME)
    left = lake.reopened().table(NAME).snapshot()
    assert (left.version, left.commit_policy, left.num_files) == (2, mode, 2)


@pytest.mark.requirements("CM-R5")
def test_a_foreign_commit_does_not_become_one_by_a_change_of_the_commit_mode(lake: Lake) -> None:
    """A well-formed file that no client of the catalog committed."""
    location = path_table(lake)
    table = adopt(lake.client, location=location, identifier=NAME)
    data = lake.memory.read(f"{location}/_delta_log/{2:020d}.json").splitlines()[0]
    later = json.loads(data)
    later["commitInfo"] |= {"inCommitTimestamp": lake.clock() + 5000, "txnId": "another"}
    lake.memory.write(f"{location}/_delta_log/{3:020d}.json", json.dumps(later).encode() + b"\n")
    with pytest.raises(CatalogBehindStorageError):
        set_commit_policy(table, CommitPolicy(kind=CommitPolicyKind.PUT_IF_ABSENT))
    assert lake.reopened().table(NAME).snapshot().version == 2


def test_an_adopted_table_stays_external_after_the_catalog_is_lost(lake: Lake, tmp_path: Path) -> None:
    adopt(lake.client, location=path_table(lake, root="memory://lake/warehouse/mine"), identifier=NAME)
    lake.new_table("own")
    released = path_table(lake, "released", root="memory://lake/warehouse/mine")
    adopt(lake.client, location=released, identifier="main.test.released")
    release(lake.client, identifier="main.test.released")
    catalog = SqlCatalog(f"sqlite:///{tmp_path}/new.db", warehouse="memory://lake/warehouse", now_ms=lake.clock)
    client = DeltaClient(catalog, stores=Stores(stores={"memory": lake.store}), now_ms=lake.clock)
    plan = plan_warehouse_recovery(client, warehouse="memory://lake/warehouse")
    assert [str(table.identifier) for table in recover_warehouse(client, plan).tables] == ["main.test.own", NAME]
    assert {log.location: "released the table" in log.reason for log in plan.skipped} == {released: True}
    assert client.table(NAME).snapshot().num_files == 2
    for name in (NAME, "main.test.own"):
        drop_table(client, identifier=name)
    assert {str(table.identifier): table.is_external for table in client.registry.inactive_tables()} == {
        NAME: True,
        "main.test.own": False,
    }
    client.close()


@pytest.mark.requirements("RESTORE-3")
def test_an_adopted_table_keeps_its_id_if_an_older_version_is_restored(lake: Lake, tmp_path: Path) -> None:
    """A version before the adoption has no id, without which a lost catalog cannot be recovered."""
    table = adopt(lake.client, location=path_table(lake, root="memory://lake/warehouse/mine"), identifier=NAME)
    restore(table, version=0)
    assert table.snapshot().num_files == 1 and doctor(table).healthy
    lake.client.wait_for_background()
    catalog = SqlCatalog(f"sqlite:///{tmp_path}/new.db", warehouse="memory://lake/warehouse", now_ms=lake.clock)
    client = DeltaClient(catalog, stores=Stores(stores={"memory": lake.store}), now_ms=lake.clock)
    recover_warehouse(client, plan_warehouse_recovery(client, warehouse="memory://lake/warehouse"))
    assert (client.table(NAME).table_id, client.table(NAME).snapshot().version) == (table.table_id, 3)
    client.close()


def test_a_lost_catalog_is_recovered_if_newer_metadata_lack_the_id_of_a_table(lake: Lake, tmp_path: Path) -> None:
    """The first commit that a catalog ratified names the id; another writer has left it out of the metadata since."""
    table = adopt(lake.client, location=path_table(lake, root="memory://lake/warehouse/mine"), identifier=NAME)
    transaction = table.start_transaction(table.snapshot(), operation="SET TBLPROPERTIES")
    own = table.snapshot().metadata
    kept = {key: value for key, value in own.configuration.items() if key != "io.unitycatalog.tableId"}
    transaction.set_metadata(replace(own, configuration=kept))
    transaction.commit()
    lake.client.wait_for_background()
    catalog = SqlCatalog(f"sqlite:///{tmp_path}/new.db", warehouse="memory://lake/warehouse", now_ms=lake.clock)
    client = DeltaClient(catalog, stores=Stores(stores={"memory": lake.store}), now_ms=lake.clock)
    recover_warehouse(client, plan_warehouse_recovery(client, warehouse="memory://lake/warehouse"))
    assert (client.table(NAME).table_id, client.table(NAME).snapshot().version) == (table.table_id, 3)
    client.close()


def test_a_dropped_adopted_table_is_never_purged(lake: Lake) -> None:
    lake.allow(MaintenanceKind.TABLE_PURGE)
    location = path_table(lake, root="memory://lake/warehouse/mine")
    table = adopt(lake.client, location=location, identifier=NAME)
    drop_table(lake.client, identifier=NAME)
    lake.clock.now += 100 * DAY_MS
    assert plan_purge(lake.client, retention_ms=0).candidates == ()
    with pytest.raises(PurgeRefusedError, match="adopted"):
        lake.client.registry.begin_purge(table.table_id, min_age_ms=0)
