"""Every error this package raises, as one tree.

A message says what happened, why, and what to do about it; where that is a call or a command, the error has a remedy
(:mod:`~cm_delta_dagster.remedies`) in its place. Each layer maps the exceptions of its libraries to this tree::

    CmDeltaError
    ├── InvalidArgumentError (also a ValueError)
    ├── TableError
    │   ├── TableNotFoundError
    │   ├── TableAlreadyExistsError
    │   ├── NotCatalogManagedError
    │   ├── CatalogManagedAccessError
    │   ├── VersionNotFoundError
    │   ├── SchemaMismatchError
    │   ├── InvalidDataError
    │   ├── PartitionMismatchError
    │   ├── PartitionNotFoundError
    │   └── StreamSourceChangedError
    ├── ProtocolError
    │   ├── CorruptLogError
    │   ├── IllegalCommitError
    │   └── UnsupportedFeatureError
    ├── CommitError
    │   ├── CommitConflictError
    │   ├── CommitRejectedError
    │   │   └── CommitRefusedError
    │   ├── CommitRetriesExceededError
    │   ├── CommitStateUnknownError
    │   ├── ApprovalRequiredError
    │   ├── HoldClosedError
    │   └── HoldOutdatedError
    ├── MaintenanceError
    │   ├── MaintenanceNotPermittedError
    │   ├── MaintenanceInProgressError
    │   ├── LeaseNotHeldError
    │   ├── UnpublishedVersionError
    │   ├── RetentionTooShortError
    │   ├── PurgeRefusedError
    │   └── VacuumRefusedError
    ├── StorageError
    │   ├── ObjectNotFoundError
    │   │   └── DirectoryNotFoundError
    │   ├── ObjectAlreadyExistsError
    │   ├── StoreNotSupportedError
    │   ├── WriteRefusedError
    │   └── TableStorageMissingError
    ├── CatalogError
    │   ├── FeedGapError
    │   ├── CatalogNotFoundError
    │   ├── CatalogUnavailableError
    │   ├── CatalogVersionError
    │   ├── NotAuthenticatedError
    │   ├── PermissionDeniedError
    │   │   └── OperationRefusedError
    │   ├── CatalogBehindStorageError
    │   ├── WarehouseMismatchError
    │   └── RecoveryError
    └── EngineError
        ├── JavaNotFoundError
        └── EngineStoppedError
"""

from typing import Self

from cm_delta_dagster.advice import EntryPoint, advice
from cm_delta_dagster.refusals import Refusal
from cm_delta_dagster.remedies import Remedy


class CmDeltaError(Exception):
    """Root of every error that this package raises. Its text is the message and, in the words of the entry point, the remedy.

    Attributes:
        remedy: what to do; None if the message says it, or if there is nothing to do.
        entry_point: whose words the text has; None for those of the process.
    """

    remedy: Remedy | None = None
    entry_point: EntryPoint | None = None

    @property
    def message(self) -> str:
        """What happened and why, without the remedy."""
        return super().__str__()

    def __str__(self) -> str:
        if self.remedy is None:
            return self.message
        return f"{self.message} {advice(self.remedy, self.entry_point)}"

    def with_remedy(self, remedy: Remedy | None, *, table: object = None) -> Self:
        """Set the remedy and return this error. ``table`` is the name of the table, for a remedy that does not have it."""
        self.remedy = remedy if remedy is None or table is None else remedy.of_table(str(table))
        return self


class InvalidArgumentError(CmDeltaError, ValueError):
    """An argument, setting or metadata key is malformed, unknown, or contradicts another one."""


class TableError(CmDeltaError):
    """A table, its name, its schema or the data written to it does not fit the call."""


class TableNotFoundError(TableError):
    """No table with that name or id is registered, or it was dropped."""


class TableAlreadyExistsError(TableError):
    """Another table has the name."""


class NamespaceNotFoundError(TableError):
    """The catalog has no catalog or schema of that name."""


class NamespaceAlreadyExistsError(TableError):
    """A catalog or schema of that name exists."""


class NamespaceNotEmptyError(TableError):
    """A catalog that has schemas, or a schema that has tables, cannot be dropped."""


class NotCatalogManagedError(TableError):
    """Catalog and log disagree on whether the table is catalog-managed."""


class CatalogManagedAccessError(TableError):
    """A catalog-managed table was opened by path; only its catalog knows its latest version."""


class VersionNotFoundError(TableError):
    """The requested version or timestamp is outside the readable range."""


class SchemaMismatchError(TableError):
    """The written columns do not fit the table; the message shows both schemas."""


class InvalidDataError(TableError):
    """Rows violate a rule of the table or of the operation: NOT NULL, duplicate merge keys, a value without a text form."""


class PartitionMismatchError(TableError):
    """Rows are outside the partitions or the predicate that the write declared."""


