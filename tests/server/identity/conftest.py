"""An identity provider, and servers that accept its JWTs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cm_delta_dagster.server.identity import key_set
from cm_delta_dagster.server.identity.provider import IdentityProvider
from cm_delta_dagster.server.settings import ServerSettings
from tests.support.identity_provider import Provider, identity_provider


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However loaded the machine is, the server waits for its provider, and it asks no proxy of the machine."""
    monkeypatch.setattr(key_set, "_TIMEOUT_SECONDS", 300.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def provider() -> Iterator[Provider]:
    with identity_provider() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def server_settings(request: pytest.FixtureRequest, tmp_path: Path, provider: Provider) -> ServerSettings:
    url = str(request.getfixturevalue(f"{request.param}_url"))
    return settings_of(url, tmp_path, provider)


def settings_of(url: str, directory: Path, provider: Provider) -> ServerSettings:
    """The settings of a server over a new catalog that accepts the JWTs of the provider."""
    accepted = IdentityProvider.model_validate(provider.settings())
    return ServerSettings(catalog=url, warehouse=f"file://{directory}/warehouse", identity_provider=accepted)
