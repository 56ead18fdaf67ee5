"""VACUUM keeps what a log names in another way than the listing shows it, and deletes nothing outside of the table."""

import os
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError, PurgeRefusedError, RecoveryError, VacuumRefusedError
from cm_delta_dagster.operations.doctor import doctor
from cm_delta_dagster.operations.maintenance.vacuum import plan_vacuum, vacuum
from cm_delta_dagster.operations.onboarding.adopt import adopt
from cm_delta_dagster.operations.onboarding.release import plan_release
from cm_delta_dagster.operations.recovery.recover_warehouse import plan_warehouse_recovery, recover_warehouse
from cm_delta_dagster.operations.recovery.relocate import plan_relocation, relocate
from cm_delta_dagster.operations.tables.clone import CloneRequest, clone
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.orphan_files import find_orphan_files
from cm_delta_dagster.operations.tables.purge import plan_purge, purge
from cm_delta_dagster.operations.tables.replace_with_clone import replace_with_clone
from tests.support.creation import create_table
from tests.support.foreign_log import Action, add, lines, metadata, protocol
from tests.support.lake import SCHEMA, Lake
from tests.support.old_catalog import lose, reconnect

Spell = Callable[[Path, str], str]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path, warehouse=f"file://{tmp_path}/warehouse")
    lake.allow(MaintenanceKind.DATA_CLEANUP)
    lake.allow(MaintenanceKind.TABLE_PURGE)
    yield lake
    lake.close()


