"""A digest of what a commit changes, equal for all attempts of one transaction (protocol heading "Actions").

Attempts differ in their version and in what depends on the commits before: times, row ids, and properties that name a version.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from cm_delta_dagster.protocol.actions.action_fields import to_fields
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.features.table_properties import (
    CHECKPOINT_PROTECTION_KEY,
    ENABLEMENT_TIMESTAMP_KEY,
    ENABLEMENT_VERSION_KEY,
)

_FILE_COLUMNS = ("path", "dataChange", "deletionVector", "stats", "size", "partitionValues")
_DEPENDS_ON_VERSION = frozenset((CHECKPOINT_PROTECTION_KEY, ENABLEMENT_TIMESTAMP_KEY, ENABLEMENT_VERSION_KEY))


def fingerprint(commit: CommitActions) -> str:
    """SHA-256, as hexadecimal digits, of the changes of ``commit``."""
    content = {
        "adds": _files(commit.adds),
        "removes": _files(commit.removes),
        "cdc": sorted(file.path for file in commit.cdc),
        "txn": sorted((txn.app_id, txn.version) for txn in commit.transactions),
        "domains": sorted(
            (domain.domain, domain.configuration, domain.removed)
            for domain in commit.domains
            if domain.domain != row_tracking.DOMAIN
        ),
        "metaData": None if commit.metadata is None else _metadata(commit.metadata),
        "protocol": None if commit.protocol is None else to_fields(commit.protocol)[1],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _files(files: pa.Table) -> list[str]:
    columns = [name for name in _FILE_COLUMNS if name in files.column_names]
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in files.select(columns).to_pylist())


def _metadata(metadata: Metadata) -> Mapping[str, Any]:
    fields = dict(to_fields(metadata)[1])
    fields["configuration"] = {
        key: value for key, value in metadata.configuration.items() if key not in _DEPENDS_ON_VERSION
    }
    return fields
