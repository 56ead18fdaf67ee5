"""``docs/requests.md``, made from the budgets and from what ``benchmarks.requests`` measured."""

import csv
from collections import Counter
from pathlib import Path

from tests.budgets.measurement import budgets
from tests.support.recording_proxy import Caller, Kind

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "requests.md"
OTHERS = ROOT / "benchmarks" / "requests.tsv"

_INTRODUCTION = """# Requests to the object store

The number of requests of each operation on a table in S3, counted by a proxy in front of the server. Tests compare the operations
with this page; a change of the code that sends more or fewer requests changes it, by `python -m tests.budgets.measure --write`.

The catalog is a database and is not counted. Background work after a commit (publication of inline commits, checksum,
checkpoint) counts with the operation. *Log client* is this package through s3fs, *S3A* is Spark. *Cold*:
the process has not seen the table. Without Spark, data files are written before the commit and are not counted.

"""
_RULES = """
- Commits and refreshes list nothing. Publication is one conditional `PUT` for each commit.
- Before its first commit in a bucket, each process creates a probe object: two conditional `PUT` and one `DELETE`.
- The `HEAD` at the start of a write shows that the log is there, before anything is written. In the mode `put_if_absent`, each
  refresh is a `GET` of the next commit file.
- A listing of the log starts at the checkpoint that `_last_checkpoint` names, and takes one request for 1,000 files.
- S3A keeps what it has read for one to six seconds. The operations waited for that; one that follows at once reads less.
- A merge writes updated and inserted rows to a file each and leaves the old file, so that `optimize` reads six files here.
- The two scans of a merge read the same file here, by one request, or by two if S3A has closed its stream between them.
"""
_LISTING = """- After a write, Spark's files are found by one listing of the directory of the transaction.
"""
_OTHERS = """
## Other engines

The same operations of other engines, to compare. delta-spark uses its log store for a single driver and its own way to write files;
deltalake creates commits conditionally, and makes 100 files by 100 partitions.

"""


def page() -> str:
    """The text of the page."""
    lines = ["| operation | log client | S3A |", "|---|---|---|"]
    for operation, counts in budgets().items():
        lines.append(f"| {operation} | {_cell(counts, Caller.LOG_CLIENT)} | {_cell(counts, Caller.S3A)} |")
    lists = budgets()["append of 1 row, staged"][Caller.LOG_CLIENT.value, Kind.LIST.value]
    return "".join([_INTRODUCTION, "\n".join(lines), "\n", _RULES, _LISTING if lists else "", _OTHERS, _others()])


def _cell(counts: Counter[tuple[str, str]], caller: Caller) -> str:
    order = [kind.value for kind in Kind]
    found = [(kind, number) for (client, kind), number in counts.items() if client == caller]
    found.sort(key=lambda item: order.index(item[0]))
    if not found:
        return "0"
    return f"{sum(number for _, number in found)}: " + ", ".join(f"{number} {kind}" for kind, number in found)


def _others() -> str:
    with OTHERS.open(newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))
    return "\n".join(["| " + " | ".join(row) + " |" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:])]) + "\n"
