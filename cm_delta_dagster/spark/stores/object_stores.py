"""How one Spark session reads and writes the files of a table in an object store.

Settings go with each read and write, so the session's own settings stay as they are. Hadoop keeps one client for each bucket,
user and Java process; the settings of the first access are those of the client.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import StorageError, StoreNotSupportedError
from cm_delta_dagster.protocol.actions.paths import OBJECT_STORE_SCHEMES
from cm_delta_dagster.spark.library import Column, F, SparkSession, py4j_errors, pyspark_errors
from cm_delta_dagster.spark.session.session import is_connect, session_identity
from cm_delta_dagster.spark.stores.google_connector import connector_settings
from cm_delta_dagster.spark.stores.hadoop_options import (
    ENVIRONMENT_CHAIN,
    HadoopOptions,
    check_bucket,
    hadoop_options,
    spark_location,
)
from cm_delta_dagster.spark.stores.jars import JarStore
from cm_delta_dagster.storage.storage_options import is_secret
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)

SCHEME_SETTING = "spark.cmDelta.scheme"
"""Prefix of the session settings that choose Spark's scheme: ``spark.cmDelta.scheme.s3=s3a``."""

_S3A_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_CLOUD = "org.apache.spark.internal.io.cloud"
_REDACTION = "spark.sql.redaction.options.regex"
_TEXT_REDACTION = "spark.sql.redaction.string.regex"
_SETTINGS_IN_REQUESTS = r'fs\.(s3a|azure|gs)\.[^"]*"\s*value: "(\\.|[^"\\])*"'
"""A setting of a read or write in the text of a Connect request, as the server's web pages show it."""
_NO_CACHE = "fs.s3a.impl.disable.cache"
_PROVIDER = "fs.s3a.aws.credentials.provider"
_LONGEST = 2**31 - 1
_COMPARED = ("access.key", "secret.key", "session.token", "endpoint", "aws.credentials.provider", "auth.profile.name")

_WITHOUT_RENAMES: Mapping[str, str] = {
    "spark.sql.parquet.output.committer.class": f"{_CLOUD}.BindingParquetOutputCommitter",
    "mapreduce.outputcommitter.factory.scheme.s3a": "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory",
    "fs.s3a.committer.name": "magic",
    "fs.s3a.committer.magic.enabled": "true",
}
_ALWAYS: Mapping[str, str] = {
    # With it Spark reports success and no file exists: the task's list of uploads is not found when the task commits.
    "fs.s3a.committer.magic.track.commits.in.memory.enabled": "false",
    # Algorithm 2 moves files when a task commits. A task that fails meanwhile leaves files beside those of its next attempt.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
}
_PATH_PROTOCOL: Mapping[str, str] = {
    "spark.sql.sources.commitProtocolClass": f"{_CLOUD}.PathOutputCommitProtocol",
}


