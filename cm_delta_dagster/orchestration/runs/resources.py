"""Dagster resources: the catalog and Spark.

A resource opens its connection or session on first use, not when definitions are loaded, so that ``dg.EnvVar`` is read in the
process of the run.
"""

import os
import threading
import typing
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Self

import dagster as dg
from pydantic import ConfigDict, Field, ModelWrapValidatorHandler, PrivateAttr, field_validator, model_validator

from cm_delta_dagster.api.moved_names import MOVED_ARGUMENTS
from cm_delta_dagster.catalog import opening
from cm_delta_dagster.catalog.durations import duration_text, parse_duration
from cm_delta_dagster.catalog.opening import OpenedCatalog
from cm_delta_dagster.catalog.server_urls import is_server_url
from cm_delta_dagster.catalog.sql.database.database import IfMissing
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.client.settings import ClientSettings, OnCatalogBehind
from cm_delta_dagster.client.storage_options import stores_of
from cm_delta_dagster.deferred_module import DeferredModule
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration.runs.environment import (
    IntEnvVar,
    as_config,
    as_references,
    resolved_options,
    variable_of,
)
from cm_delta_dagster.orchestration.runs.resource_fields import check_fields
from cm_delta_dagster.orchestration.runs.run_checks import check_session
from cm_delta_dagster.spark.library import SparkSession, check_installed, pyspark
from cm_delta_dagster.spark.session.java import ensure_java
from cm_delta_dagster.spark.session.python_interpreter import same_interpreter, settings_of_environment
from cm_delta_dagster.spark.session.session import REDACTED_NAMES, REDACTION, is_connect, is_gone, running_session
from cm_delta_dagster.storage.storage_options import StorageOptions

if typing.TYPE_CHECKING:
    from cm_delta_dagster.api.connection.connection import Connection
    from cm_delta_dagster.orchestration.runs import run_connection
else:  # It imports libraries that only some assets need.
    run_connection = DeferredModule("cm_delta_dagster.orchestration.runs.run_connection")


@typing.runtime_checkable
class HasSparkSession(typing.Protocol):
    """A resource with a Spark session: ``SparkResource``, or ``PySparkResource`` and ``LazyPySparkResource`` of
    dagster-pyspark.
    """

    @property
    def spark_session(self) -> Any: ...


def session_of(resource: Any, *, user: str) -> Any:
    """The Spark session of a resource, started on first use by those that start it lazily.

    Raises:
        InvalidArgumentError: the resource has no session; the message names its ``user``.
    """
    if not isinstance(resource, HasSparkSession):
        raise InvalidArgumentError(
            f"The resource 'spark' of the {user} is a {type(resource).__name__} without a spark_session. Use cm_delta_dagster's "
            "SparkResource, dagster-pyspark's LazyPySparkResource, or another resource with that property."
        )
    return resource.spark_session


_DEFAULTS = ClientSettings()
_DURATIONS = frozenset(field.name for field in fields(ClientSettings) if field.type is timedelta)


class ClientSettingsConfig(dg.Config):
    """The fields of :class:`~cm_delta_dagster.client.settings.ClientSettings`, which documents them, as Dagster config.

    A value that ``ClientSettings`` refuses is refused here with the same message. Durations are texts, ``10 minutes`` or ``PT10M``;
    a timedelta is taken too. Integers can be ``dg.EnvVar.int("NAME")``, and texts ``dg.EnvVar("NAME")``.
    """

    model_config = ConfigDict(extra="forbid")

    max_commit_attempts: int = _DEFAULTS.max_commit_attempts
    retry_initial_delay: str = duration_text(_DEFAULTS.retry_initial_delay)
    retry_max_delay: str = duration_text(_DEFAULTS.retry_max_delay)
    commit_lock_timeout: str = duration_text(_DEFAULTS.commit_lock_timeout)
    max_resolve_attempts: int = _DEFAULTS.max_resolve_attempts
    incremental_refresh_limit: int = _DEFAULTS.incremental_refresh_limit
    snapshot_cache_size: int = _DEFAULTS.snapshot_cache_size
    read_threads: int = _DEFAULTS.read_threads
    max_unpublished_commits: int = _DEFAULTS.max_unpublished_commits
    copied_content_bytes: int = _DEFAULTS.copied_content_bytes
    publish_delay: str = duration_text(_DEFAULTS.publish_delay)
    on_catalog_behind_storage: OnCatalogBehind = _DEFAULTS.on_catalog_behind_storage
    max_clock_difference: str = duration_text(_DEFAULTS.max_clock_difference)
    maintenance_lease: str = duration_text(_DEFAULTS.maintenance_lease)
    max_deleted_rows_ratio: float = _DEFAULTS.max_deleted_rows_ratio
    time_zone: str | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, value: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(value, Mapping):
            for old in MOVED_ARGUMENTS.keys() & value:
                raise InvalidArgumentError(f"The setting {old!r} of a client is now {MOVED_ARGUMENTS[old]!r}.")
            value = {name: duration_text(item) if isinstance(item, timedelta) else item for name, item in value.items()}
        config = validate(value)
        if isinstance(value, Mapping):  # Not for a config that exists already.
            # A value of the environment is not known yet, and pydantic takes it as 0. It is validated when the run starts.
            known = (name for name in cls.model_fields if not isinstance(value.get(name), IntEnvVar | dg.EnvVar))
            ClientSettings(**{name: config._setting(name) for name in known})
        return config

    def client_settings(self) -> ClientSettings:
        """The settings as the client takes them."""
        return ClientSettings(**{name: self._setting(name) for name in type(self).model_fields})

    def _setting(self, name: str) -> Any:
        value = getattr(self, name)
        return parse_duration(value, name=f"ClientSettingsConfig.{name}") if name in _DURATIONS else value


