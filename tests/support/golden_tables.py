"""The archive of tables that other implementations have written, and its unpacking."""

import tarfile
from collections.abc import Callable
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"
"""The folder of the archive and of its cases."""


def unpack_golden_tables(root: Path, chosen: Callable[[str], bool] = lambda name: True) -> Path:
    """Unpack the chosen files below ``root``, and return it. Their times of modification are kept: they are commit times.

    Args:
        chosen: whether a file is unpacked, by its path in the archive.
    """
    # Python 3.11 has filters from its fourth release; later Pythons warn if none is given.
    filters = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
    with tarfile.open(GOLDEN / "tables.tar.gz") as archive:
        members = [member for member in archive if chosen(member.name.removeprefix("./"))]
        archive.extractall(root, members=members, **filters)  # type: ignore[arg-type]  # A mapping has no literal values.
    return root
