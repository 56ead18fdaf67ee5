"""Who calls: the principal of the bearer token of a request."""

from typing import Annotated, TypeAlias

from fastapi import Depends, Request

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tokens import SECRET_PREFIX, AccessToken
from cm_delta_dagster.errors import NotAuthenticatedError
from cm_delta_dagster.server.identity.jwt_callers import JwtCaller, JwtVerifier
from cm_delta_dagster.server.token_uses import TokenUses


def caller_catalog(request: Request) -> SqlCatalog:
    """The catalog for the calls of the request's principal. Raises NotAuthenticatedError, CatalogUnavailableError."""
    return catalog_for(request, proven_caller(request, bearer_secret(request)))


def proven_caller(request: Request, secret: str) -> AccessToken | JwtCaller:
    """Who sends the secret: a token of the catalog, or a JWT if the server has an identity provider.

    Raises NotAuthenticatedError, and CatalogUnavailableError if the keys of the provider cannot be read.
    """
    catalog: SqlCatalog = request.app.state.catalog
    verifier: JwtVerifier | None = request.app.state.identity
    if verifier is None or secret.startswith(SECRET_PREFIX):
        return catalog.tokens.authenticate(secret)
    return verifier.caller(secret, now_ms=catalog.coordinator.now_ms())


def catalog_for(request: Request, caller: AccessToken | JwtCaller) -> SqlCatalog:
    """The catalog for the calls of a caller that is proven now; the request counts as one of it. Raises TooManyRequestsError."""
    catalog: SqlCatalog = request.app.state.catalog
    if isinstance(caller, JwtCaller):
        request.app.state.rates.count(f"principal {caller.principal}")
        request.scope["state"].update(principal=caller.principal)
        return catalog.acting_as(caller.principal, roles=caller.roles)
    uses: TokenUses = request.app.state.token_uses
    uses.note(caller)
    request.app.state.rates.count(f"token {caller.token_id}")
    request.scope["state"].update(principal=caller.principal, token_id=caller.token_id)
    return catalog.for_token(caller)


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