@runtime_checkable
class HasOptions(Protocol):
    """A store that is reached with options, as :class:`~cm_delta_dagster.storage.fsspec_store.FsspecStore`."""

    @property
    def options(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkStorage:
    """How Spark reaches the files of one table.

    Attributes:
        places: None for a table that is not in an object store.
        root: scheme and bucket of the table's location.
        store_options: of the fsspec file system that holds the log.
        read_options: options of each read.
        write_options: options of each write through a committer.
        write_settings: session settings that hold while such a write runs.
        copies: whether such a write copies each file.
    """

    places: HadoopOptions | None = None
    root: str = ""
    store_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    read_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    write_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    write_settings: Mapping[str, str] = field(default_factory=dict)
    copies: bool = False

    @property
    def is_object_store(self) -> bool:
        return self.places is not None

    def warn_of_copies(self) -> None:
        """Log a warning if a write through a committer copies each file."""
        if self.copies:
            _log.warning(
                "The Spark session has no spark-hadoop-cloud jar, so each data file is copied twice when a write to %s commits. "
                "Add the jar to write without copies: see docs/spark-on-object-stores.md.",
                self.root,
            )

    def location(self, location: str) -> str:
        """A location of the catalog as Spark opens it."""
        return location if self.places is None else spark_location(location, self.places)

    def catalog_column(self, spelled: Column) -> Column:
        """A column of locations that Spark returned, as the catalog has them; the scheme of S3 is always ``s3``."""
        if self.places is None or self.places.prefix == self.places.spark_prefix:
            return spelled
        own = self.places.spark_prefix
        rest = F.substring(spelled, len(own) + 1, _LONGEST)
        return F.when(spelled.startswith(own), F.concat(F.lit(self.places.prefix), rest)).otherwise(spelled)

    def options_for(self, locations: pa.Array) -> Mapping[str, str]:
        """Options to read files at these locations, of which some may be in other buckets than the table."""
        if self.places is None or pc.all(pc.starts_with(locations, f"{self.root}/")).as_py():
            return self.read_options
        places = [hadoop_options(root, self.store_options) for root in sorted(set(map(_root, locations.to_pylist())))]
        others = {name: value for place in places if place is not None for name, value in place.settings.items()}
        return {**others, **self.read_options}


ON_THIS_FILE_SYSTEM = SparkStorage()
"""Locations that Spark opens as they are."""

_lock = threading.Lock()
_known: dict[tuple[str, str, tuple[tuple[str, str], ...]], SparkStorage] = {}


def options_of(store: Store) -> Mapping[str, Any]:
    """The fsspec options that the store is reached with."""
    return store.options if isinstance(store, HasOptions) else {}


def spark_storage(session: SparkSession, store: Store, location: str) -> SparkStorage:
    """How ``session`` reaches the table at ``location``, whose log is in ``store``.

    Raises:
        StoreNotSupportedError: the session lacks the jars of the file system, or S3A cannot have the name of the bucket; the
            message says what to do.
        InvalidArgumentError: the options of the store cannot be given to Spark.
    """
    scheme = location.partition("://")[0].lower()
    if scheme in ("file", "memory") or location.startswith("/"):
        return ON_THIS_FILE_SYSTEM
    chosen = session.conf.get(f"{SCHEME_SETTING}.{scheme}", None)
    plain = hadoop_options(location, options_of(store), scheme=chosen)
    if plain is None:
        return ON_THIS_FILE_SYSTEM
    root = _root(location)
    # A later Java process may give its session the same identity; the id of the application has the time of the start.
    application = "" if is_connect(session) else session.sparkContext.applicationId
    key = (f"{application} {session_identity(session)}", f"{root} {chosen}", tuple(sorted(plain.settings.items())))
    with _lock:
        storage = _known.get(key)
    if storage is None:
        storage = (
            _on_connect(session, root, plain) if is_connect(session) else _on_classic(session, root, plain, chosen)
        )
        storage = replace(storage, root=root, store_options=options_of(store))
        with _lock:
            _known[key] = storage
    return storage


def check_same_place(session: SparkSession, storage: SparkStorage, directory: str) -> None:
    """Raise StorageError if Spark sees rows in ``directory``, where the store of the log has listed none."""
    if storage.places is None:
        return
    reader = session.read.schema("nothing INT").options(**storage.read_options).option("recursiveFileLookup", "true")
    try:
        num_rows = reader.parquet(storage.location(directory)).limit(1).count()
    except pyspark_errors.AnalysisException:
        return  # There is no such path: the write made no file.
    if num_rows:
        raise other_place(directory)


def other_place(directory: str) -> StorageError:
    """The error for files that Spark has written and the store of the log does not have."""
    return StorageError(
        f"Spark has written rows into {directory}, and the client of the log does not find the files there. Either the two reach "
        "different servers, or another program has deleted the files since, e.g. a lifecycle rule of the bucket. Nothing was "
        "committed. Give the same endpoint and bucket to both, by storage_options; if they are the same, find what deletes files "
        "below the table, and write again."
    )


def _root(location: str) -> str:
    """Scheme and bucket."""
    return "/".join(location.split("/", 3)[:3])


def _on_connect(session: SparkSession, root: str, places: HadoopOptions) -> SparkStorage:
    check_bucket(root, places)
    if any(is_secret(name) for name in places.settings):
        _redact_requests(session)
    # The server's classes are not visible; its own settings choose the committer.
    return _storage(places, places.settings, {}, {})


def _redact_requests(session: SparkSession) -> None:
    """Let the web pages of a Connect server, which show the text of requests, leave out the values of settings."""
    pattern = session.conf.get(_TEXT_REDACTION, None) or session.conf.get("spark.redaction.string.regex", None)
    if pattern is None or _SETTINGS_IN_REQUESTS not in pattern:
        # For the rest of the session: its reads are executed at any time.
        session.conf.set(_TEXT_REDACTION, f"{pattern}|{_SETTINGS_IN_REQUESTS}" if pattern else _SETTINGS_IN_REQUESTS)


def _on_classic(session: SparkSession, root: str, places: HadoopOptions, chosen: str | None) -> SparkStorage:
    state = session._jsparkSession.sessionState()
    configuration = state.newHadoopConf()
    if chosen is None:
        places = _of_platform(session, configuration, root, places)
    check_bucket(root, places)
    scheme = places.spark_prefix.partition("://")[0]
    implementation = _file_system_class(session, configuration, scheme)
    google = connector_settings(configuration, implementation) if scheme == "gs" else {}
    if implementation is None and not google:
        raise _missing_jars(session, scheme)
    if google:
        return _storage(places, {**google, **places.settings}, {}, {})
    if implementation != _S3A_CLASS:
        return _storage(places, places.settings, {}, {})
    settings = dict(places.settings)
    provider = f"fs.s3a.bucket.{root.rpartition('/')[2]}.aws.credentials.provider"
    if provider not in settings and _is_default(configuration, _PROVIDER) and configuration.get(provider) is None:
        settings[_PROVIDER] = ENVIRONMENT_CHAIN
    if not _is_same_client(session, configuration, spark_location(root, places), settings):
        settings[_NO_CACHE] = "true"
    has_committers = configuration.getClassByNameOrNull(f"{_CLOUD}.PathOutputCommitProtocol") is not None
    committers = _WITHOUT_RENAMES if has_committers else {}
    storage = _storage(places, settings, committers, _PATH_PROTOCOL if has_committers else {})
    return replace(storage, copies=not has_committers)


def _storage(
    places: HadoopOptions, settings: Mapping[str, str], committers: Mapping[str, str], protocol: Mapping[str, str]
) -> SparkStorage:
    always = _ALWAYS if places.prefix == "s3://" else {}
    # Spark shows the options of a write in its plan, and redacts by name.
    redaction = {_REDACTION: r"(?i)url|^fs\.(s3a|azure|gs)\."} if any(is_secret(name) for name in settings) else {}
    return SparkStorage(
        places=places,
        read_options=dict(settings),
        write_options={**always, **committers, **settings},
        write_settings={**protocol, **redaction},
    )


def _of_platform(session: SparkSession, configuration: Any, root: str, places: HadoopOptions) -> HadoopOptions:
    """The platform's own file system for ``s3``, as on EMR, unless the options need S3A."""
    scheme = root.partition("://")[0].lower()
    if OBJECT_STORE_SCHEMES.get(scheme) != "s3" or places.settings:
        return places
    own = _file_system_class(session, configuration, "s3")
    if own is None or own == _S3A_CLASS:
        return places
    return HadoopOptions(prefix="s3://", spark_prefix="s3://")


def _file_system_class(session: SparkSession, configuration: Any, scheme: str) -> str | None:
    """Name of the Java class for ``scheme``; None if the session has none, or its jar is missing."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    try:
        file_system_class = jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, configuration)
    except py4j_errors.Py4JError:
        return None
    return str(file_system_class.getName())


def _is_default(configuration: Any, name: str) -> bool:
    sources = configuration.getPropertySources(name)
    return sources is None or all(str(source) == "core-default.xml" for source in sources)


def _is_same_client(session: SparkSession, configuration: Any, root: str, settings: Mapping[str, str]) -> bool:
    """Whether the client that Hadoop keeps for the bucket, or makes now, has these settings."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    for name, value in settings.items():
        configuration.set(name, value)
    kept = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI(root), configuration).getConf()
    bucket = f"fs.s3a.bucket.{root.rpartition('/')[2]}."
    for name in _COMPARED:
        setting = settings.get(bucket + name)
        if setting is not None and kept.get(f"fs.s3a.{name}") != setting:
            _log.warning(
                "The Java process of the Spark session reached %s before with other settings (%s), and Hadoop keeps one client "
                "for each bucket. Each read and write now makes a client of its own, which takes longer and keeps threads "
                "until the session ends. Start a new session after credentials have changed, or give none, so that Spark "
                "takes and refreshes those of the environment.",
                root,
                name,
            )
            return False
    return True


