"""``cm-delta access``."""

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
    assert run("access", "whoami").output.splitlines() == [
        "principal: ana",
        "roles:     none",
        "grants:    not enforced: everybody may do everything",
    ]
    assert json.loads(run("--principal", "bob", "access", "whoami", "--json").output) == {
        "principal": "bob",
        "source": "connection",
        "roles": [],
        "grants_enabled": False,
    }
    assert "no principal" in run("access", "whoami", principal="").output


def test_grants_are_enabled_granted_listed_and_revoked(run: Runner) -> None:
    assert run("access", "enable-grants").output == "Grants are enforced now.\n"
    assert run("access", "add-to-role", "loaders", "bob", "carl").exit_code == 0
    assert json.loads(run("access", "list-roles", "--json").output) == [{"name": "loaders", "members": ["bob", "carl"]}]
    granted = run("access", "grant", "append,maintain", "main.sales", "loaders", "--reason", "nightly")
    assert granted.output.splitlines() == [
        "scope       grantee  privilege  granted_by",
        "----------  -------  ---------  ----------",
        "*           ana      own        ana",
        "main.sales  loaders  append     ana",
        "main.sales  loaders  maintain   ana",
    ]
    assert "roles:     loaders" in run("access", "whoami", principal="bob").output
    refused = run("drop", NAME, principal="bob")
    assert refused.exit_code == 1 and "privilege own on main.sales.orders" in refused.output
    assert "Ask ana to permit it" in refused.output
    left = json.loads(run("access", "revoke", "maintain", "main.sales", "loaders", "--json").output)
    assert [(one["scope"], one["privilege"]) for one in left] == [("*", "own"), ("main.sales", "append")]
    assert run("access", "remove-from-role", "loaders", "carl").exit_code == 0
    assert run("access", "drop-role", "loaders").exit_code == 0
    assert run("access", "list-grants").output.splitlines()[2:] == ["*      ana      own        ana"]
    assert run("access", "disable-grants").output == "Grants are not enforced now.\n"


def test_owners_and_the_audit_are_shown(run: Runner) -> None:
    run("access", "enable-grants", "--owner", "ana")
    assert run("access", "owner", NAME).output == "ana\n"
    assert run("access", "set-owner", NAME, "bob", "--reason", "handed over").output == "bob\n"
    shown = run("access", "audit", "--scope", "main").output.splitlines()
    assert len(shown) == 3 and "transfer ownership" in shown[2] and shown[2].endswith("handed over  ana -> bob")
    entries = json.loads(run("access", "audit", "--json").output)
    assert [entry["action"] for entry in entries] == ["grant", "enable grants", "transfer ownership"]
    assert run("access", "audit", principal="bob").exit_code == 1


def test_application_ids_are_listed_and_reset(run: Runner) -> None:
    assert run("access", "list-application-ids", NAME).output == "No recorded commit has set an application id.\n"
    with SqlCatalog("sqlite:///catalog.db", principal="bob") as catalog:
        table_id = catalog.registry.load_table(TableIdentifier.parse(NAME)).table_id
        catalog.coordinator.commit(table_id, commit_of(1, {"txn": {"appId": "job", "version": 7}}))
    (entry,) = json.loads(run("access", "list-application-ids", NAME, "--json").output)
    assert (entry["app_id"], entry["principal"]) == ("job", "bob")
    assert run("access", "enable-grants").exit_code == 0
    run("access", "grant", "append", NAME, "carl")
    refused = run("access", "reset-application-id", NAME, "job", principal="carl")
    assert refused.exit_code == 1 and "privilege alter on main.sales.orders" in refused.output
    unknown = run("access", "reset-application-id", NAME, "none")
    assert unknown.exit_code == 1 and f"`cm-delta access list-application-ids {NAME}`" in unknown.output
    done = run("access", "reset-application-id", NAME, "job", "--reason", "bob has left")
    assert done.output == "The next principal may set the application id job of main.sales.orders.\n"
    assert json.loads(run("access", "list-application-ids", NAME, "--json").output) == []
    entry = json.loads(run("access", "audit", "--scope", "main", "--json").output)[-1]
    assert (entry["before"], entry["after"], entry["reason"]) == ("job, last set by bob", None, "bob has left")


def test_bad_input_is_an_error_with_the_possible_values(run: Runner) -> None:
    unknown = run("access", "grant", "write", "main", "bob")
    assert unknown.exit_code == 2 and "read, append, modify, alter, maintain, own" in unknown.output
    for arguments in (
        ("access", "grant", "read", "main.sales.none", "bob"),
        ("access", "grant", "read", "a.b.c.d", "bob"),
        ("access", "grant", "read", "main", ""),
        ("access", "revoke", "read", "main", "bob"),
        ("access", "drop-role", "none"),
        ("access", "owner", "main.sales.none"),
    ):
        answer = run(*arguments)
        assert answer.exit_code == 1 and answer.output.startswith("Error: "), arguments
    run("access", "enable-grants")
    assert "--force" in run("access", "revoke", "own", "*", "ana").output
    assert run("access", "revoke", "own", "*", "ana", "--force").exit_code == 0
