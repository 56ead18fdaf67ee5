"""Values of maintenance: kinds, rules, decisions and leases.

Protocol heading "Maintenance Operations on Catalog-managed Tables".
"""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from cm_delta_dagster.catalog.durations import LONGEST
from cm_delta_dagster.catalog.maintenance_windows import MaintenanceWindow
from cm_delta_dagster.errors import InvalidArgumentError


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
class MaintenanceConditions:
    """Whom a maintenance rule concerns, when, and how much it lets a run do.

    Attributes:
        principals: principals and roles; everybody if empty.
        windows: open times; always if empty.
        min_retention: least retention of a run that deletes files or entries of the feed; also for a retention that is passed.
        max_files, max_bytes: most files, and bytes, that one run may delete or rewrite.
    """

    principals: tuple[str, ...] = ()
    windows: tuple[MaintenanceWindow, ...] = ()
    min_retention: timedelta | None = None
    max_files: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.principals, str) or not all(isinstance(name, str) for name in self.principals):
            raise InvalidArgumentError(
                f"The principals of a maintenance rule are {self.principals!r}; give a tuple of names, e.g. ('ana', 'pipelines')."
            )
        for name in ("max_files", "max_bytes"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63):
                raise InvalidArgumentError(
                    f"{name} of a maintenance rule is {value!r}; give a whole number of at least 0 and below 2**63."
                )
        least = self.min_retention
        if least is not None and not (isinstance(least, timedelta) and timedelta(0) <= least <= LONGEST):
            raise InvalidArgumentError(
                f"min_retention of a maintenance rule is {least!r}; give a datetime.timedelta from 0 to a hundred years. A rule "
                "that denies the maintenance keeps files for longer."
            )

    @property
    def limits(self) -> tuple[timedelta | None, int | None, int | None]:
        """``min_retention``, ``max_files`` and ``max_bytes``."""
        return self.min_retention, self.max_files, self.max_bytes


NO_CONDITIONS = MaintenanceConditions()


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceRule:
    """A permission or a denial. ``scope`` is ``catalog``, ``catalog.schema`` or ``catalog.schema.table``; the narrowest one
    applies. The limits of wider rules that allow the kind hold too.

    An allowing rule denies maintenance to other principals and at other times. A denying rule concerns only its principals and
    times; for others the wider rule applies.
    """

    scope: str
    kind: MaintenanceKind
    allowed: bool
    reason: str = ""
    conditions: MaintenanceConditions = NO_CONDITIONS
    set_by: str | None = field(default=None, compare=False)
    set_ms: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.allowed and self.conditions.limits != (None, None, None):
            raise InvalidArgumentError(
                f"The rule that denies {self.kind.value} for {self.scope} cannot have a least retention or a largest run; set them "
                "with a rule that allows it."
            )


BY_DEFAULT = "default"
"""What decides if no rule applies; see :attr:`MaintenanceDecision.decided_by`."""

BY_GRANTS = "grants"
"""What decides if the caller lacks the privilege; also the name of the rule in refusals of other operations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceDecision:
    """The catalog's decision for one table and kind. ``decided_by`` is the scope of the rule, ``default`` or ``grants``.

    ``min_retention``, ``max_files`` and ``max_bytes`` are the strictest limits of the rules that allow it.
    """

    kind: MaintenanceKind
    allowed: bool
    reason: str
    decided_by: str
    min_retention: timedelta | None = None
    max_files: int | None = None
    max_bytes: int | None = None


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
