"""The n-th call to storage or catalog fails, for each n of each operation: after recovery the table is consistent.

Recovery: a client with empty caches, publication, the doctor, and a repetition of the operation.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy, CommitPolicyRule
from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError, CommitStateUnknownError, TableNotFoundError
from cm_delta_dagster.operations.doctor import doctor, repair_table
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_log import clean_log
from cm_delta_dagster.operations.maintenance.clean_staged_commits import clean_staged_commits
from cm_delta_dagster.operations.maintenance.compact_log import compact_log
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.maintenance.vacuum import vacuum
from cm_delta_dagster.operations.tables.clone import CloneMode, CloneRequest, clone
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.purge import plan_purge, purge
from cm_delta_dagster.operations.tables.rename import rename_table
from cm_delta_dagster.operations.tables.undrop import undrop_table
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from tests.faults.nth_call import Fault, Plan, World
from tests.support.actions import add_file
from tests.support.creation import create_table

pytestmark = pytest.mark.slow
TABLE, DROPPED, RENAMED, MADE = "main.test.t", "main.test.dropped", "main.test.renamed", "main.test.made"
SCHEMA = StructType((StructField("id", PrimitiveType("long")),))
NEW = "new.parquet"
FIRST = "file-0.parquet"
MOST_CALLS = 200

Contents = Mapping[int, frozenset[str]]
"""Live files by version."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation, the test whether it was done, and the files of the table that it may delete."""

    act: Callable[[DeltaClient], object]
    done: Callable[[DeltaClient], bool]
    deletes: frozenset[str] = field(default=frozenset())
    may_forget_to: int = 0


def write(table: Table, world: World, path: str, remove: str | None = None) -> None:
    world.memory.write(f"{table.location}/{path}", b"x" * 100)
    commit(table, path, remove)


def commit(table: Table, path: str, remove: str | None = None) -> None:
    snapshot = table.snapshot()
    transaction = table.start_transaction(snapshot, operation="WRITE")
    add = add_file(path, size=100, stats='{"numRecords":1}')
    transaction.add_files([add])
    if remove is not None:
        files = snapshot.files.filter([value == remove for value in snapshot.files["path"].to_pylist()])
        transaction.remove_files(removes_of(files, data_change=True))
    transaction.commit()


