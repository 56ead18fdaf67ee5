"""A catalog that answers for one table with a given list of commits, to test the real client against recorded answers."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import RatifiedCommit, RatifiedCommits
from cm_delta_dagster.catalog.tables import TableEntry, TableIdentifier
from cm_delta_dagster.errors import CatalogError, TableNotFoundError
from tests.support.catalog_parts import PARTS

IDENTIFIER = TableIdentifier("main", "golden", "t")
TABLE_ID = "00000000-0000-0000-0000-000000000000"


class RecordedCatalog:
    """The reading half of :class:`~cm_delta_dagster.catalog.catalog.Catalog`; whatever would write is refused.

    Args:
        commits: entries of the answer, with the keys of ``check.py``: version, file_name, content and so on, in any order.
        max_version: the latest version that the answer named; the newest commit's where it named none.
    """

    def __init__(
        self,
        location: str,
        commits: Sequence[dict[str, Any]],
        max_version: int | None,
        *,
        table_id: str = TABLE_ID,
    ) -> None:
        self._table_id = table_id
        self._location = location
        self._commits = tuple(sorted(map(_ratified, commits), key=lambda commit: commit.version))
        listed = [commit.version for commit in self._commits]
        if max_version is None and not listed:
            raise CatalogError("The answer names neither a latest version nor a commit.")
        self._latest = max(listed) if max_version is None else max_version

    def load_table(self, identifier: TableIdentifier) -> TableEntry:
        """The entry of the one table. Raises TableNotFoundError for another name."""
        if identifier != IDENTIFIER:
            raise TableNotFoundError(f"{identifier} is not {IDENTIFIER}.")
        return TableEntry(
            identifier=IDENTIFIER,
            table_id=self._table_id,
            location=self._location,
            ratified=self.get_ratified_commits(self._table_id),
            created_ms=0,
        )

    def get_ratified_commits(
        self,
        table_id: str,
        *,
        start: int | None = None,
        end: int | None = None,
        content_from_version: int | None = None,
    ) -> RatifiedCommits:
        """The recorded commits within the range; what is published the recorded answers do not say."""
        wanted = tuple(
            commit
            for commit in self._commits
            if (start is None or commit.version >= start) and (end is None or commit.version <= end)
        )
        published = min((commit.version for commit in self._commits), default=self._latest + 1) - 1
        return RatifiedCommits(
            latest_version=self._latest,
            published_version=min(published, self._latest),
            latest_data_version=self._latest,
            commits=wanted,
        )

    def commit_digests(self, table_id: str, *, start: int, end: int) -> Mapping[int, str]:
        """Recorded answers have no digests."""
        return {}

    def commit_records(self, table_id: str, *, start: int, end: int) -> tuple[RatifiedCommit, ...]:
        """The recorded commits of the range."""
        return tuple(commit for commit in self._commits if start <= commit.version <= end)

    def now_ms(self) -> int:
        """The clock of this machine."""
        return time.time_ns() // 1_000_000

    def close(self) -> None:
        """Nothing is held."""

    def __getattr__(self, name: str) -> Any:
        if name in PARTS:
            return self
        raise CatalogError(f"{name} is not part of a recorded answer.")


def _ratified(entry: dict[str, Any]) -> RatifiedCommit:
    return RatifiedCommit(
        version=entry["version"],
        file_name=entry["file_name"] or "",
        file_size=entry.get("file_size") or 0,
        file_modification_time=entry.get("file_modification_timestamp") or 0,
        txn_id="",
        in_commit_timestamp=entry.get("timestamp") or 0,
        content=entry.get("content"),
        mode=CommitMode.STAGED if entry.get("content") is None else CommitMode.INLINE,
    )
