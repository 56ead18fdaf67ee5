"""Deletes the files of a commit that was not made. The caller ensures that no commit refers to them."""

import logging

from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)


def discard_below(store: Store, directory: str) -> None:
    """Delete every object and every empty directory below ``directory``.

    A failure is logged and not raised: callers are handling another error, which must not be hidden.
    """
    try:
        for status in store.list_recursive(directory, with_directories=True):
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
