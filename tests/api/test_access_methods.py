"""Grants, roles and the audit of a connection: what callers may give."""

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
            lambda: lake.grant(wrong, "main", "bob"),
            lambda: lake.grant("read", wrong, "bob"),
            lambda: lake.grant("read", "main", wrong),
            lambda: lake.grant("read", "main", "bob", reason=[wrong]),  # type: ignore[arg-type]  # A wrong type on purpose.
            lambda: lake.revoke("read", wrong, "bob"),
            lambda: lake.add_to_role(wrong, "bob"),
            lambda: lake.add_to_role("team", wrong),
            lambda: lake.remove_from_role("team", wrong),
            lambda: lake.drop_role(wrong),
            lambda: lake.audit(limit=[wrong]),  # type: ignore[arg-type]  # A wrong type on purpose.
        )
        for call in calls:
            with pytest.raises(InvalidArgumentError):
                call()
        assert lake.grants() == () and lake.roles() == () and lake.audit() == ()


def test_tables_that_a_caller_may_not_read_do_not_keep_it_from_creating(tmp_path: Path) -> None:
    """The first creation in a warehouse looks for the tables of the catalog, whose storage may be missing."""
    url, other = f"sqlite:///{tmp_path}/catalog.db", str(tmp_path / "other")
    with connect(url, warehouse=other, principal="ana") as lake:
        lake.create_table("main.sales.orders", SCHEMA)
        lake.enable_grants()
        lake.grant("own", "main.shop", "carl", future=True)
    with connect(url, warehouse=str(tmp_path / "warehouse"), principal="carl") as lake:
        assert lake.create_table("main.shop.orders", SCHEMA).version() == 0
        with pytest.raises(OperationRefusedError, match=r"main\.sales\.refunds"):
            lake.create_table("main.sales.refunds", SCHEMA)


def test_maintenance_without_the_privilege_names_the_privilege(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    with connect(url, warehouse=str(tmp_path / "warehouse"), principal="ana") as lake:
        lake.create_table("main.sales.orders", SCHEMA)
        lake.allow("main.sales", "DATA_CLEANUP")
        lake.enable_grants()
        lake.grant("read", "main.sales", "bob")
    with connect(url, principal="bob") as lake, pytest.raises(MaintenanceNotPermittedError) as refused:
        lake.table("main.sales.orders").vacuum()
    assert "does not have the privilege maintain on main.sales.orders" in str(refused.value)
    assert "policy allow" not in str(refused.value)


@pytest.mark.parametrize("name", ["enable", "disable"])
def test_a_refused_change_of_the_enforcement_names_itself(tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    with connect(url, principal="ana") as lake:
        lake.enable_grants()
    refused = pytest.raises(OperationRefusedError, match=rf"The operation {name} grants on \*")
    with connect(url, principal="bob") as lake, refused:
        getattr(lake, f"{name}_grants")()
