"""A small real table with a history, its catalog and its warehouse, which are copied to the same path for each disaster.

The table ``main.test.t`` has versions 0 to 8: appended files, a deletion vector in a file of its own, a replaced file whose old one
has expired, a checkpoint of version 5 with a sidecar, and a version 8 that is ratified and, except in put-if-absent mode, not
published. ``main.test.u`` is another table with as many versions. The whole history is 40 days old.
"""

import json
import os
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient, wall_clock_ms
from cm_delta_dagster.client.commits.transaction import Committed
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.commit_sources import digest_of
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import StorageError
from cm_delta_dagster.operations.tables.set_commit_mode import choose_commit_policy
from cm_delta_dagster.protocol.actions.actions import AddFile, DeletionVectorDescriptor
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.protocol.features.deletion_vectors import encode_bitmap, encode_file, encode_relative_name
from cm_delta_dagster.protocol.log import checkpoints, last_checkpoint, log_files
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from cm_delta_dagster.storage.local_store import LocalStore
from cm_delta_dagster.storage.parquet import encode_parquet
from cm_delta_dagster.storage.stores import Stores
from tests.support.creation import create_table

NAME, OTHER = "main.test.t", "main.test.u"
SCHEMA = StructType((StructField("id", PrimitiveType("long")), StructField("day", PrimitiveType("date"))))
PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.checkpointPolicy": "v2"}
DAY = "2026-01-01"
DAY_MS = 24 * 60 * 60 * 1000
AGE_MS = 40 * DAY_MS
CHECKPOINTED, BACKED_UP, PUBLISHED, LATEST = 5, 6, 7, 8
OLD_VERSION = 2
ROWS_PER_FILE = 10


class Database(Protocol):
    """The database of the catalog, and named copies of it."""

    url: str

    def save(self, name: str) -> None: ...
    def restore(self, name: str) -> None: ...
    def remove(self) -> None: ...
    def execute(self, statement: str, **values: Any) -> list[Any]: ...


