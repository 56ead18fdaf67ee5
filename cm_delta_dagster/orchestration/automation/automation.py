"""Automation conditions for assets that are downstream of tables, and the sensor that evaluates them.

The data version of an asset changes with the newest commit that changed data, from inside or outside of Dagster. Maintenance, a
write that changed nothing and an asset that returned ``None`` keep it.
"""

from datetime import timedelta
from typing import Any

import dagster as dg
from dagster._utils.warnings import disable_dagster_warnings

from cm_delta_dagster.api.keyword_hints import checking_keywords
from cm_delta_dagster.orchestration.automation.unread_changes import UnreadChanges
from cm_delta_dagster.orchestration.runs.intervals import interval_seconds

DATA_VERSION_SENSOR = "data_version_sensor"
MAX_ASSETS_OF_SENSOR = 500
"""A sensor in the code location for more assets and checks fails at each tick."""


def on_new_data_version(
    *, upstream: dg.AssetSelection | None = None, checks_passed: bool = False
) -> dg.AutomationCondition[Any]:
    """Materialize an asset when an upstream asset has data that it has not read, or when the asset is missing.

    It differs from ``AutomationCondition.eager()`` in two ways. An upstream materialization with the same data version as the one
    before has no effect, because it changed no data. And no change is lost: what the last materialization has read is compared
    with the newest data, so a change that is stored while the asset is computed requests it again. If the requested run fails, the
    asset is not requested again before the next change. Of a time-partitioned asset only the latest partition is materialized, as
    by ``eager()``; see :func:`on_new_data_version_of_any_partition` for the others.

    The condition is evaluated by a :func:`data_version_sensor`, and not by the sensor that Dagster adds.

    Args:
        upstream: the upstream assets to react to; None for all.
        checks_passed: wait until the blocking checks of all upstream assets have passed.
    """
    unread = dg.AutomationCondition.newly_missing().since_last_handled() | UnreadChanges(upstream)
    return dg.AutomationCondition.in_latest_time_window() & _when_ready(checks_passed) & unread


def on_new_data_version_of_any_partition(
    *, upstream: dg.AssetSelection | None = None, checks_passed: bool = False
) -> dg.AutomationCondition[Any]:
    """As :func:`on_new_data_version`, for every partition with unread upstream data, however old: for late corrections.

    Partitions that were never materialized are not requested until an upstream partition changes.

    Args:
        upstream: the upstream assets to react to; None for all.
        checks_passed: wait until the blocking checks of all upstream assets have passed.
    """
    return _when_ready(checks_passed) & UnreadChanges(upstream)


@checking_keywords
def data_version_sensor(
    target: dg.AssetSelection,
    *,
    name: str = DATA_VERSION_SENSOR,
    minimum_interval: timedelta | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
    description: str | None = None,
) -> dg.AutomationConditionSensorDefinition:
    """The sensor that evaluates the conditions of the assets in ``target``, in the code location and not in the daemon.

    Dagster's daemon evaluates only conditions that Dagster itself defines, and ignores an asset with another one without a message.
    Other conditions are evaluated by this sensor too. :func:`cm_delta_definitions` adds it for assets that no such sensor has.

    Args:
        target: at most 500 assets and checks.
        minimum_interval: time between two ticks; None for the setting of the instance.
    """
    with disable_dagster_warnings():  # The argument use_user_code_server is in beta.
        return dg.AutomationConditionSensorDefinition(
            name,
            target=target,
            use_user_code_server=True,
            minimum_interval_seconds=None if minimum_interval is None else interval_seconds(minimum_interval),
            default_status=default_status,
            description=description or "Materializes assets whose upstream assets have data that they have not read.",
        )


def _when_ready(checks_passed: bool) -> dg.AutomationCondition[Any]:
    """Neither the asset nor an upstream asset is being materialized.

    It is evaluated before the events are compared: what a run that has ended read is then among the events.
    """
    ready = (
        ~dg.AutomationCondition.any_deps_missing()
        & ~dg.AutomationCondition.any_deps_in_progress()
        & ~dg.AutomationCondition.in_progress()
    )
    return ready & dg.AutomationCondition.all_deps_blocking_checks_passed() if checks_passed else ready
