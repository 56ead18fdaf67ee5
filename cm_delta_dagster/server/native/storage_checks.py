"""What the server checks on storage before the catalog gets a call: the files of commits, and the locations of new tables.

A client with access to the database answers for its own files. One of the server only has the word of its caller, and a version
whose file is missing makes the table unreadable.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Request

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import CommitProposal, CommitSummary, InitialCommit
from cm_delta_dagster.catalog.rest.operations import CatalogOperation
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import InactiveState, TableIdentifier
from cm_delta_dagster.client.warehouse import WarehouseGuard
from cm_delta_dagster.errors import CommitRejectedError, CorruptLogError
from cm_delta_dagster.protocol.actions.commit_json import decode_commit, encode_action
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.server.commit_files import read_commit_file
from cm_delta_dagster.server.native import recovered_commits
from cm_delta_dagster.server.storage_access import StorageAccess
from cm_delta_dagster.server.table_access import TableAccess

_COMMITS = ("coordinator.commit", "coordinator.record_published")
_COMMITS_OF_SEVERAL = ("coordinator.commit_together", "coordinator.hold")
_WITH_LOCATION = (
    "registry.create_staging_table",
    "registry.register_path",
    "recovery.check_adoption",
    "recovery.relocate_table",
)
_RECOVERED = ("recovery.adopt_table", "recovery.take_in_commits", "recovery.replace_commit")
_CHECKED = frozenset({*_COMMITS, *_WITH_LOCATION, *_COMMITS_OF_SEVERAL, *_RECOVERED, "registry.register_table"})
_LOG, _STAGED = log_files.log_directory("")[1:], log_files.staged_commits_directory("")[1:]


class StorageChecks:
    """The checks of one server. Thread-safe."""

    def __init__(self, storage: StorageAccess, warehouse: WarehouseGuard) -> None:
        self._storage, self._warehouse = storage, warehouse

    def checked(
        self, catalog: SqlCatalog, operation: CatalogOperation, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The arguments of the call, whose proposals have the bytes of their files.

        Args:
            catalog: for the calls of the caller.

        Raises:
            CommitRejectedError: a file is missing, or is not what its proposal or the registration of its table says.
            CommitRefusedError: the token of the caller does not permit the call.
            OperationRefusedError: a file or a location is outside of the storage roots, or the caller or its token may not do that.
            TableNotFoundError: unknown or dropped table.
            WarehouseMismatchError: a table was to be created in the warehouse of another catalog.
        """
        name = str(operation)
        if name in _CHECKED:
            catalog.check_token(operation.part, operation.name, arguments)
        if name in _WITH_LOCATION and arguments.get("location") is not None:
            self._storage.store_for(arguments["location"])
        elif name == "registry.create_staging_table":
            self._warehouse.ensure_marker()  # For its clients, which leave it to the server.
        elif name in _RECOVERED:
            self._check_recovered(catalog, operation.name, arguments)
        elif name == "registry.register_table":
            read_initial = self._with_version_0(catalog, **arguments)
            return {**arguments, "initial": read_initial}
        elif name in _COMMITS:
            read = self._with_file(catalog, arguments["table_id"], arguments["proposal"])
            return {**arguments, "proposal": read}
        elif name in _COMMITS_OF_SEVERAL:
            # An older version is held too: it is committed as another one.
            also_old = name == "coordinator.hold"
            read_all = {
                table_id: self._with_file(catalog, table_id, proposal, also_old=also_old)
                for table_id, proposal in arguments["proposals"].items()
            }
            return {**arguments, "proposals": read_all}
        return arguments

    def _check_recovered(self, catalog: Catalog, name: str, arguments: Mapping[str, Any]) -> None:
        """Check the files of a call that records commits of the log, for a caller that may see the table."""
        if name == "adopt_table":
            table = arguments["table"]
            self._storage.store_for(table.location)
            catalog.recovery.check_adoption(table.identifier, location=table.location)
            recovered_commits.check_history(self._storage, table.location, table.history, published=-1)
            return
        entry = catalog.registry.load_table_by_id(arguments["table_id"])
        if name == "replace_commit":
            recovered_commits.check_commit(self._storage, entry.location, arguments["proposal"])
            return
        published = entry.ratified.published_version
        recovered_commits.check_history(self._storage, entry.location, arguments["history"], published=published)

    def _with_file(
        self, catalog: Catalog, table_id: str, proposal: CommitProposal, *, also_old: bool = False
    ) -> CommitProposal:
        """The proposal with the bytes of its file; the same one if it has no file, or if the catalog accepts none like it."""
        path = _path_of(proposal)
        if path is None:
            return proposal
        entry = catalog.registry.load_table_by_id(table_id)
        if proposal.version <= entry.ratified.latest_version and not also_old:
            return proposal  # A repeated or late one, which becomes no version.

        def contradicted(what: str) -> CommitRejectedError:
            return CommitRejectedError(
                f"Version {proposal.version} of {entry.identifier} was proposed as the file {proposal.file_name} {what}. Nothing "
                "was committed. Write the file of the commit first and propose it with its own values."
            )

        return replace(proposal, content_to_check=self._read(entry.location, path, proposal, contradicted))

    def _with_version_0(
        self,
        catalog: Catalog,
        table_id: str,
        identifier: TableIdentifier,
        summary: CommitSummary,
        initial: InitialCommit | None = None,
    ) -> InitialCommit | None:
        """Version 0 of a reserved table with the bytes of its file; the same one if no table with this id is reserved."""
        reserved = (table for table in catalog.registry.inactive_tables() if table.state is InactiveState.STAGING)
        location = next((table.location for table in reserved if table.table_id == table_id), None)
        if location is None:
            return initial  # A repeated registration, or one that the catalog refuses.
        catalog.recovery.check_adoption(
            identifier, location=location
        )  # Requires what the registration does; no file is read for others.

        def contradicted(what: str) -> CommitRejectedError:
            return CommitRejectedError(
                f"{identifier} was registered with version 0 {what}. Nothing was created. Write version 0 first and register the "
                "table with its own values."
            )

        if initial is None:
            raise contradicted("that the call does not describe")
        path = f"{_LOG}/{log_files.commit_file_name(0)}"
        data = self._read(location, path, initial, contradicted)
        wrong = _difference(data, summary, initial)
        if wrong is not None:
            raise contradicted(wrong)
        return replace(initial, content_to_check=data)

    def _read(
        self,
        location: str,
        path: str,
        stated: CommitProposal | InitialCommit,
        contradicted: Callable[[str], CommitRejectedError],
    ) -> bytes:
        """The bytes of the file of a commit. Raises what ``contradicted`` makes, OperationRefusedError."""
        data = read_commit_file(self._storage, location, path, size=stated.file_size, contradicted=contradicted)
        if stated.content not in (None, data):
            raise contradicted("with other content than it has")
        return data


