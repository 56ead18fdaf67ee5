"""Set the commit mode of a table, and stage inline commits for other clients (protocol heading "Catalog-managed tables").

A change between staged, inline and automatic takes effect immediately. A change to or from put-if-absent takes several steps,
during which writers wait. If the client crashes between the steps, setting the mode again completes them.
"""

import uuid
from collections.abc import Callable, Iterable
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
from cm_delta_dagster.storage.store import Store


def choose_commit_policy(client: DeltaClient, *, scope: str, policy: CommitPolicy | None) -> None:
    """Set the commit policy of ``catalog``, ``catalog.schema`` or ``catalog.schema.table``; the most specific scope applies.

    Put-if-absent of a catalog or a schema applies to tables created afterwards. To switch an existing table, name the table.

    Args:
        policy: None removes the policy of that scope.

    Raises:
        InvalidArgumentError: ``scope`` is malformed, or ``policy`` is SWITCHING.
        TableNotFoundError: no table has that name.
        CmDeltaError: for a table, as :func:`set_commit_policy`.
    """
    if scope.count(".") == 2:
        set_commit_policy(client.table(scope), policy)
    elif policy is None:
        client.commit_policies.remove_commit_policy(scope)
    else:
        client.commit_policies.set_commit_policy(CommitPolicyRule(scope=scope, policy=policy))


def set_commit_policy(table: Table, policy: CommitPolicy | None) -> None:
    """Set the commit policy of ``table``. With None, the policy of its schema, of its catalog or the default applies.

    Raises:
        InvalidArgumentError: ``policy`` is SWITCHING.
        StoreNotSupportedError: ``policy`` is put-if-absent and the store cannot create a file exclusively; nothing changed.
        CatalogBehindStorageError: ``policy`` is put-if-absent and the log has commits that the catalog does not know.
        CommitRetriesExceededError: concurrent commits prevented the switch; the table is still switching. Set it again.
        StorageError, CatalogUnavailableError: a step failed; the table may still be switching. Set it again.
    """
    if policy is not None and policy.kind is CommitPolicyKind.PUT_IF_ABSENT:
        _check_put_if_absent(table)
    _change(table, lambda: table.services.commit_policies.change_commit_policy(table.table_id, policy))


def begin_release(table: Table) -> None:
    """Set the policy put-if-absent to release ``table``. Raises as :func:`set_commit_policy`, and OperationRefusedError."""
    _check_put_if_absent(table)
    _change(table, lambda: table.services.commit_policies.begin_release(table.table_id))


def _change(table: Table, change_once: Callable[[], PolicyChange]) -> None:
    """Repeat the change and the steps that it asks for until it is done."""
    attempts = table.services.settings.max_commit_attempts
    for _ in range(attempts):
        # Read before the catalog is called: a barrier that it then asks for is not older than the version after this snapshot.
        snapshot = table.snapshot()
        change = change_once()
        if change is PolicyChange.DONE:
            return
        if change is PolicyChange.PUBLISH_FIRST:
            publish(table)
        else:
            table.commit_barrier(snapshot)
    raise CommitRetriesExceededError(
        f"The commit mode of {table.identifier} was not switched in {attempts} attempts: each time another commit came first. The "
        "table is still being switched and writers wait; set the mode again."
    )


def present_commits(table: Table) -> RatifiedCommits:
    """Return the ratified commits for a client that reads them as files. Each inline commit is staged under its name first.

    Sizes and modification times are those of the files, unless a file has been deleted.

    Raises:
        StorageError: a commit could not be staged; call again to continue.
    """
    ratified = table.catalog_answer()
    stage_inline_commits(table.store, table.location, ratified.commits)
    directory = log_files.staged_commits_directory(table.location)
    return replace(ratified, commits=tuple(_as_stored(table, directory, commit) for commit in ratified.commits))


def stage_inline_commits(store: Store, location: str, commits: Iterable[RatifiedCommit]) -> None:
    """Write the staged files of those ``commits`` that are inline, unless they exist. Raises StorageError."""
    directory = log_files.staged_commits_directory(location)
    for commit in commits:
        if commit.content is not None and commit.mode is CommitMode.INLINE:
            # The name holds a unique id: an existing file was written by an earlier call and has the same content.
            _create_or_keep(store, f"{directory}/{commit.file_name}", commit.content)


def _as_stored(table: Table, directory: str, commit: RatifiedCommit) -> RatifiedCommit:
    try:
        status = table.store.stat(f"{directory}/{commit.file_name}")
    except ObjectNotFoundError:  # Published and cleaned since the catalog answered: keep the values of the catalog.
        return replace(commit, content=None)
    return replace(commit, content=None, file_modification_time=status.modification_time)


def _create_or_keep(store: Store, location: str, data: bytes) -> bool:
    try:
        store.write_if_absent(location, data)
    except ObjectAlreadyExistsError:
        return False
    return True


def _check_put_if_absent(table: Table) -> None:
    """Refuse a table whose log has commits that the catalog did not ratify, or whose store does not create exclusively.

    Once commits are made by creating their files, such a file could not be distinguished from a commit.
    """
    if table.catalog_answer().commit_policy.through_catalog:
        table.refuse_if_behind()
    _check_exclusive_creation(table)


def _check_exclusive_creation(table: Table) -> None:
    """Test that the store creates a file exclusively, with a staged file of version 0, which no client reads."""
    name = log_files.staged_commit_file_name(0, str(uuid.uuid4()))
    location = f"{log_files.staged_commits_directory(table.location)}/{name}"
    try:
        exclusive = _create_or_keep(table.store, location, b"") and not _create_or_keep(table.store, location, b"")
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
