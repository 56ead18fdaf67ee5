"""A SQLite catalog whose warehouse is a bucket of an S3 server, reached through a proxy that makes requests fail."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.transaction import Committed
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.storage.fsspec_store import FsspecStore
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.creation import create_table
from tests.support.fault_proxy import FaultProxy
from tests.support.lake import SCHEMA
from tests.support.object_stores import make_bucket, s3_options


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Lake:
    """A catalog and its bucket.

    Attributes:
        store: reaches the server through the proxy; shared by the clients, because its start takes long.
        url: of the catalog.
    """

    proxy: FaultProxy
    store: FsspecStore
    url: str
    bucket: str

    @classmethod
    def new(cls, proxy: FaultProxy, store: FsspecStore, directory: Path) -> "S3Lake":
        """A lake in a new bucket; the catalog's database is in ``directory``."""
        bucket = f"b-{uuid.uuid4().hex}"
        make_bucket(store, bucket)
        return cls(proxy=proxy, store=store, url=f"sqlite:///{directory}/catalog.db", bucket=bucket)

    @property
    def warehouse(self) -> str:
        return f"s3://{self.bucket}/w"

    @contextmanager
    def client(self) -> Iterator[DeltaClient]:
        """A client with empty caches; its background work ends before the block does."""
        client = DeltaClient(
            SqlCatalog(self.url, warehouse=self.warehouse),
            stores=Stores(stores={"s3": self.store}),
            # No copies of commits in the catalog, so that readers need the objects.
            settings=ClientSettings(
                retry_initial_delay=timedelta(seconds=0.001),
                retry_max_delay=timedelta(seconds=0.01),
                copied_content_bytes=0,
                publish_delay=timedelta(0),
            ),
        )
        try:
            yield client
        finally:
            client.close()

    def create(self, name: str, mode: str) -> None:
        with self.client() as client:
            set_commit_policy(create_table(client, identifier=name, schema=SCHEMA), CommitPolicy.parse(mode))


def store_behind(proxy: FaultProxy) -> FsspecStore:
    """A store that reaches the server through the proxy and waits one second for an answer."""
    return FsspecStore("s3", options={**s3_options(proxy.url), "config_kwargs": {"read_timeout": 1}})


def commit(table: Table, path: str) -> Committed:
    """Commit one file, which is written first."""
    data = b"x" * 100
    table.store.write_if_absent(f"{table.location}/{path}", data)
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([add_file(path, size=len(data), stats='{"numRecords":1}')])
    return transaction.commit()


def paths(table: Table) -> list[str]:
    return sorted(table.snapshot().files["path"].to_pylist())
