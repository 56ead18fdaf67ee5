"""``cm-delta whoami``, ``grant``, ``revoke``, ``grants``, ``roles``, ``owner``, ``application-ids`` and ``audit``."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.cli.main import main
from tests.contracts.catalog_bench import create
from tests.support.commit_builder import commit_of

NAME = "main.sales.orders"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Runner":
    monkeypatch.chdir(tmp_path)
    with SqlCatalog("sqlite:///catalog.db", warehouse="warehouse", principal="ana") as catalog:
        create(catalog)
    return Runner()


class Runner:
    def __call__(self, *arguments: str, principal: str = "ana") -> Result:
        variables = {"CM_DELTA_CATALOG_URL": "sqlite:///catalog.db", "CM_DELTA_PRINCIPAL": principal}
        return CliRunner().invoke(main, arguments, env=variables)


def test_the_principal_comes_from_the_option_or_the_environment(run: Runner) -> None:
    assert run("whoami").output.splitlines() == [
        "principal: ana",
        "roles:     none",
        "grants:    not enforced: everybody may do everything",
    ]
    assert json.loads(run("--principal", "bob", "whoami", "--json").output) == {
        "principal": "bob",
        "source": "connection",
        "roles": [],
        "grants_enabled": False,
    }
    assert "no principal" in run("whoami", principal="").output


def test_grants_are_enabled_granted_listed_and_revoked(run: Runner) -> None:
    assert run("grants", "enable").output == "Grants are enforced now.\n"
    assert run("roles", "add", "loaders", "bob", "carl").exit_code == 0
    assert json.loads(run("roles", "--json").output) == [{"name": "loaders", "members": ["bob", "carl"]}]
    granted = run("grant", "append,maintain", "main.sales", "loaders", "--reason", "nightly")
    assert granted.output.splitlines() == [
        "scope       grantee  privilege  granted_by",
        "----------  -------  ---------  ----------",
        "*           ana      own        ana",
        "main.sales  loaders  append     ana",
        "main.sales  loaders  maintain   ana",
    ]
    assert "roles:     loaders" in run("whoami", principal="bob").output
    refused = run("drop", NAME, principal="bob")
    assert refused.exit_code == 1 and "privilege own on main.sales.orders" in refused.output
    assert "Ask ana to permit it" in refused.output
    left = json.loads(run("revoke", "maintain", "main.sales", "loaders", "--json").output)
    assert [(one["scope"], one["privilege"]) for one in left] == [("*", "own"), ("main.sales", "append")]
    assert run("roles", "remove", "loaders", "carl").exit_code == 0
    assert run("roles", "drop", "loaders").exit_code == 0
    assert run("grants").output.splitlines()[2:] == ["*      ana      own        ana"]
    assert run("grants", "disable").output == "Grants are not enforced now.\n"


def test_owners_and_the_audit_are_shown(run: Runner) -> None:
    run("grants", "enable", "--owner", "ana")
    assert run("owner", NAME).output == "ana\n"
    assert run("owner", NAME, "bob", "--reason", "handed over").output == "bob\n"
    shown = run("audit", "--scope", "main").output.splitlines()
    assert len(shown) == 3 and "transfer ownership" in shown[2] and shown[2].endswith("handed over  ana -> bob")
    entries = json.loads(run("audit", "--json").output)
    assert [entry["action"] for entry in entries] == ["grant", "enable grants", "transfer ownership"]
    assert run("audit", principal="bob").exit_code == 1


def test_application_ids_are_listed_and_reset(run: Runner) -> None:
    assert run("application-ids", NAME).output == "No recorded commit has set an application id.\n"
    with SqlCatalog("sqlite:///catalog.db", principal="bob") as catalog:
        table_id = catalog.registry.load_table(TableIdentifier.parse(NAME)).table_id
        catalog.coordinator.commit(table_id, commit_of(1, {"txn": {"appId": "job", "version": 7}}))
    (entry,) = json.loads(run("application-ids", NAME, "--json").output)
    assert (entry["app_id"], entry["principal"]) == ("job", "bob")
    assert run("grants", "enable").exit_code == 0
    run("grant", "append", NAME, "carl")
    refused = run("reset-application-id", NAME, "job", principal="carl")
    assert refused.exit_code == 1 and "privilege alter on main.sales.orders" in refused.output
    unknown = run("reset-application-id", NAME, "none")
    assert unknown.exit_code == 1 and f"`cm-delta application-ids {NAME}`" in unknown.output
    done = run("reset-application-id", NAME, "job", "--reason", "bob has left")
    assert done.output == "The next principal may set the application id job of main.sales.orders.\n"
    assert json.loads(run("application-ids", NAME, "--json").output) == []
    entry = json.loads(run("audit", "--scope", "main", "--json").output)[-1]
    assert (entry["before"], entry["after"], entry["reason"]) == ("job, last set by bob", None, "bob has left")


def test_bad_input_is_an_error_with_the_possible_values(run: Runner) -> None:
    unknown = run("grant", "write", "main", "bob")
    assert unknown.exit_code == 2 and "read, append, modify, alter, maintain, own" in unknown.output
    for arguments in (
        ("grant", "read", "main.sales.none", "bob"),
        ("grant", "read", "a.b.c.d", "bob"),
        ("grant", "read", "main", ""),
        ("revoke", "read", "main", "bob"),
        ("roles", "drop", "none"),
        ("owner", "main.sales.none"),
    ):
        answer = run(*arguments)
        assert answer.exit_code == 1 and answer.output.startswith("Error: "), arguments
    run("grants", "enable")
    assert "--lock-out" in run("revoke", "own", "*", "ana").output
    assert run("revoke", "own", "*", "ana", "--lock-out").exit_code == 0
