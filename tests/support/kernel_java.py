"""Delta Kernel for Java with Unity Catalog's official client classes, in a JVM of its own that py4j reaches.

The jars come from Maven and are kept in the user's cache folder. py4j makes an Integer of a small number: an ``Optional<Long>`` is
made in Java, and rows come from JSON.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.support.cached_folders import PeerUnavailableError, cached_folder

KERNEL_VERSION = "4.4.0"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>cm-delta</groupId><artifactId>kernel</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCIES = (
    ("io.delta", "delta-kernel-unitycatalog", KERNEL_VERSION),
    ("io.delta", "delta-kernel-api", KERNEL_VERSION),
    ("io.delta", "delta-kernel-defaults", KERNEL_VERSION),
    ("org.apache.hadoop", "hadoop-client-api", "3.4.2"),
    ("org.apache.hadoop", "hadoop-client-runtime", "3.4.2"),
    ("com.fasterxml.jackson.datatype", "jackson-datatype-jsr310", "2.15.2"),
)


def kernel_jars() -> Path:
    """The folder of the jars. Raises PeerUnavailableError without Maven."""
    return cached_folder(f"delta-kernel-{KERNEL_VERSION}", _fetch_jars)


def _fetch_jars(folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise PeerUnavailableError(
            "Delta Kernel is tested only where Maven can fetch it; no mvn on the PATH. Install Maven."
        )
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in _DEPENDENCIES
    )
    (folder / "pom.xml").write_text(_POM.format(dependencies=dependencies))
    copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    done = subprocess.run(copy, cwd=folder, check=False, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise PeerUnavailableError(f"Maven did not fetch Delta Kernel. It wrote: {done.stdout.strip()[-600:]}")


@contextmanager
def kernel_gateway() -> Iterator[JavaGateway]:
    """A new JVM that has Delta Kernel."""
    py4j = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
    port, token = launch_gateway(
        jarpath=str(py4j),
        classpath=f"{kernel_jars()}/*",
        die_on_exit=True,
        enable_auth=True,
        redirect_stdout=subprocess.DEVNULL,
        redirect_stderr=subprocess.DEVNULL,
        return_proc=False,
    )
    parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
    gateway = JavaGateway(gateway_parameters=parameters)
    try:
        yield gateway
    finally:
        gateway.shutdown()


@dataclass(frozen=True)
class KernelTable:
    """A table as Kernel knows it: id, location and name."""

    table_id: str
    location: str
    name: Any


class KernelClient:
    """Kernel over a server of Unity Catalog's API, as an engine uses both."""

    def __init__(self, gateway: JavaGateway, uri: str, token: str) -> None:
        self.gateway = gateway
        self.jvm = jvm = gateway.jvm
        configuration = jvm.org.apache.hadoop.conf.Configuration()
        self.engine = jvm.io.delta.kernel.defaults.engine.DefaultEngine.create(configuration)
        options = jvm.java.util.HashMap()
        options.put("uri", uri)
        options.put("token", token)
        commits = jvm.io.delta.storage.commit
        self.rest = commits.uccommitcoordinator.UCDeltaTokenBasedRestClient(options, None)
        self.client = jvm.io.delta.kernel.unitycatalog.UCCatalogManagedClient(self.rest)

    def create(self, catalog: str, schema: str, name: str) -> KernelTable:
        """A new table with the columns ``id`` and ``v``, by way of a staging table."""
        staging = self.rest.createStagingTable(self._identifier(catalog, schema, name))
        table_id, location = str(staging.getTableId()), str(staging.getLocation())
        properties = dict(staging.getRequiredProperties())
        protocol = staging.getRequiredProtocol()
        for feature in {*(protocol.getReaderFeatures() or ()), *(protocol.getWriterFeatures() or ())}:
            properties[f"delta.feature.{feature}"] = "supported"
        properties.pop("io.unitycatalog.tableId", None)
        for feature in ("catalogManaged", "vacuumProtocolCheck"):
            properties.pop(f"delta.feature.{feature}", None)
        uc_name = self.jvm.io.delta.kernel.unitycatalog.UCTableIdentifier(catalog, schema, name)
        builder = self.client.buildCreateTableTransaction(table_id, location, self.columns(), "tests", uc_name)
        transaction = builder.withTableProperties(self._map(properties)).build(self.engine)
        transaction.commit(self.engine, self.jvm.io.delta.kernel.utils.CloseableIterable.emptyIterable())
        return KernelTable(table_id, location, uc_name)

    def columns(self) -> Any:
        """A schema of a long ``id`` and a string ``v``."""
        types = self.jvm.io.delta.kernel.types
        return types.StructType().add("id", types.LongType.LONG).add("v", types.StringType.STRING)

    def snapshot(self, table: KernelTable) -> Any:
        """The table at the latest version that the catalog says."""
        none = self.jvm.java.util.Optional.empty()
        return self.client.loadSnapshot(self.engine, table.table_id, table.location, table.name, none, none)

    def append(self, snapshot: Any, rows: Sequence[Mapping[str, object]]) -> Any:
        """Append rows to a snapshot; the result of the commit."""
        kernel = self.jvm.io.delta.kernel
        transaction = snapshot.buildUpdateTableTransaction("tests", kernel.Operation.WRITE).build(self.engine)
        state = transaction.getTransactionState(self.engine)
        util = kernel.internal.util
        lines = util.VectorUtils.buildColumnVector([json.dumps(row) for row in rows], kernel.types.StringType.STRING)
        none = self.jvm.java.util.Optional.empty()
        batch = self.engine.getJsonHandler().parseJson(lines, self.columns(), none)
        logical = util.Utils.singletonCloseableIterator(kernel.data.FilteredColumnarBatch(batch, none))
        no_partition = self.jvm.java.util.HashMap()
        physical = kernel.Transaction.transformLogicalData(self.engine, state, logical, no_partition)
        context = kernel.Transaction.getWriteContext(self.engine, state, no_partition)
        files = self.engine.getParquetHandler().writeParquetFiles(
            context.getTargetDirectory(), physical, context.getStatisticsColumns()
        )
        actions = kernel.Transaction.generateAppendActions(self.engine, state, files, context)
        return transaction.commit(self.engine, kernel.utils.CloseableIterable.inMemoryIterable(actions))

    def rows(self, snapshot: Any) -> list[tuple[int, str]]:
        """The rows of a snapshot, sorted."""
        kernel = self.jvm.io.delta.kernel
        scan = snapshot.getScanBuilder().build()
        state = scan.getScanState(self.engine)
        physical = kernel.internal.data.ScanStateRow.getPhysicalDataReadSchema(state)
        none = self.jvm.java.util.Optional.empty()
        singleton = kernel.internal.util.Utils.singletonCloseableIterator
        result = []
        for batch in _iterated(scan.getScanFiles(self.engine)):
            for file in _iterated(batch.getRows()):
                status = kernel.internal.InternalScanFileUtils.getAddFileStatus(file)
                read = self.engine.getParquetHandler().readParquetFiles(singleton(status), physical, none)
                for part in _iterated(read):
                    data = singleton(part.getData())
                    logical = kernel.Scan.transformPhysicalData(self.engine, state, file, data)
                    for filtered in _iterated(logical):
                        result += [(row.getLong(0), row.getString(1)) for row in _iterated(filtered.getRows())]
        return sorted(result)

    def _identifier(self, catalog: str, schema: str, name: str) -> Any:
        namespace = self.gateway.new_array(self.jvm.java.lang.String, 2)
        namespace[0], namespace[1] = catalog, schema
        return self.jvm.io.delta.storage.commit.TableIdentifier(namespace, name)

    def _map(self, values: Mapping[str, str]) -> Any:
        result = self.jvm.java.util.HashMap()
        for name, value in values.items():
            result.put(name, value)
        return result


def _iterated(iterator: Any) -> Iterator[Any]:
    """The items of an iterator of Java, which is closed at the end."""
    try:
        while iterator.hasNext():
            yield iterator.next()
    finally:
        iterator.close()
