"""The unpacked archive of golden tables."""

import tarfile
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def golden_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked archive; cases are run on private copies of its tables."""
    root = tmp_path_factory.mktemp("golden")
    with tarfile.open(Path(__file__).parent / "tables.tar.gz") as archive:
        archive.extractall(root, filter="tar")  # Modification times matter: they are commit times.
    return root
