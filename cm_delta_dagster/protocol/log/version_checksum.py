"""Version checksums (protocol heading "Version Checksum File"): counts and sums over a table state.

Computes a checksum from a table state, or from the previous checksum and the commits since then without reading the table
state. Does not write ``allFiles``, whose size is proportional to the table.
"""

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import DomainMetadata, Metadata, Protocol, SetTransaction
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.log.action_reconciliation import TableState

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30

DEFAULT_BOUNDARIES: tuple[int, ...] = (
    0,
    *(2**power * _KIB for power in range(3, 13)),
    *(size * _MIB for size in range(8, 40, 4)),
    *(size * _MIB for size in range(40, 120, 8)),
    *(size * _MIB for size in range(120, 144, 4)),
    *(size * _MIB for size in range(144, 576, 16)),
    *(size * _MIB for size in range(576, 1408, 64)),
    *(size * _MIB for size in range(1408, 2048, 128)),
    *(size * _MIB for size in range(2048, 4096, 256)),
    *(2**power * _GIB for power in range(2, 9)),
)
"""Lower ends of the bins of ``fileSizeHistogram``, as in delta-spark; the protocol leaves them to the writer."""

DELETED_RECORD_BOUNDARIES = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 2_147_483_647)
"""Lower ends of the ten bins of ``deletedRecordCountsHistogramOpt``."""

_FEW_ROWS = 32
_NO_VALUES = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSizeHistogram:
    """Files and bytes per size range: bin ``i`` covers sizes from ``boundaries[i]`` to ``boundaries[i + 1]``, exclusive.

    Invariants: ``boundaries`` ascend from 0; the three tuples have the same length. Sizes are in bytes.
    """

    boundaries: tuple[int, ...]
    file_counts: tuple[int, ...]
    total_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChecksum:
    """Content of a ``.crc`` file: the state of a version after action reconciliation. None stands for an absent field.

    ``deleted_record_counts`` are numbers of files per bin of :data:`DELETED_RECORD_BOUNDARIES`.
    """

    table_size_bytes: int
    num_files: int
    metadata: Metadata
    protocol: Protocol
    num_metadata: int = 1
    num_protocol: int = 1
    txn_id: str | None = None
    in_commit_timestamp: int | None = None
    set_transactions: tuple[SetTransaction, ...] | None = None
    domain_metadata: tuple[DomainMetadata, ...] | None = None
    num_deleted_records: int | None = None
    num_deletion_vectors: int | None = None
    file_size_histogram: FileSizeHistogram | None = None
    deleted_record_counts: tuple[int, ...] | None = None


def build_checksum(state: TableState, *, txn_id: str | None, in_commit_timestamp: int | None) -> VersionChecksum:
    """Compute the checksum of ``state`` from all of its files.

    Args:
        txn_id: ``txnId`` of the commit of the version.
        in_commit_timestamp: epoch milliseconds; ignored unless the table has in-commit timestamps enabled.
    """
    adds = state.files.adds
    sizes, cardinalities = adds["size"], _cardinalities(adds)
    present = cardinalities.drop_null()
    return VersionChecksum(
        table_size_bytes=_sum(sizes),
        num_files=adds.num_rows,
        metadata=state.metadata,
        protocol=state.protocol,
        txn_id=txn_id,
        in_commit_timestamp=_timestamp_if_enabled(state.metadata, in_commit_timestamp),
        set_transactions=_sorted_transactions(state.transactions),
        domain_metadata=_sorted_domains(state.domains),
        num_deleted_records=_sum(present),
        num_deletion_vectors=len(present),
        file_size_histogram=_histogram(sizes, DEFAULT_BOUNDARIES),
        deleted_record_counts=_histogram(pc.fill_null(cardinalities, 0), DELETED_RECORD_BOUNDARIES).file_counts,
    )