class _ReferencingResource(dg.ConfigurableResource[Any]):
    """A resource with values that can be references: ``dg.EnvVar("NAME")`` or ``{"env": "NAME"}``, also within mappings.

    Neither ``repr`` nor the errors of pydantic show values that may be secrets.
    """

    model_config = ConfigDict(hide_input_in_errors=True)
    referencing: ClassVar[frozenset[str]]
    """The fields that can be references. Others, such as tags of commits, can have an item ``env`` of their own."""
    field_hints: ClassVar[Mapping[str, str]] = {}
    """For names that are no fields, what to write."""

    if not typing.TYPE_CHECKING:  # A type checker sees the fields as parameters.

        def __init__(self, **data: Any) -> None:
            check_fields(type(self), data, hints=self.field_hints)
            references = {name: as_references(data[name]) for name in data.keys() & self.referencing}
            super().__init__(**{**data, **references})


class CatalogResource(_ReferencingResource):
    """The catalog of the tables, opened on first use, once in each process.

    ``catalog.lake`` is the Python API on the catalog, for assets, ops, checks and sensors. At the end of the run the client
    waits for background checksums and checkpoints and is closed.

    Args:
        spark: what ``catalog.lake`` takes its Spark session from, on first use: ``SparkResource``, or ``LazyPySparkResource`` of
            dagster-pyspark. Without it the running session is used, or a local one is started.
        settings: a ``ClientSettingsConfig``, because Dagster shows and reads it as configuration.
    """

    referencing = frozenset({"url", "warehouse", "storage_options", "principal", "token", "user_metadata"})
    field_hints = dict.fromkeys(("catalog", "uri", "database", "connection_string"), "url=...") | dict.fromkeys(
        ("location", "path", "root"), "warehouse=..."
    )

    url: str = Field(
        repr=False,
        description="Database of the catalog, e.g. sqlite:////data/catalog.db or postgresql+psycopg://host/db, or http://host:port "
        "of its server.",
    )
    warehouse: str | None = Field(
        default=None, description="Directory or URI of the locations of new tables. Not for a server, which knows it."
    )
    storage_options: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,
        description="Options of the warehouse's object store, e.g. keys and endpoint, or options by prefix of the location. "
        "An EnvVar holds all of them as a JSON object.",
    )
    principal: str | None = Field(
        default=None,
        description="Who the runs are, for grants and the audit. Default: environment variable CM_DELTA_PRINCIPAL; without it on "
        "PostgreSQL the role that logs in.",
    )
    token: str | None = Field(
        default=None,
        repr=False,
        description="Token of a server of the catalog. Default: environment variable CM_DELTA_TOKEN.",
    )
    commit_tags: dict[str, str] = Field(
        default_factory=dict,
        description="Tags that the commits of the runs record in commitInfo, beside those of the run.",
    )
    user_metadata: str | None = Field(default=None, description="User metadata that the commits record in commitInfo.")
    spark: dg.ResourceDependency[Any] = Field(
        default=None,  # type: ignore[arg-type]  # Dagster accepts None here, and its type does not say so.
        description="Resource with the Spark session of catalog.lake, which is started on first use.",
    )
    settings: ClientSettingsConfig = Field(
        default_factory=ClientSettingsConfig,
        description="Settings of the Delta client: retries, threads, delays, caches.",
    )

    _client: DeltaClient | None = PrivateAttr(default=None)
    _process: int | None = PrivateAttr(default=None)
    _run_id: str | None = PrivateAttr(default=None)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @field_validator("storage_options", mode="before")
    @classmethod
    def _accept_reference(cls, value: Any) -> Any:
        return as_config(value)

    @property
    def client(self) -> DeltaClient:
        """The open client. Raises CatalogUnavailableError when the catalog cannot be reached."""
        with self._lock:
            if self._client is None or self._process != os.getpid():
                # A client inherited through fork shares its connections with the parent and must not be used.
                self._client = self.open_client()
                self._process = os.getpid()
            return self._client

    @property
    def lake(self) -> "Connection":
        """The Python API on the catalog, as of :func:`~cm_delta_dagster.connect`, for the run in which it is used.

        Commits record the run, its step, asset and partitions. Reads that name no version see the version of a table that the run
        has pinned, as inputs of assets do; writes build on the latest one, and the run reads what it has written. In a sensor there
        is no run: reads see the latest versions. The connection is closed with the resource.
        """
        session = None if self.spark is None else partial(session_of, self.spark, user="CatalogResource")
        return run_connection.connection_of_run(self.client, run_id=self._run_id, spark=session)

    def close(self) -> None:
        """Wait for background work and close the client; the next use opens another one."""
        with self._lock:
            client, self._client = self._client, None
            opened_here = self._process == os.getpid()
        if client is not None and opened_here:
            client.close()

    if not typing.TYPE_CHECKING:  # Type checkers would take every name for an attribute.

        def __getattr__(self, name: str) -> Any:
            # dict(resource), which Dagster calls when definitions are loaded, asks for keys; that must not import the Python API.
            is_asked_by_python = name == "keys" or name.startswith("_") or hasattr(type(self), name)
            if is_asked_by_python or not hasattr(run_connection.RunConnection, name):
                return super().__getattr__(name)
            raise AttributeError(
                f"CatalogResource has no attribute {name!r}: write catalog.lake.{name}", name=name, obj=self
            )

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        self._run_id = None if context.run is None else context.run.run_id

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        self.close()

    def open_catalog(self, *, if_missing: IfMissing) -> OpenedCatalog:
        """The catalog, which the caller closes. Raises InvalidArgumentError for a database without a warehouse."""
        if self.warehouse is None and not is_server_url(self.url):
            raise InvalidArgumentError(
                "The resource of the catalog has the URL of a database and no warehouse. State the directory or URI of new tables."
            )
        return opening.open_catalog(
            self.url, warehouse=self.warehouse, if_missing=if_missing, principal=self.principal, token=self.token
        )

    def open_client(self, *, if_missing: IfMissing = IfMissing.CREATE) -> DeltaClient:
        """A client that the caller closes. The values of storage options are read from the environment here."""
        options_from_environment = resolved_options(self.storage_options, name="storage_options")
        options = StorageOptions.of(options_from_environment, warehouse=self.warehouse)
        catalog = self.open_catalog(if_missing=if_missing)
        return DeltaClient(
            catalog,
            stores=stores_of(catalog, options, is_served=is_server_url(self.url)),
            settings=self.settings.client_settings(),
            context=CommitProperties(tags=self.commit_tags, user_metadata=self.user_metadata),
        )


