"""Settings of the Delta client."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta, tzinfo
from enum import StrEnum

from cm_delta_dagster.catalog.durations import LONGEST, milliseconds_of, span_text
from cm_delta_dagster.catalog.ratification import CACHED_CONTENT_BYTES, MAX_CLOCK_DIFFERENCE_MS
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.timestamps import as_zone

_MINIMA: Mapping[str, int] = {
    "max_commit_attempts": 1,
    "max_resolve_attempts": 1,
    "snapshot_cache_size": 1,
    "read_threads": 1,
    "max_unpublished_commits": 1,
}
"""Smallest values of the settings; 0 for all others."""
_SHORTEST_LEASE = timedelta(milliseconds=100)


class OnCatalogBehind(StrEnum):
    """What a read does when storage holds commits above the catalog's latest version."""

    WARN = "warn"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Limits, retries and delays of a client.

    Attributes:
        max_commit_attempts: proposals per transaction before CommitRetriesExceededError.
        retry_initial_delay: upper bound of the random backoff after the first conflict; it doubles with each retry.
        retry_max_delay: upper bound of the backoff between two proposals.
        commit_lock_timeout: longest wait for the commit lock of a contended table; 0 to propose without the lock.
        max_resolve_attempts: tries to find the outcome of a proposal that the catalog did not answer.
        incremental_refresh_limit: commits that a cached snapshot may lag behind before it is rebuilt from a checkpoint.
        snapshot_cache_size: tables whose latest snapshot is cached in memory.
        read_threads: commits and checkpoint parts read concurrently.
        max_unpublished_commits: number of unpublished commits from which on a writer publishes them before it commits.
        copied_content_bytes: a commit up to this size is copied to the catalog, which serves it to readers; 0 for none.
        publish_delay: delay after which inline commits are published together and the published version is reported
            to the catalog; 0 to do both before the commit returns.
        on_catalog_behind_storage: WARN or "warn": reads of a table whose catalog is behind its storage return the catalog's latest
            version, with one warning for each table and process. REFUSE or "refuse": they fail as writes do.
        max_clock_difference: if the clocks of this machine and of the catalog differ by more, the client logs one warning
            and uses the catalog's clock.
        maintenance_lease: time after which the lease of a maintenance run that was killed or stopped expires. A run
            renews its lease after a third of this time.
        max_deleted_rows_ratio: a file of which a larger share of rows is deleted is rewritten instead of getting a deletion
            vector; 0 rewrites every file.
        time_zone: time zone of times that state none, in partition values of ``timestamp`` columns and in conditions: the name of
            a region, an offset or a ``tzinfo``. None for the time zone of the Spark session, and UTC without one.
    """

    max_commit_attempts: int = 30
    retry_initial_delay: timedelta = timedelta(milliseconds=10)
    retry_max_delay: timedelta = timedelta(seconds=2)
    commit_lock_timeout: timedelta = timedelta(seconds=2)
    max_resolve_attempts: int = 6
    incremental_refresh_limit: int = 200
    snapshot_cache_size: int = 64
    read_threads: int = 8
    max_unpublished_commits: int = 50
    copied_content_bytes: int = CACHED_CONTENT_BYTES
    publish_delay: timedelta = timedelta(milliseconds=50)
    on_catalog_behind_storage: OnCatalogBehind = OnCatalogBehind.WARN
    max_clock_difference: timedelta = timedelta(milliseconds=MAX_CLOCK_DIFFERENCE_MS)
    maintenance_lease: timedelta = timedelta(minutes=10)
    max_deleted_rows_ratio: float = 0.5
    time_zone: tzinfo | str | None = None

    def __post_init__(self) -> None:
        """Raises InvalidArgumentError for a value of another type, too small, infinite or unknown."""
        try:
            behind = OnCatalogBehind(self.on_catalog_behind_storage)
        except ValueError:
            raise InvalidArgumentError(
                f"ClientSettings.on_catalog_behind_storage cannot be {self.on_catalog_behind_storage!r}; it is 'warn' or 'refuse'."
            ) from None
        object.__setattr__(self, "on_catalog_behind_storage", behind)
        object.__setattr__(self, "time_zone", as_zone(self.time_zone))
        for field in fields(self):
            value, minimum = getattr(self, field.name), _MINIMA.get(field.name, 0)
            if field.name in ("on_catalog_behind_storage", "time_zone"):
                continue
            if field.type is timedelta:
                _check_duration(field.name, value)
                continue
            integer = field.type is int
            is_number = isinstance(value, int if integer else int | float) and not isinstance(value, bool)
            if not is_number or not minimum <= value < math.inf:
                kind = "an integer" if integer else "a finite number"
                raise InvalidArgumentError(
                    f"ClientSettings.{field.name} cannot be {value!r}; it is {kind} of at least {minimum}."
                )


def _check_duration(name: str, value: object) -> None:
    shortest = _SHORTEST_LEASE if name == "maintenance_lease" else timedelta(0)
    if not isinstance(value, timedelta) or not shortest <= value <= LONGEST:
        raise InvalidArgumentError(
            f"ClientSettings.{name} cannot be {value!r}; it is a datetime.timedelta of at least "
            f"{span_text(milliseconds_of(shortest))} and at most a hundred years."
        )
