"""Every error this package raises, as one tree.

A message says what happened, why, and what to do about it. The tree::

    CmDeltaError
    ├── TableError
    │   ├── TableNotFoundError
    │   ├── TableAlreadyExistsError
    │   ├── NotCatalogManagedError
    │   ├── CatalogManagedAccessError
    │   ├── VersionNotFoundError
    │   ├── SchemaMismatchError
    │   ├── InvalidArgumentError
    │   ├── InvalidDataError
    │   ├── PartitionMismatchError
    │   └── StreamSourceChangedError
    ├── ProtocolError
    │   ├── CorruptLogError
    │   ├── IllegalCommitError
    │   └── UnsupportedFeatureError
    ├── CommitError
    │   ├── CommitConflictError
    │   ├── CommitRejectedError
    │   ├── CommitRetriesExceededError
    │   └── CommitStateUnknownError
    ├── MaintenanceError
    │   ├── MaintenanceNotPermittedError
    │   ├── MaintenanceInProgressError
    │   ├── UnpublishedVersionError
    │   ├── RetentionTooShortError
    │   └── PurgeRefusedError
    ├── StorageError
    │   ├── ObjectNotFoundError
    │   │   └── DirectoryNotFoundError
    │   ├── ObjectAlreadyExistsError
    │   ├── StoreNotSupportedError
    │   └── TableStorageMissingError
    ├── CatalogError
    │   ├── CatalogNotFoundError
    │   ├── CatalogUnavailableError
    │   ├── CatalogVersionError
    │   ├── PermissionDeniedError
    │   ├── CatalogBehindStorageError
    │   ├── WarehouseMismatchError
    │   └── RecoveryError
    └── EngineError
        ├── JavaNotFoundError
        └── EngineStoppedError

This module imports nothing of the package. Foreign exceptions are mapped to this tree at one border each: fsspec and the
operating system in ``storage``, SQLAlchemy in ``catalog.sql``, Spark in ``spark``.
"""


class CmDeltaError(Exception):
    """Root of every error raised on purpose by this package."""


class TableError(CmDeltaError):
    """A table, its name, its schema or the data offered to it is not what the call needs."""


class TableNotFoundError(TableError):
    """No table of that name or id is registered (or it was dropped)."""


class TableAlreadyExistsError(TableError):
    """The name is taken by another table."""


class NotCatalogManagedError(TableError):
    """The catalog says that the table is catalog-managed, its log says that it is not, or the reverse."""


class CatalogManagedAccessError(TableError):
    """A catalog-managed table was opened by path; only its catalog knows its latest version."""


class VersionNotFoundError(TableError):
    """The requested version or timestamp lies outside of what can be read."""


class SchemaMismatchError(TableError):
    """Offered columns do not fit the table; the message shows both schemas."""


class InvalidArgumentError(TableError):
    """An argument, setting or metadata key has no meaning here, or contradicts another one."""


class InvalidDataError(TableError):
    """Rows break a rule of the table or of the operation: NOT NULL, duplicate merge keys, a partition value without a form."""


class PartitionMismatchError(TableError):
    """Rows lie outside the partitions or the predicate that the write declared."""


class StreamSourceChangedError(TableError):
    """A stream met a commit that does more than add rows, and was not told what to do then."""


class ProtocolError(CmDeltaError):
    """A rule of the Delta protocol is broken, or asks for something unsupported."""


class CorruptLogError(ProtocolError):
    """The log on storage breaks the protocol: a gap, an unreadable action, a missing or altered file.

    Attributes:
        version: the commit that is lost or damaged, where one commit is the reason.
    """

    def __init__(self, message: str, *, version: int | None = None) -> None:
        super().__init__(message)
        self.version = version


class IllegalCommitError(ProtocolError):
    """This client was about to commit something that the protocol forbids; nothing was written."""


class UnsupportedFeatureError(ProtocolError):
    """The table needs a feature or protocol version that this client does not support."""


class CommitError(CmDeltaError):
    """A commit was not made, or its outcome is not known.

    A commit comes out in one of five ways. It is *committed*: the call answers with the version. Or it raises

    * CommitConflictError: another commit changed what it depends on; nothing was committed, run it again.
    * CommitRejectedError: the catalog does not want it; nothing was committed, and to try again is of no use.
    * CommitRetriesExceededError: compatible commits were faster each time; nothing was committed, run it again.
    * CommitStateUnknownError: it may have been committed or not; look before anything else is done.

    What is found wrong before anything is proposed is no outcome of a commit: IllegalCommitError, StorageError and others.
    """


