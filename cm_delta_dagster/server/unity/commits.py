"""``POST tables/{table}``: a commit, the published version, and what the commit changes, all of it or nothing.

The older API's ``POST delta/preview/commits`` says the same in other words.

The order of the checks: the table's id, an exact repetition (answered with success and without effect), a table whose commits
are made put-if-absent, a version that is taken, a gap, the etag, the published version, the staged file, the updates of the
definition; then the catalog ratifies or refuses. A version that is taken is said first, because clients then load the table again
and retry; they do not retry after the status 400.
"""

import logging

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.ratification import CommitOutcome, CommitPolicyChanged, Ratified, VersionTaken
from cm_delta_dagster.catalog.tables import TableEntry
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.post_commit.publisher import publish_commits
from cm_delta_dagster.errors import (
    ApprovalRequiredError,
    CatalogUnavailableError,
    CmDeltaError,
    CommitConflictError,
    CommitRefusedError,
    CommitRejectedError,
    CommitStateUnknownError,
    InvalidArgumentError,
)
from cm_delta_dagster.server.request_errors import NotServedError, RequirementConflictError
from cm_delta_dagster.server.table_access import TableAccess
from cm_delta_dagster.server.unity.approvals import kept_for_approval
from cm_delta_dagster.server.unity.contract import check_changed_protocol
from cm_delta_dagster.server.unity.loading import definition_of
from cm_delta_dagster.server.unity.models import AssertEtag, AssertTableUuid, StagedFile, UpdateTableRequest
from cm_delta_dagster.server.unity.staged_commits import ReadCommit, check_file_name, read_staged
from cm_delta_dagster.server.unity.updates import ParsedUpdate, check_definition_updates, parse_updates

_log = logging.getLogger(__name__)


def update_table(
    access: TableAccess, client: DeltaClient, entry: TableEntry, request: UpdateTableRequest
) -> TableEntry:
    """Do what the request says. Returns the table afterwards.

    Args:
        entry: the table as it was when the request came.

    Raises:
        TableNotFoundError: the table was dropped meanwhile.
        RequirementConflictError: it has another id or etag.
        CommitConflictError: another commit has the version.
        CommitRejectedError: the commit is not the next one, is not the staged one, or is refused.
        InvalidArgumentError: the request contradicts itself, or the commit.
        CommitStateUnknownError: the catalog did not answer; the same request repeated finds the outcome.
    """
    updates = parse_updates(request)
    _require_id(entry, request)
    if updates.add_commit is None:
        _require_etag(entry, request)
        _check_published(entry, updates.published_version)
    else:
        file = updates.add_commit.commit
        check_file_name(file)
        if _is_repeated(client, entry, file):
            return entry
        _check_turn(entry, file.version)
        _require_etag(entry, request)
        _check_published(entry, updates.published_version)
        _commit(access, client, entry, updates, file)
    if updates.published_version is not None:
        _note_published(access, client, entry, updates.published_version)
    return client.registry.load_table_by_id(entry.table_id)


def _require_id(entry: TableEntry, request: UpdateTableRequest) -> None:
    ids = [requirement.uuid for requirement in request.requirements if isinstance(requirement, AssertTableUuid)]
    if not ids:
        raise InvalidArgumentError(
            "The update has no requirement assert-table-uuid, which is mandatory. Nothing was changed."
        )
    other = [table_id for table_id in ids if table_id != entry.table_id]
    if other:
        raise RequirementConflictError(
            f"Table UUID mismatch: {entry.identifier} has the id {entry.table_id}, and the update is for {other[0]}. Nothing was "
            "changed. The table was dropped and created again, or renamed; load it."
        )


def _require_etag(entry: TableEntry, request: UpdateTableRequest) -> None:
    etags = [requirement.etag for requirement in request.requirements if isinstance(requirement, AssertEtag)]
    if any(etag != entry.etag for etag in etags):
        raise RequirementConflictError(
            f"Etag mismatch: the metadata of {entry.identifier} was changed since it was loaded. Nothing was changed. Load the "
            "table again."
        )


