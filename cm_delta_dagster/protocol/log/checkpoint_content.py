"""The decoded content of a checkpoint file (protocol heading "Checkpoints").

``checkpoint_reading`` produces it and ``action_reconciliation`` combines it into a table state. It has a module of its own
because ``checkpoints``, which builds checkpoints from table states, imports ``action_reconciliation``.
"""

from dataclasses import dataclass

import pyarrow as pa

from cm_delta_dagster.protocol.actions.actions import (
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    SidecarFile,
)

SIDECAR_DIGEST_TAG = "cm_delta.sha256"
"""Tag of a ``sidecar`` action: SHA-256 of the file as 64 lower-case hexadecimal digits. Other readers ignore it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointContent:
    """The actions in one file: a classic checkpoint, a part, the top-level file of a V2 checkpoint or a sidecar.

    ``adds`` and ``removes`` have the columns of ``file_columns.ADD_SCHEMA`` and ``REMOVE_SCHEMA``.
    """

    adds: pa.Table
    removes: pa.Table
    checkpoint_metadata: CheckpointMetadata | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: tuple[SetTransaction, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    sidecars: tuple[SidecarFile, ...] = ()
