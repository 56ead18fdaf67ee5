"""The commands of ``cm-delta``: the module of each, and its line in the help. A module is imported when its command runs."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class LazyCommand(NamedTuple):
    """Where a command is.

    Attributes:
        module: in this package; its attribute is named as the command, with ``_`` for ``-``.
        summary: the first sentence of the command's help.
    """

    module: str
    summary: str


_SUMMARIES: Mapping[str, Mapping[str, str]] = {
    "access_commands": {
        "audit": "Show who changed grants, roles and rules, and what was refused: the newest entries, in the order of "
        "time.",
        "grant": "Grant PRIVILEGE (read, append, modify, alter, maintain, own) on SCOPE to the principal or role TO.",
        "grants": "List grants, or enable and disable their enforcement.",
        "owner": "Show the owner of the table NAME, or make the principal or role TO its owner.",
        "revoke": "Delete the grants of PRIVILEGE on exactly SCOPE to PRINCIPAL.",
        "roles": "List roles with their members, or change them.",
        "whoami": "Show the principal of this command, its roles, and whether grants are enforced.",
    },
    "alter_commands": {
        "alter": "Change the columns, the properties or the features of a table, by one commit.",
    },
    "clone_command": {
        "clone": "Create the table NAME as a clone of SOURCE: a table of the catalog, or the path of a table of "
        "another writer.",
    },
    "commit_mode_commands": {
        "commit-mode": "Show and set the commit mode.",
    },
    "doctor_command": {
        "doctor": "Compare catalog and storage of the table NAME; the exit code is 1 if a finding is an error.",
    },
    "event_commands": {
        "clean-feed": "Delete old events from the feed, if FEED_CLEANUP is allowed in every catalog.",
        "expire-lease": "End the maintenance lease of another run on the table NAME: it can neither commit nor delete any "
        "more.",
        "feed": "Print the events of the catalog, oldest first: commits, changes of tables and policies, refusals, "
        "leases.",
        "leases": "List the maintenance leases.",
        "webhooks": "Subscribe URLs to the feed, and deliver events to them.",
    },
    "lifecycle_commands": {
        "drop": "Free the name of the table NAME; its files stay until it is purged.",
        "orphan-files": "List files of the warehouse that belong to no table of the catalog; nothing is deleted.",
        "purge": "Delete the files of dropped tables and abandoned creations permanently, after a retention.",
        "rename": "Rename the table NAME to TO; of the rules for NAME only denials move along.",
        "undrop": "Bring back the dropped table NAME.",
    },
    "onboarding_commands": {
        "adopt": "Bring the Delta table or the Parquet files at PATH under the catalog as NAME, without copying data "
        "files.",
        "export": "Write a log of the table NAME to TARGET for engines that cannot read tables of a catalog; data "
        "files are shared.",
        "register": "Let NAME stand for the Delta table at PATH, to read it; its writers stay the same.",
        "release": "Make the table NAME a Delta table of its path again; the catalog forgets it.",
        "unregister": "Remove the registered NAME; the table at its path stays as it is.",
    },
    "optimize_command": {
        "optimize": "Rewrite small files of the table NAME into fewer large files, or order its rows; rows do not "
        "change.",
    },
    "policy_commands": {
        "policy": "Show and set which maintenance is allowed.",
    },
    "position_commands": {
        "position": "Show and set how far an asset stored in a table has read the changes of its inputs.",
    },
    "read_commands": {
        "files": "Print the data files of the table NAME (catalog.schema.table) with sizes and row counts.",
        "head": "Print the first rows of the table NAME (catalog.schema.table).",
        "history": "Print the commits of the table NAME (catalog.schema.table) from its log, newest first, with what "
        "they did.",
        "schema": "Print the columns of the table NAME (catalog.schema.table).",
        "sql": "Run the SQL STATEMENT over tables catalog.schema.table, and print its rows.",
    },
    "recovery_commands": {
        "backup": "Copy the catalog's database, which may be in use, to the new FILE, and verify the copy.",
        "recover": "Record commits that storage holds and the catalog does not know: of the table NAME, of --all, or of "
        "a --warehouse.",
        "relocate": "Change the locations of tables after a warehouse moved: of all tables, or of SCOPE (catalog or "
        "catalog.schema).",
    },
    "restore_command": {
        "restore": "Make an older version of the table NAME its next version; the history stays.",
    },
    "rule_commands": {
        "approvals": "List the commits that wait for an approval, of all tables or those in SCOPE.",
        "approve": "Commit what waits as APPROVAL_ID, rebased on the latest version; a repeated call does nothing.",
        "reject": "Close the request APPROVAL_ID without a commit.",
        "rules": "Show and set commit rules: what all commits to a table, a schema or a catalog must satisfy.",
    },
    "spark_commands": {
        "spark-jars": "Copy the jars with which Spark reads and writes an object store into a directory, through Maven "
        "(mvn).",
    },
    "table_commands": {
        "commits": "List the newest commits of the table NAME (catalog.schema.table), newest first.",
        "tables": "List the tables of the catalog, or of SCOPE (catalog or catalog.schema).",
    },
}

COMMANDS: Mapping[str, LazyCommand] = MappingProxyType(
    {
        name: LazyCommand(module, summary)
        for module, summaries in _SUMMARIES.items()
        for name, summary in summaries.items()
    }
)
