"""Tokens, with which callers of a server prove who they are, and the interface to them.

A token is a secret text that its creator sees once; the catalog keeps a digest of it. It names a principal, whose privileges it
has, or fewer: it can be read-only, and limited to a scope.
"""

import typing
from collections.abc import Sequence
from dataclasses import dataclass, field

from cm_delta_dagster.catalog.access import WHOLE_CATALOG

SECRET_PREFIX = "cmd_"
"""How each secret begins: programs that look for secrets in texts recognize it, and a server tokens of its catalog."""

USE_INTERVAL_MS = 60_000
"""How often the use of a token is recorded at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """A token without its secret. Times are epoch milliseconds by the catalog's clock.

    Attributes:
        token_id: names the token in lists, in the audit and in logs.
        principal: the caller that the token proves.
        created_by: principal of the creator; None if it stated none.
        expires_ms: from then on the token is refused; None for a token that does not expire.
        revoked_ms: since when it is refused; None for one that is not revoked.
        last_used_ms: a recent use, about a minute before the last one or later; None for a token that was not used.
        read_only: whether the caller may only read.
        scope: ``*``, ``catalog``, ``catalog.schema`` or ``catalog.schema.table``: where the caller has its privileges.
        table_id: of the table, for the scope of a table, which the token follows when the table is renamed.
    """

    token_id: str
    principal: str
    created_ms: int
    created_by: str | None = None
    expires_ms: int | None = None
    revoked_ms: int | None = None
    last_used_ms: int | None = None
    read_only: bool = False
    scope: str = WHOLE_CATALOG
    table_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedToken:
    """A new token with its secret, which cannot be shown again."""

    token: AccessToken
    secret: str = field(repr=False)


class Tokens(typing.Protocol):
    """The tokens of a catalog. Changes are entries of the audit.

    Methods raise OperationRefusedError if the caller does not have the privilege ``own`` on ``*``.
    """

    def create_token(
        self, principal: str, *, expires_in_ms: int | None = None, read_only: bool = False, scope: str = WHOLE_CATALOG
    ) -> CreatedToken:
        """Create a token of ``principal``.

        Args:
            principal: a user or a pipeline, not a role.
            expires_in_ms: the time that it is valid; None for a token that does not expire.
            read_only: True for a token that changes nothing.
            scope: where the token is valid, as for grants.

        Raises:
            InvalidArgumentError: an impossible name, duration or scope.
            TableNotFoundError: there is no such table.
        """
        ...

    def tokens(self) -> Sequence[AccessToken]:
        """All tokens, also expired and revoked ones, the oldest first."""
        ...

    def revoke_token(self, token_id: str, *, reason: str = "") -> AccessToken:
        """Refuse the token from now on; no effect on one that is revoked. Raises InvalidArgumentError for an unknown id."""
        ...