class PartitionNotFoundError(TableError):
    """A partition that an asset reads was never materialized."""


class StreamSourceChangedError(TableError):
    """A stream found a commit that does more than add rows, and its options do not say how to handle it."""


class ProtocolError(CmDeltaError):
    """A table violates the Delta protocol, or requires something that this client does not support."""


class CorruptLogError(ProtocolError):
    """The log on storage violates the protocol: a gap, an unreadable action, a missing or altered file.

    Attributes:
        version: the lost or damaged commit, if one commit is the cause.
        action, field: what of it cannot be read; None for a gap or an altered file. The action is empty if it is not known.
    """

    def __init__(
        self, message: str, *, version: int | None = None, action: str | None = None, field: str | None = None
    ) -> None:
        super().__init__(message)
        self.version, self.action, self.field = version, action, field


class IllegalCommitError(ProtocolError):
    """The protocol forbids the commit; nothing was written, or the catalog did not ratify what was proposed."""


class UnsupportedFeatureError(ProtocolError):
    """The table requires a feature or protocol version that this client does not support."""


class CommitError(CmDeltaError):
    """A commit was not made, or its outcome is unknown.

    A commit has one of six outcomes. It succeeds, and the call returns the version. Or it raises

    * CommitConflictError: another commit changed what this one depends on; nothing was committed. Run the operation again.
    * CommitRejectedError: the catalog refused it; nothing was committed, and a retry does not help.
    * CommitRetriesExceededError: compatible commits won every attempt; nothing was committed. Run the operation again.
    * CommitStateUnknownError: it may have been committed. Check the table's history before any other action.
    * ApprovalRequiredError: nothing was committed; the catalog keeps the commit until an owner approves or rejects it.

    Faults that are found before a proposal raise other errors, e.g. IllegalCommitError or StorageError.
    """


class CommitConflictError(CommitError):
    """Another commit changed what this one depends on; the message names it.

    Attributes:
        kind: name of the conflict, e.g. ``ConcurrentAppend``.
        winning_version: version of the commit that won.
    """

    def __init__(self, message: str, *, kind: str = "Conflict", winning_version: int | None = None) -> None:
        super().__init__(message)
        self.kind, self.winning_version = kind, winning_version


class CommitRejectedError(CommitError):
    """The catalog refused the proposal, for a reason other than a taken version; a retry does not help."""


class CommitRefusedError(CommitRejectedError):
    """A rule of the catalog refused the proposal: a missing privilege, a policy, an expired lease. It is never retried.

    Attributes:
        refusal: the rule, its scope, who set it and whom to ask.
    """

    def __init__(self, message: str, *, refusal: Refusal | None = None) -> None:
        super().__init__(message)
        self.refusal = refusal