def put(path: Path, *, size: int = 10) -> Path:
    """A file that is older than any retention."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (1, 1))
    return path


def foreign(root: Path, *adds: Action) -> str:
    log = root / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_bytes(lines(protocol(reader=1, writer=2), metadata(), *adds))
    return str(root)


def adopted(lake: Lake, root: Path, name: str, *adds: Action) -> Table:
    return adopt(lake.client, location=foreign(root, *adds), identifier=f"main.test.{name}")


def link(at: Path, target: Path | str) -> Path:
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(target)
    return at


def encoded(text: str) -> str:
    return quote(text, safe="/=:")


SPELLINGS: dict[str, Spell] = {
    # The file is at <root>/<name>; each function returns what a shallow clone writes for it, and may make links beside the table.
    "path": lambda root, name: f"{root}/{name}",
    "uri": lambda root, name: f"file://{root}/{name}",
    "one slash": lambda root, name: f"file:{root}/{name}",
    "localhost": lambda root, name: f"file://localhost{root}/{name}",
    "upper-case scheme": lambda root, name: f"FILE://{root}/{name}",
    "repeated slashes": lambda root, name: f"file://{root.parent}//{root.name}///{name}",
    "dot segments": lambda root, name: f"file://{root}/./{name}",
    "needless escapes": lambda root, name: f"file://{root}/%{ord(name[0]):02x}{name[1:]}",
    "escapes in upper case": lambda root, name: f"file://{root}/{encoded(name)}",
    "escapes in lower case": lambda root, name: f"file://{root}/{encoded(name).lower()}",
    "escaped twice": lambda root, name: f"file://{root}/{encoded(encoded(name))}",
    "not escaped": lambda root, name: f"file://{root}/{name.replace(' ', '%20')}",
    "other case": lambda root, name: f"file://{root}/{name.upper()}",
    "other accents": lambda root, name: f"file://{root}/{encoded(unicodedata.normalize('NFD', name))}",
    "link above": lambda root, name: f"file://{link(root.parent / 'above', root.parent)}/{root.name}/{name}",
    "link to the table": lambda root, name: f"file://{link(root.parent / 'table', root)}/{name}",
    "link to a link": lambda root, name: f"{link(root.parent / 'second', link(root.parent / 'first', root))}/{name}",
    "relative link": lambda root, name: f"file://{link(root.parent / 'relative', root.name)}/{name}",
    "link to a directory in it": lambda root, name: (
        f"{link(root.parent / 'inner', (root / name).parent)}/{Path(name).name}"
    ),
    "link to the file": lambda root, name: f"file://{link(root.parent / 'links' / 'x.parquet', root / name)}",
    "links to both": lambda root, name: (
        f"{link(root.parent / 'both', link(root.parent / 'links' / 'y', root / name).parent)}/y"
    ),
    "a mount of another machine": lambda root, name: f"file:///mnt/of/another/machine/{name}",
    "another host": lambda root, name: f"file://nas01/export/orders/{name}",
    "a store of another engine": lambda root, name: f"dbfs:/mnt/orders/{name}",
    "a port": lambda root, name: f"hdfs://nn:8020/orders/{name}",
}


@pytest.mark.requirements("VAC-7")
def test_a_file_that_a_clone_names_in_any_spelling_is_kept(lake: Lake, tmp_path: Path) -> None:
    """What no log names is deleted, also beside such a file."""
    root = tmp_path / "vol" / "orders"
    names = {spelling: f"d=a b/{number:02d} é.parquet" for number, spelling in enumerate(SPELLINGS)}
    for name in names.values():
        put(root / name)
    put(root / "orphan.parquet")
    put(root / "d=a b" / "orphan é.parquet")
    orders = adopted(lake, root, "orders")
    adopted(lake, tmp_path / "clone", "clone", *(add(SPELLINGS[text](root, name)) for text, name in names.items()))
    assert plan_vacuum(orders).paths == ("d=a b/orphan é.parquet", "orphan.parquet")
    assert vacuum(orders).num_files == 2
    assert [text for text, name in names.items() if not (root / name).exists()] == []


@pytest.mark.requirements("VAC-7")
@pytest.mark.parametrize(
    ("of_table", "of_clone"), [("vol", "lake"), ("lake", "vol"), ("lake", "lake"), ("lake", "again")]
)
def test_the_catalog_knows_a_clone_that_names_its_source_through_a_link(
    lake: Lake, tmp_path: Path, of_table: str, of_clone: str
) -> None:
    """Vacuum keeps the file, and the source is not released. Also if the table itself was adopted through the link."""
    file = put(tmp_path / "vol" / "orders" / "part-0.parquet")
    for name in ("lake", "again"):
        link(tmp_path / name, tmp_path / "vol")
    foreign(tmp_path / "vol" / "orders")
    orders = adopt(lake.client, location=str(tmp_path / of_table / "orders"), identifier="main.test.orders")
    clone = adopted(lake, tmp_path / "clone", "clone", add(f"file://{tmp_path}/{of_clone}/orders/part-0.parquet"))
    assert [one.table_id for one in lake.client.registry.clones_of(orders.table_id)] == [clone.table_id]
    assert vacuum(orders).num_files == 0
    assert file.exists()
    with pytest.raises(RecoveryError, match=r"shallow clones main\.test\.clone"):
        plan_release(lake.client, identifier="main.test.orders")
    file.unlink()
    (finding,) = [found for found in doctor(clone).findings if "missing" in found.message]
    assert "files of main.test.orders" in finding.message


def test_a_clone_that_the_catalog_had_before_its_source_is_known_when_the_source_is_adopted(
    lake: Lake, tmp_path: Path
) -> None:
    """An adopted one, a managed clone of the path, a dropped one; and one that cannot be read, which refuses VACUUM."""
    root = tmp_path / "vol" / "orders"
    for name in ("a", "b", "c", "orphan"):
        put(root / f"{name}.parquet")
    link(tmp_path / "lake", tmp_path / "vol")
    adopted(lake, tmp_path / "clone", "clone", add(f"file://{tmp_path}/lake/orders/a.parquet"))
    adopted(lake, tmp_path / "dropped", "dropped", add(f"file://{root}/b.parquet"))
    drop_table(lake.client, identifier="main.test.dropped")
    adopted(lake, tmp_path / "other", "other", add("x.parquet"))
    foreign(root, add("c.parquet"))
    of_path = open_path_table(lake.client.stores, str(root))
    managed = clone(lake.client, of_path, identifier="main.test.managed", request=CloneRequest())
    create_table(lake.client, identifier="main.test.unrelated", schema=SCHEMA)
    orders = adopt(lake.client, location=str(root), identifier="main.test.orders")
    clones = lake.client.registry.clones_of(orders.table_id)
    assert {one.identifier.table for one in clones} == {"clone", "dropped", "managed"}
    assert managed.table_id in {one.table_id for one in clones}
    assert plan_vacuum(orders).paths == ("orphan.parquet",)


def test_a_clone_that_the_catalog_had_before_its_source_was_recovered_is_known(lake: Lake, tmp_path: Path) -> None:
    location = lake.new_table("orders").location
    lose(lake, tmp_path)
    file = put(Path(location.removeprefix("file://")) / "a.parquet")
    made = adopted(lake, tmp_path / "clone", "clone", add(f"file://{file}"))
    recover_warehouse(lake.client, plan_warehouse_recovery(lake.client, warehouse=f"file://{tmp_path}/warehouse"))
    orders = lake.client.table("main.test.orders")
    assert [one.table_id for one in lake.client.registry.clones_of(orders.table_id)] == [made.table_id]


def test_a_clone_that_names_files_at_the_new_location_of_its_source_is_known(lake: Lake, tmp_path: Path) -> None:
    location = lake.new_table("orders").location
    new = location.replace(f"{tmp_path}/warehouse", f"{tmp_path}/moved")
    made = adopted(lake, tmp_path / "clone", "clone", add(f"{new}/a.parquet"))
    lake.client.close()
    (tmp_path / "warehouse").rename(tmp_path / "moved")
    old, moved = f"file://{tmp_path}/warehouse", f"file://{tmp_path}/moved"
    reconnect(lake, tmp_path, warehouse=moved)
    relocate(lake.client, plan_relocation(lake.client, moved_from=old, moved_to=moved))
    orders = lake.client.table("main.test.orders")
    assert orders.location == new
    assert [one.table_id for one in lake.client.registry.clones_of(orders.table_id)] == [made.table_id]


def test_vacuum_is_refused_if_a_table_could_not_be_read_when_the_source_was_adopted(lake: Lake, tmp_path: Path) -> None:
    file = put(tmp_path / "orders" / "a.parquet")
    adopted(lake, tmp_path / "clone", "clone", add(f"file://{file}"))
    (tmp_path / "clone" / "_delta_log").rename(tmp_path / "away")
    orders = adopted(lake, tmp_path / "orders", "orders")
    with pytest.raises(VacuumRefusedError, match=r"main\.test\.clone"):
        vacuum(orders)
    (tmp_path / "away").rename(tmp_path / "clone" / "_delta_log")
    assert vacuum(orders).num_files == 0 and file.exists()


@pytest.mark.requirements("VAC-7")
def test_a_table_that_names_files_of_another_through_links_below_itself_is_its_clone(
    lake: Lake, tmp_path: Path
) -> None:
    """By relative paths, through links to a directory, to a file, and to another link."""
    root, clone = tmp_path / "vol" / "b", tmp_path / "vol" / "a"
    for name in ("day=1/x", "y", "d/z", "orphan"):
        put(root / f"{name}.parquet")
    link(clone / "day=1", root / "day=1")
    link(clone / "y.parquet", root / "y.parquet")
    link(clone / "up", link(tmp_path / "s", root / "d"))
    source = adopted(lake, root, "b")
    table = adopted(lake, clone, "a", add("day=1/x.parquet"), add("y.parquet"), add("up/z.parquet"))
    assert [one.table_id for one in lake.client.registry.clones_of(source.table_id)] == [table.table_id]
    assert plan_vacuum(source).paths == ("orphan.parquet",)
    with pytest.raises(RecoveryError, match=r"shallow clones main\.test\.a"):
        plan_release(lake.client, identifier="main.test.b")


def test_a_delta_table_below_a_table_is_left_out_also_if_its_log_is_a_link(lake: Lake, tmp_path: Path) -> None:
    """The directory, each file in it, and a link to nothing, which may have been one."""
    root = tmp_path / "b"
    for name in ("directory", "files", "nothing"):
        put(root / name / "d=1" / "x.parquet")
        foreign(tmp_path / "logs" / name, add("d=1/x.parquet"))
    put(root / "orphan.parquet")
    link(root / "directory" / "_delta_log", tmp_path / "logs" / "directory" / "_delta_log")
    (log,) = (tmp_path / "logs" / "files" / "_delta_log").iterdir()
    link(root / "files" / "_delta_log" / log.name, log)
    link(root / "nothing" / "_delta_log", tmp_path / "nothing")
    assert plan_vacuum(adopted(lake, root, "b")).paths == ("orphan.parquet",)


def test_a_clone_of_an_export_is_known_to_the_table_that_was_exported(lake: Lake, tmp_path: Path) -> None:
    """Also if the export names the files through a link."""
    root = tmp_path / "vol" / "orders"
    put(root / "part-0.parquet")
    link(tmp_path / "lake", tmp_path / "vol")
    orders = adopted(lake, root, "orders")
    foreign(tmp_path / "export", add(f"file://{tmp_path}/lake/orders/part-0.parquet"))
    source = open_path_table(lake.client.stores, str(tmp_path / "export"))
    result = clone(lake.client, source, identifier="main.test.clone", request=CloneRequest())
    empty = create_table(lake.client, identifier="main.test.empty", schema=SCHEMA)
    replace_with_clone(empty, client=lake.client, source=source, request=CloneRequest())
    clones = {one.table_id for one in lake.client.registry.clones_of(orders.table_id)}
    assert clones == {result.table_id, empty.table_id}
    assert plan_vacuum(orders).paths == ()


def test_a_managed_table_is_not_purged_while_a_clone_names_its_files_through_a_link(lake: Lake, tmp_path: Path) -> None:
    managed = create_table(lake.client, identifier="main.test.managed", schema=SCHEMA)
    through = link(tmp_path / "link", managed.location.removeprefix("file://"))
    put(through / "part-0.parquet")
    adopted(lake, tmp_path / "clone", "clone", add(f"file://{through}/part-0.parquet"))
    drop_table(lake.client, identifier="main.test.managed")
    plan = plan_purge(lake.client, retention_ms=0)
    with pytest.raises(PurgeRefusedError, match=r"main\.test\.clone"):
        purge(lake.client, plan)
    assert (through / "part-0.parquet").exists()


@pytest.mark.requirements("VAC-7")
def test_a_table_that_names_its_own_files_through_links_keeps_them(lake: Lake, tmp_path: Path) -> None:
    """By absolute paths through a link outside of it, and by links below it to its own directories and files."""
    root = tmp_path / "vol" / "t"
    link(tmp_path / "lake", tmp_path / "vol")
    link(root / "d=2", root / "d=1")
    link(root / "chain", root / "again" / "second.parquet")
    link(root / "again" / "second.parquet", root / "e.parquet")
    for name in ("a", "d=1/b", "d=1/c", "e", "f", "d=1/orphan", "orphan"):
        put(root / f"{name}.parquet")
    own = [f"file://{tmp_path}/lake/t/a.parquet", "d=2/b.parquet", "d=1/c.parquet", "chain", f"{root}/f.parquet"]
    table = adopted(lake, root, "t", *map(add, own))
    assert vacuum(table).num_files == 2
    assert sorted(path.relative_to(root).as_posix() for path in root.rglob("*.parquet")) == [
        "a.parquet",
        "again/second.parquet",
        "d=1/b.parquet",
        "d=1/c.parquet",
        "e.parquet",
        "f.parquet",
    ]
    assert not [found for found in doctor(table).findings if "missing" in found.message]


@pytest.mark.requirements("VAC-7")
def test_links_below_a_table_are_not_followed_and_stay(lake: Lake, tmp_path: Path) -> None:
    """To directories and files elsewhere, to nothing, and to themselves."""
    root, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    theirs = [put(elsewhere / "theirs.parquet"), put(elsewhere / "d=1" / "theirs.parquet")]
    links = [
        link(root / "d=1", elsewhere / "d=1"),
        link(root / "one.parquet", theirs[0]),
        link(root / "broken.parquet", tmp_path / "nothing"),
        link(root / "loop.parquet", root / "loop.parquet"),
        link(root / "up", tmp_path),
    ]
    for each in links:
        os.utime(each, (1, 1), follow_symlinks=False)
    hard = put(root / "hard.parquet")
    os.link(hard, elsewhere / "hard.parquet")
    table = adopted(lake, root, "t")
    assert plan_vacuum(table).paths == ("hard.parquet",)
    assert vacuum(table).num_files == 1
    assert all(path.exists() for path in theirs) and all(each.is_symlink() for each in links)
    assert (elsewhere / "hard.parquet").read_bytes() == b"x" * 10, "another name of the file"


def test_a_directory_that_becomes_a_link_after_the_listing_is_left_out(lake: Lake, tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    put(root / "d=1" / "a.parquet")
    put(root / "d=2" / "a.parquet")
    theirs = put(elsewhere / "a.parquet")
    table = adopted(lake, root, "t")
    asked: list[int] = []

    def replace_directory(method: str, argument: object) -> None:
        asked.extend([1] if method == "get_ratified_commits" else [])
        if len(asked) == 4 and not (root / "d=1").is_symlink():  # Of the snapshot before the deletion.
            (root / "d=1").rename(tmp_path / "moved")
            link(root / "d=1", elsewhere)

    lake.catalog.fails = replace_directory
    assert vacuum(table).num_files == 1
    assert (root / "d=1").is_symlink() and theirs.exists() and not (root / "d=2" / "a.parquet").exists()


def test_nothing_is_deleted_if_a_clone_names_a_file_that_no_reader_accepts(lake: Lake, tmp_path: Path) -> None:
    """A ``..`` segment, and an escape that is incomplete: the clone is not adopted, or vacuum of the source is refused."""
    root = tmp_path / "vol" / "orders"
    file = put(root / "part-0.parquet")
    orders = adopted(lake, root, "orders")
    for number, path in enumerate((f"file://{root}/../orders/part-0.parquet", f"file://{root}/part-0%.parquet")):
        with pytest.raises(CmDeltaError):
            adopted(lake, tmp_path / f"clone{number}", f"clone{number}", add(f"{root}/part-0.parquet"), add(path))
            plan_vacuum(orders)
    assert file.exists()


def test_a_warehouse_that_is_named_through_a_link_has_no_orphans(lake: Lake, tmp_path: Path) -> None:
    create_table(lake.client, identifier="main.test.t", schema=SCHEMA)
    through = link(tmp_path / "link", tmp_path / "warehouse")
    put(through / "orphan" / "x.parquet")
    for warehouse in (through, tmp_path / "warehouse"):
        found = find_orphan_files(lake.client, warehouse=str(warehouse))
        assert [one.location for one in found] == [f"file://{warehouse}/orphan"]
