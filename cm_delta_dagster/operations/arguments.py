"""What arguments of verbs mean, and errors that name their table. Needs no engine."""

import functools
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Concatenate, ParamSpec, TypeVar

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
"""A moment: with a time zone, of a day or in text of which another one is known, or in epoch milliseconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Identified(typing.Protocol):
    """A table that says what messages call it."""

    @property
    def identifier(self) -> object: ...


_Table = TypeVar("_Table", bound=Identified)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def names_table(
    verb: Callable[Concatenate[_Table, _Arguments], _Result],
) -> Callable[Concatenate[_Table, _Arguments], _Result]:
    """Put the name of the table in front of an error of ``verb`` that does not tell it.

    Rows and columns are checked where their table has no name; a run that writes several tables needs it.
    """

    @functools.wraps(verb)
    def named(table: _Table, /, *arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Result:
        try:
            return verb(table, *arguments, **keywords)
        except CmDeltaError as error:
            if str(table.identifier) not in str(error):
                error.args = (f"{table.identifier}: {error}",)
            raise

    return named


@contextmanager
def names_version(snapshot: Snapshot, *, store: Store | None = None) -> Iterator[None]:
    """Put table and version in front of an error that does not tell them.

    Args:
        store: of the table. With it, a missing file becomes TableStorageMissingError if the whole log is missing.
    """
    try:
        yield
    except CmDeltaError as error:
        if store is not None and isinstance(error, ObjectNotFoundError) and _has_lost_log(snapshot, store):
            missing = storage_missing(snapshot.location, snapshot.published_version)
            raise TableStorageMissingError(f"{snapshot.identifier} version {snapshot.version}: {missing}") from error
        what = f"{snapshot.identifier} version {snapshot.version}"
        if what not in str(error):
            error.args = (f"{what}: {error}",)
        raise


def _has_lost_log(snapshot: Snapshot, store: Store) -> bool:
    if not is_catalog_managed(snapshot.protocol):
        return False
    return not any(True for _ in store.list_from(log_directory(snapshot.location)))


def duration_ms(value: timedelta, *, name: str) -> int:
    """A length of time in whole milliseconds. Raises InvalidArgumentError for a negative one, and for anything else.

    Args:
        name: the argument that it was given for.
    """
    if not isinstance(value, timedelta):
        raise InvalidArgumentError(
            f"{name} is {value!r}, of which the unit is unknown. Give a datetime.timedelta, such as timedelta(days=7)."
        )
    if value < timedelta(0):
        raise InvalidArgumentError(f"{name} is negative ({value!r}). Give a datetime.timedelta of at least 0.")
    return value // timedelta(milliseconds=1)


def check_milliseconds(value: int, *, name: str) -> int:
    """``value``. Raises InvalidArgumentError unless it is a whole number of at least 0.

    Args:
        name: the argument that it was given for.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgumentError(f"{name} is {value!r}; give a whole number of milliseconds, at least 0.")
    return value


def as_predicate(where: Predicate | str | None, schema: StructType) -> Predicate | None:
    """SQL text or a predicate value as a predicate.

    Raises:
        InvalidArgumentError: text that is not a condition, or a value that is neither.
    """
    if where is None:
        return None
    if isinstance(where, str):
        return parse_predicate(where, schema)
    check_predicate(where)
    return where


def epoch_milliseconds(timestamp: Timestamp, *, zone: Callable[[], tzinfo]) -> int:
    """Epoch milliseconds of a moment; what lies between two of them counts as the earlier one.

    Args:
        zone: time zone of days, and of text that names none (TT-9); asked only for these.

    Raises:
        InvalidArgumentError: a datetime without a time zone, text that is no moment, or something else.
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
