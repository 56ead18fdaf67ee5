"""Choosing how commits to a table are made, and presenting inline ones (protocol "Catalog-managed tables").

Staged, inline and automatic are chosen at once. Into and out of put-if-absent the table goes by steps; while they last writers
wait, and whoever chooses again after a crash completes them.
"""

import uuid
from dataclasses import replace

from cm_delta_dagster.catalog.commit_policy import (
    CommitMode,
    CommitPolicy,
    CommitPolicyKind,
    CommitPolicyRule,
    PolicyChange,
)
from cm_delta_dagster.catalog.ratification import RatifiedCommit, RatifiedCommits
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CommitRetriesExceededError,
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    StoreNotSupportedError,
)
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.protocol.log import log_files


def choose_commit_policy(client: DeltaClient, *, scope: str, policy: CommitPolicy | None) -> None:
    """Choose for ``catalog``, ``catalog.schema`` or ``catalog.schema.table``; the longest scope decides.

    Put-if-absent of a catalog or a schema holds for tables made afterwards; a table that is there is switched by its own name.

    Args:
        policy: None takes the choice of that scope back.

    Raises:
        InvalidArgumentError: a malformed scope, or SWITCHING.
        TableNotFoundError: no table has that name.
        CmDeltaError: for a table, as :func:`set_commit_policy`.
    """
    if scope.count(".") == 2:
        set_commit_policy(client.table(scope), policy)
    elif policy is None:
        client.catalog.remove_commit_policy(scope)
    else:
        client.catalog.set_commit_policy(CommitPolicyRule(scope=scope, policy=policy))


def set_commit_policy(table: Table, policy: CommitPolicy | None) -> None:
    """Choose how commits to ``table`` are made from now on; None leaves it to its schema, its catalog or the default.

    Raises:
        InvalidArgumentError: ``policy`` is SWITCHING.
        StoreNotSupportedError: put-if-absent was chosen and the store cannot create a file exclusively; nothing changed.
        CommitRetriesExceededError: writers were faster each time; the table is still switching. Choose again.
        StorageError, CatalogUnavailableError: a step failed; the table may be switching. Choose again.
    """
    if policy is not None and policy.kind is CommitPolicyKind.PUT_IF_ABSENT:
        _check_exclusive_creation(table)
    attempts = table.services.settings.max_commit_attempts
    for _ in range(attempts):
        # Read before the catalog is asked: a barrier that it does not know yet is then not older than the next version.
        snapshot = table.snapshot()
        change = table.catalog.change_commit_policy(table.table_id, policy)
        if change is PolicyChange.DONE:
            return
        if change is PolicyChange.PUBLISH_FIRST:
            publish(table)
        else:
            table.commit_barrier(snapshot)
    raise CommitRetriesExceededError(
        f"The commit mode of {table.identifier} was not switched in {attempts} attempts: writers were faster each time. It is "
        "still being switched and writers wait; set the mode again."
    )


def present_commits(table: Table) -> RatifiedCommits:
    """The ratified commits for a client that knows file names only: each inline one is staged under its name before.

    Sizes and modification times are those of the files, as far as they are still there.

    Raises:
        StorageError: a commit could not be staged; asking again continues.
    """
    ratified = table.catalog_answer()
    directory = log_files.staged_commits_directory(table.location)
    for commit in ratified.commits:
        if commit.content is not None and commit.mode is CommitMode.INLINE:
            # What is there under a name with a fresh id was put there by an earlier call, with the same bytes.
            _create_or_keep(table, f"{directory}/{commit.file_name}", commit.content)
    return replace(ratified, commits=tuple(_as_stored(table, directory, commit) for commit in ratified.commits))


def _as_stored(table: Table, directory: str, commit: RatifiedCommit) -> RatifiedCommit:
    try:
        status = table.store.stat(f"{directory}/{commit.file_name}")
    except ObjectNotFoundError:  # Published and cleaned since the catalog answered; what it has on record must do.
        return replace(commit, content=None)
    return replace(commit, content=None, file_modification_time=status.modification_time)


def _create_or_keep(table: Table, location: str, data: bytes) -> bool:
    try:
        table.store.write_if_absent(location, data)
    except ObjectAlreadyExistsError:
        return False
    return True


def _check_exclusive_creation(table: Table) -> None:
    """Try what every commit will depend on, with a staged file of version 0, which means nothing to anybody (CM-5)."""
    name = log_files.staged_commit_file_name(0, str(uuid.uuid4()))
    location = f"{log_files.staged_commits_directory(table.location)}/{name}"
    try:
        exclusive = _create_or_keep(table, location, b"") and not _create_or_keep(table, location, b"")
    except StoreNotSupportedError as error:
        raise StoreNotSupportedError(
            f"Commits to {table.identifier} cannot be made put-if-absent: {error} The commit mode was not changed."
        ) from error
    finally:
        table.store.delete(location)
    if not exclusive:
        raise StoreNotSupportedError(
            f"Commits to {table.identifier} cannot be made put-if-absent: the store at {table.location} let a file be created "
            "twice, so that two writers could overwrite each other. The commit mode was not changed; use staged or inline."
        )
