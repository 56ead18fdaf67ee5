"""Opens the catalog of ``--catalog`` for commands of ``cm-delta``."""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import click

from cm_delta_dagster.catalog.sql import IfMissing, SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext
from cm_delta_dagster.errors import CatalogNotFoundError, CmDeltaError
from cm_delta_dagster.storage.storage_options import StorageOptions
from cm_delta_dagster.storage.stores import Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """The options before the command."""

    url: str | None
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    principal: str | None = None
    context: CommitContext = NO_CONTEXT


def parse_storage_options(pairs: Iterable[str], environment: str | None) -> dict[str, Any]:
    """Storage options of the JSON text in the environment and of ``KEY=VALUE`` pairs, which have precedence.

    A value that is a JSON object, list, true or false is decoded; any other value is text.

    Raises:
        click.UsageError: a pair without ``=``, or text that is not JSON. The message has no value, which may be a secret.
    """
    options = _decoded_environment(environment) if environment else {}
    for pair in pairs:
        # A prefix of locations may contain "=" too, but a JSON object follows it.
        key, separator, value = pair.partition("={") if "://" in pair.partition("=")[0] else pair.partition("=")
        if not separator or not key:
            raise click.UsageError("--storage-option takes KEY=VALUE, e.g. endpoint_url=https://host.")
        options[key] = _decoded(separator[1:] + value, key)
    return options


def parse_tags(pairs: Iterable[str]) -> dict[str, str]:
    """Tags of ``KEY=VALUE`` pairs. Raises click.UsageError for a pair without ``=``."""
    tags: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise click.UsageError(f"--tag takes KEY=VALUE, e.g. owner=etl; given was {pair!r}.")
        tags[key] = value
    return tags


def _decoded_environment(text: str) -> dict[str, Any]:
    with suppress(ValueError):
        options = json.loads(text)
        if isinstance(options, dict):
            return options
    raise click.UsageError('CM_DELTA_STORAGE_OPTIONS is not a JSON object such as {"key": "...", "secret": "..."}.')


def _decoded(text: str, key: str) -> Any:
    if not text.startswith(("{", "[")) and text not in ("true", "false"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise click.UsageError(f"The value of --storage-option {key} begins like JSON and is not JSON.") from None


@contextmanager
def open_catalog(context: click.Context) -> Iterator[SqlCatalog]:
    """Open the catalog, which must exist; errors of this package end the command with their message."""
    with _errors_as_messages(), _catalog(context) as catalog:
        yield catalog


@contextmanager
def open_client(
    context: click.Context, warehouse: str | None = None, *, if_missing: IfMissing = IfMissing.REFUSE
) -> Iterator[DeltaClient]:
    """Open a client of the catalog; errors of this package end the command with their message."""
    with _errors_as_messages():
        catalog = _catalog(context, warehouse, if_missing=if_missing)
        with _closing_client(catalog, context, warehouse) as client:
            yield client


@contextmanager
def open_planning_client(context: click.Context, warehouse: str) -> Iterator[DeltaClient]:
    """Open a client for a plan that is only shown: of the catalog or, if there is none, of an empty temporary catalog."""
    if _has_catalog(context):
        with open_client(context, warehouse) as client:
            yield client
        return
    with _errors_as_messages(), tempfile.TemporaryDirectory() as directory:
        catalog = SqlCatalog(f"sqlite:///{directory}/catalog.db", warehouse=warehouse)
        with _closing_client(catalog, context, warehouse) as client:
            yield client


def _has_catalog(context: click.Context) -> bool:
    with _errors_as_messages(), _catalog(context) as catalog:
        try:
            catalog.identity()
        except CatalogNotFoundError:
            return False
    return True


def _catalog(
    context: click.Context, warehouse: str | None = None, *, if_missing: IfMissing = IfMissing.REFUSE
) -> SqlCatalog:
    return SqlCatalog(_url_of(context), warehouse=warehouse, if_missing=if_missing, principal=context.obj.principal)


def _url_of(context: click.Context) -> str:
    url = context.obj.url
    if not url:
        raise click.UsageError("No catalog given: pass --catalog URL or set CM_DELTA_CATALOG_URL.")
    return str(url)


@contextmanager
def _errors_as_messages() -> Iterator[None]:
    try:
        yield
    except CmDeltaError as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def _closing_client(catalog: SqlCatalog, context: click.Context, warehouse: str | None) -> Iterator[DeltaClient]:
    options = StorageOptions.of(context.obj.storage_options, warehouse=warehouse)
    client = DeltaClient(catalog, stores=Stores(storage_options=options), context=context.obj.context)
    try:
        yield client
    finally:
        client.close()
