"""Tables with a change data feed, and a model of how changes apply to rows."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from cm_delta_dagster.client.snapshots.path_table import PathTable, open_path_table
from cm_delta_dagster.operations.reading.change_query import ChangeRange, open_changes
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.read_changes_arrow import read_changes_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.protocol.changes.change_data_feed import CHANGE_COLUMNS
from cm_delta_dagster.storage.stores import Stores

ENABLED = {"delta.enableChangeDataFeed": "true"}


def path_table(path: Path) -> PathTable:
    return open_path_table(Stores(), str(path))


def write(path: Path, rows: pa.Table, **more: Any) -> None:
    deltalake.write_deltalake(str(path), rows, configuration=ENABLED, **more)


def counted(rows: pa.Table) -> Counter[str]:
    """Return the rows as a multiset, without the columns of a change data feed."""
    names = [name for name in sorted(rows.column_names) if name not in CHANGE_COLUMNS]
    return Counter(repr([(name, row[name]) for name in names]) for row in rows.to_pylist())


def applied(rows: Counter[str], changes: pa.Table) -> Counter[str]:
    """Return ``rows`` after ``changes``. Every deleted row must exist (CDF-10)."""
    result = Counter(rows)
    for version in sorted(set(changes["_commit_version"].to_pylist())):
        of_version = changes.filter(pa.compute.equal(changes["_commit_version"], version))
        for is_removal in (True, False):
            kinds = ["delete", "update_preimage"] if is_removal else ["insert", "update_postimage"]
            part = of_version.filter(pa.compute.is_in(of_version["_change_type"], value_set=pa.array(kinds)))
            if is_removal:
                assert not counted(part) - result
                result -= counted(part)
            else:
                result += counted(part)
    return result


def check_every_range(table: PathTable, versions: Iterable[int]) -> int:
    """Check CDF-10 for every pair of versions. Returns the number of ranges with changes."""
    ordered = sorted(versions)
    states = {version: counted(read_arrow(open_scan(table, version=version))) for version in ordered}
    found = 0
    for first in ordered:
        for last in ordered[ordered.index(first) + 1 :]:
            scan = open_changes(table, ChangeRange(starting_version=first + 1, ending_version=last))
            changes = read_changes_arrow(scan)
            assert applied(states[first], changes) == states[last], (first, last)
            found += changes.num_rows > 0
    return found


def actions(path: Path, version: int) -> list[dict[str, Any]]:
    lines = (path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    return [json.loads(line) for line in lines]


def rewrite(path: Path, version: int, lines: Iterable[dict[str, Any]]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (path / "_delta_log" / f"{version:020d}.json").write_text(text)
