"""Creates a file of the log that decides about an adoption, and repeats the request while storage does not answer."""

from collections.abc import Callable

from cm_delta_dagster.client.backoff import attempts
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CommitStateUnknownError, StorageError, StoreNotSupportedError, WriteRefusedError


def create_resolved(
    client: DeltaClient, create: Callable[[], bool], *, what: str, consequence: str, txn_id: str, version: int
) -> bool:
    """Call ``create`` until storage answers. A repetition must recognize the file of an earlier call as its own.

    Args:
        create: creates the file; returns False if another writer has created it.
        what: the file, for the message.
        consequence: the state of the table then, and what to do.

    Raises:
        CommitStateUnknownError: storage did not answer.
        WriteRefusedError: storage refused the first request.
        StoreNotSupportedError: the store cannot create a file exclusively.
    """
    last: StorageError | None = None
    for _ in attempts(client.settings, client.settings.max_resolve_attempts):
        try:
            return create()
        except StoreNotSupportedError:
            raise
        except StorageError as error:
            if last is None and isinstance(error, WriteRefusedError):
                raise
            last = error
    raise CommitStateUnknownError(
        f"Storage did not answer whether {what} was created ({last}). {consequence}", txn_id=txn_id, version=version
    ) from last
