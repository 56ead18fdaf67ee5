"""Proposals with content, for the checks of a catalog."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import CommitProposal
from tests.contracts.catalog_bench import proposal

ADD = {"add": {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}
REMOVE = {"remove": {"path": "a", "dataChange": True, "deletionTimestamp": 1}}
REARRANGE = {"remove": {"path": "a", "dataChange": False, "deletionTimestamp": 1}}


def of_bytes(one: CommitProposal, data: bytes) -> CommitProposal:
    """The proposal with other content."""
    digest = hashlib.sha256(data).hexdigest()
    return replace(one, content=data, content_to_check=data, file_size=len(data), sha256=digest)


def commit_of(
    version: int, *actions: Mapping[str, Any], mode: CommitMode = CommitMode.INLINE, at: int | None = None
) -> CommitProposal:
    """A proposal whose content has commitInfo with the in-commit timestamp ``at``, and ``actions``."""
    one = replace(proposal(version, timestamp=at), mode=mode)
    info = {"txnId": one.summary.txn_id, "inCommitTimestamp": one.summary.in_commit_timestamp, "operation": "WRITE"}
    lines = [json.dumps(action) for action in ({"commitInfo": info}, *actions)]
    return of_bytes(one, "".join(f"{line}\n" for line in lines).encode())
