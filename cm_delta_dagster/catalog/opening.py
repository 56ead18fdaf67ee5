"""Opens the catalog that a URL names: a database, or a server over HTTP."""

import functools
import logging
import typing

from cm_delta_dagster.catalog.server_urls import is_server_url
from cm_delta_dagster.catalog.sql import IfMissing, SqlCatalog
from cm_delta_dagster.catalog.sql.database.callers import environment_principal
from cm_delta_dagster.deferred_module import DeferredModule
from cm_delta_dagster.errors import CatalogError, InvalidArgumentError

if typing.TYPE_CHECKING:
    from cm_delta_dagster.catalog.rest import http_catalog
    from cm_delta_dagster.catalog.rest.http_catalog import HttpCatalog
else:
    # Most processes use a database, and httpx is an extra.
    http_catalog = DeferredModule("cm_delta_dagster.catalog.rest.http_catalog")

_log = logging.getLogger(__name__)

OpenedCatalog: typing.TypeAlias = "SqlCatalog | HttpCatalog"


def open_catalog(
    url: str,
    *,
    warehouse: str | None = None,
    if_missing: IfMissing = IfMissing.CREATE,
    principal: str | None = None,
    token: str | None = None,
) -> OpenedCatalog:
    """The catalog at ``url``. Sends no request.

    Args:
        url: of a database, or ``http://host:port`` of a server.
        warehouse: location of new tables; that of a server is in the server's configuration.
        if_missing: whether a missing database is created.
        principal: who uses a database; a server knows it by the token.
        token: of a server; by default the environment variable CM_DELTA_TOKEN.

    Raises:
        InvalidArgumentError: the URL is malformed, or an argument does not apply to it.
        CatalogError: httpx is not installed.
    """
    if not is_server_url(url):
        if token is not None:
            raise InvalidArgumentError(
                "A token was given with the URL of a database; tokens are for servers, whose URL begins with http:// or https://. "
                "Leave out the token, or give the URL of the server."
            )
        return SqlCatalog(url, warehouse=warehouse, if_missing=if_missing, principal=principal)
    if warehouse is not None:
        raise InvalidArgumentError(
            "A warehouse was given with the URL of a server, which has a warehouse in its configuration. Leave out the warehouse."
        )
    if principal is not None and principal != environment_principal():
        raise InvalidArgumentError(
            "A principal was given with the URL of a server, which knows the principal by the token. Leave out the principal, and "
            "use a token of that principal."
        )
    if environment_principal() is not None:
        _say_that_the_token_decides()
    try:
        return http_catalog.HttpCatalog(url, token)
    except ImportError as error:
        raise CatalogError(
            f"The server of a catalog requires a package that is not installed ({error}). Install it with "
            "pip install '<path of the clone>[http]'."
        ) from error


@functools.cache
def _say_that_the_token_decides() -> None:
    """Once in each process."""
    _log.warning(
        "The variable CM_DELTA_PRINCIPAL has no effect on the catalog of a server: the token decides who the principal is. Use a "
        "token of that principal, or unset the variable."
    )
