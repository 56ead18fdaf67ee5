"""The checks of a table, and the limits beyond which they fail."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import duration_ms
from cm_delta_dagster.orchestration.maintenance.maintenance_policy import MaintenancePolicy


class TableCheck(StrEnum):
    """What ``table_checks`` can check. The values are the names of the asset checks."""

    HEALTH = "health"
    """``doctor`` finds no error. It reads the whole log, so its time grows with the number of commits."""

    UNPUBLISHED_COMMITS = "unpublished_commits"
    """Few ratified commits are missing in ``_delta_log``."""

    STAGED_COMMITS = "staged_commits"
    """``_staged_commits`` has few files."""

    SMALL_FILES = "small_files"
    """Compaction would not join many small files."""

    LOG_SIZE = "log_size"
    """``_delta_log`` has few files and bytes."""

    CHECKPOINT_LAG = "checkpoint_lag"
    """The newest checkpoint is not many commits old."""

    FRESHNESS = "freshness"
    """The data changed recently, by the time of the commit. Needs ``max_age``."""

    ROW_COUNT = "row_count"
    """The number of rows, and its change by the newest commit that changed data, are within bounds."""

    PARTITION_ROW_COUNT = "partition_row_count"
    """The number of rows of each materialized partition is within bounds. Needs one of the two bounds."""

    SCHEMA_CHANGE = "schema_change"
    """The schema is the declared one, or that of the last check that passed."""

    CONSTRAINTS = "constraints"
    """The table has the declared CHECK constraints, so that every write is checked by them. Needs ``constraints``."""

    APPROVALS = "approvals"
    """No commit to the table waits for an approval."""

    MAINTENANCE = "maintenance"
    """No maintenance task is due and denied, or overdue. Needs ``maintenance``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """Limits of the checks of a table.

    Attributes:
        max_unpublished_commits: ratified commits that may be missing in ``_delta_log``.
        max_staged_commits: files that ``_staged_commits`` may have.
        max_log_files: files that ``_delta_log`` may have, those of its sub-directories included.
        max_log_bytes: their total size in bytes.
        max_commits_since_checkpoint: commits that may be newer than the newest checkpoint.
        max_age: how long ago the newest commit that changed data may be.
        min_rows: least number of rows of the table.
        max_rows: greatest number of rows of the table.
        max_row_change: the share of the earlier rows by which the newest data-changing commit may change their number; 0.5 is half.
        min_rows_per_partition: least number of rows of a materialized partition.
        max_rows_per_partition: greatest number of rows of a materialized partition.
        allow_new_columns: whether new nullable columns pass the check of the schema.
        constraints: name to expression of the CHECK constraints that the table must have.
        maintenance: thresholds of ``SMALL_FILES`` and ``MAINTENANCE``; None: the default thresholds, and no check ``MAINTENANCE``.
        overdue_factor: a permitted task is overdue if the threshold is exceeded by this factor.
        errors: checks whose failure is an error instead of a warning.

    Raises:
        InvalidArgumentError: a limit is negative, or a minimum is above its maximum.
    """

    max_unpublished_commits: int = 10
    max_staged_commits: int = 1000
    max_log_files: int = 10_000
    max_log_bytes: int = 1024 * 1024 * 1024
    max_commits_since_checkpoint: int = 200
    max_age: timedelta | None = None
    min_rows: int | None = None
    max_rows: int | None = None
    max_row_change: float | None = None
    min_rows_per_partition: int | None = None
    max_rows_per_partition: int | None = None
    allow_new_columns: bool = True
    constraints: Mapping[str, str] = field(default_factory=dict)
    maintenance: MaintenancePolicy | None = None
    overdue_factor: float = 2.0
    errors: Collection[TableCheck] = frozenset()

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, int | float) and value < 0:
                raise InvalidArgumentError(f"{name} of CheckSettings is {value}; give a number of at least 0.")
        for low, high in (("min_rows", "max_rows"), ("min_rows_per_partition", "max_rows_per_partition")):
            least, most = getattr(self, low), getattr(self, high)
            if least is not None and most is not None and least > most:
                raise InvalidArgumentError(f"{low} of CheckSettings is {least}, which is above {high} ({most}).")
        if self.max_age is not None and duration_ms(self.max_age, name="max_age") == 0:
            raise InvalidArgumentError(f"max_age of CheckSettings is {self.max_age}; give a positive duration.")
        if self.overdue_factor < 1:
            raise InvalidArgumentError(f"overdue_factor of CheckSettings is {self.overdue_factor}; give at least 1.")

    @property
    def policy(self) -> MaintenancePolicy:
        """The thresholds of maintenance, given or default."""
        return MaintenancePolicy(tables=()) if self.maintenance is None else self.maintenance

    def missing_for(self, check: TableCheck) -> str | None:
        """What ``check`` needs and the settings do not have; None if it can run."""
        needs = {
            TableCheck.FRESHNESS: ("max_age", self.max_age is not None),
            TableCheck.PARTITION_ROW_COUNT: (
                "min_rows_per_partition or max_rows_per_partition",
                self.min_rows_per_partition is not None or self.max_rows_per_partition is not None,
            ),
            TableCheck.CONSTRAINTS: ("constraints", bool(self.constraints)),
            TableCheck.MAINTENANCE: ("maintenance", self.maintenance is not None),
        }
        name, is_given = needs.get(check, ("", True))
        return None if is_given else name

    def default_checks(self) -> tuple[TableCheck, ...]:
        """The checks whose settings are given, without ``HEALTH``, whose time grows with the log."""
        return tuple(
            check for check in TableCheck if check is not TableCheck.HEALTH and self.missing_for(check) is None
        )
