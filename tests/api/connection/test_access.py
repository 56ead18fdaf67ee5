"""Grants, roles and the audit of a connection: what callers may give."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cm_delta_dagster import connect
from cm_delta_dagster.errors import InvalidArgumentError, MaintenanceNotPermittedError, OperationRefusedError

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.mark.parametrize("wrong", [None, 5, b"x", [], ["a", 5], "", "\ud800", 10**30])
def test_odd_values_of_grants_are_argument_errors(tmp_path: Path, wrong: Any) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path)) as lake:
        calls = (
            lambda: lake.access.grant(wrong, "main", "bob"),
            lambda: lake.access.grant("read", wrong, "bob"),
            lambda: lake.access.grant("read", "main", wrong),
            lambda: lake.access.grant("read", "main", "bob", reason=[wrong]),  # type: ignore[arg-type]  # A wrong type on purpose.
            lambda: lake.access.revoke("read", wrong, "bob"),
            lambda: lake.access.add_to_role(wrong, "bob"),
            lambda: lake.access.add_to_role("team", wrong),
            lambda: lake.access.remove_from_role("team", wrong),
            lambda: lake.access.drop_role(wrong),
            lambda: lake.access.create_token(wrong, expires_in=None),
            lambda: lake.access.create_token("bob", expires_in=timedelta(days=-1)),
            lambda: lake.access.create_token("bob", expires_in=30),  # type: ignore[arg-type]  # A wrong type on purpose.
            lambda: lake.access.revoke_token(wrong),
            lambda: lake.access.audit(limit=[wrong]),  # type: ignore[arg-type]  # A wrong type on purpose.
        )
        for call in calls:
            with pytest.raises(InvalidArgumentError):
                call()
        assert lake.access.list_grants() == () and lake.access.list_roles() == () and lake.access.audit() == ()


def test_tokens_are_created_listed_and_revoked(tmp_path: Path) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path), principal="ana") as lake:
        created = lake.access.create_token("etl", expires_in=timedelta(days=30), read_only=True, scope="main.sales")
        (token,) = lake.access.list_tokens()
        assert token == created.token and (token.expires_ms or 0) - token.created_ms == 30 * 86_400_000
        assert lake.access.revoke_token(token.token_id).revoked_ms is not None


def test_tables_that_a_caller_may_not_read_do_not_keep_it_from_creating(tmp_path: Path) -> None:
    """The first creation in a warehouse looks for the tables of the catalog, whose storage may be missing."""
    url, other = f"sqlite:///{tmp_path}/catalog.db", str(tmp_path / "other")
    with connect(url, warehouse=other, principal="ana") as lake:
        lake.create_table("main.sales.orders", SCHEMA)
        lake.access.enable_grants()
        lake.access.grant("own", "main.shop", "carl", future=True)
    with connect(url, warehouse=str(tmp_path / "warehouse"), principal="carl") as lake:
        assert lake.create_table("main.shop.orders", SCHEMA).version() == 0
        with pytest.raises(OperationRefusedError, match=r"main\.sales\.refunds"):
            lake.create_table("main.sales.refunds", SCHEMA)


def test_maintenance_without_the_privilege_names_the_privilege(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    with connect(url, warehouse=str(tmp_path / "warehouse"), principal="ana") as lake:
        lake.create_table("main.sales.orders", SCHEMA)
        lake.maintenance.set_policy("main.sales", "DATA_CLEANUP")
        lake.access.enable_grants()
        lake.access.grant("read", "main.sales", "bob")
    with connect(url, principal="bob") as lake, pytest.raises(MaintenanceNotPermittedError) as refused:
        lake.table("main.sales.orders").vacuum()
    assert "does not have the privilege maintain on main.sales.orders" in str(refused.value)
    assert "policy allow" not in str(refused.value)


@pytest.mark.parametrize("name", ["enable", "disable"])
def test_a_refused_change_of_the_enforcement_names_itself(tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    with connect(url, principal="ana") as lake:
        lake.access.enable_grants()
    refused = pytest.raises(OperationRefusedError, match=rf"The operation {name} grants on \*")
    with connect(url, principal="bob") as lake, refused:
        getattr(lake.access, f"{name}_grants")()


def test_a_grant_that_is_not_enforced_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse"), principal="ana") as lake:
        lake.create_table("main.sales.orders", SCHEMA)
        lake.access.grant("read", "main.sales", "bob")
        assert "everybody may do everything until lake.access.enable_grants() is called" in caplog.text
        lake.access.enable_grants()
        caplog.clear()
        lake.access.grant("append", "main.sales", "bob")
        assert "enable_grants" not in caplog.text


def test_a_table_with_a_policy_of_its_own_is_not_concerned_by_a_denial_for_its_schema(tmp_path: Path) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse")) as lake:
        table = lake.create_table("main.sales.orders", SCHEMA)
        lake.maintenance.set_policy("main.sales.orders", "data_cleanup")
        lake.maintenance.set_policy("main.sales", "DATA_CLEANUP", allowed=False)
        decision = table.maintenance.decision("DATA_CLEANUP")
        assert decision.allowed and decision.decided_by == "main.sales.orders"