@pytest.fixture(scope="module")
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A table with expired log files, a checkpoint and two pending commits; a dropped table; an abandoned creation.

    The commits are not published. In put-if-absent mode the last one is not reported to the catalog.
    """
    world = World(tmp_path_factory.mktemp("nth") / "template")
    mode: CommitMode = request.param
    with world.client() as client:
        for kind in MaintenanceKind:
            client.catalog.maintenance_policies.set_maintenance_rule(
                MaintenanceRule(scope="main", kind=kind, allowed=True)
            )
        client.catalog.commit_policies.set_commit_policy(
            CommitPolicyRule(scope="main", policy=CommitPolicy.parse(mode.value))
        )
        table = create_table(client, identifier=TABLE, schema=SCHEMA)
        for number in range(3):
            write(table, world, f"file-{number}.parquet")
        write(table, world, "file-3.parquet", remove=FIRST)
        checkpoint(table)
        world.memory.write(f"{table.location}/orphan.parquet", b"x")
        dropped = create_table(client, identifier=DROPPED, schema=SCHEMA)
        write(dropped, world, "dropped.parquet")
        drop_table(client, identifier=DROPPED)
        abandoned = client.registry.create_staging_table(TableIdentifier.parse("main.test.abandoned"))
        world.memory.write(f"{abandoned.location}/part.parquet", b"x")
        client.wait_for_background()
        world.pass_days(40)
        write(table, world, "file-4.parquet")
        if mode is CommitMode.PUT_IF_ABSENT:
            write(table, world, "late-6.parquet")
        table_id = table.table_id
    if mode is CommitMode.PUT_IF_ABSENT:
        with world.client(Plan(broken=("record_published", table_id))) as client:
            write(client.table(TABLE), world, "late-7.parquet")
        with world.client() as client:
            assert client.coordinator.get_ratified_commits(table_id).latest_version == 6
    else:
        for version in (6, 7):
            with world.client(Plan(broken=("write_if_absent", f"_delta_log/{6:020d}.json"))) as client:
                table = client.table(TABLE)
                write(table, world, f"late-{version}.parquet")
                assert table.snapshot().published_version == 5
    world.pass_days(2)
    return world


def act_on(verb: Callable[[Table], object]) -> Callable[[DeltaClient], object]:
    return lambda client: verb(client.table(TABLE))


def holds(client: DeltaClient, name: str) -> bool:
    try:
        return client.table(name).snapshot().version >= 0
    except TableNotFoundError:
        return False


def names_in_log(client: DeltaClient) -> set[str]:
    table = client.table(TABLE)
    return {status.name for status in table.store.list_from(f"{table.location}/_delta_log")}


def live(client: DeltaClient) -> set[str]:
    return set(client.table(TABLE).snapshot().files["path"].to_pylist())


def make(client: DeltaClient) -> None:
    if not holds(client, MADE):
        create_table(client, identifier=MADE, schema=SCHEMA)


def drop(client: DeltaClient) -> None:
    if holds(client, TABLE):
        drop_table(client, identifier=TABLE)


def rename(client: DeltaClient) -> None:
    if holds(client, TABLE):
        rename_table(client, identifier=TABLE, to=RENAMED)


def clone_in(mode: CloneMode) -> Callable[[DeltaClient], None]:
    def act(client: DeltaClient) -> None:
        if not holds(client, MADE):
            clone(client, client.table(TABLE), identifier=MADE, request=CloneRequest(mode=mode))

    return act


def undrop(client: DeltaClient) -> None:
    if not holds(client, DROPPED):
        undrop_table(client, identifier=DROPPED)


def append(client: DeltaClient) -> None:
    if NEW not in live(client):
        commit(client.table(TABLE), NEW)


def replace(client: DeltaClient) -> None:
    if NEW not in live(client):
        commit(client.table(TABLE), NEW, remove="file-1.parquet")


OPERATIONS = {
    "create": Operation(act=make, done=lambda client: holds(client, MADE)),
    "clone": Operation(act=clone_in(CloneMode.SHALLOW), done=lambda client: holds(client, MADE)),
    "deep clone": Operation(act=clone_in(CloneMode.DEEP), done=lambda client: holds(client, MADE)),
    "append": Operation(act=append, done=lambda client: NEW in live(client)),
    "replace": Operation(act=replace, done=lambda client: NEW in live(client) and "file-1.parquet" not in live(client)),
    "publish": Operation(
        act=act_on(publish), done=lambda client: client.table(TABLE).snapshot().published_version == 7
    ),
    "checkpoint": Operation(
        act=act_on(checkpoint),
        done=lambda client: any(name.startswith(f"{7:020d}.checkpoint") for name in names_in_log(client)),
    ),
    "compact_log": Operation(
        act=act_on(lambda table: compact_log(table, start=1, end=3)),
        done=lambda client: f"{1:020d}.{3:020d}.compacted.json" in names_in_log(client),
    ),
    "clean_log": Operation(
        act=act_on(clean_log), done=lambda client: f"{3:020d}.json" not in names_in_log(client), may_forget_to=4
    ),
    "clean_staged_commits": Operation(
        act=act_on(clean_staged_commits),
        done=lambda client: (
            not [
                status
                for status in client.table(TABLE).store.list_from(
                    f"{client.table(TABLE).location}/_delta_log/_staged_commits"
                )
                if status.name < f"{6:020d}"
            ]
        ),
    ),
    "vacuum": Operation(
        act=act_on(vacuum),
        done=lambda client: (
            "orphan.parquet"
            not in {status.name for status in client.table(TABLE).store.list_from(client.table(TABLE).location)}
        ),
        deletes=frozenset({"orphan.parquet", FIRST}),
    ),
    "drop": Operation(act=drop, done=lambda client: not holds(client, TABLE)),
    "undrop": Operation(act=undrop, done=lambda client: holds(client, DROPPED)),
    "rename": Operation(act=rename, done=lambda client: holds(client, RENAMED) and not holds(client, TABLE)),
    "purge": Operation(
        act=lambda client: purge(client, plan_purge(client)),
        done=lambda client: not client.registry.inactive_tables(),
    ),
}


def contents(client: DeltaClient, name: str) -> Contents:
    """Return the live files of each readable version."""
    table = client.table(name)
    first, last = (table.commit_log().earliest_readable, table.commit_log().latest)
    return {
        version: frozenset(table.snapshot(version=version).files["path"].to_pylist())
        for version in range(first, last + 1)
    }


ALWAYS = {
    CommitMode.STAGED: ("append",),
    CommitMode.INLINE: ("publish",),
    CommitMode.PUT_IF_ABSENT: (),
}
"""Operations that are tested in each run; ``-m exhaustive`` tests all."""


@pytest.mark.requirements("CM-C5", "CM-C6", "CM-C15", "CM-W4", "CM-W5", "CM-P5", "CM-D3", "CM-D5", "CM-D7", "CLEAN-11")
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize(
    ("name", "template"),
    [
        pytest.param(name, mode, marks=() if name in always else pytest.mark.exhaustive, id=f"{name}-{mode}")
        for mode, always in ALWAYS.items()
        for name in OPERATIONS
    ],
    indirect=["template"],
)
def test_after_recovery_from_a_fault_at_any_call_the_table_is_right(
    template: World, tmp_path: Path, name: str, fault: Fault
) -> None:
    operation = OPERATIONS[name]
    with template.client() as client:
        before = contents(client, TABLE)
        location = client.table(TABLE).location
    data = {path for path in template.objects(location) if not path.startswith("_delta_log/")}
    for at in range(1, MOST_CALLS):
        world = template.copy(tmp_path / str(at))
        world.memory.write(f"{location}/{NEW}", b"x" * 100)
        plan = Plan(at=at, fault=fault)
        error: CmDeltaError | None = None
        with world.client(plan) as client:
            try:
                operation.act(client)
            except CmDeltaError as raised:
                error = raised
        where = f"{name}: call {at}, {plan.hit}, {fault}: {error}"
        recovered(world, operation, before, data | {NEW}, error, where)
        shutil.rmtree(world.directory)
        if plan.hit is None:
            break
    assert plan.hit is None and error is None, where
    print(f"{name}: each of {at - 1} calls {fault}")
    assert at > 3


def recovered(
    world: World, operation: Operation, before: Contents, data: set[str], error: CmDeltaError | None, where: str
) -> None:
    with world.client() as client:
        done = operation.done(client)
        assert done or error is not None, where
        tables = [name for name in (TABLE, RENAMED) if holds(client, name)]
        if not tables:
            undrop_table(client, identifier=TABLE)
            tables = [TABLE]
        (name,) = tables
        table = client.table(name)
        if error is not None and NEW in table.snapshot().files["path"].to_pylist():
            assert isinstance(error, CommitStateUnknownError), where
        publish(table)
        report = repair_table(table)
        assert report.healthy and not report.failed, (where, report.findings)
        after = contents(client, name)
        assert {version: after[version] for version in before if version >= operation.may_forget_to} == {
            version: files for version, files in before.items() if version >= operation.may_forget_to
        }, where
        assert max(after) <= max(before) + 1, where
        left = {path for path in world.objects(table.location) if not path.startswith("_delta_log/")}
        assert data - left <= operation.deletes, where
    # A crashed run holds its lease until the lease expires.
    world.now += 11 * 60 * 1000
    with world.client() as client:
        operation.act(client)
        assert operation.done(client), where
        for name in (TABLE, RENAMED, MADE, DROPPED):
            if holds(client, name):
                assert doctor(client.table(name)).healthy, where
