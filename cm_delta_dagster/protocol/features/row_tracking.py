"""Row tracking (protocol heading "Row Tracking"): columns of row ids, the high-water mark, and fresh ids.

The stable id of a row is the value of a hidden materialized column if its file has that column, else ``baseRowId`` plus the
position of the row; the scans compute it. Materialized values are not written.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import CorruptLogError, IllegalCommitError, InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import AddFile, DomainMetadata, Metadata, Protocol
from cm_delta_dagster.protocol.features.column_mapping import column_mapping_mode, physical_name
from cm_delta_dagster.protocol.features.table_features import supports
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType, parse_schema

FEATURE = "rowTracking"
DOMAIN = "delta.rowTracking"
ENABLED = "delta.enableRowTracking"
SUSPENDED = "delta.rowTrackingSuspended"
"""While it is true, commits assign no row ids although the table lists the feature."""
MATERIALIZED_ROW_ID = "delta.rowTracking.materializedRowIdColumnName"
MATERIALIZED_ROW_COMMIT_VERSION = "delta.rowTracking.materializedRowCommitVersionColumnName"

PRESERVED_TAG = "delta.rowTracking.preserved"
"""Tag of ``commitInfo``: whether the rows that the commit moved or changed kept their ids."""

ROW_ID = "_row_id"
"""Column of a scan with the stable row id."""
ROW_COMMIT_VERSION = "_row_commit_version"
"""Column of a scan with the version of the commit that last changed the row."""
ROW_TRACKING_FIELDS = (StructField(ROW_ID, LONG), StructField(ROW_COMMIT_VERSION, LONG))
"""Both columns, in the order in which scans return them."""

_MAX_ROW_ID = 2**63 - 1

_HIGH_WATER_MARK_KEYS = ("rowIdHighWaterMark", "highWaterMark")
"""The first is the key that delta-spark writes, the second that of the protocol text."""

_DOMAIN_NAME = "domainName"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowIdColumns:
    """Names of the hidden columns with materialized values in data files. They do not depend on the column mapping mode."""

    row_id: str
    row_commit_version: str


def is_supported(protocol: Protocol) -> bool:
    """Whether files may have row ids. The ids are stable only while the feature is enabled too."""
    return supports(protocol, FEATURE)


def assigns_ids(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether commits assign row ids to files."""
    return is_supported(protocol) and metadata.configuration.get(SUSPENDED, "false").lower() != "true"


