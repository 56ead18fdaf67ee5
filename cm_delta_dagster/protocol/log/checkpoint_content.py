"""What a checkpoint file says (protocol "Checkpoints"), as a value between reading and reconciling.

Apart from ``checkpoints``, which builds checkpoints from reconciled states, so that reconciliation can take this
value without a cycle. Rows are understood there, and become a state in ``reconciliation``.
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
    """What one file of a checkpoint says: a whole one, one part, the top level of a V2 checkpoint or one sidecar.

    ``adds`` and ``removes`` have the columns of ``file_actions.ADD_SCHEMA`` and ``REMOVE_SCHEMA``.
    """

    adds: pa.Table
    removes: pa.Table
    checkpoint_metadata: CheckpointMetadata | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: tuple[SetTransaction, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    sidecars: tuple[SidecarFile, ...] = ()