def advance_checksum(
    previous: VersionChecksum, commits: Sequence[CommitActions], *, location: str
) -> VersionChecksum | None:
    """Compute the checksum after ``commits`` from the previous one; the cost does not depend on the size of the table.

    Args:
        commits: the versions that follow ``previous`` without a gap, oldest first. Each must be valid: the files that it
            removes are live, and those that it adds with ``dataChange`` true are not.
        location: absolute URI of the table root.

    Returns:
        None if the commits are not sufficient: the size of a removed file is unknown, or an added file may already be in the
        table. The caller then uses :func:`build_checksum`.
    """
    for commit in commits:
        known = _sizes_are_known(commit.removes) and not commit.adds["size"].null_count
        if not known or _may_repeat_files(commit.adds, commit.removes, location):
            return None
    metadata = next((commit.metadata for commit in reversed(commits) if commit.metadata), previous.metadata)
    info = commits[-1].commit_info
    adds = [commit.adds for commit in commits if commit.adds.num_rows]
    removes = [commit.removes for commit in commits if commit.removes.num_rows]
    new, gone = _sizes(adds), _sizes(removes)
    added, removed = _vectors(adds), _vectors(removes)
    return replace(
        previous,
        table_size_bytes=previous.table_size_bytes + int(new.sum()) - int(gone.sum()),
        num_files=previous.num_files + len(new) - len(gone),
        metadata=metadata,
        protocol=next((commit.protocol for commit in reversed(commits) if commit.protocol), previous.protocol),
        txn_id=None if info is None else info.txn_id,
        in_commit_timestamp=_timestamp_if_enabled(metadata, None if info is None else info.in_commit_timestamp),
        set_transactions=_advance_transactions(
            previous.set_transactions, [txn for commit in commits for txn in commit.transactions]
        ),
        domain_metadata=_advance_domains(
            previous.domain_metadata, [domain for commit in commits for domain in commit.domains]
        ),
        num_deleted_records=_plus(previous.num_deleted_records, int(added.sum()) - int(removed.sum())),
        num_deletion_vectors=_plus(previous.num_deletion_vectors, len(added) - len(removed)),
        file_size_histogram=_advance_histogram(previous.file_size_histogram, new, gone),
        deleted_record_counts=_advance_counts(
            previous.deleted_record_counts, (added, len(new) - len(added)), (removed, len(gone) - len(removed))
        ),
    )


def differences(stored: VersionChecksum, state: TableState) -> tuple[str, ...]:
    """Names of the required fields of ``stored`` that do not match ``state``."""
    expected = (
        ("tableSizeBytes", stored.table_size_bytes, state.files.size_bytes),
        ("numFiles", stored.num_files, state.files.num_files),
        ("numMetadata", stored.num_metadata, 1),
        ("numProtocol", stored.num_protocol, 1),
        ("metadata", stored.metadata, state.metadata),
        ("protocol", _comparable(stored.protocol), _comparable(state.protocol)),
    )
    return tuple(name for name, recorded, actual in expected if recorded != actual)


def encode(value: VersionChecksum) -> bytes:
    """Encode the file: one JSON object."""
    content: dict[str, Any] = {
        "txnId": value.txn_id,
        "tableSizeBytes": value.table_size_bytes,
        "numFiles": value.num_files,
        "numMetadata": value.num_metadata,
        "numProtocol": value.num_protocol,
        "inCommitTimestampOpt": value.in_commit_timestamp,
        "numDeletedRecordsOpt": value.num_deleted_records,
        "numDeletionVectorsOpt": value.num_deletion_vectors,
        "setTransactions": _contents(value.set_transactions, "txn"),
        "domainMetadata": _contents(value.domain_metadata, "domainMetadata"),
        "metadata": _content(value.metadata, "metaData"),
        "protocol": _content(value.protocol, "protocol"),
    }
    histogram = value.file_size_histogram
    if histogram is not None:
        content["fileSizeHistogram"] = {
            "sortedBinBoundaries": histogram.boundaries,
            "fileCounts": histogram.file_counts,
            "totalBytes": histogram.total_bytes,
        }
    if value.deleted_record_counts is not None:
        content["deletedRecordCountsHistogramOpt"] = {"deletedRecordCounts": value.deleted_record_counts}
    present = {name: item for name, item in content.items() if item is not None}
    return json.dumps(present, separators=(",", ":"), ensure_ascii=False).encode()


def decode(data: bytes) -> VersionChecksum | None:
    """Decode the file; None if it is invalid or lacks a required field."""
    try:
        content = json.loads(data)
        if not isinstance(content, dict):
            return None
        return _from_json(content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, CmDeltaError):
        return None


