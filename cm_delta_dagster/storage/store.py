"""The byte seam: what the rest of the package asks of a file system or an object store.

A ``location`` is an absolute URI with a scheme and a *decoded* path (``file:///data/a b``, ``s3://bucket/key``,
``memory://name/key``), as fsspec and Hadoop take it. Percent-encoding is a matter of the log alone
(:mod:`cm_delta_dagster.protocol.actions.paths`). This module knows nothing of Delta.
"""

import typing
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStatus:
    """One object: its absolute ``location``, ``size`` in bytes and ``modification_time`` in epoch milliseconds."""

    location: str
    size: int
    modification_time: int

    @property
    def name(self) -> str:
        """Last segment of the location."""
        return self.location.rpartition("/")[2]


class Store(typing.Protocol):
    """Guarantees of every implementation, proven by ``tests/contracts/store_contract.py``.

    1. ``write_if_absent`` is atomic and exclusive: of any number of concurrent callers exactly one succeeds, the object
       appears whole or not at all, and an existing object is never changed (LOG-5). It is durable when the call returns.
    2. ``write`` replaces an object atomically: readers see the old bytes or the new, never a mixture.
    3. Listings are sorted by location, see every object written before the call, and a missing directory is empty.
    4. Failures are errors of :class:`~cm_delta_dagster.errors.StorageError`; no foreign exception passes.
    """

    def list_from(self, directory: str, *, start: str = "") -> list[ObjectStatus]:
        """Objects directly in ``directory`` whose name is >= ``start``, in order of name; sub-directories are left out."""
        ...

    def list_recursive(self, directory: str) -> Iterator[ObjectStatus]:
        """Every object below ``directory``, however deep, in order of location."""
        ...

    def read(self, location: str) -> bytes:
        """The whole object. Raises ObjectNotFoundError."""
        ...

    def read_range(self, location: str, *, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer at the end of the object. Raises ObjectNotFoundError."""
        ...

    def write(self, location: str, data: bytes, *, within: str | None = None) -> None:
        """Create or replace; parent directories are made as needed. ``within`` is as of :meth:`write_if_absent`."""
        ...

    def write_if_absent(
        self, location: str, data: bytes, *, may_show_unfinished: bool = False, within: str | None = None
    ) -> ObjectStatus | None:
        """Create only. Raises ObjectAlreadyExistsError, or StoreNotSupportedError where there is no such primitive.

        Args:
            within: a parent directory of ``location`` that has to exist where the store has directories: only directories
                below it are made, and DirectoryNotFoundError is raised where it is not there.
            may_show_unfinished: of a name that nobody else writes to, nor trusts before this call has returned: the object may
                be there in part meanwhile, and stay so if the process ends.

        Returns:
            What ``stat`` would answer, where the store knows it without asking again; else None.
        """
        ...

    def stat(self, location: str) -> ObjectStatus:
        """Raises ObjectNotFoundError."""
        ...

    def delete(self, location: str) -> None:
        """Remove the object; an absent one is no error. Empty parent directories may be left behind."""
        ...

    def resolve(self, location: str) -> str:
        """Where ``location`` leads to, there or not: another location only where the store has symbolic links."""
        ...

    def remove_empty_directories(self, directory: str) -> None:
        """Remove ``directory`` and those below it, as far as they hold no object; nothing where none exist as such."""
        ...


class StoreRegistry(typing.Protocol):
    """Finds the store that serves a location, by its scheme; implemented by ``storage.stores.Stores``."""

    def store_for(self, location: str) -> Store:
        """Raises StoreNotSupportedError for a scheme nobody serves."""
        ...