def _difference(data: bytes, summary: CommitSummary, initial: InitialCommit) -> str | None:
    """In what the registration of version 0 says something else than its file; None if in nothing."""
    try:
        commit = decode_commit(data, version=0)
    except CorruptLogError as error:
        return f"whose file is not valid ({error.message})"
    info = commit.commit_info
    if info is None or (info.txn_id, info.in_commit_timestamp) != (summary.txn_id, summary.in_commit_timestamp):
        return "with another txnId or in-commit timestamp than its file has"
    if commit.metadata is None or encode_action(commit.metadata) != encode_action(initial.metadata):
        return "with another metaData than its file has"
    if commit.protocol is None or encode_action(commit.protocol) != encode_action(initial.protocol):
        return "with another protocol than its file has"
    return None


def _path_of(proposal: CommitProposal) -> str | None:
    """The path of the file below the location of the table; None without one, or for a name that the catalog rejects."""
    if proposal.mode is CommitMode.PUT_IF_ABSENT:
        is_published = proposal.version >= 0 and proposal.file_name == log_files.commit_file_name(proposal.version)
        return f"{_LOG}/{proposal.file_name}" if is_published else None
    parsed = log_files.parse_log_file(proposal.file_name)
    is_staged = isinstance(parsed, log_files.StagedCommitFile) and parsed.version == proposal.version
    return f"{_STAGED}/{proposal.file_name}" if is_staged and proposal.mode is CommitMode.STAGED else None


def storage_checks(request: Request) -> StorageChecks | None:
    """The checks of the server; None makes none."""
    access: TableAccess = request.app.state.tables
    return StorageChecks(access.storage, access.server_client.warehouse)


CheckedStorage: TypeAlias = Annotated[StorageChecks | None, Depends(storage_checks)]
"""The type of a handler's parameter that is the checks of the server."""
