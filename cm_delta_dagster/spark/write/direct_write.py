"""Writing data files to their final place, without an output committer and its renames.

Spark's streaming file sink writes so: each task attempt writes under names that no other attempt has, and reports its files when
all of them are closed. Spark accepts one attempt for each partition of the rows, and the driver notes the files of that attempt.
Files of other attempts are in no commit; vacuum deletes them. The classes are a part of Spark, so executors need no jar.

``DataFrameWriter`` does not use them, so they are called in the JVM of the driver. Spark Connect has none.
"""

import json
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from cm_delta_dagster.errors import EngineError
from cm_delta_dagster.spark.library import DataFrame, SparkSession, captured_errors, py4j_errors, py4j_gateway
from cm_delta_dagster.spark.session.errors import root_cause
from cm_delta_dagster.spark.session.session import is_connect, network_errors

SETTING = "spark.cmDelta.directWrite"
"""Session setting that switches direct writes off if it is ``false``."""

_STREAMING = ("org.apache.spark.sql.execution.streaming.sinks", "org.apache.spark.sql.execution.streaming")
"""Packages of the streaming sink, which differ between versions of Spark."""
_WRITER = "org.apache.spark.sql.execution.datasources.FileFormatWriter"
_EXECUTION = "org.apache.spark.sql.execution.SQLExecution"
_CALL_SITE = "callSite.short"
_CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_LOG_FORMAT = 1
_BATCH = 0
_WRAPPER = "java.lang.reflect.UndeclaredThrowableException"

_lock = threading.Lock()
_methods: dict[tuple[str, str, str], Any] = {}
"""Handles of Java methods by application, class and name: finding one takes a call for each method of the class."""


class NotAvailableError(Exception):
    """The session lacks what a direct write needs. Nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFile:
    """A file that a task has written.

    Attributes:
        location: decoded, with the scheme that Spark uses.
        size: in bytes.
        modification_time: epoch milliseconds.
    """

    location: str
    size: int
    modification_time: int


def may_write_directly(session: SparkSession) -> bool:
    """Whether direct writes can be tried: not on Spark Connect, and not if the user has switched them off."""
    return not is_connect(session) and str(session.conf.get(SETTING, "true")).lower() != "false"


def write_directly(
    frame: DataFrame, *, directory: str, options: Mapping[str, str], partition_columns: Sequence[str]
) -> list[ReportedFile]:
    """Write the rows of ``frame`` as Parquet files below ``directory``, and return the files in order of location.

    Args:
        directory: a new location, with the scheme that Spark uses.
        options: of the Parquet writer and of Hadoop's file system.

    Raises:
        NotAvailableError: the session lacks a class or method; nothing was written.
        EngineError: the report of the tasks cannot be read.
        PySparkException, Py4JError: Spark failed. It deletes the files of finished tasks as far as it can.
    """
    log_folder = Path(tempfile.mkdtemp(prefix="cm-delta-write-"))
    try:
        try:
            write = _prepared(
                frame,
                directory=directory,
                log_folder=log_folder,
                options=options,
                partition_columns=partition_columns,
            )
        except (py4j_errors.Py4JError, AttributeError, TypeError, ValueError) as error:
            raise NotAvailableError(root_cause(str(error))) from error
        with _described(frame.sparkSession, f"write data files into {directory}"):
            _run(write)
        try:
            return sorted(_reported(log_folder), key=lambda file: file.location)
        except (ValueError, KeyError, OSError) as error:
            raise EngineError(
                f"Spark's report of the files that it has written cannot be read: {error}. Nothing was committed. Set "
                f"{SETTING}=false in the session to write through a committer."
            ) from error
    finally:
        shutil.rmtree(log_folder, ignore_errors=True)


def _prepared(
    frame: DataFrame, *, directory: str, log_folder: Path, options: Mapping[str, str], partition_columns: Sequence[str]
) -> Any:
    """A Java ``Supplier`` that writes the rows."""
    session = frame.sparkSession
    jvm: Any = session.sparkContext._jvm
    own = session._jsparkSession
    # A new execution, as DataFrameWriter makes one: that of the frame keeps the results of an earlier action or failure.
    plan, modes = frame._jdf.queryExecution().commandExecuted(), jvm.org.apache.spark.sql.execution.CommandExecutionMode
    execution = own.sessionState().executePlan(plan, modes.SKIP())
    datasources, optional = jvm.org.apache.spark.sql.execution.datasources, jvm.scala.Option
    log = _sink_log(jvm, own, f"file://{log_folder}")
    committer = _streaming_class(jvm, "ManifestFileCommitProtocol")(str(_BATCH), directory)
    committer.setupManifestOptions(log, _BATCH)
    java_options, output = _scala_map(jvm, options), execution.analyzed().output()
    columns = [output.apply(index) for index in range(output.size())] if partition_columns else []
    by_name = {column.name().lower(): column for column in columns}
    missing = [name for name in partition_columns if name.lower() not in by_name]
    if missing:
        raise NotAvailableError(f"Spark's plan of the rows has no column of the name {', '.join(missing)}.")
    write = _supplier(
        session,
        _WRITER,
        "write",
        own,
        execution.executedPlan(),
        datasources.parquet.ParquetFileFormat(),
        committer,
        getattr(datasources, "FileFormatWriter$OutputSpec")(directory, _scala_map(jvm, {}), output),
        own.sessionState().newHadoopConfWithOptions(java_options),
        _scala_seq(jvm, [by_name[name.lower()] for name in partition_columns]),
        optional.empty(),
        _scala_seq(jvm, []),
        java_options,
    )
    # Within an execution the Spark UI shows the query, and listeners of the session are notified.
    name = optional.apply("write")
    function = jvm.scala.jdk.javaapi.FunctionConverters.asScalaFromSupplier(write)
    return _supplier(session, _EXECUTION, "withNewExecutionId", execution, name, function)


def _sink_log(jvm: Any, own: Any, folder: str) -> Any:
    """The sink's log, a file on this machine. If the session sets a class for checkpoints of streams, which may not take local
    files, the log gets a session with Spark's default.
    """
    if own.conf().getOption(_CHECKPOINT_FILES).isDefined():
        own = own.newSession()
        own.conf().unset(_CHECKPOINT_FILES)
    return _streaming_class(jvm, "FileStreamSinkLog")(_LOG_FORMAT, own, folder, jvm.scala.Option.empty())


@contextmanager
def _described(session: SparkSession, text: str) -> Iterator[None]:
    """Show ``text`` for the jobs of this thread in the Spark UI, unless the user has described them."""
    context = session.sparkContext
    if context.getLocalProperty(_CALL_SITE) is not None:
        yield
        return
    context.setLocalProperty(_CALL_SITE, text)
    try:
        yield
    finally:
        with suppress(*network_errors()):  # A session that has ended shows no jobs.
            context.setLocalProperty(_CALL_SITE, None)  # type: ignore[arg-type]  # None removes it.


def _run(write: Any) -> None:
    try:
        write.get()
    except py4j_errors.Py4JJavaError as error:
        thrown = error.java_exception
        while thrown.getClass().getName() == _WRAPPER:
            thrown = thrown.getCause()
        raise captured_errors.convert_exception(thrown) from error


def _reported(log_folder: Path) -> Iterator[ReportedFile]:
    """What the sink's log has of the only batch: a line with the version of the format, and one for each file."""
    (batch,) = (path for path in log_folder.iterdir() if path.name.partition(".")[0] == str(_BATCH))
    for line in batch.read_text(encoding="utf-8").splitlines()[1:]:
        file = json.loads(line)
        place = urlsplit(file["path"])
        yield ReportedFile(
            location=f"{place.scheme}://{place.netloc}{unquote(place.path)}",
            size=int(file["size"]),
            modification_time=int(file["modificationTime"]),
        )


