"""A lake of tables without rows; see ``tests.operations.lake``."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operations.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    yield lake
    lake.client.close()
