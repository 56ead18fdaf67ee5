"""Interface to the application ids of ``txn`` actions: which principal set them last (protocol heading "Transaction Identifiers").

An application reads from the table how far it has written, and skips what is below. Who sets the ``txn`` of another application
makes that one skip rows.
"""

import typing
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationId:
    """An application id of a table.

    Attributes:
        app_id: as in the log; of an id of more than 200 bytes, or with U+0000, ``sha256:`` and the digest.
        principal: who set it last; None if it stated no name.
        since_ms: time of the first of the commits with which only this principal set it, epoch milliseconds.
    """

    app_id: str
    principal: str | None
    since_ms: int


class ApplicationIds(typing.Protocol):
    """The application ids that commits of a table have set.

    The catalog records the principal of each commit with a ``txn`` whose content it sees. While grants are enforced, an application
    id that another principal set last requires the privilege ``alter``. The records belong to the id of the table.
    """

    def application_ids(self, table_id: str) -> Sequence[ApplicationId]:
        """The application ids of the table, sorted. Raises TableNotFoundError, OperationRefusedError."""
        ...

    def reset_application_id(self, table_id: str, app_id: str, *, reason: str = "") -> None:
        """Forget who set the application id last: the next principal that sets it may do so without the privilege ``alter``.

        The table keeps its ``txn``. The change is an entry of the audit.

        Args:
            app_id: as in the log, or as :meth:`application_ids` returns it.

        Raises:
            InvalidArgumentError: no recorded commit of the table has set the application id.
            OperationRefusedError: the caller does not have the privilege ``alter`` on the table.
            TableNotFoundError: there is no such table.
        """
        ...
