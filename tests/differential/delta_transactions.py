"""Two transactions of delta-spark on one snapshot, in the JVM of ``delta_spark_worker``."""

import json
from pathlib import Path
from typing import Any

_FAST = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Queries over a log of two files take longer to compile than to run."""


def run_after(
    session: Any, location: str, winner: dict[str, Any], losers: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """What becomes of each of ``losers``, which have read the table that ``winner`` then changes first.

    A transaction has the SQL conditions that it ``reads``, the applications whose ``txn`` it looks up, and its ``actions``
    as in the log. Each loser meets the winner alone: what one commits is taken away again before the next tries.
    """
    before = {name: session.conf.get(name) for name in _FAST}
    for name, value in _FAST.items():
        session.conf.set(name, value)
    try:
        log = session.sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, location)
        table = session._jsparkSession.read().format("delta").load(location)
        started = [_start(session, log, table, loser) for loser in losers]
        won = _commit(session, _start(session, log, table, winner), winner)
        return [_outcome(session, location, *pair, won) for pair in zip(started, losers, strict=True)]
    finally:
        for name, value in before.items():
            session.conf.set(name, value)


def _start(session: Any, log: Any, table: Any, spec: dict[str, Any]) -> Any:
    transaction = log.startTransaction()
    for app_id in spec["app_ids"]:
        transaction.txnVersion(app_id)
    for condition in spec["reads"]:
        parts = [table.filter(part).queryExecution().analyzed().condition() for part in condition.split(" AND ")]
        transaction.filterFiles(_sequence(session, parts), False)
    return transaction


def _commit(session: Any, transaction: Any, spec: dict[str, Any]) -> int:
    delta = session.sparkContext._jvm.org.apache.spark.sql.delta
    actions = [delta.actions.Action.fromJson(json.dumps(action)) for action in spec["actions"]]
    operation = getattr(getattr(delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
    return int(transaction.commit(_sequence(session, actions), operation))


def _outcome(session: Any, location: str, transaction: Any, spec: dict[str, Any], won: int) -> dict[str, Any]:
    from py4j.protocol import Py4JJavaError

    try:
        version = _commit(session, transaction, spec)
    except Py4JJavaError as error:
        return {"error": error.java_exception.getClass().getSimpleName(), "message": error.java_exception.getMessage()}
    if version != won + 1:
        return {"error": f"version {version} after {won}"}
    log = Path(location) / "_delta_log"
    commit = (log / f"{version:020d}.json").read_text().splitlines()
    for file in log.glob(f"*{version:020d}*"):
        file.unlink()
    info = next(action["commitInfo"] for action in map(json.loads, commit) if "commitInfo" in action)
    return {"level": info["isolationLevel"], "blind": info["isBlindAppend"]}


def _sequence(session: Any, items: list[Any]) -> Any:
    jvm = session.sparkContext._jvm
    values = jvm.java.util.ArrayList()
    for item in items:
        values.add(item)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(values).toSeq()
