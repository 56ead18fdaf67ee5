"""Which commits an instance has events for: the assets of a tick are read together, with the answers of each by itself."""

import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from cm_delta_dagster.orchestration.metadata import metadata as facts
from cm_delta_dagster.orchestration.sensor.feed_cursor import WatchedCommit
from cm_delta_dagster.orchestration.sensor.known_commits import TXN_ID, KnownCommits
from tests.support.sent_statements import sent_statements

ASSETS = tuple(dg.AssetKey(["sales", f"t{number}"]) for number in range(8))


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield instance


def commit_of(asset: dg.AssetKey, version: int) -> WatchedCommit:
    name = asset.path[-1]
    return WatchedCommit(
        position=version,
        table=f"main.sales.{name}",
        table_id=name,
        version=version,
        txn_id=f"{name}-{version}",
        ratified_ms=int(time.time() * 1000),
        committed_ms=0,
        operation="WRITE",
        data_change=True,
        data_version=version,
        metrics={},
    )


def report(instance: dg.DagsterInstance, asset: dg.AssetKey, version: int, *, observed: bool = False) -> None:
    commit = commit_of(asset, version)
    event = dg.AssetObservation if observed else dg.AssetMaterialization
    metadata = {facts.TABLE_ID: commit.table_id, facts.COMMIT_VERSION: version, TXN_ID: commit.txn_id}
    instance.report_runless_asset_event(event(asset_key=asset, metadata=metadata))


def answers(known: KnownCommits) -> list[tuple[bool, ...]]:
    return [
        tuple(known.is_reported(commit_of(asset, version), asset, None) for version in range(1, 5)) for asset in ASSETS
    ]


def test_events_of_all_assets_of_a_tick_are_read_together(instance: dg.DagsterInstance) -> None:
    """Events of other assets, and those before the wipe of an asset, do not count."""
    for asset in ASSETS[:6]:
        report(instance, asset, 1)
        report(instance, asset, 2, observed=True)
    instance.wipe_assets([ASSETS[3]])
    report(instance, ASSETS[3], 4)
    report(instance, dg.AssetKey(["sales", "unwatched"]), 3)
    now_ms = int(time.time() * 1000)
    with sent_statements("FROM event_logs") as sent:
        together = answers(KnownCommits(instance, since_ms=now_ms, assets=frozenset(ASSETS)))
    assert len(sent) <= 4
    assert together == answers(KnownCommits(instance, since_ms=now_ms))
    assert together[0] == (True, True, False, False) and together[3] == (False, False, False, True)
    assert not any(together[7])


def test_assets_are_read_by_themselves_if_there_are_many_events(instance: dg.DagsterInstance) -> None:
    """The newest events of the instance would hide older ones of the assets."""
    report(instance, ASSETS[0], 1)
    noisy = dg.AssetKey("noisy")
    for version in range(3 * 40):
        report(instance, noisy, version)
    known = KnownCommits(instance, since_ms=int(time.time() * 1000), assets=frozenset(ASSETS[:3]))
    assert known.is_reported(commit_of(ASSETS[0], 1), ASSETS[0], None)
    assert not known.is_reported(commit_of(ASSETS[1], 1), ASSETS[1], None)