def _streaming_class(jvm: Any, name: str) -> Any:
    for package in _STREAMING:
        java_class = getattr(getattr(jvm, package), name)
        if isinstance(java_class, py4j_gateway.JavaClass):
            return java_class
    raise NotAvailableError(f"This Spark has no class {name}.")


def _supplier(session: SparkSession, class_name: str, name: str, *arguments: Any) -> Any:
    """A Java ``Supplier`` that calls a static method with these arguments.

    The methods take Scala functions, which Python cannot make; Java makes one of a ``Supplier``.
    """
    jvm: Any = session.sparkContext._jvm
    invoke = jvm.java.lang.invoke
    key = (session.sparkContext.applicationId, class_name, name)
    with _lock:
        method = _methods.get(key)
    if method is None:
        method = _method(jvm, class_name, name, arguments)
        with _lock:
            _methods[key] = method
    bound = invoke.MethodHandles.insertArguments(method, 0, _java_list(jvm, arguments).toArray())
    interface = jvm.java.lang.Class.forName("java.util.function.Supplier")
    return invoke.MethodHandleProxies.asInterfaceInstance(interface, bound)


def _method(jvm: Any, class_name: str, name: str, arguments: Sequence[Any]) -> Any:
    """A handle of the method with as many parameters, once those that newer versions of Spark have added got their defaults."""
    owner = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(class_name)
    (method,) = (candidate for candidate in owner.getMethods() if candidate.getName() == name)
    added = range(len(arguments), method.getParameterCount())
    defaults = [getattr(getattr(jvm, class_name), f"{name}$default${index + 1}")() for index in added]
    handles = jvm.java.lang.invoke.MethodHandles
    handle = handles.publicLookup().unreflect(method)
    return handles.insertArguments(handle, len(arguments), _java_list(jvm, defaults).toArray())


def _scala_seq(jvm: Any, values: Sequence[Any]) -> Any:
    return jvm.PythonUtils.toSeq(_java_list(jvm, values))


def _scala_map(jvm: Any, values: Mapping[str, str]) -> Any:
    java_map = jvm.java.util.HashMap()
    for name, value in values.items():
        java_map.put(name, value)
    return jvm.PythonUtils.toScalaMap(java_map)


def _java_list(jvm: Any, values: Sequence[Any]) -> Any:
    java_list = jvm.java.util.ArrayList()
    for value in values:
        java_list.add(value)
    return java_list
