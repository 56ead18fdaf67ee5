"""Records when tokens were used last, once a minute for each token, in a thread: no request waits for a write of it."""

import logging
import threading

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tokens import USE_INTERVAL_MS, AccessToken
from cm_delta_dagster.errors import CmDeltaError

_LOG = logging.getLogger(__name__)


class TokenUses:
    """The uses of tokens in one process. Thread-safe. :meth:`close` records what is left."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self._catalog = catalog
        self._changed = threading.Condition()
        self._noted: dict[str, int] = {}
        self._unrecorded: dict[str, int] = {}
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def note(self, token: AccessToken) -> None:
        """Note that the token is used now."""
        now_ms = self._catalog.coordinator.now_ms()
        last_ms = max(token.last_used_ms or 0, self._noted.get(token.token_id, 0))
        if now_ms - last_ms < USE_INTERVAL_MS:
            return
        with self._changed:
            self._noted[token.token_id] = self._unrecorded[token.token_id] = now_ms
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="token-uses", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Record what is left, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unrecorded or self._is_closed)
                uses, self._unrecorded = self._unrecorded, {}
                if not uses:
                    return
            try:
                self._catalog.tokens.record_uses(uses)
            except CmDeltaError as error:
                _LOG.warning("The last use of %d tokens was not recorded: %s", len(uses), error)