class CommitConflictError(CommitError):
    """Another commit changed what this one depends on; the message names it.

    Attributes:
        kind: name of the conflict, e.g. ``ConcurrentAppend``.
        winning_version: version of the commit that won.
    """

    def __init__(self, message: str, *, kind: str = "Conflict", winning_version: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.winning_version = winning_version


class CommitRejectedError(CommitError):
    """The catalog refused the proposal for a reason other than a taken version; retrying does not help."""


class CommitRetriesExceededError(CommitError):
    """Other writers won every attempt; nothing of this commit is visible.

    Attributes:
        winning_versions: the versions of those that won, ascending.
    """

    def __init__(self, message: str, *, winning_versions: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.winning_versions = winning_versions


class CommitStateUnknownError(CommitError):
    """The answer to a proposal was lost and could not be found out; nothing was retried and nothing deleted.

    Attributes:
        txn_id: what to look for in the table's history.
        version: of the proposal.
    """

    def __init__(self, message: str, *, txn_id: str | None = None, version: int | None = None) -> None:
        super().__init__(message)
        self.txn_id = txn_id
        self.version = version


class MaintenanceError(CmDeltaError):
    """A maintenance operation was not carried out."""


class MaintenanceNotPermittedError(MaintenanceError):
    """The catalog's policy does not allow this kind of maintenance on this table."""


class MaintenanceInProgressError(MaintenanceError):
    """Another maintenance run holds the table."""


class UnpublishedVersionError(MaintenanceError):
    """The operation needs a published version and this one is only ratified."""


class RetentionTooShortError(MaintenanceError):
    """The asked retention is shorter than the table's own and the safety switch is on."""


class PurgeRefusedError(MaintenanceError):
    """A table may not be deleted for good: it has a name, is too young, or lies where the catalog does not rule."""


class StorageError(CmDeltaError):
    """Storage failed or refused."""


class ObjectNotFoundError(StorageError):
    """No object at that location."""


class DirectoryNotFoundError(ObjectNotFoundError):
    """A directory that has to be there before anything is written into it is not there; nothing was written."""


class ObjectAlreadyExistsError(StorageError):
    """An object exists at a location where only a new one may be written."""


class StoreNotSupportedError(StorageError):
    """The file system lacks something that is needed, e.g. a put-if-absent primitive."""


class TableStorageMissingError(StorageError):
    """The catalog knows published commits of a table and storage holds none of them: a volume that is not mounted, a
    warehouse that was moved, a deleted directory. Nothing was written."""


class CatalogError(CmDeltaError):
    """The catalog failed or refused."""


class CatalogNotFoundError(CatalogError):
    """The database holds no catalog, and the call does not create one."""


class CatalogUnavailableError(CatalogError):
    """The catalog could not be reached; whether a change took effect may be unknown."""


class CatalogVersionError(CatalogError):
    """The catalog's database was made by a newer release of this package."""


class PermissionDeniedError(CatalogError):
    """The catalog does not let this client do that."""


class CatalogBehindStorageError(CatalogError):
    """Storage holds commits of a table above the latest version that the catalog knows, as after the catalog's database
    was restored from a backup. Nothing was written and nothing deleted.

    Attributes:
        identifier: name of the table.
        latest_version: the latest version by the catalog.
        storage_version: the newest commit in the table's ``_delta_log``.
    """

    def __init__(
        self, message: str, *, identifier: str = "", latest_version: int = -1, storage_version: int = -1
    ) -> None:
        super().__init__(message)
        self.identifier = identifier
        self.latest_version = latest_version
        self.storage_version = storage_version


class WarehouseMismatchError(CatalogError):
    """The warehouse belongs to another catalog than the one that was asked; nothing was written."""


class RecoveryError(CatalogError):
    """A plan of recovery, relocation or backup cannot be carried out; the message says what is in the way."""


class EngineError(CmDeltaError):
    """The compute engine (Spark) failed or is missing."""


class JavaNotFoundError(EngineError):
    """Spark needs Java 17 or newer and none was found."""


class EngineStoppedError(EngineError):
    """The Spark session is gone: its Java process has ended, or it was stopped."""


NOT_COMMITTED = (
    CommitConflictError,
    CommitRejectedError,
    CommitRetriesExceededError,
    IllegalCommitError,
    StorageError,
    TableNotFoundError,
    CatalogBehindStorageError,
)
"""What a commit raises when it is certain that nothing was ratified, so that files written for it may go.

A failure of storage while a proposal is open, and a table that is dropped meanwhile, become a
:class:`CommitStateUnknownError`; a StorageError or TableNotFoundError comes before one.
"""
