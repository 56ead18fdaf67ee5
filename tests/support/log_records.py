"""Log records of one module; threads that an earlier test left may log at the same time."""

from types import ModuleType

import pytest


def messages_of(caplog: pytest.LogCaptureFixture, *modules: ModuleType) -> list[str]:
    """The messages that these modules logged while ``caplog`` listened, oldest first."""
    names = {module.__name__ for module in modules}
    return [record.getMessage() for record in caplog.records if record.name in names]