class SqliteDatabase:
    def __init__(self, live: Path, copies: Path) -> None:
        self.live, self._copies = live, copies
        self.url = f"sqlite:///{live}"
        for directory in (live.parent, copies):
            directory.mkdir(parents=True, exist_ok=True)

    def save(self, name: str) -> None:
        with closing(sqlite3.connect(self.live)) as live, closing(sqlite3.connect(self._copies / name)) as copy:
            live.backup(copy)

    def restore(self, name: str) -> None:
        self.remove()
        self.live.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self._copies / name, self.live)

    def remove(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{self.live}{suffix}").unlink(missing_ok=True)

    def execute(self, statement: str, **values: Any) -> list[Any]:
        with closing(sqlite3.connect(self.live)) as database, database:
            return database.execute(statement, values).fetchall()


class PostgresDatabase:
    """One database on a server, and copies of it made with ``CREATE DATABASE ... TEMPLATE``."""

    def __init__(self, server: str) -> None:
        self._server, self._name = server, f"d{uuid.uuid4().hex[:12]}"
        self.url = sa.make_url(server).set(database=self._name).render_as_string(hide_password=False)
        self._admin = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
        self._do(f"CREATE DATABASE {self._name}")

    def save(self, name: str) -> None:
        self._do(f"CREATE DATABASE {self._copy(name)} TEMPLATE {self._name}")

    def restore(self, name: str) -> None:
        self.remove()
        self._do(f"CREATE DATABASE {self._name} TEMPLATE {self._copy(name)}")

    def remove(self) -> None:
        self._do(f"DROP DATABASE IF EXISTS {self._name}")

    def make_empty(self) -> None:
        self._do(f"CREATE DATABASE {self._name}")

    def execute(self, statement: str, **values: Any) -> list[Any]:
        engine = sa.create_engine(self.url, poolclass=sa.pool.NullPool)
        with engine.begin() as connection:
            result = connection.execute(sa.text(statement), values)
            return list(result.fetchall()) if result.returns_rows else []

    def _copy(self, name: str) -> str:
        return f"{self._name}_{name}"

    def _do(self, statement: str) -> None:
        with self._admin.connect() as connection:
            connection.execute(sa.text(statement))


@dataclass(kw_only=True)
class Facts:
    """The template table: the locations of its objects, and its acknowledged rows.

    Attributes:
        ids: acknowledged rows by version.
        files: data files by the name that the template gives them.
        commits: the bytes of each ratified commit.
    """

    table_id: str = ""
    location: str = ""
    other_location: str = ""
    ids: dict[int, frozenset[int]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    vector: str = ""
    checkpoint: str = ""
    sidecar: str = ""
    staged: dict[int, str] = field(default_factory=dict)
    commits: dict[int, bytes] = field(default_factory=dict)


class _FailingPublication(LocalStore):
    """A store that cannot create the published file of one version."""

    def __init__(self, version: int) -> None:
        super().__init__()
        self._name = f"_delta_log/{log_files.commit_file_name(version)}"

    def write_if_absent(self, location: str, data: bytes, **more: Any) -> Any:
        if location.endswith(self._name):
            raise StorageError(f"{location} cannot be written, as the test wants.")
        return super().write_if_absent(location, data, **more)


class Place:
    """A database and a warehouse at fixed paths, and templates of both. There is one for each mode and database."""

    def __init__(self, root: Path, *, mode: CommitPolicyKind, database: Database) -> None:
        self.root, self.mode, self.database = root, mode, database
        self.warehouse = root / "live" / "warehouse"
        self._templates = root / "templates"
        self.facts = Facts()
        self._clock_ms = wall_clock_ms() - AGE_MS
        self._build()

    @contextmanager
    def client(
        self, *, now_ms: Callable[[], int] = wall_clock_ms, store: LocalStore | None = None, **more: Any
    ) -> Iterator[DeltaClient]:
        """A client as in another process; only commits that the mode requires are copied into the catalog."""
        catalog = SqlCatalog(self.database.url, warehouse=f"file://{self.warehouse}", now_ms=now_ms)
        settings = ClientSettings(
            retry_initial_delay=timedelta(seconds=0.001), publish_delay=timedelta(0), copied_content_bytes=0, **more
        )
        stores = Stores() if store is None else Stores(stores={"file": store})
        client = DeltaClient(catalog, stores=stores, settings=settings, now_ms=now_ms)
        try:
            yield client
        finally:
            client.close()

    @property
    def warehouse_location(self) -> str:
        return f"file://{self.warehouse}"

    def reset(self) -> None:
        """Restore database and warehouse from the templates."""
        self.put_warehouse("latest")
        self.database.restore("latest")

    def put_warehouse(self, name: str) -> None:
        """Restore the warehouse from a template; files with the same size and time are not copied."""
        wanted = _statuses(self._templates / name)
        for path in set(_statuses(self.warehouse)) - set(wanted):
            (self.warehouse / path).unlink()
        self.lay_over(name)
        for path in sorted(self.warehouse.rglob("*"), reverse=True):
            if path.is_dir() and not (self._templates / name / path.relative_to(self.warehouse)).is_dir():
                path.rmdir()

    def lay_over(self, name: str) -> None:
        """Copy the files of a template over the warehouse; other files stay."""
        found = _statuses(self.warehouse)
        for path, status in _statuses(self._templates / name).items():
            if found.get(path) != status:
                target = self.warehouse / path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self._templates / name / path, target)

    def template(self, name: str = "latest") -> Path:
        return self._templates / name

    def path(self, location: str) -> Path:
        return Path(location.removeprefix("file://"))

    @property
    def table_directory(self) -> Path:
        return self.path(self.facts.location)

    @property
    def log(self) -> Path:
        return self.table_directory / "_delta_log"

    def commit_path(self, version: int) -> Path:
        return self.log / log_files.commit_file_name(version)

    def _build(self) -> None:
        with self.client(now_ms=self._tick) as client:
            for kind in MaintenanceKind:
                client.catalog.maintenance_policies.set_maintenance_rule(
                    MaintenanceRule(scope="main", kind=kind, allowed=True)
                )
            table, other = self._new(client, NAME), self._new(client, OTHER)
            self.facts.table_id, self.facts.location = table.table_id, table.location
            self.facts.other_location = other.location
            for version in range(1, LATEST + 1):
                append_rows(other, first_id=1000 + version * ROWS_PER_FILE)
            self._note(table)
            self._append(table, "a", 0)
            self._append(table, "b", 10)
            self._delete_some(table)
            self._append(table, "c", 20)
            self._replace(table, "c", "d")
            client.wait_for_background()
            table.ratified()
            self._checkpoint(client, table)
            self._append(table, "e", 30)
            client.wait_for_background()
            table.ratified()
        self._make_old()
        shutil.copytree(self.warehouse, self._templates / "older")
        self.database.save("older")
        with self.client(now_ms=self._tick) as client:
            table = client.table(NAME)
            self._append(table, "f", 40)
            client.wait_for_background()
            table.ratified()
        store = None if self.mode is CommitPolicyKind.PUT_IF_ABSENT else _FailingPublication(LATEST)
        with self.client(now_ms=self._tick, store=store) as client:
            self._append(client.table(NAME), "g", 50)
        (self.table_directory / "part-orphan.parquet").write_bytes(b"an orphan file")
        self._make_old()
        self._note_objects()
        self._build_other_warehouse()
        shutil.copytree(self.warehouse, self._templates / "latest")
        self.database.save("latest")

    def _tick(self) -> int:
        self._clock_ms += 1000
        return self._clock_ms

    def _new(self, client: DeltaClient, name: str) -> Table:
        table = create_table(client, identifier=name, schema=SCHEMA, partition_columns=("day",), properties=PROPERTIES)
        choose_commit_policy(client, scope=name, policy=CommitPolicy(kind=self.mode))
        return table

    def _note(self, table: Table, ids: frozenset[int] = frozenset()) -> None:
        self.facts.ids[table.snapshot().version] = ids

    def _append(self, table: Table, name: str, first_id: int) -> None:
        before = self.facts.ids[table.snapshot().version]
        path, _ = append_rows(table, first_id=first_id)
        self.facts.files[name] = path
        self._note(table, before | set(range(first_id, first_id + ROWS_PER_FILE)))

    def _delete_some(self, table: Table) -> None:
        """Rows 10 and 11, the first two of file b, through a deletion vector."""
        snapshot = table.snapshot()
        file_id = uuid.uuid4()
        data, (offset,) = encode_file([encode_bitmap([0, 1])])
        self.facts.vector = f"deletion_vector_{file_id}.bin"
        (self.path(table.location) / self.facts.vector).write_bytes(data)
        vector = DeletionVectorDescriptor(
            storage_type="u",
            path_or_inline_dv=encode_relative_name(file_id),
            size_in_bytes=len(encode_bitmap([0, 1])),
            cardinality=2,
            offset=offset,
        )
        transaction = table.start_transaction(snapshot, operation="DELETE")
        transaction.remove_files(_removes(snapshot, self.facts.files["b"], self._tick()))
        transaction.add_files([add_of(table, self.facts.files["b"], 10, deletion_vector=vector)])
        transaction.commit()
        self._note(table, self.facts.ids[snapshot.version] - {10, 11})

    def _replace(self, table: Table, old: str, new: str) -> None:
        """Write the same rows to another file, as OPTIMIZE does."""
        snapshot = table.snapshot()
        path = write_rows(table, 20)
        self.facts.files[new] = path
        transaction = table.start_transaction(snapshot, operation="OPTIMIZE")
        transaction.remove_files(_removes(snapshot, self.facts.files[old], self._tick()))
        transaction.add_files([add_of(table, path, 20)])
        transaction.commit()
        self._note(table, self.facts.ids[snapshot.version])

    def _checkpoint(self, client: DeltaClient, table: Table) -> None:
        """Write a checkpoint of version 5 with its file actions in a sidecar, as in large tables."""
        snapshot = table.snapshot()
        assert snapshot.version == CHECKPOINTED
        tables = checkpoints.build_checkpoint(snapshot.state, now_ms=self._clock_ms, max_inline=0)
        self.facts.sidecar, self.facts.checkpoint = (
            log_files.sidecar_file_name(str(uuid.uuid4())),
            log_files.v2_checkpoint_file_name(CHECKPOINTED, str(uuid.uuid4()), "parquet"),
        )
        (rows,) = tables.sidecars
        data = encode_parquet(rows)
        action = checkpoints.sidecar_action(
            self.facts.sidecar, size_in_bytes=len(data), modification_time=self._clock_ms, sha256=digest_of(data)
        )
        top = encode_parquet(checkpoints.with_sidecars(tables.top, [action]))
        (self.log / "_sidecars").mkdir()
        (self.log / "_sidecars" / self.facts.sidecar).write_bytes(data)
        (self.log / self.facts.checkpoint).write_bytes(top)
        hint = last_checkpoint.LastCheckpoint(
            version=CHECKPOINTED,
            size=tables.num_actions + 1,
            size_in_bytes=len(data) + len(top),
            num_of_add_files=snapshot.num_files,
        )
        (self.log / log_files.LAST_CHECKPOINT_FILE_NAME).write_bytes(last_checkpoint.encode(hint))

    def _build_other_warehouse(self) -> None:
        """The warehouse of another catalog, with a table of the same name."""
        target = self._templates / "other"
        catalog = SqlCatalog(f"sqlite:///{self.root}/other.db", warehouse=f"file://{target}")
        client = DeltaClient(catalog, stores=Stores())
        append_rows(create_table(client, identifier=NAME, schema=SCHEMA, partition_columns=("day",)), first_id=0)
        client.close()

    def _make_old(self) -> None:
        seconds = self._clock_ms / 1000
        for path in self.warehouse.rglob("*"):
            os.utime(path, (seconds, seconds))

    def _note_objects(self) -> None:
        for path in (self.log / "_staged_commits").glob("*"):
            self.facts.staged[int(path.name[:20])] = path.name
        published = {version: self.commit_path(version) for version in range(LATEST + 1)}
        self.facts.commits = {version: path.read_bytes() for version, path in published.items() if path.exists()}
        if self.mode is CommitPolicyKind.STAGED:
            self.facts.commits[LATEST] = (self.log / "_staged_commits" / self.facts.staged[LATEST]).read_bytes()
        elif self.mode is CommitPolicyKind.INLINE:
            (row,) = self.database.execute(
                "SELECT content FROM cm_delta_commits WHERE table_id = :table_id AND version = :version",
                table_id=self.facts.table_id,
                version=LATEST,
            )
            self.facts.commits[LATEST] = bytes(row[0])
        assert sorted(self.facts.commits) == list(range(LATEST + 1))
        assert self.commit_path(LATEST).exists() is (self.mode is CommitPolicyKind.PUT_IF_ABSENT)


def _statuses(root: Path) -> dict[Path, tuple[int, int]]:
    """Size and modification time of each file below ``root``, by relative path."""
    found = {}
    for directory, _, names in os.walk(root):
        for name in names:
            path = Path(directory) / name
            status = path.stat()
            found[path.relative_to(root)] = (status.st_size, status.st_mtime_ns)
    return found


def write_rows(table: Table, first_id: int, count: int = ROWS_PER_FILE) -> str:
    """A data file of ``count`` rows, with page checksums as Spark writes them; its path in the table."""
    name = f"part-{uuid.uuid4()}.parquet"
    rows = pa.table({"id": pa.array(range(first_id, first_id + count), pa.int64())})
    path = Path(table.location.removeprefix("file://")) / name
    pq.write_table(rows, path, write_page_checksum=True, compression="none")
    return name


def add_of(
    table: Table,
    name: str,
    first_id: int,
    *,
    count: int = ROWS_PER_FILE,
    deletion_vector: DeletionVectorDescriptor | None = None,
    data_change: bool = True,
) -> AddFile:
    path = Path(table.location.removeprefix("file://")) / name
    statistics = {
        "numRecords": count,
        "minValues": {"id": first_id},
        "maxValues": {"id": first_id + count - 1},
        "nullCount": {"id": 0},
        "tightBounds": deletion_vector is None,
    }
    return AddFile(
        path=name,
        partition_values={"day": DAY},
        size=path.stat().st_size,
        modification_time=int(path.stat().st_mtime * 1000),
        stats=json.dumps(statistics, separators=(",", ":")),
        deletion_vector=deletion_vector,
        data_change=data_change,
    )


def append_rows(table: Table, *, first_id: int, count: int = ROWS_PER_FILE) -> tuple[str, Committed]:
    """Append one real data file; its path in the table, and the commit."""
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    name = write_rows(table, first_id, count)
    transaction.add_files([add_of(table, name, first_id, count=count)])
    return name, transaction.commit()


def _removes(snapshot: Snapshot, path: str, now_ms: int) -> Any:
    files = snapshot.files
    return removes_of(
        files.filter([value == path for value in files["path"].to_pylist()]),
        deletion_timestamp=now_ms,
        data_change=True,
    )
