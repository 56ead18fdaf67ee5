"""The SQL statements that a process sends to its databases."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa


@contextmanager
def sent_statements(part: str) -> Iterator[list[str]]:
    """The statements with the text ``part`` that any SQLAlchemy connection sends within the block, in order."""
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if part in statement:
            sent.append(statement)

    # The clients of a sensor's tick, and their engines, are not known before the tick.
    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
