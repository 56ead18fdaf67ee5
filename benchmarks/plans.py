"""What Spark plans for five queries, without the file index and with it. Prints Markdown: ``python -m benchmarks.plans``.

Without the index, Spark gets the names of the files when a DataFrame is made, as it does on Spark Connect. The number of files is
that of the files that the scans of the plan opened.
"""

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from benchmarks import row_tables
from benchmarks.engines import spark_session
from cm_delta_dagster import Connection, connect
from cm_delta_dagster.spark.read import file_index

_ROWS, _FILES = 8000, 20
_WIDTH = 150


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="cm-delta-plans-") as folder:
        home = Path(folder)
        session = spark_session(**{"spark.sql.adaptive.enabled": "false"})
        row_tables.row_table(home / "rows", _ROWS)
        row_tables.deleted_table(home / "deleted", home / "rows")
        row_tables.small_files_table(home / "small", _FILES)
        with connect(f"sqlite:///{home}/plans.db", warehouse=f"file://{home}/warehouse", spark=session) as lake:
            print("\n".join(_report(lake, home)))
        session.stop()


def _report(lake: Connection, home: Path) -> Iterator[str]:
    for title, query in _queries(lake, home):
        yield f"### {title}\n"
        for heading, found in (("Without", None), ("With", file_index.file_indexes(lake.spark))):
            file_index._indexes = WeakKeyDictionary({lake.spark.sparkContext._gateway: found})
            frame = query()
            frame.collect()
            plan = frame._jdf.queryExecution().executedPlan()  # type: ignore[operator]  # py4j has no types.
            yield f"{heading} the file index: {_files_read(plan)} of {_live(title)} files are read.\n"
            yield "\n".join(["```", *_lines(plan.toString()), "```", ""])


def _queries(lake: Connection, home: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    def table(name: str) -> Any:
        return lake.path_table(str(home / name)).to_df()

    def over_a_view() -> Any:
        table("small").createOrReplaceTempView("small_files")
        return lake.spark.sql("SELECT count(amount) FROM small_files WHERE id BETWEEN 520 AND 530")

    yield "Late filter", lambda: table("small").where("id = 525").selectExpr("count(amount)")
    yield "Filter on the partition column", lambda: table("rows").where("region = 3").selectExpr("count(amount)")
    yield "Join with dynamic partition pruning", lambda: _join(lake, table("rows"))
    yield "Scan with deletion vectors", lambda: table("deleted").selectExpr("count(amount)")
    yield "SQL over a view", over_a_view


def _join(lake: Connection, frame: Any) -> Any:
    regions = lake.spark.range(8).selectExpr("cast(id AS INT) AS region", "concat('region-', id) AS name")
    return frame.join(regions.where("name = 'region-3'"), "region").selectExpr("count(amount)")


def _live(title: str) -> int:
    return _FILES if title in ("Late filter", "SQL over a view") else row_tables.REGIONS


def _files_read(plan: Any) -> int:
    leaves = plan.collectLeaves()
    scans = [leaves.apply(number) for number in range(leaves.size())]
    return sum(scan.metrics().apply("numFiles").value() for scan in scans if scan.metrics().contains("numFiles"))


def _lines(text: str) -> Iterator[str]:
    """The plan without numbers of expressions and long lists."""
    plain = re.sub(r"#\d+L?|, \[plan_id=\d+\]|file:/[^\],]*/", "", text)
    for line in plain.rstrip().splitlines():
        yield line if len(line) <= _WIDTH else f"{line[:_WIDTH]} ..."


if __name__ == "__main__":
    main()
