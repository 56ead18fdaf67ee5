"""Data files below ``tmp_path``."""

from pathlib import Path

import pytest

from tests.arrow.data_files import DataFiles


@pytest.fixture
def data_files(tmp_path: Path) -> DataFiles:
    return DataFiles(tmp_path)
