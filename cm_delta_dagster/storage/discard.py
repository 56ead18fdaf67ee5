"""Deletes the files of a commit that was not made. The caller ensures that no commit refers to them."""

import logging
from collections.abc import Iterable

from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.storage.store import ObjectStatus, Store

_log = logging.getLogger(__name__)


def in_order_of_deletion(listed: Iterable[ObjectStatus]) -> list[ObjectStatus]:
    """Files in order of location, and then the objects that stand for directories, the deepest first.

    Azure with a hierarchical namespace does not delete a directory before the files in it.
    """
    statuses = sorted(listed, key=lambda status: status.location)
    directories = [status for status in statuses if status.location.endswith("/")]
    return [status for status in statuses if not status.location.endswith("/")] + directories[::-1]


def discard_below(store: Store, directory: str) -> None:
    """Delete every object and every empty directory below ``directory``.

    A failure is logged and not raised: callers are handling another error, which must not be hidden.
    """
    try:
        for status in in_order_of_deletion(store.list_recursive(directory, with_directories=True)):
            store.delete(status.location)
        store.remove_empty_directories(directory)
    except (CmDeltaError, OSError) as error:
        _log.warning("Files below %s that no commit refers to were not deleted: %s", directory, error)


def discard(store: Store, location: str) -> None:
    """Delete one object. A failure is logged and not raised, as in :func:`discard_below`."""
    try:
        store.delete(location)
    except (CmDeltaError, OSError) as error:
        _log.warning("The file %s, which no commit refers to, was not deleted: %s", location, error)
