"""Validates the actions of a commit before it is written (protocol headings "Delta Log Entries", "Action Reconciliation")."""

from collections.abc import Iterable, Sequence

from cm_delta_dagster.errors import IllegalCommitError
from cm_delta_dagster.protocol.actions.actions import (
    Action,
    AddCdcFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)


def check_commit(actions: Sequence[Action]) -> None:
    """Check that no two actions of a commit concern the same object and that commitInfo is the first action.

    Raises:
        IllegalCommitError: the actions are invalid; the message names the object. Nothing was written.
    """
    seen: set[tuple[str, ...]] = set()
    for action in actions:
        for key in _identities(action):
            if key in seen:
                raise IllegalCommitError(
                    f"The commit would contain two actions for {' '.join(key)}, which the protocol forbids. "
                    "Nothing was written."
                )
            seen.add(key)
    if sum(isinstance(action, CommitInfo) for action in actions) != 1 or not isinstance(actions[0], CommitInfo):
        raise IllegalCommitError(
            "The commit must contain exactly one commitInfo, as its first action. Nothing was written."
        )


def _identities(action: Action) -> Iterable[tuple[str, ...]]:
    match action:
        case AddFile() | RemoveFile():
            vector = "" if action.deletion_vector is None else action.deletion_vector.unique_id
            yield ("add" if isinstance(action, AddFile) else "remove", "of", action.path)
            yield ("file", action.path, vector)
        case AddCdcFile():
            yield ("cdc", "of", action.path)
        case Metadata():
            yield ("metaData",)
        case Protocol():
            yield ("protocol",)
        case SetTransaction():
            yield ("txn", action.app_id)
        case DomainMetadata():
            yield ("domainMetadata", action.domain)
        case _:
            return
