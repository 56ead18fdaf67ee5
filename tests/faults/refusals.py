"""Check that a refused call changes nothing: version, history, feed and the content of every file of the table."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.protocol.actions.paths import decode_path

_INTERNALS = re.compile(
    r"\n\s*at |Traceback|Py4J|py4j|<class |object at 0x"
    r"|(?:org\.apache|java\.(?:lang|io|nio|util)|scala|pyspark\.errors)\."
    r"|sqlite3\.|sqlalchemy|psycopg\.|SparkException|_cm_delta|\[/?cm-delta"
)


def folder(table: Table) -> Path:
    """Return the directory of the table."""
    return Path(table.location.removeprefix("file://"))


def files_below(directory: Path) -> dict[str, str]:
    """Return the digest of each file by relative path, including hidden files."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def state_of(table: Table) -> tuple[Any, ...]:
    """Return the state that a refused call must not change."""
    client = table.services
    assert isinstance(client, DeltaClient)
    client.wait_for_background()
    feed = tuple(entry for entry in client.catalog.feed.feed(after=0, limit=10_000) if entry.table_id == table.table_id)
    snapshot = table.snapshot()
    assert snapshot.version == feed[-1].version
    return (
        snapshot.version,
        client.coordinator.get_ratified_commits(table.table_id),
        feed,
        snapshot.schema,
        stored_rows(table),
        files_below(folder(table)),
    )


def stored_rows(table: Table) -> list[dict[str, Any]]:
    """Return the rows of the live files as pyarrow reads them, without Spark."""
    live = [folder(table) / decode_path(path) for path in sorted(table.snapshot().files["path"].to_pylist())]
    parts: list[pa.Table] = [pq.ParquetFile(path).read() for path in live]
    return [row for part in parts for row in part.to_pylist()]


@contextmanager
def refused(
    error: type[CmDeltaError], *words: str, tables: Sequence[Table] = (), hidden: Sequence[str] = ()
) -> Iterator[None]:
    """Check that the block raises exactly ``error`` with a readable message, and does not change ``tables``.

    Args:
        words: the message contains each of them.
        hidden: the message contains none of them.
    """
    before = [state_of(table) for table in tables]
    with pytest.raises(CmDeltaError) as raised:
        yield
    message = str(raised.value)
    print(f"{type(raised.value).__name__}: {message}")
    assert type(raised.value) is error, message
    assert [word for word in words if word not in message] == [], message
    assert [word for word in hidden if word in message] == [], message
    assert _INTERNALS.search(message) is None, message
    assert [state_of(table) for table in tables] == before
