"""Builders of actions for tests that do not depend on most of their fields."""

from typing import Any

from cm_delta_dagster.protocol.actions.actions import AddFile, DeletionVectorDescriptor, RemoveFile


def add_file(path: str, vector: DeletionVectorDescriptor | str | None = None, **fields: Any) -> AddFile:
    """An ``add`` of one byte in no partition. ``fields`` replace the defaults; ``vector`` as of :func:`vector_of`."""
    defaults: dict[str, Any] = {
        "partition_values": {},
        "size": 1,
        "modification_time": 1,
        "deletion_vector": vector_of(vector),
    }
    return AddFile(path=path, **(defaults | fields))


def remove_file(path: str, vector: DeletionVectorDescriptor | str | None = None, **fields: Any) -> RemoveFile:
    """A ``remove`` at 1 ms since the epoch. ``fields`` replace the defaults; ``vector`` as of :func:`vector_of`."""
    return RemoveFile(path=path, deletion_vector=vector_of(vector), **({"deletion_timestamp": 1} | fields))


def vector_of(vector: DeletionVectorDescriptor | str | None) -> DeletionVectorDescriptor | None:
    """A descriptor; a string is the ``pathOrInlineDv`` of a deletion vector in a file, with one deleted row."""
    if isinstance(vector, str):
        return DeletionVectorDescriptor(
            storage_type="u", path_or_inline_dv=vector, size_in_bytes=1, cardinality=1, offset=1
        )
    return vector
