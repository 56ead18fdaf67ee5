"""What a connection does after the transaction that it serves was committed."""

from collections.abc import Callable

import sqlalchemy as sa

_ACTION = "cm_delta_post_transaction"


def schedule(connection: sa.Connection, action: Callable[[sa.Connection], None]) -> None:
    """Have ``action``, which raises nothing, run after the transaction was committed, in place of the one that was scheduled."""
    connection.info[_ACTION] = action


def forget(connection: sa.Connection) -> None:
    """Call at the start of a transaction: the former one may have been rolled back."""
    connection.info.pop(_ACTION, None)


def run(connection: sa.Connection) -> None:
    """Run the scheduled action, outside of a transaction."""
    action: Callable[[sa.Connection], None] | None = connection.info.pop(_ACTION, None)
    if action is not None:
        action(connection)
