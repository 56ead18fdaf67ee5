"""Writes deletion vectors to storage: at most one new file for all vectors of a commit.

Protocol heading "Deletion Vectors". ``protocol.features.vector_writing`` encodes them.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from pyroaring import BitMap64

from cm_delta_dagster.protocol.actions.actions import DeletionVectorDescriptor
from cm_delta_dagster.protocol.features.vector_writing import pack_vectors
from cm_delta_dagster.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenVectors:
    """Deletion vectors that are not committed yet.

    Attributes:
        descriptors: in the order of the bitmaps.
        file: location of the new file; None if all vectors are inline.
    """

    descriptors: tuple[DeletionVectorDescriptor, ...]
    file: str | None


def write_deletion_vectors(store: Store, *, location: str, bitmaps: Sequence[BitMap64]) -> WrittenVectors:
    """Write ``bitmaps``, none of them empty.

    Args:
        location: absolute URI of the table root.

    Raises:
        IllegalCommitError: a bitmap is empty or has an impossible position.
        StorageError: the file could not be written.
    """
    packed = pack_vectors(bitmaps, file_id=uuid.uuid4())
    if packed.name is None:
        return WrittenVectors(descriptors=packed.descriptors, file=None)
    file = f"{location.rstrip('/')}/{packed.name}"
    store.write_if_absent(file, packed.content, may_show_unfinished=True, within=location)
    return WrittenVectors(descriptors=packed.descriptors, file=file)
