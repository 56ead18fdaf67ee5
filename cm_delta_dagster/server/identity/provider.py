"""The settings of an identity provider."""

from enum import StrEnum
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from cm_delta_dagster.server.hosts import is_loopback


class SignatureAlgorithm(StrEnum):
    """How a JWT may be signed: with a private key, of which the server has the public one. Shared secrets are none of these."""

    RS256 = "RS256"
    RS384 = "RS384"
    RS512 = "RS512"
    PS256 = "PS256"
    PS384 = "PS384"
    PS512 = "PS512"
    ES256 = "ES256"
    ES384 = "ES384"
    ES512 = "ES512"
    EDDSA = "EdDSA"


def is_url(source: str) -> bool:
    """Whether keys are read from a URL, and not from a file."""
    return "://" in source


def _checked_source(source: str) -> str:
    if not is_url(source):
        return source
    parts = urlsplit(source)
    host = parts.hostname or ""
    if not host or parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError("The URL has no host, or more than a host, a path and a query.")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise ValueError("The keys would be read without TLS: give a URL with https, or the path of a file.")
    return source


def _as_path(names: Any) -> Any:
    return (names,) if isinstance(names, str) else names


JwtFieldPath: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_as_path), Field(min_length=1)]
"""Where a value is in a JWT: the name of a field, or the names from the outermost object to it."""


class IdentityProvider(BaseModel):
    """An identity provider whose JWTs the server accepts.

    Attributes:
        issuer: the field ``iss`` of its JWTs.
        audience: what the field ``aud`` has for this server, alone or in a list.
        jwks: where its public keys are (JWKS): a URL with ``https``, ``http`` for this machine only, or the path of a file.
        principal_field: the field that names the principal, a text.
        roles_field: the field that names the roles, a list of texts; a JWT without it has no roles.
        algorithms: those that a JWT may be signed with.
        clock_skew_seconds: by how much the clocks of the provider and of the server may differ.
        jwks_refresh_seconds: after this time the keys are read again.
        jwks_max_age_seconds: while the keys cannot be read again, those that were read last are used for this time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    issuer: str = Field(min_length=1)
    audience: str = Field(min_length=1)
    jwks: Annotated[str, Field(min_length=1), AfterValidator(_checked_source)]
    principal_field: JwtFieldPath = ("sub",)
    roles_field: JwtFieldPath = ("roles",)
    algorithms: tuple[SignatureAlgorithm, ...] = Field(
        default=(SignatureAlgorithm.RS256, SignatureAlgorithm.ES256), min_length=1
    )
    clock_skew_seconds: float = Field(default=60, ge=0, le=600)
    jwks_refresh_seconds: float = Field(default=300, gt=0)
    jwks_max_age_seconds: float = Field(default=3600, gt=0)

    @model_validator(mode="after")
    def _check_ages(self) -> "IdentityProvider":
        if self.jwks_max_age_seconds < self.jwks_refresh_seconds:
            raise ValueError("jwks_max_age_seconds is less than jwks_refresh_seconds.")
        return self
