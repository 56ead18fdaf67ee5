"""Values of maintenance: kinds, rules, decisions and leases.

Protocol heading "Maintenance Operations on Catalog-managed Tables".
"""

from dataclasses import dataclass
from enum import StrEnum


class MaintenanceKind(StrEnum):
    """The kinds of maintenance that a catalog permits or denies. The last four are permitted by default.

    The protocol exempts CHECKPOINT, LOG_COMPACTION and VERSION_CHECKSUM. FEED_CLEANUP deletes old entries of the catalog's feed;
    its rules are those of catalogs. CREATION_PURGE deletes the files of reservations that
    never became a table.
    """

    DATA_REORGANIZATION = "DATA_REORGANIZATION"
    DATA_CLEANUP = "DATA_CLEANUP"
    METADATA_CLEANUP = "METADATA_CLEANUP"
    TABLE_PURGE = "TABLE_PURGE"
    FEED_CLEANUP = "FEED_CLEANUP"
    CHECKPOINT = "CHECKPOINT"
    LOG_COMPACTION = "LOG_COMPACTION"
    VERSION_CHECKSUM = "VERSION_CHECKSUM"
    CREATION_PURGE = "CREATION_PURGE"

    @property
    def allowed_by_default(self) -> bool:
        """Whether the kind is permitted without a rule."""
        return self in (
            MaintenanceKind.CHECKPOINT,
            MaintenanceKind.LOG_COMPACTION,
            MaintenanceKind.VERSION_CHECKSUM,
            MaintenanceKind.CREATION_PURGE,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceRule:
    """A permission or a denial. ``scope`` is ``catalog``, ``catalog.schema`` or ``catalog.schema.table``; the narrowest one
    applies.
    """

    scope: str
    kind: MaintenanceKind
    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceDecision:
    """The catalog's decision for one table and kind. ``decided_by`` is the scope of the rule, or ``default``."""

    kind: MaintenanceKind
    allowed: bool
    reason: str
    decided_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGranted:
    """The caller holds the lease until ``expires_ms`` (epoch milliseconds, the catalog's clock).

    ``token`` is greater than those of all earlier leases of the table.
    """

    expires_ms: int
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHeldByAnother:
    """Another maintenance run holds the lease."""

    owner: str
    kind: MaintenanceKind
    expires_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost:
    """The lease with this token is not held any more. ``holder`` has the table now; None if no run has."""

    token: int
    holder: LeaseHeldByAnother | None = None
