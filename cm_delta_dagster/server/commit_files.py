"""Reads the file of a commit that a caller says it has written."""

from collections.abc import Callable

from cm_delta_dagster.errors import CommitRejectedError, ObjectNotFoundError
from cm_delta_dagster.server.storage_access import StorageAccess

MAX_COMMIT_BYTES = 256 * 1024 * 1024
"""Size of the largest commit that the server reads."""


def read_commit_file(
    storage: StorageAccess,
    table_location: str,
    path: str,
    *,
    size: int,
    contradicted: Callable[[str], CommitRejectedError],
) -> bytes:
    """The bytes of the file, if it has the size that its writer says.

    Args:
        path: of the file, below the location of its table.
        contradicted: makes the error from what the file is instead.

    Raises:
        CommitRejectedError: there is no such file, or it has another size.
        OperationRefusedError: the file is not below the location of the table and one of the storage roots.
    """
    place = f"{table_location}/{path}"
    store = storage.store_for(place, below=table_location)
    if size > MAX_COMMIT_BYTES:
        raise contradicted(f"with {size} bytes, and the server reads at most {MAX_COMMIT_BYTES}")
    try:
        actual = store.stat(place).size
        data = store.read(place) if actual == size else None
    except ObjectNotFoundError as error:
        raise contradicted(f"and {path.rpartition('/')[0]} has no such file") from error
    if data is None or len(data) != size:
        raise contradicted(f"with the size {size}, and it has {actual} bytes")
    return data
