"""Tokens, of which the database has the digest. A secret is 32 random bytes, so that its digest needs no salt."""

import hashlib
import re
import secrets
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import WHOLE_CATALOG
from cm_delta_dagster.catalog.durations import is_duration
from cm_delta_dagster.catalog.sql.access import audit, guard
from cm_delta_dagster.catalog.sql.access.audit import Change
from cm_delta_dagster.catalog.sql.access.grants import scope_of
from cm_delta_dagster.catalog.sql.database.callers import caller_of, checked_user, now_of
from cm_delta_dagster.catalog.sql.database.parts import Part, reads, writes
from cm_delta_dagster.catalog.sql.database.prepared import Prepared
from cm_delta_dagster.catalog.sql.database.schema import NAME_COLUMNS, TABLES, TOKENS, identifier_of
from cm_delta_dagster.catalog.texts import checked_reason
from cm_delta_dagster.catalog.tokens import SECRET_PREFIX, USE_INTERVAL_MS, AccessToken, CreatedToken
from cm_delta_dagster.errors import InvalidArgumentError, NotAuthenticatedError

_UNKNOWN = "The catalog does not know the token. Ask an owner of the catalog for a new one."
_ID = re.compile("[0-9a-f]{12}")

_TOKEN = (
    sa.select(*(column for column in TOKENS.c if column.name != "digest"), *NAME_COLUMNS)
    .select_from(TOKENS.outerjoin(TABLES, TABLES.c.table_id == TOKENS.c.table_id))
    .order_by(TOKENS.c.created_ms, TOKENS.c.token_id)
)
_OF_DIGEST = Prepared(_TOKEN.where(TOKENS.c.digest == sa.bindparam("of_digest")))
_OF_ID = _TOKEN.where(TOKENS.c.token_id == sa.bindparam("of_id"))
_REVOKE = sa.update(TOKENS).where(TOKENS.c.token_id == sa.bindparam("of_id"), TOKENS.c.revoked_ms.is_(None))
_RECORD_USE = (
    sa.update(TOKENS)
    .where(
        TOKENS.c.token_id == sa.bindparam("of_id"),
        sa.func.coalesce(TOKENS.c.last_used_ms, 0) <= sa.bindparam("used_ms") - USE_INTERVAL_MS,
    )
    .values(last_used_ms=sa.bindparam("used_ms"))
)


