"""Row tracking (protocol heading "Row Tracking"): where row ids are, the high-water mark, and fresh ids.

A stable row id is the value of a hidden materialized column where a file has one, else ``baseRowId``
plus the row's position (ROWTRK-10); the scans compute it. Materialized values are not written here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cm_delta_dagster.errors import CorruptLogError, IllegalCommitError, InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import AddFile, DomainMetadata, Metadata, Protocol
from cm_delta_dagster.protocol.features.column_mapping import column_mapping_mode, physical_name
from cm_delta_dagster.protocol.features.table_features import supports
from cm_delta_dagster.protocol.schema.types import parse_schema

FEATURE = "rowTracking"
DOMAIN = "delta.rowTracking"
ENABLED = "delta.enableRowTracking"
MATERIALIZED_ROW_ID = "delta.rowTracking.materializedRowIdColumnName"
MATERIALIZED_ROW_COMMIT_VERSION = "delta.rowTracking.materializedRowCommitVersionColumnName"

PRESERVED_TAG = "delta.rowTracking.preserved"
"""Tag of ``commitInfo``: whether rows that a commit moved or changed kept their ids (ROWTRK-14)."""

ROW_ID = "_row_id"
"""Name under which a scan offers the stable row id."""
ROW_COMMIT_VERSION = "_row_commit_version"
"""Name under which a scan offers the version of the commit that last changed the row."""

_MARK_KEYS = ("rowIdHighWaterMark", "highWaterMark")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowIdColumns:
    """Names in data files of the hidden columns with materialized values; in every column mapping mode they are
    found by these names.
    """

    row_id: str
    row_commit_version: str


def is_supported(protocol: Protocol) -> bool:
    """Whether files carry fresh row ids (ROWTRK-1). They are stable only while the feature is enabled as well."""
    return supports(protocol, FEATURE)


def is_enabled(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether row ids are stable and may be offered to readers (ROWTRK-1, ROWTRK-16)."""
    return is_supported(protocol) and metadata.configuration.get(ENABLED, "false").lower() == "true"


def row_id_columns(protocol: Protocol, metadata: Metadata, table: str) -> RowIdColumns:
    """The hidden columns of a table whose row ids can be read.

    Args:
        table: what messages call the table.

    Raises:
        InvalidArgumentError: row tracking is not enabled (ROWTRK-16).
        CorruptLogError: it is enabled, and a column is not named or is named like another one (ROWTRK-8, ROWTRK-9).
    """
    if not is_enabled(protocol, metadata):
        state = (
            f"{ENABLED} is not true, so ids are not kept when rows move"
            if is_supported(protocol)
            else f"its protocol does not list the feature {FEATURE}"
        )
        raise InvalidArgumentError(
            f"Row ids of {table} cannot be read: {state}. Leave {ROW_ID} and {ROW_COMMIT_VERSION} out, or enable row tracking."
        )
    row_id = _named_column(metadata, MATERIALIZED_ROW_ID, table)
    commit_version = _named_column(metadata, MATERIALIZED_ROW_COMMIT_VERSION, table)
    mode = column_mapping_mode(protocol, metadata)
    fields = parse_schema(metadata.schema_string).fields
    taken = {name for field in fields for name in (field.name, physical_name(field, mode))}
    for name in (row_id, commit_version):
        if name in taken or row_id == commit_version:
            raise CorruptLogError(
                f"The column {name!r} that {table} reserves for row tracking has the name of another column; the "
                "metadata in the log is damaged. Row ids are not read; leave them out."
            )
    return RowIdColumns(row_id=row_id, row_commit_version=commit_version)


def _named_column(metadata: Metadata, key: str, table: str) -> str:
    name = metadata.configuration.get(key)
    if not name:
        raise CorruptLogError(
            f"Row tracking of {table} is enabled, but its property {key} is missing, so materialized values cannot be "
            "found. Row ids are not read; leave them out, or enable row tracking again."
        )
    return name


def high_water_mark(domains: Mapping[str, DomainMetadata]) -> int:
    """Highest row id ever assigned, -1 before the first (ROWTRK-6, ROWTRK-7).

    Raises:
        CorruptLogError: the domain holds no usable number.
    """
    domain = domains.get(DOMAIN)
    if domain is None or domain.removed:
        return -1
    try:
        content = json.loads(domain.configuration)
    except (ValueError, RecursionError):
        content = None
    found = [content[key] for key in _MARK_KEYS if key in content] if isinstance(content, dict) else []
    if not found or any(
        isinstance(mark, bool) or not isinstance(mark, int) or not -1 <= mark < 2**63 for mark in found
    ):
        raise CorruptLogError(
            f"The domain {DOMAIN} holds {domain.configuration!r}, which tells no row id high-water mark such as "
            '{"rowIdHighWaterMark":9}; the log is damaged.'
        )
    return int(max(found))


def high_water_mark_domain(mark: int) -> DomainMetadata:
    """The domain that records ``mark`` (ROWTRK-7)."""
    return DomainMetadata(domain=DOMAIN, configuration=json.dumps({_MARK_KEYS[0]: mark}, separators=(",", ":")))


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshRowIds:
    """Files of one commit with their row ids. ``mark`` is the highest id assigned so far, theirs included."""

    adds: tuple[AddFile, ...]
    mark: int


def assign_row_ids(adds: Sequence[AddFile], *, mark: int, version: int) -> FreshRowIds:
    """Fresh ids for files of the commit ``version`` that have none; depends on the commit before it, so that it is done
    again after a lost race (ROWTRK-2 to ROWTRK-6, ROWTRK-11).

    Args:
        mark: high-water mark before the commit.

    Raises:
        IllegalCommitError: a file does not say how many rows it has.
    """
    numbered = []
    for add in adds:
        if add.base_row_id is None:
            first, mark = mark + 1, mark + _physical_rows(add)
            add = replace(add, base_row_id=first)
        if add.default_row_commit_version is None:
            add = replace(add, default_row_commit_version=version)
        numbered.append(add)
    return FreshRowIds(adds=tuple(numbered), mark=mark)


def _physical_rows(add: AddFile) -> int:
    try:
        rows = json.loads(add.stats or "{}").get("numRecords")
    except (ValueError, AttributeError, RecursionError):
        rows = None
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
        raise IllegalCommitError(
            f"The file {add.path} cannot be added: its statistics do not say how many rows it has, and the table gives "
            "each row an id (row tracking). Nothing was committed. Write the file with numRecords."
        )
    return rows
