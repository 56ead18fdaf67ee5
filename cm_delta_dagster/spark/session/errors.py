"""Mapping of Spark's exceptions to errors of this package.

Messages have the root cause in one line; the Java stack trace stays in the ``__cause__`` of the exception.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from cm_delta_dagster.errors import (
    CmDeltaError,
    EngineError,
    InvalidArgumentError,
    InvalidDataError,
    ObjectNotFoundError,
    PartitionMismatchError,
    StorageError,
    StoreNotSupportedError,
    UnsupportedFeatureError,
)
from cm_delta_dagster.remedies import ReadWithoutSpark
from cm_delta_dagster.spark.library import is_imported, py4j_errors, pyspark_errors
from cm_delta_dagster.spark.session.query_logs import without_query_logs
from cm_delta_dagster.spark.session.session import network_errors, stopped_error, wait_for_end


class Violation(StrEnum):
    """Rules that an expression inside the Spark job checks."""

    NOT_NULL = "not-null"
    CONSTRAINT = "constraint"
    CAST = "cast"
    IDENTITY = "identity"
    OUTSIDE = "outside"
    PARTITION_VALUE = "partition-value"
    ENGINE = "engine"


_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] |RuntimeException: ")
"""What Spark puts before the text of ``raise_error``."""
_VIOLATION = re.compile(r" \(cm-delta: ([a-z-]+)\)")
_CAUSED_BY = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_LOST_TASK = re.compile(r"most recent failure: Lost task [^\n]*?executor [^)\n]*\): (.+)")
_MISSING = re.compile(r"FILE_NOT_EXIST|PATH_NOT_FOUND|FileNotFoundException|NoSuchKey")
_STORAGE = re.compile(
    r"No space left on device|Disk quota exceeded|Permission denied|AccessDenied|Mkdirs failed|File name too long"
    r"|java\.io\.\w*Exception|java\.nio\.file\.|org\.apache\.hadoop\.|software\.amazon\.|FAILED_READ_FILE"
    r"|could not verify page integrity"
)
_UNREAD_TYPE = re.compile(
    r"PARQUET_COLUMN_DATA_TYPE_MISMATCH|PARQUET_TYPE_NOT_(?:SUPPORTED|RECOGNIZED)|PARQUET_TYPE_ILLEGAL"
)
"""Stored types that Spark does not read as the type of the column, such as half floats and nanoseconds."""
_NO_FILE_SYSTEM = re.compile(
    r'No FileSystem for scheme "?(\w+)|Class (org\.apache\.hadoop\.fs\.(?:s3a|azurebfs|gs)\.\w+) not found'
)
_REFUSALS = (
    (
        re.compile(r"UnknownStoreException|NoSuchBucket"),
        "Spark found no bucket",
        "Check the name of the bucket and the endpoint.",
    ),
    (
        re.compile(r"NoA\w*CredentialsException|NoAuthWithAWSException|Unable to load credentials from any"),
        "Spark has no credentials for the store",
        "Give key and secret in storage_options or in the session's settings, or set up the environment of Spark's processes.",
    ),
    (
        re.compile(r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken"),
        "The store does not accept Spark's credentials",
        "Check the key and secret in storage_options, in the session's settings or in the environment of Spark's processes.",
    ),
    (
        re.compile(r"ExpiredToken|TokenRefreshRequired"),
        "Spark's credentials have expired",
        "Get new ones and start a new session, or use credentials that Spark renews, such as a profile or a role.",
    ),
    (
        re.compile(r"RequestTimeTooSkewed|RequestExpired"),
        "The clocks of Spark's machines and of the store differ by more than the store accepts",
        "Set the clocks of the driver and of the executors, e.g. by NTP.",
    ),
    (
        re.compile(r"QuotaExceeded|XMinioStorageFull|Status Code: 507"),
        "The store is full, or a quota is used up,",
        "Free space, raise the quota, or write to another bucket.",
    ),
    (
        re.compile(r"MethodNotAllowed|Status Code: 405"),
        "The server does not permit Spark's request; probably it is not an object store. This happened",
        "Check the endpoint in storage_options: its host, its port, and that it has no path of a web page.",
    ),
    (
        re.compile(r"AWSRedirectException|AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint"),
        "The bucket is in another region than Spark's requests",
        'Give its region in storage_options, e.g. client_kwargs={"region_name": "eu-central-1"}.',
    ),
    (
        re.compile(r"Status Code: 40[13]"),  # The answer to a HEAD request has no other code.
        "The store refuses Spark's requests",
        "Check Spark's credentials, in storage_options, the session's settings or the environment, and their permissions.",
    ),
)
"""Answers of a store: a pattern, what happened and what to do."""
_STOPPED = re.compile(r"stopped SparkContext|SparkContext (?:was|has been) (?:shut ?down|stopped)", re.IGNORECASE)
_JAVA_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[A-Z][\w$]*: ")
_MAX_CAUSE = 600


def violation_text(kind: Violation, text: str) -> str:
    """The text for ``raise_error`` that :func:`spark_errors` recognises.

    Users see it unchanged if an action on a DataFrame of theirs fails.
    """
    return text + violation_suffix(kind)


def violation_suffix(kind: Violation) -> str:
    """End of a violation's text."""
    return f" (cm-delta: {kind.value})"


