"""The unpacked archive of golden tables."""

from pathlib import Path

import pytest

from tests.support.golden_tables import unpack_golden_tables


@pytest.fixture(scope="session")
def golden_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked archive; cases are run on private copies of its tables."""
    return unpack_golden_tables(tmp_path_factory.mktemp("golden"))
