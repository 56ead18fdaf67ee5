"""Grants, roles and the audit of a connection: what callers may give."""

from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster import connect
from cm_delta_dagster.errors import InvalidArgumentError


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
