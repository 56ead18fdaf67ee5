"""The checks of a proposal that waits while its table gets another name."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.errors import CommitRefusedError
from tests.contracts.catalog_bench import NAME, OTHER, create
from tests.contracts.commit_rules_contract import rule, with_actions
from tests.support.database_roles import raw_client
from tests.support.waiting import until

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def wait_until_waiting(client: psycopg.Connection[tuple[int]], count: int) -> None:
    """Return when ``count`` clients wait for a lock."""
    until(lambda: client.execute(_WAITING).fetchall() == [(count,)])


@pytest.mark.postgres
def test_rules_hold_for_a_proposal_that_waits_for_a_rename(postgres_url: str) -> None:
    with (
        SqlCatalog(postgres_url, warehouse="memory://w") as one,
        SqlCatalog(postgres_url, warehouse="memory://w") as other,
        raw_client(postgres_url, "postgres") as observer,
        raw_client(postgres_url, "postgres") as first,
        ThreadPoolExecutor(2) as threads,
    ):
        table_id = create(one).table_id
        other.registry.load_table(NAME)
        one.commit_rules.set_commit_rule(rule(scope=str(NAME)))
        with first.transaction():
            first.execute("SELECT 1 FROM cm_delta_tables FOR UPDATE")
            renamed = threads.submit(one.registry.rename_table, table_id, OTHER)
            wait_until_waiting(observer, 1)
            committed = threads.submit(other.coordinator.commit, table_id, with_actions(1, removes=1))
            wait_until_waiting(observer, 2)
        assert renamed.result().identifier == OTHER
        with pytest.raises(CommitRefusedError, match=f"append_only.*{OTHER}"):
            committed.result()