@contextmanager
def spark_errors(doing: str) -> Iterator[None]:
    """Map exceptions of Spark within the block.

    Args:
        doing: the activity, for the message, e.g. ``writing data files of s3://b/t``.

    Raises:
        InvalidDataError: rows broke NOT NULL or another constraint, have a partition value that cannot be stored, or a value
            that cannot be converted, e.g. a text that is not a number.
        PartitionMismatchError: rows do not satisfy the declared predicate.
        InvalidArgumentError: Spark could not resolve or parse an expression.
        ObjectNotFoundError: a data file is missing; the message names it.
        StorageError: the file system failed, e.g. a full disk.
        StoreNotSupportedError: the session has no file system for the location.
        UnsupportedFeatureError: a data file stores a column with a type that Spark does not read.
        EngineStoppedError: the session has been stopped.
        EngineError: anything else.
    """
    try:
        with without_query_logs():
            yield
    except Exception as error:
        if not _is_of_spark(error):
            raise
        raise mapped(error, doing) from error


def _is_of_spark(error: Exception) -> bool:
    types = (pyspark_errors.PySparkException, py4j_errors.Py4JError, *network_errors()) if is_imported() else ()
    return isinstance(error, types)


def mapped(error: Exception, doing: str) -> CmDeltaError:
    """The error of this package for Spark's ``error``."""
    if isinstance(error, network_errors()):
        wait_for_end()
        return stopped_error(doing)
    text = _whole_text(error)
    if _STOPPED.search(text):
        return stopped_error(doing)
    is_refused = isinstance(error, pyspark_errors.AnalysisException | pyspark_errors.ParseException)
    # The text of a query that was refused may contain the checks of the scan; none of them has failed.
    violation = None if is_refused else _VIOLATION.search(text)
    if violation is not None:
        return _violation(violation[1], _RAISED.split(text[: violation.start()])[-1])
    absent = _NO_FILE_SYSTEM.search(text)
    if absent is not None:
        return StoreNotSupportedError(
            f"The Spark server has no file system for the table ({absent[1] or absent[2]}), noticed while {doing}. Nothing was "
            "written. Start it with the jars that docs/spark-on-object-stores.md lists."
        )
    cause = root_cause(text)
    shown = _JAVA_CLASS.sub("", cause)
    if is_refused and not _MISSING.search(text):
        return InvalidArgumentError(
            f"Spark does not accept the query while {doing}: {shown} Nothing was changed. Correct it."
        )
    if isinstance(
        error,
        pyspark_errors.ArithmeticException | pyspark_errors.DateTimeException | pyspark_errors.NumberFormatException,
    ):
        return InvalidDataError(
            f"A value cannot be computed while {doing}: {shown} Nothing was committed. Correct the rows or the "
            "condition."
        )
    for pattern, what, remedy in _REFUSALS:
        if pattern.search(text):
            return StorageError(f"{what} while {doing}: {shown} Nothing was committed. {remedy}")
    if _MISSING.search(text):
        return ObjectNotFoundError(
            f"A file is missing while {doing}: {shown} It is part of the table's version; restore it, or read a "
            "version that does not need it."
        )
    if _UNREAD_TYPE.search(text):
        return UnsupportedFeatureError(
            f"Spark cannot read a data file of another writer while {doing}: {shown} Nothing was committed. The file is not "
            "damaged: let its writer store the column with the table's type, or use another engine."
        ).with_remedy(ReadWithoutSpark())
    if _STORAGE.search(cause):
        return StorageError(f"Storage failed while {doing}: {shown} Nothing was committed.")
    return EngineError(f"Spark failed while {doing}: {shown} Nothing was committed.")


def root_cause(text: str) -> str:
    """The innermost cause in one line, without stack frames."""
    causes = _CAUSED_BY.findall(text)
    lost = _LOST_TASK.search(text)
    if causes:
        line = causes[-1]
    elif lost is not None:
        line = lost[1]
    elif "Traceback (most recent call last)" in text:
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
        line = lines[-1] if lines else text
    else:
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
        # The first line of a Py4JJavaError only names the gateway object that was called.
        useful = [line for line in lines if not line.startswith("An error occurred while calling")]
        line = (useful or lines or [text])[0].removeprefix(": ")
    line = " ".join(line.split()).rstrip(";")
    line = line if len(line) <= _MAX_CAUSE else line[:_MAX_CAUSE] + " ..."
    return line if line.endswith((".", "!", "?")) else line + "."


def _whole_text(error: BaseException) -> str:
    """Message of the error and of Spark's own causes, outermost first."""
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None and len(parts) < 20:
        parts.append(str(current))
        inner = getattr(current, "_cause", None)
        current = inner if isinstance(inner, BaseException) else None
    head, *causes = parts
    return "\n".join([head, *(f"Caused by: {cause}" for cause in causes)])


def _violation(kind: str, text: str) -> CmDeltaError:
    if kind == Violation.OUTSIDE:
        return PartitionMismatchError(text)
    if kind == Violation.ENGINE:
        return EngineError(text)
    return InvalidDataError(text)
