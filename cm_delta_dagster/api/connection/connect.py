"""How a connection to a catalog is opened."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import tzinfo
from typing import Any

from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.api.keyword_hints import checking_keywords
from cm_delta_dagster.catalog.opening import open_catalog
from cm_delta_dagster.catalog.server_urls import is_server_url
from cm_delta_dagster.catalog.sql.database.engines import DEFAULT_DIRECTORY
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.storage_options import stores_of
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.spark.library import SparkSession
from cm_delta_dagster.storage.storage_options import StorageOptions

DEFAULT_CATALOG_URL = f"sqlite:///{DEFAULT_DIRECTORY}/catalog.db"
DEFAULT_WAREHOUSE = f"{DEFAULT_DIRECTORY}/warehouse"


@checking_keywords
def connect(
    catalog_url: str = DEFAULT_CATALOG_URL,
    *,
    warehouse: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    spark: SparkSession | None = None,
    settings: ClientSettings | None = None,
    time_zone: tzinfo | str | None = None,
    principal: str | None = None,
    token: str | None = None,
    commit_properties: CommitProperties = NO_PROPERTIES,
) -> Connection:
    """Open a catalog; the first use creates its database. Use the result in a ``with`` block, or close it.

    Args:
        catalog_url: SQLAlchemy URL: ``sqlite:///path.db`` for one machine, ``postgresql+psycopg://host/db`` to share
            it between machines. The directory of a SQLite file must exist, unless it is the one of the default. Or
            ``http://host:port`` of a server of the catalog, which knows the warehouse, and the principal by the token.
        warehouse: directory or URI under which new tables get their location; a relative path starts at the working
            directory. By default ``cm_delta/warehouse`` for the default catalog; a connection to another catalog creates and
            purges no tables without it.
        storage_options: how object stores are reached: options of the warehouse's store, e.g. ``{"key": ..., "secret": ...}``,
            or options by prefix of the location, ``{"s3://bucket": {...}, "gs://": {...}}``. They are not stored. Without
            credentials the environment's apply.
        spark: session for rows; by default the running session, or a local session that is started when rows are first
            needed.
        settings: retries, waits, cache sizes and post-commit work of the Delta client, e.g.
            ``ClientSettings(max_commit_attempts=50)``.
        time_zone: time zone of times that state none, in partition values of ``timestamp`` columns, in conditions and as
            ``timestamp``: a region such as ``"Europe/Berlin"``, an offset or a ``tzinfo``. By default that of the Spark session.
        principal: who uses the connection, for grants and the audit: the name of a user or a pipeline. By default that of the
            environment variable CM_DELTA_PRINCIPAL; without it on PostgreSQL the role that logs in.
        token: for a server, what its owner created; by default that of the environment variable CM_DELTA_TOKEN.
        commit_properties: tags and user metadata that every commit records, unless an operation is given its own, e.g.
            ``CommitProperties(tags={"owner": "etl"})``. SQL statements, maintenance and creations have them, too.

    Raises:
        InvalidArgumentError: an unusable URL or warehouse, contradicting storage options, or an argument of another type.
    """
    if not isinstance(settings, ClientSettings | None):
        raise InvalidArgumentError(
            f"settings is of type {type(settings).__name__}; give ClientSettings, e.g. "
            "connect(..., settings=ClientSettings(max_commit_attempts=50))."
        )
    if warehouse is None and catalog_url == DEFAULT_CATALOG_URL:
        warehouse = DEFAULT_WAREHOUSE
    if not isinstance(warehouse, str | None):
        raise InvalidArgumentError(
            f"warehouse is of type {type(warehouse).__name__}; give the directory or URI of new tables as text, e.g. "
            'connect(..., warehouse="s3://bucket/warehouse").'
        )
    if time_zone is not None:
        settings = replace(settings or ClientSettings(), time_zone=time_zone)
    options = StorageOptions.of(storage_options, warehouse=warehouse)
    catalog = open_catalog(catalog_url, warehouse=warehouse, principal=principal, token=token)
    stores = stores_of(catalog, options, is_served=is_server_url(catalog_url))
    client = DeltaClient(catalog, stores=stores, settings=settings, context=commit_properties)
    return Connection(client, spark=spark)
