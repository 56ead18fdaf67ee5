"""Tables whose proposals the single statement does not ratify at present, because checks are active for them."""

import threading
from collections import OrderedDict

_MAX_TABLES = 1000
_SKIPPED_COMMITS = 50
"""Number of commits to a table without the statement. Then it is tried again: the checks may have been deactivated."""


class StatementSkips:
    """Saves the requests of statements that would ratify nothing. Thread-safe.

    The transaction ratifies what the statement ratifies, so that an entry for a table without checks only makes its commits slower.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: OrderedDict[str, int] = OrderedDict()

    def add(self, table_id: str) -> None:
        """Skip the statement for the next commits to the table; removes the oldest entry if there are too many."""
        with self._lock:
            self._left[table_id] = _SKIPPED_COMMITS
            if len(self._left) > _MAX_TABLES:
                self._left.popitem(last=False)

    def skips_next(self, table_id: str) -> bool:
        """Whether the next commit to the table goes without the statement. Each call counts as one commit."""
        with self._lock:
            left = self._left.get(table_id, 0)
            if left > 1:
                self._left[table_id] = left - 1
            else:
                self._left.pop(table_id, None)
            return left > 0
