"""The settings of an identity provider."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from click.testing import CliRunner

from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.errors import InvalidArgumentError, OperationRefusedError
from cm_delta_dagster.server.configuration import load_settings
from cm_delta_dagster.server.identity.provider import IdentityProvider
from tests.support.identity_provider import Provider, fields_of, jwk, key_set_of, rsa_key, signed
from tests.support.live_server import live_server

VALID = {"issuer": "https://login.example", "audience": "cm-delta", "jwks": "https://login.example/keys"}
VARIABLE = "CM_DELTA_SERVER_IDENTITY_PROVIDER"


def loaded(provider: dict[str, Any]) -> IdentityProvider:
    settings = load_settings(None, {VARIABLE: json.dumps(provider)}, {"catalog": "sqlite:////data/catalog.db"})
    assert settings.identity_provider is not None
    return settings.identity_provider


def test_a_field_is_named_by_its_path() -> None:
    provider = loaded({**VALID, "principal_field": "email", "roles_field": ["realm_access", "roles"]})
    assert (provider.principal_field, provider.roles_field) == (("email",), ("realm_access", "roles"))
    assert loaded(VALID).roles_field == ("roles",)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"jwks": "http://login.example/secret-word"}, "without TLS"),
        ({"jwks": "http://localhost.example/keys"}, "without TLS"),
        ({"jwks": "ftp://127.0.0.1/keys"}, "without TLS"),
        ({"jwks": "file:///etc/keys"}, "has no host"),
        ({"jwks": "https:///keys"}, "has no host"),
        ({"jwks": "https://secret-word@login.example/keys"}, "more than a host"),
        ({"jwks": ""}, "jwks: "),
        ({"issuer": ""}, "issuer: "),
        ({"audience": None}, "audience: "),
        ({"audience": ["secret-word"]}, "audience: "),
        ({"principal_field": []}, "principal_field: "),
        ({"roles_field": [1]}, "roles_field"),
        ({"algorithms": []}, "algorithms: "),
        ({"algorithms": ["none"]}, "algorithms"),
        ({"algorithms": ["HS256"]}, "algorithms"),
        ({"algorithms": ["RS256", "HS512"]}, "algorithms"),
        ({"clock_skew_seconds": 601}, "clock_skew_seconds: "),
        ({"jwks_refresh_seconds": 0}, "jwks_refresh_seconds: "),
        ({"jwks_max_age_seconds": 60}, "jwks_max_age_seconds is less"),
        ({"secret": "secret-word"}, "secret: "),
    ],
)
def test_wrong_settings_are_refused_without_their_values(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as refused:
        loaded({**VALID, **changed})
    assert "secret-word" not in str(refused.value)


@pytest.mark.parametrize("url", ["https://login.example/keys?v=1", "http://127.0.0.1:8080/keys", "http://[::1]/keys"])
def test_a_url_with_tls_or_of_this_machine_is_taken(url: str) -> None:
    assert loaded({**VALID, "jwks": url}).jwks == url


def test_keys_in_a_file_are_checked_before_the_server_starts(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    for content in (None, b"", b"{}", key_set_of()):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(InvalidArgumentError, match=r"keys\.json cannot be used: "):
            loaded({**VALID, "jwks": str(file)})
    file.write_bytes(key_set_of(jwk("first", rsa_key("first"))))
    assert loaded({**VALID, "jwks": str(file)}).jwks == str(file)


def test_the_section_of_the_page_works_as_it_says(
    provider: Provider, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file with the URL of this test, the commands, and the request; every field is listed."""
    page = (Path(__file__).parents[3] / "docs" / "server.md").read_text()
    section = page.partition("## Identity providers")[2].partition("## The page")[0]
    toml, shell = re.findall(r"```(?:toml|sh)\n(.*?)```", section, re.DOTALL)
    file = tmp_path / "server.toml"
    file.write_text(re.sub(r'jwks = "[^"]*"', f'jwks = "{provider.url}"', toml))
    settings = load_settings(file, {}, {"catalog": sqlite_url, "warehouse": f"file://{tmp_path}/warehouse"})
    listed = {name for row in section.splitlines() if row.startswith("| `") for name in row.split("`")[1:2]}
    assert listed == set(IdentityProvider.model_fields)
    monkeypatch.setenv("CM_DELTA_CATALOG_URL", sqlite_url)
    with connect(sqlite_url, warehouse=settings.warehouse, principal="ana") as ana:
        ana.create_table_as("main.sales.orders", pa.table({"id": [1, 2]}))
    commands = [line for line in shell.splitlines() if line.startswith("cm-delta ")]
    for command in commands:
        done = CliRunner().invoke(main, shlex.split(command)[1:], env={"CM_DELTA_PRINCIPAL": "ana"})
        assert done.exit_code == 0, done.output
    own = {"iss": "https://login.example.org/realms/lake", "preferred_username": "eve"}
    token = signed(fields_of("1234", **own, realm_access={"roles": ["analysts"]}))
    header, url = re.findall(r"curl -H \"(.*?)\" '(.*?)'", shell)[0]
    name, _, value = header.partition(": ")
    with live_server(settings) as server:
        answer = httpx.get(
            url.replace("http://127.0.0.1:8181", server.url), headers={name: value.replace("$JWT", token)}
        )
        assert [schema["name"] for schema in answer.json()["schemas"]] == ["sales"]
        with connect(server.url, token=token) as lake:
            assert (lake.access.whoami().principal, lake.access.whoami().roles) == ("eve", ("analysts",))
            assert lake.table("main.sales.orders").scan().count() == 2
        without = signed(fields_of("1234", **own))
        with connect(server.url, token=without) as lake, pytest.raises(OperationRefusedError, match="principal eve"):
            lake.table("main.sales.orders")
    assert len(commands) == 2
