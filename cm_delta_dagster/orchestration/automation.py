"""Automation conditions for assets that are downstream of tables.

The data version of an asset changes with the newest commit that changed data, from inside or outside of Dagster. Maintenance, a
write that changed nothing and an asset that returned ``None`` keep it.
"""

from typing import Any

import dagster as dg


def on_new_data_version(
    *, upstream: dg.AssetSelection | None = None, checks_passed: bool = False
) -> dg.AutomationCondition[Any]:
    """Materialize an asset when the data version of an upstream asset changes, or when the asset is missing.

    As ``AutomationCondition.eager()``, except that an upstream materialization with the same data version as the one before has no
    effect, because it changed no data. Of a time-partitioned asset only the latest partition is materialized, as by ``eager()``;
    see :func:`on_new_data_version_of_any_partition` for the others.

    Args:
        upstream: the upstream assets to react to; None for all.
        checks_passed: wait until the blocking checks of all upstream assets have passed.
    """
    return dg.AutomationCondition.in_latest_time_window() & _follows(upstream, checks_passed=checks_passed)


def on_new_data_version_of_any_partition(
    *, upstream: dg.AssetSelection | None = None, checks_passed: bool = False
) -> dg.AutomationCondition[Any]:
    """As :func:`on_new_data_version`, for every partition whose upstream partitions changed, however old: for late corrections.

    Partitions that were never materialized are not requested until an upstream partition changes.

    Args:
        upstream: the upstream assets to react to; None for all.
        checks_passed: wait until the blocking checks of all upstream assets have passed.
    """
    return _follows(upstream, checks_passed=checks_passed, when_missing=False)


def _follows(
    upstream: dg.AssetSelection | None, *, checks_passed: bool, when_missing: bool = True
) -> dg.AutomationCondition[Any]:
    changed = dg.AutomationCondition.any_deps_match(dg.AutomationCondition.data_version_changed())
    if upstream is not None:
        changed = changed.allow(upstream)
    trigger: dg.AutomationCondition[Any] = changed
    if when_missing:
        trigger = dg.AutomationCondition.newly_missing() | changed
    condition = (
        trigger.since_last_handled()
        & ~dg.AutomationCondition.any_deps_missing()
        & ~dg.AutomationCondition.any_deps_in_progress()
        & ~dg.AutomationCondition.in_progress()
    )
    return condition & dg.AutomationCondition.all_deps_blocking_checks_passed() if checks_passed else condition
