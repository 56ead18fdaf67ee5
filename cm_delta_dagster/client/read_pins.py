"""The versions that the reads of one run see: those that it has pinned in the catalog, until it writes to the table."""

import logging
import threading
from collections.abc import Callable

from cm_delta_dagster.catalog.version_pins import VersionPins
from cm_delta_dagster.errors import CmDeltaError

_log = logging.getLogger(__name__)


class ReadPins:
    """The pinned versions of one owner, such as a run. Safe to share between threads.

    A commit of the owner moves its pin. If the catalog cannot move it, the next read does.
    """

    def __init__(self, pins: VersionPins, *, owner: str) -> None:
        self._pins = pins
        self._owner = owner
        self._unreported: dict[str, int] = {}
        self._lock = threading.Lock()

    def version_to_read(self, table_id: str, latest: Callable[[], int]) -> int:
        """The version of the table that the owner reads: the pinned one, else the latest, which is then pinned."""
        with self._lock:
            written = self._unreported.get(table_id)
        if written is not None:
            self._move(table_id, written)
        pinned = self._pins.pinned_version(table_id, owner=self._owner)
        return self._pins.pin_version(table_id, latest(), owner=self._owner) if pinned is None else pinned

    def note_commit(self, table_id: str, version: int) -> None:
        """Move the pin to a version that the owner has committed. Raises nothing, since the commit is durable."""
        with self._lock:
            self._unreported[table_id] = max(version, self._unreported.get(table_id, version))
        try:
            self._move(table_id, version)
        except CmDeltaError:
            _log.warning(
                "Version %d of table %s was committed, but other processes of %s may still read an older version",
                version,
                table_id,
                self._owner,
                exc_info=True,
            )

    def _move(self, table_id: str, version: int) -> None:
        self._pins.raise_pinned_version(table_id, version, owner=self._owner)
        with self._lock:
            if self._unreported.get(table_id, version) <= version:
                self._unreported.pop(table_id, None)