def _is_repeated(client: DeltaClient, entry: TableEntry, file: StagedFile) -> bool:
    """Whether this very commit is ratified. Raises CommitConflictError if another one has the version."""
    if file.version > entry.ratified.latest_version:
        return False
    records = client.coordinator.commit_records(entry.table_id, start=file.version, end=file.version)
    if records and records[0].file_name == file.file_name:
        return True
    _refuse_put_if_absent(entry, entry.ratified.commit_policy)
    raise _taken(entry.ratified.latest_version)


def _check_turn(entry: TableEntry, version: int) -> None:
    """Refuse a version that is not the next one, and a table to which clients of this API cannot commit."""
    _refuse_put_if_absent(entry, entry.ratified.commit_policy)
    latest = entry.ratified.latest_version
    if version > latest + 1:
        raise InvalidArgumentError(
            f"Commit version must be the next version after the latest commit {latest}, but got {version}"
        )


def _refuse_put_if_absent(entry: TableEntry, policy: CommitPolicy) -> None:
    if not policy.through_catalog:
        raise CommitRejectedError(
            f"{entry.identifier} is read-only for clients of Unity Catalog's API: its commit mode is {policy.kind.value}, in which "
            "a commit is made by creating its file. Nothing was committed. Ask the owner to set the commit mode staged."
        )


def _taken(latest_version: int) -> CommitConflictError:
    return CommitConflictError(f"Commit version already accepted. Current table version is {latest_version}")


def _check_published(entry: TableEntry, version: int | None) -> None:
    if version is not None and version > entry.ratified.latest_version:
        raise InvalidArgumentError(
            f"Version {version} of {entry.identifier} was reported as published, but the latest ratified version is "
            f"{entry.ratified.latest_version}. Nothing was changed."
        )


def _commit(
    access: TableAccess, client: DeltaClient, entry: TableEntry, updates: ParsedUpdate, file: StagedFile
) -> None:
    assert updates.add_commit is not None
    if updates.add_commit.uniform is not None:
        raise NotServedError(
            "The commit has metadata of Iceberg (uniform), which this catalog does not keep. Nothing was committed. Disable "
            "delta.universalFormat.enabledFormats."
        )
    before = definition_of(access, client, entry)
    staged = read_staged(access.storage, entry, file, definition=before)
    check_definition_updates(updates.definition, staged.definition)
    if staged.actions.protocol is not None:
        check_changed_protocol(before, staged.definition.metadata, staged.definition.protocol)
    outcome = _outcome(client, entry, staged)
    match outcome:
        case Ratified():
            access.publication.schedule(client, entry)
        case VersionTaken():
            raise _taken(outcome.winners.latest_version)
        case CommitPolicyChanged():
            _refuse_put_if_absent(entry, outcome.policy)


def _outcome(client: DeltaClient, entry: TableEntry, staged: ReadCommit) -> CommitOutcome:
    """The catalog's answer to the proposal.

    Raises:
        CommitRejectedError: also for a refusal by a rule, or one that names the request for an approval. Clients repeat a commit
            for minutes after the status 403, and do not after 400.
        CommitStateUnknownError: the catalog did not answer.
    """
    proposal = staged.proposal
    try:
        try:
            return client.coordinator.commit(entry.table_id, proposal)
        except ApprovalRequiredError as error:
            kept = kept_for_approval(client, entry.table_id, staged)
            raise CommitRejectedError(str(kept or error)) from error
    except CommitRefusedError as error:
        raise CommitRejectedError(str(error)) from error
    except CatalogUnavailableError as error:
        raise CommitStateUnknownError(
            f"The database did not answer whether version {proposal.version} of {entry.identifier} was committed. Repeat the "
            f"request with the same file name, {proposal.file_name}: it is committed at most once.",
            txn_id=proposal.summary.txn_id,
            version=proposal.version,
        ) from error


def _note_published(access: TableAccess, client: DeltaClient, entry: TableEntry, version: int) -> None:
    """Record the published version that a client reports, as far as the log has the ratified commits.

    What the log does not have is published here. A failure is logged: the commit of the request is made.
    """
    commits = [commit for commit in entry.ratified.unpublished if commit.version <= version]
    if not commits:
        return
    try:
        access.storage.store_for(entry.location)
        publish_commits(
            client.open(entry).reader,
            commits=commits,
            reached=lambda reached: client.coordinator.set_published_version(entry.table_id, reached),
        )
    except CmDeltaError as error:
        _log.warning("The published version %d of %s was not recorded: %s", version, entry.identifier, error)