class SparkResource(_ReferencingResource):
    """A Spark session, started on first use: classic (``master``) or Spark Connect (``remote``).

    If the Java process of the session was killed or ran out of memory, the next use starts another session. A session that
    already runs in the process is used: the resource applies settings that can change and logs a warning about the others.
    """

    referencing = frozenset({"app_name", "master", "remote", "packages", "jars", "config"})

    app_name: str = Field(default="cm_delta_dagster", description="Name shown in the Spark UI.")
    master: str | None = Field(default=None, description="Master URL of a classic session, e.g. local[2].")
    remote: str | None = Field(
        default=None, repr=False, description="URL of a Spark Connect server, e.g. sc://host:15002."
    )
    packages: list[str] = Field(
        default_factory=list, repr=False, description="Maven coordinates for spark.jars.packages."
    )
    jars: list[str] = Field(default_factory=list, repr=False, description="Jar files for spark.jars.")
    config: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="Further Spark settings, as text. An EnvVar holds all of them as a JSON object.",
    )
    defaults: dict[str, str] = Field(
        default_factory=dict, repr=False, description="Spark settings that hold unless config sets them."
    )
    stop_on_teardown: bool = Field(
        default=False, description="Stop the session at the end of the run, if this resource started it."
    )

    _session: SparkSession | None = PrivateAttr(default=None)
    _started_here: bool = PrivateAttr(default=False)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @property
    def spark_session(self) -> SparkSession:
        """The session, started on first use.

        Raises:
            JavaNotFoundError: a classic session needs Java, and there is none.
            InvalidArgumentError: ``remote`` is given, and a classic session runs in this process.
            StoreNotSupportedError: the Delta IO manager of the run has a warehouse whose jars the session lacks.
        """
        with self._lock:
            if self._session is None or is_gone(self._session):
                session = self._take_or_start()
                self._check(session)
                self._session = session
            return self._session

    def _check(self, session: SparkSession) -> None:
        try:
            check_session(session)
        except BaseException:
            # A running session keeps its jars, and pyspark would give it to the next resource of this process.
            if self._started_here and not is_gone(session):
                session.stop()
            raise

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        with self._lock:
            session, self._session = self._session, None
            if session is not None and self.stop_on_teardown and self._started_here and not is_gone(session):
                session.stop()

    @field_validator("config", mode="before")
    @classmethod
    def _accept_reference(cls, value: Any) -> Any:
        return as_config(value)

    def check(self) -> None:
        """Raises InvalidArgumentError for contradictions that are known without the environment."""
        self._combined({} if variable_of(self.config) is not None else self.config)

    def settings(self) -> dict[str, str]:
        """The Spark settings of this resource, with the values of the environment.

        Raises:
            InvalidArgumentError: they contradict each other, a variable is not set, or a value is not text.
        """
        config = resolved_options(self.config, name="config")
        wrong = sorted(name for name, value in config.items() if not isinstance(value, str))
        if wrong:
            raise InvalidArgumentError(f"The values of {', '.join(wrong)} in config must be text. Put them in quotes.")
        return self._combined(config)

    def _combined(self, config: Mapping[str, str]) -> dict[str, str]:
        if self.master and self.remote:
            raise InvalidArgumentError(
                "SparkResource got both master and remote; a session is either classic or Connect. Give one of them."
            )
        asked = {"spark.app.name": self.app_name}
        if self.packages:
            asked["spark.jars.packages"] = ",".join(self.packages)
        if self.jars:
            asked["spark.jars"] = ",".join(self.jars)
        doubled = sorted(asked.keys() & config.keys())
        if doubled:
            raise InvalidArgumentError(
                f"SparkResource got {', '.join(doubled)} both as a field and in config. Keep one of the two."
            )
        return {**self.defaults, **asked, **config}

    def _take_or_start(self) -> SparkSession:
        settings = self.settings()
        running = running_session()
        if running is not None:
            self._started_here = False
            if self.remote is not None and not is_connect(running):
                raise InvalidArgumentError(
                    "SparkResource got remote, and a classic Spark session runs in this process, which can have "
                    "one kind only. Stop that session, or use Connect in a process of its own."
                )
            apply_settings(running, {**settings, **({"spark.master": self.master} if self.master else {})})
            return running
        check_installed()
        if self.remote is None and "SPARK_REMOTE" not in os.environ:
            ensure_java()
        builder = pyspark.sql.SparkSession.builder
        if self.remote is not None:
            builder = builder.remote(self.remote)
        elif self.master is not None:
            builder = builder.master(self.master)
        if self.remote is None and REDACTION not in settings_of_environment():  # A server has settings of its own.
            settings = {REDACTION: REDACTED_NAMES, **settings}
        for key, value in settings.items():
            builder = builder.config(key, value)
        self._started_here = True
        if self.remote is not None:
            return builder.getOrCreate()
        with same_interpreter({**settings, **({} if self.master is None else {"spark.master": self.master})}):
            return builder.getOrCreate()


def apply_settings(session: SparkSession, settings: Mapping[str, str]) -> None:
    """Apply settings that a running session can change, and log a warning about others that differ."""
    different = []
    for key, value in settings.items():
        if session.conf.get(key, None) == value or key == "spark.app.name":
            continue
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
        else:
            different.append(key)  # Without the values, which may be secrets.
    if different:
        dg.get_dagster_logger("cm_delta_dagster").warning(
            "A Spark session already runs in this process and keeps its own values of static settings: %s. Restart the "
            "process, or give the same settings to every Spark resource.",
            ", ".join(different),
        )
