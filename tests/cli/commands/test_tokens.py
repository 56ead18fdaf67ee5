"""``cm-delta token``."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.cli.main import main


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlCatalog:
    url = f"sqlite:///{tmp_path}/catalog.db"
    monkeypatch.setenv("CM_DELTA_CATALOG_URL", url)
    monkeypatch.setenv("CM_DELTA_PRINCIPAL", "ana")
    catalog = SqlCatalog(url, warehouse="memory://w")
    catalog.registry.identity()
    return catalog


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["token", *arguments])


def test_a_token_is_created_listed_and_revoked(catalog: SqlCatalog) -> None:
    secret = run("create", "--principal", "etl", "--expires", "30d", "--read-only").output.strip()
    token = catalog.tokens.authenticate(secret)
    assert token.expires_ms == token.created_ms + 30 * 24 * 60 * 60 * 1000
    assert (token.principal, token.read_only, token.scope, token.created_by) == ("etl", True, "*", "ana")
    shown = run("list").output
    assert token.token_id in shown and "read-only" in shown and secret not in shown
    (listed,) = json.loads(run("list", "--json").output)
    assert (listed["token_id"], listed["last_used_ms"]) == (token.token_id, None)
    assert run("revoke", token.token_id).output == f"The token {token.token_id} of etl is revoked.\n"
    assert run("revoke", "none").output.startswith("Error: There is no token 'none'")


def test_a_token_without_an_end_is_asked_for(catalog: SqlCatalog) -> None:
    lifetimes = {
        lifetime: json.loads(run("create", "--principal", "etl", "--json", *lifetime).output)
        for lifetime in ((), ("--expires", "never"), ("--expires", "90m"), ("--expires", "12H"))
    }
    assert [token["expires_ms"] and token["expires_ms"] - token["created_ms"] for token in lifetimes.values()] == [
        90 * 86_400_000,
        None,
        90 * 60_000,
        12 * 3_600_000,
    ]
    assert catalog.tokens.authenticate(lifetimes[()]["secret"]).principal == "etl"


@pytest.mark.parametrize("lifetime", ["0d", "30", "d", "-1d", "1.5d", "1w", "30 days", "1e3d"])
def test_what_is_not_a_duration_is_a_usage_error(catalog: SqlCatalog, lifetime: str) -> None:
    result = run("create", "--principal", "etl", f"--expires={lifetime}")
    assert result.exit_code == 2 and "is not a duration: write e.g. 30d, 12h, 90m, or never." in result.output
    assert catalog.tokens.tokens() == ()
