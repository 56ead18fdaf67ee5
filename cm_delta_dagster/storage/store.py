"""Interface to file systems and object stores.

A ``location`` is an absolute URI with a scheme and a *decoded* path (``file:///data/a b``, ``s3://bucket/key``,
``memory://name/key``), as in fsspec and Hadoop. Only paths in the log are percent-encoded
(:mod:`cm_delta_dagster.protocol.actions.paths`).
"""

import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStatus:
    """One object: absolute ``location``, ``size`` in bytes, ``modification_time`` in epoch milliseconds.

    ``is_link``: it is a symbolic link, and has size and time of the object that it leads to. Only listings set it.
    """

    location: str
    size: int
    modification_time: int
    is_link: bool = False

    @property
    def name(self) -> str:
        """Last segment of the location."""
        return self.location.rpartition("/")[2]


class Store(typing.Protocol):
    """Objects by location. ``tests/contracts/store_contract.py`` checks the guarantees of every implementation.

    1. ``write_if_absent`` is atomic and exclusive: of concurrent callers exactly one succeeds, readers see the whole object or
       none, and an existing object is never changed. The object is durable when the call returns.
    2. ``write`` replaces an object atomically: readers see the old bytes or the new ones.
    3. Listings are sorted by location and contain every object written before the call. A missing directory is empty.
    4. Failures raise a :class:`~cm_delta_dagster.errors.StorageError`, never an exception of a library.
    """

    def list_from(self, directory: str, *, start: str = "") -> list[ObjectStatus]:
        """Objects directly in ``directory`` whose name is >= ``start``, in order of name; sub-directories are left out."""
        ...

    def list_recursive(self, directory: str, *, with_directories: bool = False) -> Iterator[ObjectStatus]:
        """Every object below ``directory``, however deep, in order of location.

        Args:
            with_directories: list also the empty objects that stand for directories, if the store has such. Their locations end
                with a slash.
        """
        ...

    def read(self, location: str) -> bytes:
        """The whole object. Raises ObjectNotFoundError."""
        ...

    def read_range(self, location: str, *, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer at the end of the object. Raises ObjectNotFoundError."""
        ...

    def write(self, location: str, data: bytes, *, within: str | None = None) -> None:
        """Create or replace, with missing parent directories. ``within`` as in :meth:`write_if_absent`."""
        ...

    def write_if_absent(
        self, location: str, data: bytes, *, may_show_unfinished: bool = False, within: str | None = None
    ) -> ObjectStatus | None:
        """Create only.

        Args:
            may_show_unfinished: readers may see a part of the object before the call returns, and if the process ends before.
                Only for names that no other process writes to, and that no reader uses before the call returns.
            within: a parent directory of ``location`` that must exist, if the store has directories. Only directories below it
                are created.

        Returns:
            The status of the object, if the store has it without a further request; else None.

        Raises:
            ObjectAlreadyExistsError: the object exists; it is not changed.
            DirectoryNotFoundError: ``within`` does not exist.
            StoreNotSupportedError: the store cannot create exclusively.
            WriteRefusedError: the store refused the request; nothing was written. Other errors leave it unknown.
        """
        ...

    def copy(self, source: str, target: str) -> None:
        """Copy an object of this store to another location of it; the bytes do not pass through the client where the store can
        copy. Creates or replaces ``target``. Raises ObjectNotFoundError.
        """
        ...

    def stat(self, location: str) -> ObjectStatus:
        """Size and modification time. Raises ObjectNotFoundError."""
        ...

    def delete(self, location: str) -> None:
        """Delete the object; a missing one is not an error. Empty parent directories may remain."""
        ...

    def resolve(self, location: str) -> str:
        """The location with symbolic links resolved, whether or not an object exists there.

        Locations are compared in this form, ``paths.canonical_location``; an object store takes what the location does not say,
        such as Azure's account, from its options.
        """
        ...

    def links_in(self, directory: str) -> Mapping[str, str]:
        """Names of the symbolic links directly in ``directory``, and the location that each leads to, as of :meth:`resolve`.

        One request for the directory. A store without links has none, and a missing directory neither.
        """
        ...

    def unlisted_links(self, directory: str) -> Iterator[str]:
        """Locations of the symbolic links to directories and to nothing below ``directory``, which a listing leaves out.

        A store without links has none.
        """
        ...

    def remove_empty_directories(self, directory: str) -> None:
        """Remove the empty directories among ``directory`` and those below it. Does nothing in a store without directories."""
        ...


class StoreRegistry(typing.Protocol):
    """Returns the store of a location by its scheme; ``storage.stores.Stores`` implements it."""

    def store_for(self, location: str) -> Store:
        """The store of the location's scheme. Raises StoreNotSupportedError for an unknown scheme."""
        ...
