"""Log records of one module; threads that an earlier test left may log at the same time."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest


def messages_of(caplog: pytest.LogCaptureFixture, *modules: ModuleType) -> list[str]:
    """The messages that these modules logged while ``caplog`` listened, oldest first."""
    names = {module.__name__ for module in modules}
    return [record.getMessage() for record in caplog.records if record.name in names]


@contextmanager
def logged_by(module: ModuleType) -> Iterator[list[str]]:
    """The messages that the module logs inside of the block; for tests without ``caplog``."""
    messages: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    listener, logger = Listener(), logging.getLogger(module.__name__)
    logger.addHandler(listener)
    try:
        yield messages
    finally:
        logger.removeHandler(listener)
