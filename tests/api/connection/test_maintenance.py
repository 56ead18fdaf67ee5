"""Maintenance rules of a connection: what callers may give."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster import connect
from cm_delta_dagster.errors import InvalidArgumentError


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": None},
        {"reason": 5},
        {"principals": 5},
        {"principals": ["ana", 5]},
        {"principals": [" ana"]},
        {"windows": 5},
        {"windows": ["at night"]},
        {"min_retention": timedelta(days=-1)},
        {"min_retention": 1000},
        {"allowed": False, "max_files": 1},
        {"max_files": 10**30},
        {"max_bytes": 1.5},
    ],
)
def test_odd_values_of_a_maintenance_rule_are_argument_errors(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path)) as lake:
        with pytest.raises(InvalidArgumentError):
            lake.maintenance.set_policy(**{"scope": "main", "kind": "DATA_CLEANUP", **wrong})
        assert lake.maintenance.list_policies() == ()


def test_one_name_is_not_taken_for_its_letters(tmp_path: Path) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path), principal="bob") as lake:
        lake.maintenance.set_policy("main", "DATA_CLEANUP", principals="bob", windows="00:00-24:00")
        (rule,) = lake.maintenance.list_policies()
        assert rule.conditions.principals == ("bob",) and len(rule.conditions.windows) == 1
        lake.maintenance.set_policy("main.sales", "DATA_CLEANUP", principals="bob", allowed=False)
        assert [rule.conditions.principals for rule in lake.maintenance.list_policies()] == [("bob",), ("bob",)]
