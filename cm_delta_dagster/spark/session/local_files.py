"""Writes to local files without a process for each new file.

Without its native library, which PySpark does not have, Hadoop's local file system starts ``chmod`` for each file and directory
that it creates: about twenty processes and a third of the time of a small write. In a session that runs its tasks in the process
of the driver, the file system that all of them share is replaced by one that sets the same permissions itself.
"""

import logging
import os
import threading
from typing import Any
from weakref import WeakSet

from cm_delta_dagster.spark.library import SparkSession, py4j_gateway
from cm_delta_dagster.spark.session.java_classes import compiled, jvm_errors
from cm_delta_dagster.spark.session.session import is_connect, network_errors

SETTING = "spark.cmDelta.localFiles"
"""Session setting that leaves the file system as it is if it is ``false``."""

_REPLACED = ("org.apache.hadoop.fs.LocalFileSystem", "org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem")
"""Hadoop's own file system, and the one that the Hive library of Spark puts around it."""
_OURS = "cm_delta_dagster.LocalFiles"

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_seen: WeakSet[Any] = WeakSet()
"""Java processes whose file system was replaced, or is left as it is."""


def set_permissions_without_processes(session: SparkSession) -> None:
    """Replace the local file system of the session's Java process, once, if it is Hadoop's own and all tasks run there.

    The session keeps it for all its local files. Nothing is done if the session has Hive's catalog, which marks files for deletion
    when the file system is closed. A platform that does not allow it keeps the file system.
    """
    if is_connect(session) or os.name != "posix":
        return
    try:
        gateway = session.sparkContext._gateway
        with _lock:
            if gateway in _seen or str(session.conf.get(SETTING, "true")).lower() == "false":
                return
            _seen.add(gateway)
            if _can_be_replaced(session):
                _replace(session)
    except network_errors():
        raise
    except jvm_errors() as error:
        _log.debug("The local file system of Spark stays as it is: %s", error)


def _can_be_replaced(session: SparkSession) -> bool:
    master = session.sparkContext.master or ""
    return (
        (master == "local" or master.startswith("local["))
        and session.conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory"
        and not _java_class(session, "org.apache.hadoop.io.nativeio.NativeIO").isAvailable()
        and _shared(session, _settings(session)).getClass().getName() in _REPLACED
    )


def _replace(session: SparkSession) -> None:
    loader = compiled(session._jvm, ["LocalFiles"])
    settings = _java_class(session, "org.apache.hadoop.conf.Configuration")(_settings(session))
    settings.setClassLoader(loader)
    settings.set("fs.file.impl", _OURS)
    _shared(session, _settings(session)).close()  # Only forgets it; files that it has opened stay open.
    _shared(session, settings)


def _shared(session: SparkSession, settings: Any) -> Any:
    """The file system for local files that all code of the Java process gets; made with the settings if there is none."""
    root = _java_class(session, "java.net.URI")("file:///")
    return _java_class(session, "org.apache.hadoop.fs.FileSystem").get(root, settings)


def _settings(session: SparkSession) -> Any:
    context: Any = session.sparkContext  # The Java objects of a context have no types.
    return context._jsc.hadoopConfiguration()


def _java_class(session: SparkSession, name: str) -> Any:
    gateway: Any = session.sparkContext._gateway
    return py4j_gateway.JavaClass(name, gateway._gateway_client)
