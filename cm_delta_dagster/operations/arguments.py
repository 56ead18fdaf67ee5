"""Checks and conversions of the arguments of operations, and errors that name their table. Uses neither Spark nor Arrow."""

import functools
import typing
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Concatenate, ParamSpec, TypeVar

from cm_delta_dagster.catalog.durations import is_duration, milliseconds_of
from cm_delta_dagster.catalog.holds import HOLD_DURATION_MS, MAX_HOLD_DURATION_MS
from cm_delta_dagster.client.snapshots.log_reader import storage_missing
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError, ObjectNotFoundError, TableStorageMissingError
from cm_delta_dagster.protocol.features.table_features import is_catalog_managed
from cm_delta_dagster.protocol.log.log_files import log_directory
from cm_delta_dagster.protocol.predicates.normal_forms import check_predicate
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.predicates.timestamps import parse_timestamp
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.storage.store import Store

Timestamp = datetime | date | str | int
"""A point in time: a datetime with a time zone, a date, text, or epoch milliseconds."""

ReportProgress = Callable[[int, int], None]
"""Called with the number of files done and the number of all files."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Identified(typing.Protocol):
    """A table with the name that messages use."""

    @property
    def identifier(self) -> object: ...


_Table = TypeVar("_Table", bound=Identified)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Value = TypeVar("_Value")
_Choice = TypeVar("_Choice", bound=StrEnum)


def several(value: str | Iterable[str], *, what: str) -> tuple[str, ...]:
    """One text, or several, as a tuple.

    Args:
        what: what they are, e.g. ``principals``, for the message.

    Raises:
        InvalidArgumentError: a value is not a text.
    """
    texts = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if not all(isinstance(text, str) for text in texts):
        raise InvalidArgumentError(f"{what} are {value!r}; give a text, or a list of texts. Nothing was changed.")
    return texts


def one_of(kind: type[_Choice], value: str, *, name: str) -> _Choice:
    """The member of ``kind`` that ``value`` is or names, in upper or lower case.

    Args:
        name: the argument, for the message.

    Raises:
        InvalidArgumentError: there is no such member.
    """
    try:
        return kind(value.lower() if isinstance(value, str) else value)
    except ValueError as error:
        raise InvalidArgumentError(f"{name} is {value!r}; give one of {', '.join(kind)}.") from error


def listed(values: Iterable[_Value], *, name: str) -> tuple[_Value, ...]:
    """The values as a tuple.

    Args:
        name: the argument, for the message.

    Raises:
        InvalidArgumentError: ``values`` is a text, whose letters would be taken for values, or no list.
    """
    if isinstance(values, str):
        raise InvalidArgumentError(f"{name} is the text {values!r}; give a list, e.g. [{values!r}].")
    if not isinstance(values, Iterable):
        raise InvalidArgumentError(f"{name} is {values!r}; give a list.")
    return tuple(values)


def partitioning_text(columns: Iterable[str]) -> str:
    """How a table is partitioned, in words."""
    names = list(columns)
    return f"partitioned by {names}" if names else "not partitioned"


def check_plan(plan: object, kind: type, *, method: str) -> None:
    """Refuse an argument that is not a plan.

    Args:
        method: what makes such a plan, for the message.

    Raises:
        InvalidArgumentError: ``plan`` is no value of ``kind``.
    """
    if not isinstance(plan, kind):
        raise InvalidArgumentError(
            f"plan is {plan!r}; give the {kind.__name__} that {method} returns. Nothing was changed."
        )


def names_table(
    operation: Callable[Concatenate[_Table, _Arguments], _Result],
) -> Callable[Concatenate[_Table, _Arguments], _Result]:
    """Decorate an operation so that each of its errors starts with the name of the table, unless it contains it.

    The checks of rows and columns do not know which table they work for.
    """

    @functools.wraps(operation)
    def named(table: _Table, /, *arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Result:
        try:
            return operation(table, *arguments, **keywords)
        except CmDeltaError as error:
            _name_table(error, str(table.identifier), what=str(table.identifier))
            raise

    return named


@contextmanager
def names_version(snapshot: Snapshot, *, store: Store | None = None) -> Iterator[None]:
    """Prefix errors raised in the block with table and version, unless they contain them.

    Args:
        store: the store of the table. With it, a missing file becomes TableStorageMissingError if the whole log is missing.
    """
    try:
        yield
    except CmDeltaError as error:
        if store is not None and isinstance(error, ObjectNotFoundError) and _has_lost_log(snapshot, store):
            missing = storage_missing(snapshot.location, snapshot.published_version)
            text = f"{snapshot.identifier} version {snapshot.version}: {missing.message}"
            raise TableStorageMissingError(text).with_remedy(missing.remedy) from error
        what = f"{snapshot.identifier} version {snapshot.version}"
        _name_table(error, str(snapshot.identifier), what=what)
        raise


def _name_table(error: CmDeltaError, table: str, *, what: str) -> None:
    """Begin the message with ``what``, unless it contains that, and give the remedy the name of the table."""
    if what not in error.message:
        error.args = (f"{what}: {error.message}",)
    error.with_remedy(error.remedy, table=table)


def _has_lost_log(snapshot: Snapshot, store: Store) -> bool:
    if not is_catalog_managed(snapshot.protocol):
        return False
    return not any(True for _ in store.list_from(log_directory(snapshot.location)))


def duration_ms(value: timedelta, *, name: str) -> int:
    """A duration in whole milliseconds.

    Args:
        name: the argument, for the message.

    Raises:
        InvalidArgumentError: ``value`` is negative, longer than a hundred years, or not a timedelta.
    """
    if not isinstance(value, timedelta):
        raise InvalidArgumentError(f"{name} is {value!r}, which has no unit. Give a datetime.timedelta.")
    if value < timedelta(0):
        raise InvalidArgumentError(f"{name} is negative ({value!r}). Give a datetime.timedelta of at least 0.")
    return check_milliseconds(value // timedelta(milliseconds=1), name=name)


def check_milliseconds(value: int, *, name: str) -> int:
    """Return ``value``.

    Args:
        name: the argument, for the message.

    Raises:
        InvalidArgumentError: ``value`` is not a whole number from 0 to a hundred years.
    """
    if not is_duration(value):
        raise InvalidArgumentError(
            f"{name} is {value!r}; give a whole number of milliseconds, at least 0 and at most a hundred years."
        )
    return value


def as_predicate(where: Predicate | str | None, schema: StructType, *, zone: tzinfo | None = None) -> Predicate | None:
    """Return SQL text or a predicate value as a predicate.

    Args:
        zone: time zone of literals that name none; None leaves comparisons with them to the engine.

    Raises:
        InvalidArgumentError: ``where`` is neither, or its text is not a condition.
    """
    if where is None:
        return None
    if isinstance(where, str):
        return parse_predicate(where, schema, zone=zone)
    check_predicate(where)
    return where


def epoch_milliseconds(timestamp: Timestamp, *, zone: Callable[[], tzinfo]) -> int:
    """Convert a point in time to epoch milliseconds, rounding down.

    Args:
        zone: returns the time zone of dates and of text without a time zone; called only for these.

    Raises:
        InvalidArgumentError: a datetime without a time zone, text that is not a timestamp, or another type.
    """
    if isinstance(timestamp, int) and not isinstance(timestamp, bool):
        return timestamp
    moment: datetime | None = None
    if isinstance(timestamp, str):
        moment = parse_timestamp(timestamp)
    elif isinstance(timestamp, datetime):
        moment = timestamp if timestamp.tzinfo is not None else None
    elif isinstance(timestamp, date):
        moment = datetime(timestamp.year, timestamp.month, timestamp.day)
    if moment is None:
        raise InvalidArgumentError(
            f"timestamp is {timestamp!r}; give a datetime with a time zone, e.g. datetime.now(UTC), a date, text as in "
            "'2026-01-31', '2026-01-31 12:00:00' or '2026-01-31T12:00:00Z', or epoch milliseconds."
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone())
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def hold_duration_ms(hold: bool | timedelta) -> int:
    """The milliseconds until a hold expires; True for seven days.

    Raises:
        InvalidArgumentError: neither True nor a duration, or not one that a hold may have.
    """
    if hold is True:
        return HOLD_DURATION_MS
    if not isinstance(hold, timedelta) or not 0 < milliseconds_of(hold) <= MAX_HOLD_DURATION_MS:
        raise InvalidArgumentError(
            f"hold is {hold!r}: give True, for seven days, or a timedelta of at most 366 days until the hold expires. Nothing was "
            "written."
        )
    return milliseconds_of(hold)
