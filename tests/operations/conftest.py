"""A lake of tables without rows; see ``tests.support.lake``."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    yield lake
    lake.close()
