"""What a catalog says about maintenance: kinds, rules, decisions and claims (protocol "Maintenance operations").

Values alone.
"""

from dataclasses import dataclass
from enum import StrEnum


class MaintenanceKind(StrEnum):
    """What a client may want to do to a table beside committing. The last four are allowed unless denied.

    CHECKPOINT, LOG_COMPACTION and VERSION_CHECKSUM are exempt by the protocol. CREATION_PURGE is about reservations that
    never became a table: no version of anything was ever in them.
    """

    DATA_REORGANIZATION = "DATA_REORGANIZATION"
    DATA_CLEANUP = "DATA_CLEANUP"
    METADATA_CLEANUP = "METADATA_CLEANUP"
    TABLE_PURGE = "TABLE_PURGE"
    CHECKPOINT = "CHECKPOINT"
    LOG_COMPACTION = "LOG_COMPACTION"
    VERSION_CHECKSUM = "VERSION_CHECKSUM"
    CREATION_PURGE = "CREATION_PURGE"

    @property
    def allowed_by_default(self) -> bool:
        """Protocol default: of what is done to tables only the exempt kinds need no permission (CM-M4)."""
        return self in (
            MaintenanceKind.CHECKPOINT,
            MaintenanceKind.LOG_COMPACTION,
            MaintenanceKind.VERSION_CHECKSUM,
            MaintenanceKind.CREATION_PURGE,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceRule:
    """One line of policy. ``scope`` is ``catalog``, ``catalog.schema`` or ``catalog.schema.table``; the longest one decides."""

    scope: str
    kind: MaintenanceKind
    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceDecision:
    """The catalog's answer for one table and kind. ``decided_by`` is the scope of the rule, or ``default``."""

    kind: MaintenanceKind
    allowed: bool
    reason: str
    decided_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGranted:
    """The caller holds the table for maintenance until ``expires_ms``."""

    expires_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHeldByAnother:
    """Another maintenance run holds the table."""

    owner: str
    kind: MaintenanceKind
    expires_ms: int
