"""Settings of the server: where they come from, and what is refused before anything starts."""

from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.server.configuration import load_settings
from cm_delta_dagster.server.hosts import is_loopback
from cm_delta_dagster.server.serving import listening_socket
from cm_delta_dagster.server.settings import ServerSettings

SQLITE = "sqlite:////data/catalog.db"
POSTGRES = "postgresql://lake:secret-word@db/lake"


def test_options_come_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(
        f'catalog = "{SQLITE}"\nport = 1\nmax_json_depth = 50\nstorage_roots = ["/data"]\nrequest_seconds = 5\n'
    )
    environment = {
        "CM_DELTA_SERVER_PORT": "2",
        "CM_DELTA_SERVER_WAREHOUSE": "/w",
        "CM_DELTA_SERVER_STORAGE_OPTIONS": '{"key": "k"}',
        "CM_DELTA_SERVER_ALLOW_PLAIN_HTTP": "true",
        "OTHER": "x",
    }
    settings = load_settings(file, environment, {"port": 3, "host": None})
    assert (settings.port, settings.warehouse, settings.max_json_depth) == (3, "/w", 50)
    assert (settings.host, settings.storage_roots, settings.storage_options) == ("127.0.0.1", ("/data",), {"key": "k"})
    assert settings.allow_plain_http and settings.roots == ("/data",)
    assert load_settings(None, {}, {"catalog": SQLITE, "warehouse": "/w"}).roots == ("/w",)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "The server has no catalog"),
        ({"catalog": "http://secret-word:8181"}, "is the URL of a server"),
        ({"catalog": SQLITE, "prot": 1}, "prot: Extra inputs are not permitted"),
        ({"catalog": SQLITE, "port": 65536}, "port: Input should be less than or equal to 65535"),
        ({"catalog": SQLITE, "port": "x"}, "port: Input should be a valid integer"),
        ({"catalog": SQLITE, "workers": 0}, "workers: Input should be greater than or equal to 1"),
        ({"catalog": SQLITE, "workers": 2}, "2 workers over a SQLite file"),
        ({"catalog": POSTGRES, "host": "0.0.0.0"}, r"without TLS, from 0\.0\.0\.0"),
        ({"catalog": POSTGRES, "host": "lake.example"}, "without TLS, from lake.example"),
        ({"catalog": POSTGRES, "tls_key": "key.pem"}, "needs both settings"),
        ({"catalog": POSTGRES, "tls_key": "no.pem", "tls_certificate": "no.pem"}, "cannot be used: .*No such file"),
        ({"catalog": POSTGRES, "session_key": "secret-word"}, "session_key: String should have at least 32 characters"),
        ({"catalog": POSTGRES, "request_seconds": 0}, "request_seconds: Input should be greater than 0"),
        ({"catalog": POSTGRES, "storage_options": "secret-word"}, "storage_options: Input should be a valid dict"),
    ],
)
def test_wrong_settings_are_refused_without_their_values(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as refused:
        load_settings(None, {}, values)
    assert "secret-word" not in str(refused.value)


def test_the_file_of_the_page_is_valid_but_for_the_certificate(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
    file = tmp_path / "server.toml"
    file.write_text(page.partition("```toml\n")[2].partition("```")[0])
    with pytest.raises(InvalidArgumentError, match=r"The certificate /etc/lake/server\.pem"):
        load_settings(file, {}, {})
    listed = {name for row in page.splitlines() if row.startswith("| `") for name in row.split("|")[1].split("`")[1::2]}
    assert set(ServerSettings.model_fields) <= listed


def test_a_file_or_variable_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"cannot be read: .*No such file"):
        load_settings(tmp_path / "none.toml", {}, {})
    (tmp_path / "bad.toml").write_text("port = ")
    with pytest.raises(InvalidArgumentError, match="is not a TOML file"):
        load_settings(tmp_path / "bad.toml", {}, {})
    with pytest.raises(InvalidArgumentError, match="CM_DELTA_SERVER_STORAGE_ROOTS is not JSON"):
        load_settings(None, {"CM_DELTA_SERVER_STORAGE_ROOTS": "/data"}, {})


def test_a_secret_is_not_in_the_text_of_the_settings() -> None:
    settings = load_settings(None, {}, {"catalog": POSTGRES, "storage_options": {"secret": "secret-word"}})
    assert "secret-word" not in repr(settings)


def test_other_interfaces_than_loopback_are_served_without_tls_only_if_asked() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "localhost.example", "")))
    assert load_settings(None, {}, {"catalog": SQLITE, "host": "0.0.0.0", "allow_plain_http": True}).host == "0.0.0.0"


def test_a_port_that_is_taken_is_refused() -> None:
    with listening_socket(load_settings(None, {}, {"catalog": SQLITE, "port": 0})) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidArgumentError, match=f"cannot listen on 127.0.0.1, port {port}: "):
            listening_socket(load_settings(None, {}, {"catalog": SQLITE, "port": port}))