class SqlTokens(Part):
    """Implements :class:`~cm_delta_dagster.catalog.tokens.Tokens`, and finds whose secret a server got."""

    @writes
    def create_token(
        self,
        connection: sa.Connection,
        principal: str,
        *,
        expires_in_ms: int | None = None,
        read_only: bool = False,
        scope: str = WHOLE_CATALOG,
    ) -> CreatedToken:
        """Create a token. Raises InvalidArgumentError, TableNotFoundError, OperationRefusedError."""
        principal = checked_user(principal)
        if expires_in_ms is not None and not is_duration(expires_in_ms, at_least=1):
            raise InvalidArgumentError(
                f"A token cannot expire after {expires_in_ms} milliseconds; give a positive duration of at most a hundred years."
            )
        guard.require(connection, guard.Operation.MANAGE_TOKENS, WHOLE_CATALOG)
        place = scope_of(connection, scope)
        secret = f"{SECRET_PREFIX}{secrets.token_urlsafe(32)}"
        now_ms = now_of(connection)
        token = AccessToken(
            token_id=secrets.token_hex(6),
            principal=principal,
            created_ms=now_ms,
            created_by=caller_of(connection),
            expires_ms=None if expires_in_ms is None else now_ms + expires_in_ms,
            read_only=bool(read_only),
            scope=place.name,
            table_id=place.table_id,
        )
        connection.execute(
            sa.insert(TOKENS).values(
                token_id=token.token_id,
                digest=_digest(secret),
                principal=principal,
                created_ms=now_ms,
                created_by=token.created_by,
                expires_ms=token.expires_ms,
                read_only=int(token.read_only),
                scope=token.scope,
                table_id=token.table_id,
            )
        )
        audit.record(connection, Change(action="create token", scope=WHOLE_CATALOG, after=_description(token)))
        return CreatedToken(token=token, secret=secret)

    @reads
    def tokens(self, connection: sa.Connection) -> tuple[AccessToken, ...]:
        """All tokens. Raises OperationRefusedError."""
        guard.require(connection, guard.Operation.MANAGE_TOKENS, WHOLE_CATALOG)
        return tuple(map(_token, connection.execute(_TOKEN)))

    @writes
    def revoke_token(self, connection: sa.Connection, token_id: str, *, reason: str = "") -> AccessToken:
        """Refuse a token. Raises InvalidArgumentError, OperationRefusedError."""
        reason = checked_reason(reason)
        guard.require(connection, guard.Operation.MANAGE_TOKENS, WHOLE_CATALOG)
        values = {"revoked_ms": now_of(connection)}
        is_id = isinstance(token_id, str) and _ID.fullmatch(token_id) is not None
        is_revoked = is_id and connection.execute(_REVOKE.values(values), {"of_id": token_id}).rowcount > 0
        row = connection.execute(_OF_ID, {"of_id": token_id}).one_or_none() if is_id else None
        if row is None:
            raise InvalidArgumentError(f"There is no token {token_id!r}; list the tokens. Nothing was changed.")
        token = _token(row)
        if is_revoked:
            change = Change(action="revoke token", scope=WHOLE_CATALOG, before=_description(token), reason=reason)
            audit.record(connection, change)
        return token

    @reads
    def authenticate(self, connection: sa.Connection, secret: str) -> AccessToken:
        """The token with this secret, in one statement. Raises NotAuthenticatedError for one that is not valid now.

        Who calls a server cannot do that: the answer is whose token it is.
        """
        rows = _OF_DIGEST.rows(connection, {"of_digest": _digest(secret)})
        if not rows:
            raise NotAuthenticatedError(_UNKNOWN)
        return _in_use(_token(rows[0]), now_ms=now_of(connection))

    @reads
    def token_in_use(self, connection: sa.Connection, token_id: str) -> AccessToken:
        """The token with this id, for a session that its secret has begun. Raises as :meth:`authenticate`."""
        row = connection.execute(_OF_ID, {"of_id": token_id}).one_or_none()
        if row is None:
            raise NotAuthenticatedError(_UNKNOWN)
        return _in_use(_token(row), now_ms=now_of(connection))

    @writes
    def record_uses(self, connection: sa.Connection, uses: Mapping[str, int]) -> None:
        """Record when tokens were used, epoch milliseconds by id; no effect within a minute of the recorded use."""
        for token_id, used_ms in sorted(uses.items()):
            connection.execute(_RECORD_USE, {"of_id": token_id, "used_ms": used_ms})


def _in_use(token: AccessToken, *, now_ms: int) -> AccessToken:
    """The token, if it is valid now. Raises NotAuthenticatedError."""
    if token.revoked_ms is not None:
        raise NotAuthenticatedError(
            f"The token {token.token_id} was revoked. Ask an owner of the catalog for a new one."
        )
    if token.expires_ms is not None and token.expires_ms <= now_ms:
        raise NotAuthenticatedError(
            f"The token {token.token_id} has expired. Ask an owner of the catalog for a new one."
        )
    return token


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _token(row: Any) -> AccessToken:
    is_table = row.table_id is not None and row.table_name is not None
    return AccessToken(
        token_id=row.token_id,
        principal=row.principal,
        created_ms=row.created_ms,
        created_by=row.created_by,
        expires_ms=row.expires_ms,
        revoked_ms=row.revoked_ms,
        last_used_ms=row.last_used_ms,
        read_only=bool(row.read_only),
        scope=str(identifier_of(row)) if is_table else row.scope,
        table_id=row.table_id,
    )


def _description(token: AccessToken) -> str:
    """What the audit says of a token."""
    limits = [f"limited to {token.scope}"] if token.scope != WHOLE_CATALOG else []
    limits += ["read-only"] if token.read_only else []
    return ", ".join([f"token {token.token_id} of {token.principal}", *limits])
