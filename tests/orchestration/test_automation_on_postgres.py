"""An event of which PostgreSQL shows a part while a condition is evaluated: Dagster stores it in two transactions."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa

from cm_delta_dagster.orchestration import on_new_data_version
from tests.support.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")


@pytest.fixture
def instance(postgres_url: str, tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    url = postgres_url.replace("postgresql+psycopg://", "postgresql+psycopg2://")
    overrides = {"storage": {"postgres": {"postgres_url": url}}}
    with dg.instance_for_test(temp_dir=str(tmp_path), overrides=overrides) as found:
        yield found


@contextmanager
def half_stored(instance: dg.DagsterInstance, event: dg.AssetMaterialization, url: str) -> Iterator[None]:
    """Within the block the event is in the event log, and not yet in the records and tags of its asset."""
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    storage = instance.event_log_storage
    before = storage.get_maximum_record_id() or 0
    writer = threading.Thread(target=instance.report_runless_asset_event, args=(event,))
    with engine.begin() as connection:
        connection.execute(sa.text("LOCK TABLE asset_keys, asset_event_tags IN EXCLUSIVE MODE"))
        writer.start()
        until(lambda: (storage.get_maximum_record_id() or 0) > before)
        yield
    writer.join()


@pytest.mark.parametrize(
    ("condition", "requested_later"),
    [(on_new_data_version(), 1), (dg.AutomationCondition.eager(), 0)],
    ids=["this package", "Dagster"],
)
def test_an_event_that_is_stored_in_two_transactions_is_not_lost(
    instance: dg.DagsterInstance, postgres_url: str, condition: dg.AutomationCondition, requested_later: int
) -> None:
    @dg.asset(deps=["up"], automation_condition=condition)
    def down() -> None: ...

    def change(version: int) -> dg.AssetMaterialization:
        return dg.AssetMaterialization("up", tags={"dagster/data_version": f"table@{version}"})

    defs = dg.Definitions(assets=[dg.AssetSpec("up"), down])
    instance.report_runless_asset_event(change(1))
    defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance, asset_selection=[dg.AssetKey("down")]
    )
    result = dg.evaluate_automation_conditions(defs, instance)
    assert result.total_requested == 0
    with half_stored(instance, change(2), postgres_url):
        result = dg.evaluate_automation_conditions(defs, instance, cursor=result.cursor)
        assert result.total_requested == 0
    requested = []
    for _ in range(3):
        result = dg.evaluate_automation_conditions(defs, instance, cursor=result.cursor)
        requested.append(result.total_requested)
    assert sum(requested) == requested_later