class CommitRetriesExceededError(CommitError):
    """Commits of other writers, whose ascending versions are ``winning_versions``, won every attempt; nothing was committed."""

    def __init__(self, message: str, *, winning_versions: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.winning_versions = winning_versions


class CommitStateUnknownError(CommitError):
    """The catalog did not answer whether it ratified a proposal; nothing was retried and nothing was deleted.

    Attributes:
        txn_id: the ``txnId`` to look for in the table's history.
        version: the proposed version.
    """

    def __init__(self, message: str, *, txn_id: str | None = None, version: int | None = None) -> None:
        super().__init__(message)
        self.txn_id, self.version = txn_id, version


class ApprovalRequiredError(CommitError):
    """A rule of the catalog lets the commit pass only with an approval. The table is unchanged, and the files of the commit stay.

    Attributes:
        approval_id: id of the request that waits; None if the proposer did not keep the commit.
        what: what the commit does against which rule, one sentence for each.
        rules: the rules as ``CommitRule.demand`` describes them; empty once the commit is kept.
        ask: whom to ask.
        is_repeated: the same write waits already; the files of this attempt are not needed.
        refusal: the first rule; None once the commit is kept.
    """

    def __init__(
        self,
        message: str,
        *,
        approval_id: str | None = None,
        what: tuple[str, ...] = (),
        rules: tuple[str, ...] = (),
        ask: tuple[str, ...] = (),
        is_repeated: bool = False,
        refusal: Refusal | None = None,
    ) -> None:
        super().__init__(message)
        self.refusal = refusal
        self.approval_id = approval_id
        self.what = what
        self.rules = rules
        self.ask = ask
        self.is_repeated = is_repeated


class HoldClosedError(CmDeltaError):
    """A hold was ratified, discarded or decided before, has expired, or belongs to another commit. Nothing was committed."""


class HoldOutdatedError(CmDeltaError):
    """Another commit changed rows after a hold was checked. Nothing was committed, and the hold stays: check it again."""


class MaintenanceError(CmDeltaError):
    """A maintenance operation did not run."""


class MaintenanceNotPermittedError(MaintenanceError):
    """The catalog's policy does not allow this kind of maintenance on this table."""


class MaintenanceInProgressError(MaintenanceError):
    """Another maintenance run holds the lease of the table."""


class LeaseNotHeldError(MaintenanceError):
    """A maintenance lease was to be ended that its alleged owner does not hold. Nothing was changed."""


class UnpublishedVersionError(MaintenanceError):
    """The operation requires a published version, and this one is ratified and unpublished."""


class RetentionTooShortError(MaintenanceError):
    """The requested retention is shorter than that of the table, and the retention check is on."""


class PurgeRefusedError(MaintenanceError):
    """A table cannot be purged: it has a name, was dropped too recently, or is outside the managed root."""


class VacuumRefusedError(MaintenanceError):
    """A shallow clone of the table cannot be loaded, so that the files that it needs are not known. Nothing was deleted."""


class StorageError(CmDeltaError):
    """Storage failed, or refused the operation."""


class ObjectNotFoundError(StorageError):
    """There is no object at the location. ``version`` is that of the commit that it is to hold; None for other objects."""

    version: int | None = None


class DirectoryNotFoundError(ObjectNotFoundError):
    """A directory that must exist before the write does not exist; nothing was written."""


class ObjectAlreadyExistsError(StorageError):
    """An object exists at a location where the write may only create one."""


class StoreNotSupportedError(StorageError):
    """The file system lacks a required operation, e.g. put-if-absent."""


class WriteRefusedError(StorageError):
    """The store refused to create an object, e.g. because the credentials have expired. Nothing was written."""


class TableStorageMissingError(StorageError):
    """Storage holds none of the published commits of a table: a volume is not mounted, or a directory was moved or deleted."""


class CatalogError(CmDeltaError):
    """The catalog failed, or refused the operation."""


class FeedGapError(CatalogError):
    """Entries of the feed that a reader has not seen were deleted after their retention.

    Attributes:
        after: where the reader stopped.
        resume_after: position up to which the feed was deleted; the reader continues there.
    """

    def __init__(self, message: str, *, after: int = 0, resume_after: int = 0) -> None:
        super().__init__(message)
        self.after = after
        self.resume_after = resume_after


class CatalogNotFoundError(CatalogError):
    """The database holds no catalog, and the call does not create one."""


class CatalogUnavailableError(CatalogError):
    """The catalog could not be reached; a change may or may not have taken effect."""


class CatalogVersionError(CatalogError):
    """The catalog's database has a schema of a newer release, or one of before that this release does not migrate."""


class NotAuthenticatedError(CatalogError):
    """A server does not know who calls: the request has no token, or one that is unknown, expired or revoked."""


class PermissionDeniedError(CatalogError):
    """This client lacks a right in the catalog, or in its database."""


class OperationRefusedError(PermissionDeniedError):
    """A rule of the catalog refused an operation other than a commit, because the caller lacks a privilege: ``refusal``."""

    def __init__(self, message: str, *, refusal: Refusal | None = None) -> None:
        super().__init__(message)
        self.refusal = refusal


class CatalogBehindStorageError(CatalogError):
    """Storage holds commits of a table above the catalog's latest version, e.g. because the catalog's database was restored
    from a backup. Nothing was written and nothing was deleted.

    Attributes:
        identifier: name of the table.
        latest_version: the catalog's latest version.
        storage_version: the newest commit in the table's ``_delta_log``.
    """

    def __init__(
        self, message: str, *, identifier: str = "", latest_version: int = -1, storage_version: int = -1
    ) -> None:
        super().__init__(message)
        self.identifier, self.latest_version, self.storage_version = identifier, latest_version, storage_version


class WarehouseMismatchError(CatalogError):
    """The warehouse belongs to another catalog; nothing was written."""


class RecoveryError(CatalogError):
    """A recovery, relocation or backup plan cannot be applied; the message says why."""


class EngineError(CmDeltaError):
    """A compute engine (Spark, DuckDB, polars) failed or is missing."""


class JavaNotFoundError(EngineError):
    """Spark needs Java 17 or newer and none was found."""


class EngineStoppedError(EngineError):
    """The Spark session was stopped, or its Java process ended."""


NOT_COMMITTED = (
    CommitConflictError,
    CommitRejectedError,
    CommitRetriesExceededError,
    IllegalCommitError,
    StorageError,
    TableNotFoundError,
    CatalogBehindStorageError,
)
"""Errors of a commit after which nothing was ratified, so that the files written for it can be deleted. What fails after the
proposal, also because the table was dropped concurrently, raises :class:`CommitStateUnknownError`."""


def needs_no_files(error: BaseException) -> bool:
    """Whether the files written for a commit that ended with ``error`` can be deleted: nothing refers to them."""
    return isinstance(error, NOT_COMMITTED) or (isinstance(error, ApprovalRequiredError) and error.is_repeated)
