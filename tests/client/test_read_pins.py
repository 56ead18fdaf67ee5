"""The versions that the reads of a run see."""

from dataclasses import dataclass

import pytest

from cm_delta_dagster.catalog.version_pins import VersionPins
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.client.read_pins import ReadPins
from cm_delta_dagster.errors import CatalogUnavailableError
from tests.orchestration.log_tables import commit, make_table


@dataclass
class _Outages:
    """The pins of a catalog that can be down."""

    pins: VersionPins
    is_down: bool = False

    def pin_version(self, table_id: str, version: int, *, owner: str) -> int:
        return self._up().pin_version(table_id, version, owner=owner)

    def raise_pinned_version(self, table_id: str, version: int, *, owner: str) -> int:
        return self._up().raise_pinned_version(table_id, version, owner=owner)

    def pinned_version(self, table_id: str, *, owner: str) -> int | None:
        return self._up().pinned_version(table_id, owner=owner)

    def _up(self) -> VersionPins:
        if self.is_down:
            raise CatalogUnavailableError("The catalog is down.")
        return self.pins


def test_a_pin_that_the_catalog_could_not_move_is_moved_by_the_next_read(client: DeltaClient) -> None:
    pins = _Outages(client.pins)
    reads = ReadPins(pins, owner="run")
    run = DeltaClient(client.catalog, stores=client.stores, now_ms=client.now_ms, read_pins=reads)
    table = make_table(run, "main.s.t")
    assert reads.version_to_read(table.table_id, lambda: 0) == 0
    pins.is_down = True
    commit(table)
    with pytest.raises(CatalogUnavailableError):
        reads.version_to_read(table.table_id, table.latest_version)
    pins.is_down = False
    commit(client.table("main.s.t"))
    assert reads.version_to_read(table.table_id, table.latest_version) == 1
    assert client.pins.pinned_version(table.table_id, owner="run") == 1


def test_a_copy_of_the_client_that_compacts_keeps_the_pins_of_the_run(client: DeltaClient) -> None:
    run = client.of_run(CommitProperties(tags={"dagster/run_id": "run"}), run_id="run")
    assert run.read_pins is not None
    assert run.with_compaction(lambda name: None).read_pins is run.read_pins
    assert run.context.tags == {"dagster/run_id": "run"}
    assert client.read_pins is None
