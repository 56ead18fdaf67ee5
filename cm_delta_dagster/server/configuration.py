"""Reads the settings of the server from a TOML file and the environment, and checks them before anything starts."""

import json
import ssl
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cm_delta_dagster.catalog.server_urls import is_server_url
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.server.hosts import is_loopback
from cm_delta_dagster.server.identity.key_set import KeySetError, key_set, read_keys
from cm_delta_dagster.server.identity.provider import IdentityProvider, is_url
from cm_delta_dagster.server.settings import ServerSettings

VARIABLES = "CM_DELTA_SERVER_"
"""The variable of a setting has this prefix and its name in upper case."""

_OF_JSON = ("storage_roots", "storage_options", "storage_credentials", "identity_provider")


def load_settings(file: Path | None, environment: Mapping[str, str], options: Mapping[str, Any]) -> ServerSettings:
    """The settings of the file, those of the environment before them, and the options before both.

    Args:
        options: settings that are not None.

    Raises:
        InvalidArgumentError: a setting is unknown, missing, malformed or contradicts another one; the message has no values.
    """
    values = {**_of_file(file), **_of_environment(environment)}
    values |= {name: value for name, value in options.items() if value is not None}
    if not values.get("catalog"):
        raise InvalidArgumentError("The server has no catalog: give the URL of the database as the setting 'catalog'.")
    try:
        settings = ServerSettings.model_validate(values)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise InvalidArgumentError(f"The settings of the server are wrong: {faults}.") from None
    _check(settings)
    return settings


def _of_file(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise InvalidArgumentError(f"The settings of the server cannot be read: {error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{file} is not a TOML file: {error}.") from None


def _of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable, text in environment.items():
        if variable.startswith(VARIABLES):
            name = variable.removeprefix(VARIABLES).lower()
            values[name] = _decoded(variable, text) if name in _OF_JSON else text
    return values


def _decoded(variable: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidArgumentError(f"The variable {variable} is not JSON.") from None


def _check(settings: ServerSettings) -> None:
    if is_server_url(settings.catalog):
        raise InvalidArgumentError(
            "The catalog of the server is the URL of a server. It opens the database itself: give the URL of the database."
        )
    if settings.workers > 1 and settings.catalog.startswith("sqlite"):
        raise InvalidArgumentError(
            f"The server was given {settings.workers} workers over a SQLite file, of which one process writes at a time. Set one "
            "worker, or use PostgreSQL."
        )
    if settings.identity_provider is not None:
        _check_keys(settings.identity_provider)
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise InvalidArgumentError("For TLS the server needs both settings: tls_certificate and tls_key.")
    if settings.tls_certificate is not None:
        _check_tls(settings)
    elif not settings.allow_plain_http and not is_loopback(settings.host):
        raise InvalidArgumentError(
            f"The server would send tokens and data over the network without TLS, from {settings.host}. Give a certificate and its "
            "key, or set allow_plain_http, e.g. behind a proxy that has TLS."
        )


def _check_keys(provider: IdentityProvider) -> None:
    """Check the keys in a file. Those of a URL are read for the first request: the provider need not run when the server starts."""
    if is_url(provider.jwks):
        return
    try:
        if not key_set(read_keys(provider.jwks), provider.algorithms):
            raise KeySetError(f"it has no public key with an id for {', '.join(provider.algorithms)}")
    except KeySetError as error:
        raise InvalidArgumentError(
            f"The keys of the identity provider in {provider.jwks} cannot be used: {error}."
        ) from None


def _check_tls(settings: ServerSettings) -> None:
    assert settings.tls_certificate is not None
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(settings.tls_certificate, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgumentError(
            f"The certificate {settings.tls_certificate} and the key {settings.tls_key} cannot be used: {error}."
        ) from error
