"""What a user can do about an error, as values that name no method and no command.

An error carries a remedy beside its message. :mod:`~cm_delta_dagster.advice` says it in the words of an entry point.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to do about an error; a subclass for each kind, whose attributes are what the words need."""

    joint: ClassVar[str] = ", then "
    """What stands between several calls."""

    _purpose: ClassVar[str] = ""

    @property
    def purpose(self) -> str:
        """What to do, in words of the protocol and without a full stop. Kinds whose attributes are part of it override this."""
        return self._purpose

    def of_table(self, table: str) -> "Remedy":
        """This remedy for the table of that name, if it concerns a table and does not name one yet."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRemedy(Remedy):
    """A remedy that concerns a table.

    Attributes:
        table: its name; None where it is not known.
    """

    table: str | None = None

    def of_table(self, table: str) -> Self:
        return self if self.table is not None else replace(self, table=table)


# --- catalog and storage ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTable(TableRemedy):
    """Compare the storage of the table with what the catalog ratified."""

    _purpose = "Find out what is wrong by comparing every commit with what the catalog ratified"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairTable(TableRemedy):
    """Carry out the repairs whose result is proven."""

    _purpose = "Put back what has an intact copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBackCommit(TableRemedy):
    """Replace a commit that no reader can use."""

    version: int

    @property
    def purpose(self) -> str:
        return f"An owner of the table can take back version {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverTable(TableRemedy):
    """Record commits of storage in a catalog that does not know them."""

    _purpose = "See which of these commits can be recorded in the catalog, and record them"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseHistory(TableRemedy):
    """Keep one of the two histories of a table that has forked."""

    joint: ClassVar[str] = ", or "

    _purpose = "Compare both histories, and choose whether to keep that of the catalog or that of the storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocateTables(Remedy):
    """Record the new location of a warehouse that was moved.

    Attributes:
        moved_from, moved_to: locations; None where they are not known.
    """

    moved_from: str | None = None
    moved_to: str | None = None

    _purpose = "If the warehouse was moved, record its new location in the catalog"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverWarehouse(Remedy):
    """Adopt the tables of a ``warehouse`` whose catalog was lost; None where it is not known."""

    warehouse: str | None = None

    _purpose = "To bring the tables of a lost catalog into this one, plan their adoption and carry it out"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowMaintenance(Remedy):
    """Set a rule that allows maintenance of this ``kind``."""

    scope: str
    kind: str

    _purpose = "The owner of the policy can allow it, here or in a wider scope"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMaintenance(TableRemedy):
    """Run a task of maintenance.

    Attributes:
        task: its name, which is also that of the method of a table.
    """

    task: str

    _purpose = "Run this maintenance for a table, or by the jobs of Dagster"


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreRetention(TableRemedy):
    """Delete files that the table still keeps."""

    _purpose = "If no client uses the table, vacuum it in spite of its retention"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptTable(Remedy):
    """Bring the files at ``location``, which is None where it is not known, under the catalog."""

    location: str | None = None

    _purpose = "Bring a Delta table or a folder of Parquet files that exists under the catalog"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptOrRegisterTable(Remedy):
    """Bring the table of another writer at ``location`` under the catalog, or give it a name for reading."""

    location: str

    joint: ClassVar[str] = ", or "

    _purpose = "Bring the Delta table at this location under the catalog, or give it a name for reading"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPrivilege(Remedy):
    """Grant a privilege.

    Attributes:
        privilege: name of a privilege of the catalog.
        scope, principal: where, and to whom; None where they are not known.
    """

    privilege: str
    scope: str | None = None
    principal: str | None = None

    _purpose = "Grant a privilege of the catalog"


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokePrivilege(Remedy):
    """Delete a grant; attributes as of :class:`GrantPrivilege`."""

    privilege: str
    scope: str | None = None
    principal: str | None = None

    _purpose = "Delete a grant of the catalog"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGrants(Remedy):
    """List the grants of a scope; of all for an empty one."""

    scope: str = ""

    _purpose = "List the grants of the catalog"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideApproval(Remedy):
    """Decide a request for approval."""

    approval_id: str

    joint: ClassVar[str] = ", or "

    _purpose = "An approver decides about it"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTags(Remedy):
    """Write with commit properties that have tags."""

    _purpose = "Set the tags in the commit properties of the operation or of the connection"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUserMetadata(Remedy):
    """Write with commit properties that have user metadata."""

    _purpose = "Set the user metadata in the commit properties of the operation or of the connection"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListHolds(Remedy):
    """Look at the holds, which include the requests for approval."""

    _purpose = "List the requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListLeases(Remedy):
    """Look at the maintenance leases."""

    _purpose = "List the leases"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListApplicationIds(TableRemedy):
    """Look at the application ids of the table."""

    _purpose = "List the application ids of the table"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetApplicationId(TableRemedy):
    """Forget which principal set an application id last.

    Attributes:
        app_id: as the catalog stores it.
    """

    app_id: str

    _purpose = "Who has the privilege alter can let the next principal set this application id"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCatalog(Remedy):
    """Open the catalog with this release, which migrates it."""

    _purpose = "The catalog is migrated by the first program that reads it"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackUpDatabase(Remedy):
    """Copy the catalog to ``file``, where its database is."""

    file: str

    _purpose = "At the server, with the URL of the database, the catalog can be copied while it is in use"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateCatalog(Remedy):
    """Connect with a program that may create the catalog."""

    _purpose = "The first program that connects creates the catalog"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectWithWarehouse(Remedy):
    """Give the connection the place of new tables."""

    _purpose = "Connect with the warehouse of the catalog's other tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTable(TableRemedy):
    """Free the name of a table for another one."""

    _purpose = "Give the table that has the name another one first"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatWithOption(Remedy):
    """Ask for something that is refused unless it is asked for explicitly.

    Attributes:
        option: name of the argument.
        value: its value; True for an option without a value.
    """

    option: str
    value: str | bool = True

    _purpose = "To do it nevertheless, repeat the call with this argument"


# --- definition of a table --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SetClusteringColumns(TableRemedy):
    """Choose the clustering columns of the table."""

    _purpose = "Set the clustering columns of the table"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveClusteringColumns(TableRemedy):
    """Make the table one without clustering columns."""

    _purpose = "Remove the clustering columns first"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnableTableFeature(TableRemedy):
    """Add a table feature."""

    feature: str

    @property
    def purpose(self) -> str:
        return f"Enable the feature {self.feature} first"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTableFeature(TableRemedy):
    """Drop a table feature with what the table holds because of it."""

    feature: str

    @property
    def purpose(self) -> str:
        return f"Drop the feature {self.feature}; files that need it are rewritten"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTableProperty(TableRemedy):
    """Set a table property.

    Attributes:
        rewrites_files: whether data files must be rewritten.
    """

    key: str
    value: str
    rewrites_files: bool = False

    @property
    def purpose(self) -> str:
        how = ", for which the data files are rewritten" if self.rewrites_files else ""
        return f"Set the property {self.key}{how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropOrRenameColumn(TableRemedy):
    """Drop or rename a column in a commit without rows."""

    joint: ClassVar[str] = ", or "

    column: str

    @property
    def purpose(self) -> str:
        return f"Drop or rename the column {self.column!r} before the write"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddConstraint(TableRemedy):
    """Add a CHECK constraint, which the rows that exist must satisfy."""

    _purpose = "Add the constraint, for which Spark checks the rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceByOwnRows(TableRemedy):
    """Write all rows of the table again."""

    _purpose = "Replace the table by its own rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFiles(TableRemedy):
    """Rewrite files without deletion vectors and dropped columns, or with statistics of ``column``."""

    column: str | None = None

    _purpose = "Rewrite these files first"


# --- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwriteWithSchema(TableRemedy):
    """Replace the rows and the schema of the table."""

    _purpose = "To replace the schema with the rows, overwrite the table"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOnCondition(TableRemedy):
    """Merge by another condition than equal keys."""

    _purpose = "For a condition begin a merge, and add clauses to it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadWithoutSpark(TableRemedy):
    """Read the table by another engine."""

    _purpose = "Read the table without Spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassUncheckedCondition(Remedy):
    """Have Spark evaluate a condition that is not checked before."""

    _purpose = (
        "Text that your own program wrote can be passed to Spark unchecked; never do that with text that a user entered"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeArrowStream(TableRemedy):
    """Read a stream from an offset without Spark.

    Attributes:
        offset: JSON of the offset.
    """

    offset: str

    _purpose = "To lose no row, read the rows before that change without Spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWithoutSpark(TableRemedy):
    """Read a stream without Spark."""

    _purpose = "Read the stream without Spark"
