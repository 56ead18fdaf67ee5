"""Who sends a JWT of the identity provider (RFC 7519). The JWT is decided on once, when the request begins.

Nothing of a JWT is stored or logged, and messages have nothing of it.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import jwt

from cm_delta_dagster.catalog.sql.database.callers import checked_principal, checked_user
from cm_delta_dagster.errors import InvalidArgumentError, NotAuthenticatedError
from cm_delta_dagster.server.identity.key_cache import KeyCache
from cm_delta_dagster.server.identity.provider import IdentityProvider

MAX_CHARACTERS = 16 * 1024
"""Longer tokens are refused before anything of them is read."""

_REASONS: Mapping[type[jwt.PyJWTError], str] = {
    jwt.InvalidSignatureError: "has a wrong signature",
    jwt.InvalidIssuerError: "was issued by another issuer than the identity provider of the server",
    jwt.InvalidAudienceError: "is for another audience than this server",
}
_MAX_SECONDS = 253_402_300_799
"""The end of the year 9999, in seconds since the epoch."""
_MALFORMED = "is malformed, or lacks a field: iss, aud and exp are required"


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtCaller:
    """Who a valid JWT names.

    Attributes:
        principal: the name of the principal.
        roles: names that roles of the catalog can have, without prefix, sorted. Others have no grants, and are left out.
        expires_ms: epoch milliseconds.
    """

    principal: str
    roles: tuple[str, ...]
    expires_ms: int


class JwtVerifier:
    """Verifies the JWTs of one provider. Thread-safe.

    Args:
        clock: seconds that only grow, of the keys.
    """

    def __init__(self, provider: IdentityProvider, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._provider = provider
        self._keys = KeyCache(provider, clock=clock)

    def caller(self, token: str, *, now_ms: int) -> JwtCaller:
        """Who the JWT names, if it is valid now.

        Args:
            now_ms: epoch milliseconds, by the clock of the catalog.

        Raises:
            NotAuthenticatedError: it is not a valid JWT of the provider.
            CatalogUnavailableError: the keys of the provider cannot be read.
        """
        fields = self._verified(token)
        expires_ms = self._checked_end(fields, now_ms)
        try:
            principal = checked_user(_field(fields, self._provider.principal_field))
        except InvalidArgumentError:
            _refuse("has no name that a principal can have in the field that the server reads")
        roles = _field(fields, self._provider.roles_field, missing=[])
        if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
            _refuse("has roles that are not a list of texts in the field that the server reads")
        usable = {role for role in roles if _is_name(role)}
        return JwtCaller(principal=principal, roles=tuple(sorted(usable)), expires_ms=expires_ms)

    def _checked_end(self, fields: Mapping[str, Any], now_ms: int) -> int:
        """When the JWT expires, epoch milliseconds. Raises NotAuthenticatedError if it is not valid now."""
        skew_ms, expires_ms = int(self._provider.clock_skew_seconds * 1000), _milliseconds(fields["exp"])
        if expires_ms + skew_ms <= now_ms:
            _refuse("has expired")
        if any(_milliseconds(fields[name]) - skew_ms > now_ms for name in ("nbf", "iat") if name in fields):
            _refuse("is not valid yet")
        return expires_ms

    def _verified(self, token: str) -> dict[str, Any]:
        """The fields of a JWT of the provider for this server, valid now or at another time."""
        if len(token) > MAX_CHARACTERS:
            _refuse(f"is longer than {MAX_CHARACTERS} characters")
        provider = self._provider
        try:
            header = jwt.get_unverified_header(token)
            algorithm, identity = header.get("alg"), header.get("kid")
            if algorithm not in provider.algorithms:
                _refuse(
                    f"is not signed with one of the algorithms that the server accepts: {', '.join(provider.algorithms)}"
                )
            if identity is None:
                _refuse("names no key")
            key = self._keys.key(identity, algorithm)
            if key is None:
                _refuse("is signed with a key that the identity provider does not publish")
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=provider.issuer,
                audience=provider.audience,
                options={
                    "require": ["iss", "aud", "exp"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            _refuse(next((text for kind, text in _REASONS.items() if isinstance(error, kind)), _MALFORMED))


def _milliseconds(seconds: Any) -> int:
    """Of a time in a JWT, which is a number of seconds; a fraction of a second is cut off."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or (isinstance(seconds, float) and not math.isfinite(seconds)) or abs(seconds) > _MAX_SECONDS:
        _refuse(_MALFORMED)
    return int(seconds) * 1000


def _refuse(reason: str) -> NoReturn:
    raise NotAuthenticatedError(f"The token {reason}. Nothing was changed. Get a new token from the identity provider.")


def _field(fields: Mapping[str, Any], path: tuple[str, ...], *, missing: Any = None) -> Any:
    """The value at a path; ``missing`` if a field is not there, and None if an outer one is no object."""
    value: Any = fields
    for name in path:
        if not isinstance(value, Mapping):
            return None
        if name not in value:
            return missing
        value = value[name]
    return value


def _is_name(role: str) -> bool:
    try:
        checked_principal(role)
    except InvalidArgumentError:
        return False
    return True