def _from_json(content: Mapping[str, Any]) -> VersionChecksum:
    # decode_commit parses the two large actions as lines of a commit.
    lines = "\n".join(
        json.dumps({name: content[field]}) for name, field in (("protocol", "protocol"), ("metaData", "metadata"))
    )
    actions = commit_json.decode_commit(lines.encode(), version=0)
    if actions.protocol is None or actions.metadata is None:
        raise ValueError("no protocol or no metadata")
    stored = content.get("fileSizeHistogram") or content.get("histogramOpt")
    histogram = None if stored is None else _histogram_from_json(stored)
    totals = (_long(content["numFiles"]), _long(content["tableSizeBytes"]))
    if histogram is not None and (sum(histogram.file_counts), sum(histogram.total_bytes)) != totals:
        raise ValueError("the histogram contradicts the counts: a number was altered")
    deleted = content.get("deletedRecordCountsHistogramOpt")
    return VersionChecksum(
        table_size_bytes=_long(content["tableSizeBytes"]),
        num_files=_long(content["numFiles"]),
        metadata=actions.metadata,
        protocol=actions.protocol,
        num_metadata=_long(content["numMetadata"]),
        num_protocol=_long(content["numProtocol"]),
        txn_id=content.get("txnId"),
        in_commit_timestamp=_optional_long(content.get("inCommitTimestampOpt")),
        set_transactions=_transactions_from_json(content.get("setTransactions")),
        domain_metadata=_domains_from_json(content.get("domainMetadata")),
        num_deleted_records=_optional_long(content.get("numDeletedRecordsOpt")),
        num_deletion_vectors=_optional_long(content.get("numDeletionVectorsOpt")),
        file_size_histogram=histogram,
        deleted_record_counts=None if deleted is None else _counts_from_json(deleted),
    )


