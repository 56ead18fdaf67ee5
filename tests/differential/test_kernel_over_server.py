"""Delta Kernel for Java creates, writes and reads tables of the catalog through the server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.multi_table_commit import MultiTableCommit, TableCommit
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.protocol.actions.actions import SetTransaction
from cm_delta_dagster.server.settings import ServerSettings
from tests.server.unity.conftest import direct_client
from tests.support.cached_folders import or_skip
from tests.support.kernel_java import KernelClient, kernel_gateway, kernel_jars
from tests.support.live_server import LiveServer, live_server
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.peers]


@pytest.fixture(scope="module")
def gateway() -> Iterator[JavaGateway]:
    or_skip(kernel_jars)
    with kernel_gateway() as gateway:
        yield gateway


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    settings = ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    with live_server(settings) as live:
        yield live


@pytest.fixture
def owner(server: LiveServer) -> Iterator[DeltaClient]:
    with direct_client(server) as client:
        client.namespaces.create_namespace("main.s")
        yield client


@pytest.fixture
def kernel(gateway: JavaGateway, server: LiveServer, owner: DeltaClient) -> KernelClient:
    return KernelClient(gateway, server.url, server.token_for("kernel"))


@pytest.mark.requirements("MTX-3")
def test_kernel_reads_and_continues_tables_after_a_transaction_over_several(
    kernel: KernelClient, owner: DeltaClient
) -> None:
    made = [kernel.create("main", "s", name) for name in ("one", "two")]
    for table in made:
        kernel.append(kernel.snapshot(table), [{"id": 1, "v": "a"}])
    parts = []
    for table in (owner.table("main.s.one"), owner.table("main.s.two")):
        transaction = table.start_transaction(table.snapshot(), operation="WRITE")
        transaction.set_transaction(SetTransaction(app_id="job", version=1))
        parts.append(TableCommit(committer=table.committer, transaction=transaction))
    commit = MultiTableCommit(parts, coordinator=owner.coordinator, settings=owner.settings)
    commit.finish(commit.ratify())
    for table in made:
        snapshot = kernel.snapshot(table)
        assert (snapshot.getVersion(), kernel.rows(snapshot)) == (2, [(1, "a")])
        assert kernel.append(snapshot, [{"id": 2, "v": "b"}]).getVersion() == 3
        assert kernel.rows(kernel.snapshot(table)) == [(1, "a"), (2, "b")]


@pytest.mark.client("Delta Kernel for Java", "create", "read", "INSERT", by="server")
def test_kernel_creates_a_table_appends_to_it_and_reads_the_latest_version_of_the_catalog(
    kernel: KernelClient, owner: DeltaClient
) -> None:
    table = kernel.create("main", "s", "t")
    first = kernel.append(kernel.snapshot(table), [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    second = kernel.append(kernel.snapshot(table), [{"id": 3, "v": "c"}])
    assert (first.getVersion(), second.getVersion()) == (1, 2)
    snapshot = kernel.snapshot(table)
    assert snapshot.getVersion() == 2
    assert kernel.rows(snapshot) == [(1, "a"), (2, "b"), (3, "c")]
    entry = owner.registry.load_table_by_id(table.table_id)
    assert str(entry.identifier) == "main.s.t" and entry.ratified.latest_version == 2
    files = owner.open(entry).snapshot().files
    assert files.num_rows == 2
    feed = owner.feed.feed(after=0, limit=10)
    assert [(entry.version, entry.principal) for entry in feed] == [(0, "kernel"), (1, "kernel"), (2, "kernel")]


def test_kernel_reads_what_this_package_commits_inline(kernel: KernelClient, owner: DeltaClient) -> None:
    table = kernel.create("main", "s", "t")
    kernel.append(kernel.snapshot(table), [{"id": 1, "v": "a"}])
    ours = owner.table("main.s.t")
    set_commit_policy(ours, CommitPolicy(kind=CommitPolicyKind.INLINE))
    transaction = ours.start_transaction(ours.snapshot(), operation="SET TBLPROPERTIES")
    transaction.commit()
    snapshot = kernel.snapshot(table)
    assert snapshot.getVersion() == 2 and kernel.rows(snapshot) == [(1, "a")]


def test_a_kernel_writer_that_loses_a_version_commits_its_rows_as_the_next_one(
    kernel: KernelClient, owner: DeltaClient
) -> None:
    table = kernel.create("main", "s", "t")
    base = kernel.snapshot(table)
    kernel.append(base, [{"id": 1, "v": "a"}])
    until(lambda: owner.registry.load_table_by_id(table.table_id).ratified.published_version == 1)
    assert kernel.append(base, [{"id": 2, "v": "b"}]).getVersion() == 2  # Rebased: the winner is published.
    assert kernel.rows(kernel.snapshot(table)) == [(1, "a"), (2, "b")]


@pytest.mark.client("Delta Kernel for Java", "publish", "checkpoint", by="server")
def test_kernel_publishes_and_writes_a_checkpoint(kernel: KernelClient, owner: DeltaClient) -> None:
    table = kernel.create("main", "s", "t")
    result = kernel.append(kernel.snapshot(table), [{"id": 1, "v": "a"}])
    published = result.getPostCommitSnapshot().get().publish(kernel.engine)
    published.writeCheckpoint(kernel.engine)
    log = Path(table.location.removeprefix("file://")) / "_delta_log"
    assert (log / f"{1:020d}.json").exists() and list(log.glob(f"{1:020d}.checkpoint*"))
    kernel.append(kernel.snapshot(table), [{"id": 2, "v": "b"}])
    assert kernel.rows(kernel.snapshot(table)) == [(1, "a"), (2, "b")]
    assert owner.table("main.s.t").snapshot().files.num_rows == 2


def test_a_kernel_writer_that_never_publishes_can_commit_more_than_ten_versions(
    kernel: KernelClient, owner: DeltaClient
) -> None:
    """Unity Catalog 0.6.0 refuses the eleventh unpublished commit with 429, and Kernel then repeats it for ever."""
    table = kernel.create("main", "s", "t")
    snapshot = kernel.snapshot(table)
    for version in range(1, 14):
        snapshot = kernel.append(snapshot, [{"id": version, "v": "x"}]).getPostCommitSnapshot().get()
    assert len(kernel.rows(kernel.snapshot(table))) == 13
    until(lambda: owner.registry.load_table_by_id(table.table_id).ratified.published_version == 13)


@pytest.mark.client("Delta Kernel for Java", "change properties", by="server")
def test_kernel_changes_the_schema_and_properties(kernel: KernelClient, owner: DeltaClient) -> None:
    table = kernel.create("main", "s", "t")
    jvm = kernel.jvm
    properties = jvm.java.util.HashMap()
    properties.put("my.key", "1")
    builder = kernel.snapshot(table).buildUpdateTableTransaction("tests", jvm.io.delta.kernel.Operation.MANUAL_UPDATE)
    nothing = jvm.io.delta.kernel.utils.CloseableIterable.emptyIterable()
    builder.withTablePropertiesAdded(properties).build(kernel.engine).commit(kernel.engine, nothing)
    definition = owner.registry.load_table_by_id(table.table_id).definition
    assert definition is not None and definition.properties["my.key"] == "1" and definition.version == 1


def test_kernel_does_not_find_a_table_that_does_not_exist(kernel: KernelClient) -> None:
    table = kernel.create("main", "s", "t")
    other = type(table)(
        table.table_id, table.location, kernel.jvm.io.delta.kernel.unitycatalog.UCTableIdentifier("main", "s", "no")
    )
    with pytest.raises(Py4JJavaError, match=r"main\.s\.no"):
        kernel.snapshot(other)