def _missing_jars(session: SparkSession, scheme: str) -> StoreNotSupportedError:
    jvm = session.sparkContext._jvm
    assert jvm is not None
    hadoop = str(jvm.org.apache.hadoop.util.VersionInfo.getVersion())
    return StoreNotSupportedError(missing_jars_text(scheme, hadoop=hadoop))


def missing_jars_text(scheme: str, *, hadoop: str) -> str:
    """Which jars a session needs for the locations of ``scheme``, and how to get them."""
    stores = {"s3a": JarStore.S3, "abfss": JarStore.AZURE, "abfs": JarStore.AZURE, "gs": JarStore.GCS}
    store = stores.get(scheme)
    start = (
        f"The Spark session has no file system for {scheme}://, so that it can neither read nor write rows there. Nothing was "
        "written. "
    )
    end = " A session that already runs keeps its jars: stop it first."
    if store is None:
        return f"{start}Start the session with the jar of that store, by spark.jars or spark.jars.packages.{end}"
    command = (
        f"run `cm-delta spark-jars --store {store} --to DIR`, and give the jars in DIR as spark.jars or "
        "SparkResource(jars=[...])."
    )
    if store is JarStore.GCS:
        return (
            f"{start}Start the session with the shaded jar of com.google.cloud.bigdataoss:gcs-connector: {command}{end}"
        )
    jar = f"org.apache.hadoop:hadoop-{'aws' if store is JarStore.S3 else 'azure'}:{hadoop}"
    return (
        f"{start}Start the session with the jar {jar}: set spark.jars.packages, or SparkResource(packages=[...]). Or "
        f"{command}{end}"
    )
