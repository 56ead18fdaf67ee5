"""What a commit does to its table, as far as its own actions say so (protocol headings "Delta Log Entries", "Actions").

A catalog decides by it who may make a commit. It says nothing about files that the commit does not name. Of actions that the
protocol does not define it says only whether there are any, because readers ignore them.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cm_delta_dagster.protocol.actions.actions import DomainMetadata, Metadata, Protocol
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.statistics.statistics import num_records


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitContent:
    """Facts about one commit.

    Attributes:
        operation: of commitInfo; empty without one.
        files_added, files_removed: data files with ``dataChange``. A file that gets another deletion vector counts in neither,
            but in ``files_updated``.
        files_updated: data files that are removed and added again with another deletion vector.
        files_rearranged: file actions without ``dataChange``, which change no rows.
        rows_added, rows_removed: of these files; None if a file does not say how many rows it has.
        has_change_files: whether the commit records row changes.
        has_new_vectors: whether a file is added with a deletion vector and not removed with another one.
        metadata, protocol: what the commit sets; None if it does not set them.
        domains: metadata domains that the commit sets or removes.
        advances_row_ids: whether the domain of row tracking, if it is one of them, states the highest row id of the added files.
        has_other_lines: whether a line is not exactly one action of the protocol.
        lacks_fields: whether a file action lacks a field that the protocol requires.
    """

    operation: str = ""
    files_added: int = 0
    files_removed: int = 0
    files_updated: int = 0
    files_rearranged: int = 0
    rows_added: int | None = 0
    rows_removed: int | None = 0
    has_change_files: bool = False
    has_new_vectors: bool = False
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    domains: tuple[DomainMetadata, ...] = ()
    advances_row_ids: bool = True
    has_other_lines: bool = False
    lacks_fields: bool = False

    @property
    def sets_other_domains(self) -> bool:
        """Whether it sets a metadata domain other than that of row tracking."""
        return any(domain.domain != row_tracking.DOMAIN for domain in self.domains)

    @property
    def removes_rows(self) -> bool:
        """Whether rows may be gone or changed afterwards."""
        return bool(self.files_removed or self.files_updated or self.has_change_files or self.has_new_vectors)


_REQUIRED_OF_ADDS = ("path", "partitionValues", "size", "modificationTime", "dataChange")
_REQUIRED_OF_REMOVES = ("path", "dataChange")


def content_of(actions: CommitActions) -> CommitContent:
    """The facts of a commit with these actions."""
    adds, removes = _NamedFile.all_of(actions.adds), _NamedFile.all_of(actions.removes)
    removed_by_path = {file.path: file for file in removes if file.changes_data}
    updated = {file.path for file in adds if file.changes_data} & removed_by_path.keys()
    added = [file for file in adds if file.changes_data and file.path not in updated]
    removed = [file for file in removes if file.changes_data and file.path not in updated]
    lost = [
        (removed_by_path[file.path].live_rows, file.live_rows)
        for file in adds
        if file.changes_data and file.path in updated
    ]
    return CommitContent(
        operation="" if actions.commit_info is None else actions.commit_info.operation or "",
        files_added=len(added),
        files_removed=len(removed),
        files_updated=len(updated),
        files_rearranged=sum(not file.changes_data for file in (*adds, *removes)),
        rows_added=_total(file.live_rows for file in added),
        rows_removed=_total([*(file.live_rows for file in removed), *(_difference(*pair) for pair in lost)]),
        has_change_files=bool(actions.cdc),
        has_new_vectors=any(file.vector_rows for file in added),
        metadata=actions.metadata,
        protocol=actions.protocol,
        domains=actions.domains,
        advances_row_ids=_advances_row_ids(actions),
        has_other_lines=actions.has_other_lines,
        lacks_fields=any(actions.adds[name].null_count for name in _REQUIRED_OF_ADDS)
        or any(actions.removes[name].null_count for name in _REQUIRED_OF_REMOVES),
    )


def _advances_row_ids(actions: CommitActions) -> bool:
    marks = [domain for domain in actions.domains if domain.domain == row_tracking.DOMAIN]
    if not marks:
        return True
    adds = actions.adds
    return len(marks) == 1 and row_tracking.states_highest_id(marks[0], adds["baseRowId"], num_records(adds["stats"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedFile:
    path: str
    changes_data: bool
    live_rows: int | None
    vector_rows: int

    @classmethod
    def all_of(cls, files: pa.Table) -> list["_NamedFile"]:
        if not files.num_rows:
            return []
        records = _records(files["stats"])
        columns = files.select(["path", "dataChange", "deletionVector"]).to_pylist()
        return [cls._of(row, rows) for row, rows in zip(columns, records, strict=True)]

    @classmethod
    def _of(cls, row: Mapping[str, Any], records: int | None) -> "_NamedFile":
        vector = row["deletionVector"]
        hidden = 0 if vector is None else int(vector["cardinality"] or 0)
        return cls(
            path=row["path"],
            changes_data=row["dataChange"] is not False,
            live_rows=None if records is None else records - hidden,
            vector_rows=0 if vector is None else max(hidden, 1),
        )


_FEW = 64
"""Below this number the setup of the columnar parser takes longer than the parsing."""


def _records(stats: pa.ChunkedArray) -> list[int | None]:
    if len(stats) > _FEW:
        return list(num_records(stats).to_pylist())
    return [_records_of(text) for text in stats.to_pylist()]


def _records_of(stats: str | None) -> int | None:
    try:
        number = None if stats is None else json.loads(stats).get("numRecords")
    except (ValueError, AttributeError, RecursionError):
        return None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(before - after, 0)


def _total(counts: Iterable[int | None]) -> int | None:
    all_counts = list(counts)
    return None if None in all_counts else sum(count for count in all_counts if count is not None)
