"""When the content of proposals is parsed."""

from typing import Any

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.ratification import validation
from cm_delta_dagster.errors import CommitRefusedError
from tests.contracts.catalog_bench import NAME, create
from tests.support.commit_builder import ADD, commit_of

LARGE = ADD | {"add": ADD["add"] | {"tags": {"note": "x" * 70_000}}}


@pytest.mark.requirements("CM-C1")
@pytest.mark.parametrize("action", [ADD, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("kind", ["sqlite_url", pytest.param("postgres_url", marks=pytest.mark.postgres)])
def test_what_rules_ask_of_a_large_commit_is_computed_before_rows_are_locked(
    kind: str, action: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """Other writers of the table do not wait for it. A small commit takes less time than the question for rules."""
    url = request.getfixturevalue(kind)
    with SqlCatalog(url, warehouse="memory://warehouse", principal="owner") as catalog:
        table_id = create(catalog).table_id
        proposal = commit_of(1, action)

        def computed() -> bool:
            checked = validation.check(catalog._database, {table_id: proposal})[table_id].checked
            assert checked is not None
            return "content" in vars(checked)

        assert not computed()
        catalog.commit_rules.set_commit_rule(CommitRule(scope=str(NAME), name="keep", kind=CommitRuleKind.APPEND_ONLY))
        assert computed() == (action is LARGE)
        catalog.access.enable_grants()
        catalog.access.grant([Privilege.READ], str(NAME), "reader")
        reader = catalog.acting_as("reader")
        with pytest.raises(CommitRefusedError, match="does not have the privilege append"):
            reader.coordinator.commit(table_id, proposal)
