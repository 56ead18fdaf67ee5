"""How queries of this package are built and planned.

Settings hold while a query is planned, not while it runs: until then, other threads may plan queries of the same session.
"""

from collections.abc import Mapping, Sequence

from cm_delta_dagster.spark.library import Column, DataFrame, F
from cm_delta_dagster.spark.session.session import is_connect, temporary_settings

_ADAPTIVE = "spark.sql.adaptive.enabled"
_BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
_BROADCAST_BYTES = 32 << 20
"""Size of the keys of a source up to which every task gets all of them: about two million keys of eight bytes."""


def selected(frame: DataFrame, items: Sequence[Column | str]) -> DataFrame:
    """Some columns of ``frame``; a text is a SQL expression.

    Texts are faster: Spark parses one in a call, while a Column takes several calls for each of its parts.
    """
    texts = [item for item in items if isinstance(item, str)]
    if len(texts) == len(items):
        return frame.selectExpr(*texts)
    return frame.select(*[F.expr(item) if isinstance(item, str) else item for item in items])


def plan_without_adaptive_execution(frame: DataFrame) -> None:
    """Plan a query of one row over cached rows without adaptive execution, which would run three jobs instead of one."""
    _plan(frame, {_ADAPTIVE: "false"})


def plan_broadcasts(frame: DataFrame) -> None:
    """Plan a query of few columns, so that Spark broadcasts a larger side of a join than by default.

    Where the session turns broadcasts off, there is none.
    """
    if is_connect(frame.sparkSession):
        return
    limit = frame.sparkSession._jsparkSession.sessionState().conf().autoBroadcastJoinThreshold()
    if 0 <= limit < _BROADCAST_BYTES:
        _plan(frame, {_BROADCAST: str(_BROADCAST_BYTES)})


def _plan(frame: DataFrame, settings: Mapping[str, str]) -> None:
    session = frame.sparkSession
    if not is_connect(session):
        with temporary_settings(session, settings):
            frame._jdf.queryExecution().executedPlan()  # type: ignore[operator]  # py4j has no types.
