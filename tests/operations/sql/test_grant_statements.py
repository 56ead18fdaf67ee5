"""GRANT, REVOKE and SHOW GRANTS are not run; the error names the call with the names of the statement."""

import pytest

from cm_delta_dagster.advice import EntryPoint, calls
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.sql.statements import Family, read_statement


@pytest.mark.parametrize(
    ("statement", "call"),
    [
        ("GRANT SELECT ON SCHEMA main.sales TO analysts", "lake.access.grant('read', 'main.sales', 'analysts')"),
        ("grant modify on table main.sales.`my t` to `a b`", "lake.access.grant('modify', 'main.sales.my t', 'a b')"),
        ("GRANT ALL PRIVILEGES ON main TO ana;", "lake.access.grant('own', 'main', 'ana')"),
        ("REVOKE INSERT ON main.sales.orders FROM 'bob'", "lake.access.revoke('append', 'main.sales.orders', 'bob')"),
        ("SHOW GRANTS ON SCHEMA main.sales", "lake.access.list_grants('main.sales')"),
        ("SHOW GRANTS", "lake.access.list_grants('')"),
        ("GRANT", "lake.access.grant('read', scope, to)"),
        ("REVOKE SELECT", "lake.access.revoke('read', scope, principal)"),
    ],
)
def test_a_statement_about_grants_names_the_call(statement: str, call: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"does not run (GRANT|REVOKE|SHOW GRANTS) statements") as raised:
        read_statement(statement)
    assert raised.value.remedy is not None
    assert calls(raised.value.remedy, EntryPoint.PYTHON) == (call,)
    assert calls(raised.value.remedy, EntryPoint.SHELL)[0].startswith("cm-delta access ")


def test_other_statements_that_show_something_are_run() -> None:
    assert read_statement("SHOW TABLES IN main.grants").family is Family.SHOW
