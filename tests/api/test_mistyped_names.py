"""Names and scopes that the catalog does not have are errors which say what could be meant."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from cm_delta_dagster import (
    CatalogNotFoundError,
    Connection,
    InvalidArgumentError,
    OperationRefusedError,
    TableNotFoundError,
    connect,
)
from cm_delta_dagster.errors import MaintenanceNotPermittedError, PurgeRefusedError

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "w"), principal="ana") as lake:
        lake.create_table("main.sales.orders", schema=SCHEMA)
        lake.create_table("main.staff.salaries", schema=SCHEMA)
        yield lake


CALLS: dict[str, Callable[..., object]] = {
    "allow": lambda lake, scope, **more: lake.maintenance.set_policy(scope, "data_cleanup", **more),
    "deny": lambda lake, scope, **more: lake.maintenance.set_policy(scope, "data_cleanup", allowed=False, **more),
    "grant": lambda lake, scope, **more: lake.access.grant("read", scope, "bob", **more),
    "set_commit_mode": lambda lake, scope, **more: lake.settings.set_commit_mode(scope, "inline", **more),
    "set_commit_rule": lambda lake, scope, **more: lake.rules.set_commit_rule(scope, "append_only", **more),
}


def rules(lake: Connection) -> tuple[object, ...]:
    return (
        lake.maintenance.list_policies(),
        lake.access.list_grants(),
        lake.rules.list_commit_rules(),
        lake.settings.list_commit_modes(),
    )


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("scope", "meant"), [("mian", "main"), ("main.salse", "main.sales")])
def test_a_rule_for_a_scope_that_does_not_exist_is_refused(lake: Connection, name: str, scope: str, meant: str) -> None:
    """Unless its tables are still to come, which the caller says."""
    before = rules(lake)
    with pytest.raises(InvalidArgumentError, match=rf"no (catalog|schema) {scope}\. Did you mean {meant}") as caught:
        CALLS[name](lake, scope)
    assert "future=True" in str(caught.value) and rules(lake) == before
    CALLS[name](lake, scope, future=True)
    CALLS[name](lake, meant)
    assert rules(lake) != before


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("grant", "set_commit_mode")])
def test_a_rule_for_a_table_that_does_not_exist_is_refused(lake: Connection, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"no table main\.sales\.ordres\. Did you mean main\.sales\.orders"):
        CALLS[name](lake, "main.sales.ordres")


def test_a_list_of_a_scope_that_does_not_exist_is_an_error(lake: Connection) -> None:
    """A schema whose tables were dropped has none, and is no mistake."""
    assert lake.tables("main.sales") == ("main.sales.orders",)
    with pytest.raises(InvalidArgumentError, match=r"no schema main\.slaes\. Did you mean main\.sales"):
        lake.tables("main.slaes")
    with pytest.raises(InvalidArgumentError, match=r"no catalog other\. Its schemas are main\.sales, main\.staff\."):
        lake.tables("other")
    lake.drop("main.sales.orders")
    assert lake.tables("main.sales") == ()


def test_a_purge_of_a_scope_that_does_not_exist_is_an_error(lake: Connection) -> None:
    with pytest.raises(InvalidArgumentError, match=r"no table main\.sales\.ordres\. Did you mean main\.sales\.orders"):
        lake.maintenance.purge("main.sales.ordres")
    with pytest.raises(
        InvalidArgumentError, match=r"^main\.sales\.orders was not dropped, .* Nothing was deleted\. Drop it"
    ):
        lake.maintenance.plan_purge("main.sales.orders")
    assert lake.maintenance.purge("main.sales").retained == ()


def test_a_purge_says_which_tables_are_kept_and_until_when(lake: Connection) -> None:
    lake.drop("main.sales.orders")
    for scope in ("", "main", "main.sales"):
        result = lake.maintenance.purge(scope)
        assert (result.purged, result.skipped, result.denied) == ((), (), ())
        [entry] = result.retained
        assert entry.until.timestamp() * 1000 == entry.table.since_ms + 7 * 24 * 60 * 60 * 1000
        assert lake.maintenance.plan_purge(scope).retained == result.retained
    denied = lake.maintenance.purge("main.sales", retention=timedelta(0)).denied
    assert [str(candidate.table.identifier) for candidate in denied] == ["main.sales.orders"]


def test_a_purge_of_one_table_that_deletes_nothing_is_an_error(lake: Connection) -> None:
    lake.drop("main.sales.orders")
    assert lake.maintenance.plan_purge("main.sales.orders").retained
    with pytest.raises(
        PurgeRefusedError, match=r"kept for 7 days after it was dropped, until 20\d\d-.* No file was deleted"
    ):
        lake.maintenance.purge("main.sales.orders")
    with pytest.raises(MaintenanceNotPermittedError, match=r"TABLE_PURGE of main\.sales\.orders is not permitted"):
        lake.maintenance.purge("main.sales.orders", retention=timedelta(0))
    lake.maintenance.set_policy("main.sales.orders", "TABLE_PURGE", future=True)
    [purged] = lake.maintenance.purge("main.sales.orders", retention=timedelta(0)).purged
    assert str(purged.identifier) == "main.sales.orders"


def test_an_empty_list_of_grants_of_a_scope_that_does_not_exist_is_an_error(lake: Connection) -> None:
    """A scope can have grants before it has tables; a reader of events may wait for a table that is still to come."""
    assert lake.access.list_grants("main.sales.orders") == ()
    with pytest.raises(InvalidArgumentError, match=r"no table main\.sales\.ordres\. Did you mean main\.sales\.orders"):
        lake.access.list_grants("main.sales.ordres")
    lake.access.grant("read", "main.future", "bob", future=True)
    assert len(lake.access.list_grants("main.future.orders")) == 1
    assert list(lake.events.feed(scopes=["main.later"])) == []


def test_a_catalog_without_tables_takes_any_scope(tmp_path: Path) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db") as lake:
        assert lake.tables("main") == ()
        lake.maintenance.set_policy("main.sales", "data_cleanup")
        assert [rule.scope for rule in lake.maintenance.list_policies()] == ["main.sales"]


def test_a_mistyped_table_is_an_error_with_the_table_that_is_meant(lake: Connection) -> None:
    with pytest.raises(TableNotFoundError, match=r"Did you mean main\.sales\.orders\?"):
        lake.table("main.sales.ordres")
    with pytest.raises(TableNotFoundError, match=r"Did you mean main\.sales\.orders\?"):
        lake.table("other.sale.orders")
    with pytest.raises(TableNotFoundError) as caught:
        lake.table("x.y.z")
    assert "Did you mean" not in str(caught.value)


def test_a_refused_drop_names_the_privilege_that_it_needs(lake: Connection, tmp_path: Path) -> None:
    lake.access.enable_grants(owner="ana")
    needed = pytest.raises(OperationRefusedError, match=r"does not have the privilege own on main\.sales\.orders")
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "w"), principal="bob") as other, needed:
        other.drop("main.sales.orders")
    assert lake.tables("main.sales") == ("main.sales.orders",)


def test_a_mistyped_directory_of_a_catalog_is_not_created(tmp_path: Path) -> None:
    (tmp_path / "lakes").mkdir()
    missing = pytest.raises(CatalogNotFoundError, match=r"no directory 'laeks'\. Did you mean lakes\?")
    with connect(f"sqlite:///{tmp_path}/laeks/deep/catalog.db") as lake, missing as caught:
        lake.tables()
    assert f"mkdir -p {tmp_path}/laeks/deep" in str(caught.value)
    assert [one.name for one in tmp_path.iterdir()] == ["lakes"]


def test_the_directory_of_the_default_catalog_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with connect() as lake:
        lake.create_table("main.sales.orders", schema=SCHEMA)
    assert (tmp_path / "cm_delta" / "catalog.db").is_file()
