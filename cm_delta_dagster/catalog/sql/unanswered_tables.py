"""Tables whose commits the single statement lately left to the transaction, because checks are active for them."""

import threading
from collections import OrderedDict

_MAX_TABLES = 1000
_SKIPPED_COMMITS = 50
"""Number of commits without the statement. Then it is tried again: the checks may have been deactivated."""


class UnansweredTables:
    """Saves the requests of a statement that would ratify nothing. Thread-safe.

    The transaction ratifies whatever the statement ratifies, so that an entry for a table without checks only makes its commits
    slower.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._skips: OrderedDict[str, int] = OrderedDict()

    def note(self, table_id: str) -> None:
        """Remember the table, and forget the one that was noted first if there are too many."""
        with self._lock:
            self._skips[table_id] = _SKIPPED_COMMITS
            if len(self._skips) > _MAX_TABLES:
                self._skips.popitem(last=False)

    def take(self, table_id: str) -> bool:
        """Whether the next commit to the table goes without the statement."""
        with self._lock:
            left = self._skips.get(table_id, 0)
            if left > 1:
                self._skips[table_id] = left - 1
            else:
                self._skips.pop(table_id, None)
            return left > 0
