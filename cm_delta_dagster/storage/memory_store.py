"""Bytes in the memory of this process, for tests, notebooks and documentation."""

import threading
import time
from collections.abc import Callable, Iterator

from cm_delta_dagster.errors import ObjectAlreadyExistsError, ObjectNotFoundError
from cm_delta_dagster.protocol.actions.paths import canonical_location
from cm_delta_dagster.storage.store import ObjectStatus


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryStore:
    """Objects in a dictionary. Invariant: every operation is atomic under one lock.

    Args:
        now_ms: clock for modification times.
    """

    def __init__(self, *, now_ms: Callable[[], int] = _clock_ms) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, int]] = {}

    def list_from(self, directory: str, *, start: str = "") -> list[ObjectStatus]:
        """Objects directly in ``directory`` whose name is >= ``start``, in order of name."""
        prefix = directory.rstrip("/") + "/"
        return [
            status
            for status in self.list_recursive(directory)
            if (name := status.location[len(prefix) :]) >= start and "/" not in name
        ]

    def list_recursive(self, directory: str, *, with_directories: bool = False) -> Iterator[ObjectStatus]:
        """Every object below ``directory``, in order of location."""
        prefix = directory.rstrip("/") + "/"
        with self._lock:
            objects = sorted(
                (location, value)
                for location, value in self._objects.items()
                if location.startswith(prefix) and (with_directories or not location.endswith("/"))
            )
        for location, (data, modified) in objects:
            yield ObjectStatus(location=location, size=len(data), modification_time=modified)

    def read(self, location: str) -> bytes:
        """The whole object. Raises ObjectNotFoundError."""
        return self._get(location)[0]

    def read_range(self, location: str, *, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer at the end. Raises ObjectNotFoundError."""
        return self._get(location)[0][offset : offset + length]

    def write(self, location: str, data: bytes, *, within: str | None = None) -> None:
        """Create or replace."""
        with self._lock:
            self._objects[location] = (bytes(data), self._now_ms())

    def write_if_absent(
        self, location: str, data: bytes, *, may_show_unfinished: bool = False, within: str | None = None
    ) -> ObjectStatus:
        """Create only. Raises ObjectAlreadyExistsError."""
        with self._lock:
            if location in self._objects:
                raise ObjectAlreadyExistsError(f"{location} exists already; it was not changed.")
            now = self._now_ms()
            self._objects[location] = (bytes(data), now)
        return ObjectStatus(location=location, size=len(data), modification_time=now)

    def copy(self, source: str, target: str) -> None:
        """Copy an object. Raises ObjectNotFoundError."""
        self.write(target, self.read(source))

    def stat(self, location: str) -> ObjectStatus:
        """Size and modification time. Raises ObjectNotFoundError."""
        data, modified = self._get(location)
        return ObjectStatus(location=location, size=len(data), modification_time=modified)

    def delete(self, location: str) -> None:
        """Delete the object; a missing one is not an error."""
        with self._lock:
            self._objects.pop(location, None)

    def resolve(self, location: str) -> str:
        """One form for all spellings; there are no links."""
        return canonical_location(location)

    def links_in(self, directory: str) -> dict[str, str]:
        """None: there are no links."""
        return {}

    def unlisted_links(self, directory: str) -> Iterator[str]:
        """None: there are no links."""
        return iter(())

    def remove_empty_directories(self, directory: str) -> None:
        """Does nothing: there are no directories."""

    def _get(self, location: str) -> tuple[bytes, int]:
        with self._lock:
            entry = self._objects.get(location)
        if entry is None:
            raise ObjectNotFoundError(f"No object at {location}: check the location, or whether it was deleted.")
        return entry
