"""The change data feed and the history of a table, from opening the table on."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from benchmarks.shared import Shared

SPARK_TASKS = ("changes_spark",)
TASKS = (*SPARK_TASKS, "changes_arrow", "history", "long_log_history")

Task = Callable[[], dict[str, Any]]


def ours(lake: Any, shared: Shared) -> dict[str, Task]:
    """The tasks of this package."""
    return {
        "changes_spark": lambda: _total(_table(lake, shared, "feed").changes(starting_version=0).to_df()),
        "changes_arrow": lambda: {
            "answer": _table(lake, shared, "feed").changes(starting_version=0).to_arrow().num_rows
        },
        "history": lambda: {"answer": len(_table(lake, shared, "history").history())},
        "long_log_history": lambda: {"answer": len(_table(lake, shared, "long_log").history(10))},
    }


def delta_spark(session: Any, shared: Shared, forget: Callable[[], None]) -> dict[str, Task]:
    """The tasks of delta-spark. ``forget`` drops what it holds of the log."""

    def changes() -> dict[str, Any]:
        forget()
        feed = session.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
        return _total(feed.load(str(shared.place("feed"))))

    return {"changes_spark": changes}


def deltalake(package: Any, shared: Shared) -> dict[str, Task]:
    """The tasks of deltalake."""

    def changes() -> dict[str, Any]:
        batches = package.DeltaTable(str(shared.place("feed"))).load_cdf(starting_version=0)
        return {"answer": pa.table(batches.read_all()).num_rows}

    return {
        "changes_arrow": changes,
        "history": lambda: {"answer": len(package.DeltaTable(str(shared.place("history"))).history())},
        "long_log_history": lambda: {"answer": len(package.DeltaTable(str(shared.place("long_log"))).history(10))},
    }


def _table(lake: Any, shared: Shared, name: str) -> Any:
    return lake.path_table(str(shared.place(name)))


def _total(frame: Any) -> dict[str, Any]:
    (row,) = frame.selectExpr("count(amount)", "max(_commit_timestamp)").collect()
    return {"answer": row[0]}
