"""Taking back what was written for a commit that will never be. Whether it may go is the caller's to know."""

import logging

from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)


def discard_below(store: Store, directory: str) -> None:
    """Delete every object below ``directory`` and the directories left empty; failures are only logged.

    It is called while another error is on its way, which must not be hidden.
    """
    try:
        for status in store.list_recursive(directory):
            store.delete(status.location)
        store.remove_empty_directories(directory)
    except (CmDeltaError, OSError) as error:
        _log.warning("Files below %s that no commit names could not be deleted: %s", directory, error)