def is_enabled(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether row ids are stable, so that scans may return them."""
    return is_supported(protocol) and metadata.configuration.get(ENABLED, "false").lower() == "true"


def row_id_columns(protocol: Protocol, metadata: Metadata, table: str) -> RowIdColumns:
    """The names of the hidden columns with row ids and row commit versions.

    Args:
        table: name of the table in error messages.

    Raises:
        InvalidArgumentError: row tracking is not enabled.
        CorruptLogError: a property with a column name is missing, or the name is that of another column.
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
    """Highest row id assigned so far; -1 before the first.

    Args:
        domains: domain metadata of the table by name of the domain.

    Raises:
        CorruptLogError: the domain does not contain a valid number.
    """
    domain = domains.get(DOMAIN)
    if domain is None or domain.removed:
        return -1
    try:
        content = json.loads(domain.configuration)
    except (ValueError, RecursionError):
        content = None
    marks = [content[key] for key in _HIGH_WATER_MARK_KEYS if key in content] if isinstance(content, dict) else []
    if not marks or any(
        isinstance(row_id, bool) or not isinstance(row_id, int) or not -1 <= row_id < 2**63 for row_id in marks
    ):
        raise CorruptLogError(
            f"The domain {DOMAIN} contains {domain.configuration!r} instead of a row id high-water mark such as "
            '{"rowIdHighWaterMark":9}; the log is damaged.'
        )
    return int(max(marks))


def flaw_of_keys(configuration: str) -> str | None:
    """What beside a mark is in the configuration of a new commit, as the predicate of a sentence; None if nothing is.

    Two marks are read differently by readers that know only one of the keys. Delta Spark adds the name of the domain.

    Args:
        configuration: from which :func:`high_water_mark` reads a mark.
    """
    content = json.loads(configuration)
    if len(content.keys() & set(_HIGH_WATER_MARK_KEYS)) > 1:
        return f"has both {' and '.join(_HIGH_WATER_MARK_KEYS)}, of which readers know one"
    if content.get(_DOMAIN_NAME, DOMAIN) != DOMAIN:
        return f"has the {_DOMAIN_NAME} {content[_DOMAIN_NAME]!r}"
    unknown = sorted(content.keys() - {*_HIGH_WATER_MARK_KEYS, _DOMAIN_NAME})
    return f"has the key {unknown[0]!r} beside the high-water mark" if unknown else None


def stated_high_water_mark(domains: Mapping[str, DomainMetadata]) -> int | None:
    """As :func:`high_water_mark`; None if the domain is absent or damaged."""
    domain = domains.get(DOMAIN)
    if domain is None or domain.removed:
        return None
    try:
        return high_water_mark(domains)
    except CorruptLogError:
        return None


def known_high_water_mark(domains: Mapping[str, DomainMetadata]) -> int:
    """As :func:`high_water_mark`; -1 if the domain is damaged, so that the ids of files decide about the next ones."""
    try:
        return high_water_mark(domains)
    except CorruptLogError:
        return -1


def states_highest_id(domain: DomainMetadata, base_row_ids: pa.ChunkedArray, num_records: pa.Array) -> bool:
    """Whether a domain sets the high-water mark, and nothing else, to the highest row id of the files of its commit.

    Args:
        base_row_ids, num_records: of each file that the commit adds; null where it does not say.
    """
    try:
        content = json.loads(domain.configuration)
    except (ValueError, RecursionError):
        return False
    if domain.removed or not isinstance(content, dict) or len(content) != 1:
        return False
    key, mark = next(iter(content.items()))
    if key not in _HIGH_WATER_MARK_KEYS or isinstance(mark, bool) or not isinstance(mark, int) or mark < 0:
        return False
    last = pc.subtract(pc.add(base_row_ids, num_records), 1)
    return bool(mark == pc.max(last).as_py())


def flaw_of_mark(domain: DomainMetadata) -> str | None:
    """Why writers cannot continue from the high-water mark in ``domain``, as a sentence; None if they can."""
    try:
        mark = high_water_mark({domain.domain: domain})
    except CorruptLogError as error:
        return str(error)
    return f"the high-water mark is {mark}, so that no row ids are left." if mark == _MAX_ROW_ID else None


def high_water_mark_domain(highest_row_id: int) -> DomainMetadata:
    """The domain that records ``highest_row_id`` as the high-water mark."""
    content = json.dumps({_HIGH_WATER_MARK_KEYS[0]: highest_row_id}, separators=(",", ":"))
    return DomainMetadata(domain=DOMAIN, configuration=content)


def highest_row_id(base_row_ids: pa.ChunkedArray | pa.Array, num_records: pa.Array) -> int:
    """The highest row id that any of the files has; -1 if none has ids.

    The high-water mark in the log should be at least as high. If a writer lowered it, ids above it would be given again.

    Args:
        base_row_ids: of each file, null without ids.
        num_records: rows of each file; where it is null, the file counts with its first id only.
    """
    array = base_row_ids.combine_chunks() if isinstance(base_row_ids, pa.ChunkedArray) else base_row_ids
    if array.null_count == len(array):
        return -1
    following = pc.max_element_wise(pc.subtract(pc.fill_null(num_records, 1), 1), 0)
    # Damaged numbers must not overflow.
    largest = pc.subtract(pa.scalar(_MAX_ROW_ID, pa.int64()), pc.max_element_wise(array, 0, skip_nulls=False))
    return int(pc.max(pc.add(array, pc.min_element_wise(following, largest, skip_nulls=False))).as_py())


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshRowIds:
    """Files of one commit with their row ids, and the high-water mark after the commit."""

    adds: tuple[AddFile, ...]
    high_water_mark: int


def assign_row_ids(adds: Sequence[AddFile], *, high_water_mark: int, version: int) -> FreshRowIds:
    """Assign ids to the files that have none. The result depends on the previous commit, so it is computed again after each rebase.

    Args:
        adds: files of the commit.
        high_water_mark: highest row id that earlier commits assigned; -1 if there is none.
        version: version of the commit.

    Raises:
        IllegalCommitError: the statistics of a file lack the number of rows, or the ids do not fit into 64 bits.
    """
    highest = high_water_mark
    numbered = []
    for add in adds:
        if add.base_row_id is None:
            first, highest = highest + 1, highest + _physical_rows(add)
            if max(first, highest) > _MAX_ROW_ID:
                raise IllegalCommitError(
                    f"The file {add.path} cannot be added: row ids up to {first - 1} are taken, and the ids of its rows would not "
                    "fit into 64 bits (row tracking). Nothing was committed. Copy the table to a new one."
                )
            add = replace(add, base_row_id=first)
        if add.default_row_commit_version is None:
            add = replace(add, default_row_commit_version=version)
        numbered.append(add)
    return FreshRowIds(adds=tuple(numbered), high_water_mark=highest)


def without_ids_above(add: AddFile, high_water_mark: int) -> AddFile:
    """``add`` without the row ids that an attempt to commit it assigned, and without the version of that attempt.

    Args:
        high_water_mark: highest row id that was assigned before, and of files that bring their own ids; -1 if there is none.
    """
    if add.base_row_id is None or add.base_row_id <= high_water_mark:
        return add
    return replace(add, base_row_id=None, default_row_commit_version=None)


def _physical_rows(add: AddFile) -> int:
    try:
        rows = json.loads(add.stats or "{}").get("numRecords")
    except (ValueError, AttributeError, RecursionError):
        rows = None
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
        raise IllegalCommitError(
            f"The file {add.path} cannot be added: its statistics do not say how many rows it has, and the table assigns "
            "an id to each row (row tracking). Nothing was committed. Write the file with numRecords."
        )
    return rows


def row_id_namesake(schema: StructType) -> str | None:
    """The first of :data:`ROW_TRACKING_FIELDS` whose name a column of the table has, ignoring case; None if there is none."""
    return next((item.name for item in ROW_TRACKING_FIELDS if schema.field(item.name) is not None), None)


def check_row_ids(schema: StructType, files: pa.Table) -> None:
    """Refuse to read the ids of rows where they are not known, or would have the name of a column.

    Args:
        files: as add actions.

    Raises:
        InvalidArgumentError: the table has a column with the name of one of :data:`ROW_TRACKING_FIELDS`.
        CorruptLogError: the log has no ids for a file.
    """
    name = row_id_namesake(schema)
    if name is not None:
        raise InvalidArgumentError(
            f"The table has a column named {name!r} of its own, so row ids cannot be returned under that name. Read "
            "the table without them."
        )
    for column in ("baseRowId", "defaultRowCommitVersion"):
        if files[column].null_count:
            path = files.filter(pc.is_null(files[column]))["path"][0].as_py()
            raise CorruptLogError(
                f"Row tracking is enabled, and the data file {path!r} has no {column} in the log, so the ids of its rows "
                "are not known. Read the table without row ids."
            )
