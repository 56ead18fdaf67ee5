"""Who calls: the principal of the bearer token of a request."""

from typing import Annotated, TypeAlias

from fastapi import Depends, Request

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tokens import AccessToken
from cm_delta_dagster.errors import NotAuthenticatedError
from cm_delta_dagster.server.token_uses import TokenUses


def caller_catalog(request: Request) -> SqlCatalog:
    """The catalog for the calls of the request's principal. Raises NotAuthenticatedError."""
    catalog: SqlCatalog = request.app.state.catalog
    return catalog_for(request, catalog.tokens.authenticate(bearer_secret(request)))


def catalog_for(request: Request, token: AccessToken) -> SqlCatalog:
    """The catalog for the calls of a token, which is valid now; the request counts as a use. Raises TooManyRequestsError."""
    catalog: SqlCatalog = request.app.state.catalog
    uses: TokenUses = request.app.state.token_uses
    uses.note(token)
    request.app.state.rates.count(token.token_id)
    request.scope["state"].update(principal=token.principal, token_id=token.token_id)
    return catalog.for_token(token)


def bearer_secret(request: Request) -> str:
    """The secret of the request. Raises NotAuthenticatedError without one."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise NotAuthenticatedError(
            "The request has no token. Send the header 'Authorization: Bearer TOKEN'; an owner of the catalog creates tokens."
        )
    return secret.strip()


CallerCatalog: TypeAlias = Annotated[SqlCatalog, Depends(caller_catalog)]
"""The type of a handler's parameter that is the catalog for the calls of the request's principal."""
