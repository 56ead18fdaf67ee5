"""The clock of a client, compared with the catalog's.

In-commit timestamps of a table must increase, so one commit from a machine whose clock is far ahead shifts the timestamps of all
later commits. With such a clock, VACUUM and log cleanup would delete files that are still needed.
"""

import logging
import time
from collections.abc import Callable

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.protocol.predicates.timestamps import utc_text

_log = logging.getLogger(__name__)


def seconds_since_boot() -> float:
    """A monotonic clock that includes the time the machine is suspended, where the system has one."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


class CheckedClock:
    """Epoch milliseconds of this machine or, if the clocks differ too much, of the catalog. Safe to share between threads.

    Args:
        own_ms: the clock of this machine.
        max_difference_ms: largest difference at which the clock of this machine is used.
    """

    def __init__(self, own_ms: Callable[[], int], *, coordinator: CommitCoordinator, max_difference_ms: int) -> None:
        self._own_ms = own_ms
        self._coordinator = coordinator
        self._max_difference_ms = max_difference_ms
        self._has_warned = False

    def __call__(self) -> int:
        """The time in epoch milliseconds: of this machine or, if the clocks differ too much, of the catalog.

        The first use of the catalog's clock is logged as a warning.

        Raises:
            CatalogUnavailableError: the catalog did not answer.
        """
        own, catalog = self._own_ms(), self._coordinator.now_ms()
        if abs(own - catalog) <= self._max_difference_ms:
            return own
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "The clock of this machine says %s and the clock of the catalog %s. They differ by %.0f seconds, more than "
                "ClientSettings.max_clock_difference allows (%.0f seconds), so commits get the time of the catalog. Set "
                "the clock of this machine (NTP), or that of the catalog if it is the wrong one.",
                utc_text(own),
                utc_text(catalog),
                abs(own - catalog) / 1000,
                self._max_difference_ms / 1000,
            )
        return catalog