def _long(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is not a long")
    return value


def _optional_long(value: Any) -> int | None:
    return None if value is None else _long(value)


def _transactions_from_json(values: Sequence[Mapping[str, Any]] | None) -> tuple[SetTransaction, ...] | None:
    if values is None:
        return None
    transactions = (
        SetTransaction(app_id=value["appId"], version=value["version"], last_updated=value.get("lastUpdated"))
        for value in values
    )
    return tuple(sorted(transactions, key=lambda txn: txn.app_id))


def _domains_from_json(values: Sequence[Mapping[str, Any]] | None) -> tuple[DomainMetadata, ...] | None:
    if values is None:
        return None
    domains = (
        DomainMetadata(domain=value["domain"], configuration=value["configuration"])
        for value in values
        if not value.get("removed")
    )
    return tuple(sorted(domains, key=lambda domain: domain.domain))


def _histogram_from_json(value: Mapping[str, Any]) -> FileSizeHistogram | None:
    histogram = FileSizeHistogram(
        boundaries=tuple(map(_long, value["sortedBinBoundaries"])),
        file_counts=tuple(map(_long, value["fileCounts"])),
        total_bytes=tuple(map(_long, value["totalBytes"])),
    )
    sizes = {len(histogram.boundaries), len(histogram.file_counts), len(histogram.total_bytes)}
    ascending = all(low < high for low, high in zip(histogram.boundaries, histogram.boundaries[1:], strict=False))
    # The field is optional, so an invalid histogram is treated like an absent one.
    return histogram if len(sizes) == 1 and histogram.boundaries[:1] == (0,) and ascending else None


def _counts_from_json(value: Mapping[str, Any]) -> tuple[int, ...] | None:
    counts = tuple(map(_long, value["deletedRecordCounts"]))
    return counts if len(counts) == len(DELETED_RECORD_BOUNDARIES) else None


def _content(action: Metadata | Protocol | SetTransaction | DomainMetadata, name: str) -> Any:
    return json.loads(commit_json.encode_action(action))[name]


def _contents(actions: Sequence[SetTransaction] | Sequence[DomainMetadata] | None, name: str) -> list[Any] | None:
    return None if actions is None else [_content(action, name) for action in actions]


def _comparable(protocol: Protocol) -> tuple[object, ...]:
    # The order of feature names has no meaning.
    lists = (protocol.reader_features, protocol.writer_features)
    return (
        protocol.min_reader_version,
        protocol.min_writer_version,
        *(None if features is None else frozenset(features) for features in lists),
    )


def _timestamp_if_enabled(metadata: Metadata, timestamp: int | None) -> int | None:
    return timestamp if TableProperties(metadata.configuration).in_commit_timestamps_enabled else None


def _sorted_transactions(transactions: Mapping[str, SetTransaction]) -> tuple[SetTransaction, ...]:
    return tuple(transactions[app_id] for app_id in sorted(transactions))


def _sorted_domains(domains: Mapping[str, DomainMetadata]) -> tuple[DomainMetadata, ...]:
    return tuple(domains[name] for name in sorted(domains) if not domains[name].removed)


def _advance_transactions(
    previous: tuple[SetTransaction, ...] | None, newer: Sequence[SetTransaction]
) -> tuple[SetTransaction, ...] | None:
    if previous is None or not newer:
        return previous
    return _sorted_transactions({txn.app_id: txn for txn in (*previous, *newer)})


def _advance_domains(
    previous: tuple[DomainMetadata, ...] | None, newer: Sequence[DomainMetadata]
) -> tuple[DomainMetadata, ...] | None:
    if previous is None or not newer:
        return previous
    return _sorted_domains({domain.domain: domain for domain in (*previous, *newer)})


def _may_repeat_files(adds: pa.Table, removes: pa.Table, location: str) -> bool:
    """Whether an add with ``dataChange`` false may refer to a file that is in the table and is already counted."""
    flags = adds["dataChange"]
    if len(flags) <= _FEW_ROWS and False not in flags.to_pylist():
        return False
    refreshing = adds.filter(pc.invert(flags))
    if not refreshing.num_rows:
        return False
    replaced = pc.is_in(file_keys(location, refreshing["path"]), value_set=file_keys(location, removes["path"]))
    return not pc.all(replaced).as_py()


def _sizes_are_known(removes: pa.Table) -> bool:
    if not removes.num_rows:
        return True
    # The size of a remove is reliable only if extendedFileMetadata is true.
    trusted = pc.fill_null(removes["extendedFileMetadata"], False)
    return bool(pc.all(trusted, min_count=0).as_py()) and removes["size"].null_count == 0


def _cardinalities(files: pa.Table) -> pa.ChunkedArray:
    return pc.struct_field(files["deletionVector"], "cardinality")


def _sizes(files: Sequence[pa.Table]) -> np.ndarray:
    return np.concatenate([_NO_VALUES, *(part["size"].to_numpy() for part in files)])


def _vectors(files: Sequence[pa.Table]) -> np.ndarray:
    """The cardinality of each deletion vector."""
    some = [part for part in files if part["deletionVector"].null_count < part.num_rows]
    return np.concatenate([_NO_VALUES, *(_cardinalities(part).drop_null().to_numpy() for part in some)])


def _sum(values: pa.ChunkedArray) -> int:
    return int(pc.sum(values, min_count=0).as_py())


def _plus(previous: int | None, change: int) -> int | None:
    return None if previous is None else previous + change


def _histogram(values: pa.ChunkedArray, boundaries: Sequence[int]) -> FileSizeHistogram:
    ordered = values.take(pc.array_sort_indices(values)) if len(values) else values
    sums = pc.cumulative_sum(ordered)
    ends = [
        *(bisect_left(range(len(ordered)), low, key=lambda index: ordered[index].as_py()) for low in boundaries[1:]),
        len(ordered),
    ]
    running = [sums[end - 1].as_py() if end else 0 for end in ends]
    return FileSizeHistogram(
        boundaries=tuple(boundaries),
        file_counts=tuple(end - start for start, end in zip([0, *ends], ends, strict=False)),
        total_bytes=tuple(end - start for start, end in zip([0, *running], running, strict=False)),
    )


def _advance_histogram(
    previous: FileSizeHistogram | None, added: np.ndarray, removed: np.ndarray
) -> FileSizeHistogram | None:
    if previous is None:
        return None
    counts, total = list(previous.file_counts), list(previous.total_bytes)
    for sizes, sign in ((added, 1), (removed, -1)):
        bins = np.searchsorted(previous.boundaries, sizes, side="right") - 1
        for position in np.unique(bins).tolist():
            inside = sizes[bins == position]
            counts[position] += sign * len(inside)
            total[position] += sign * int(inside.sum())
    return replace(previous, file_counts=tuple(counts), total_bytes=tuple(total))


def _advance_counts(
    previous: tuple[int, ...] | None, added: tuple[np.ndarray, int], removed: tuple[np.ndarray, int]
) -> tuple[int, ...] | None:
    """Add and remove files in the bins of ``previous``.

    Args:
        added, removed: the cardinalities of deletion vectors and the number of files without one.
    """
    if previous is None:
        return None
    counts = list(previous)
    for (cardinalities, whole), sign in ((added, 1), (removed, -1)):
        counts[0] += sign * whole
        for position in (np.searchsorted(DELETED_RECORD_BOUNDARIES, cardinalities, side="right") - 1).tolist():
            counts[position] += sign
    return tuple(counts)
