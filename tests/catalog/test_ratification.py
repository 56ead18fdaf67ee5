"""Limits of ratification, in a catalog on SQLite."""

from datetime import timedelta
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.ratification import Ratified
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.errors import CommitRejectedError
from tests.contracts.catalog_bench import Clock, create, proposal

_HOUR = 3_600_000


@pytest.mark.requirements("CM-C14", "ICT-4")
def test_the_clock_of_a_writer_may_be_an_hour_ahead(tmp_path: Path) -> None:
    clock = Clock()
    assert ClientSettings().max_clock_difference == timedelta(milliseconds=_HOUR)
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse="memory://w", now_ms=clock) as catalog:
        table_id = create(catalog).table_id
        with pytest.raises(CommitRejectedError, match="ahead of the catalog's clock"):
            catalog.coordinator.commit(table_id, proposal(1, timestamp=clock.now + _HOUR + 1))
        assert isinstance(catalog.coordinator.commit(table_id, proposal(1, timestamp=clock.now + _HOUR)), Ratified)
