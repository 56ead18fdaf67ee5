"""The command ``cm-delta token``: tokens, with which callers of a server prove who they are."""

import re
from dataclasses import asdict

import click

from cm_delta_dagster.catalog.tokens import AccessToken
from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.printer import output, show, show_records

_UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_COLUMNS = "token_id principal scope access expires_ms last_used_ms revoked_ms created_by"


class _Lifetime(click.ParamType):  # type: ignore[type-arg]  # Generic since a recent click only.
    """A duration such as ``30d``, ``12h`` or ``90m`` in milliseconds, or ``never``, which is None."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        text = str(value).strip().lower()
        if text == "never":
            return None
        match = re.fullmatch(r"(\d{1,9})([mhd])", text, re.ASCII)
        if match is None or int(match[1]) == 0:
            self.fail(f"{value!r} is not a duration: write e.g. 30d, 12h, 90m, or never.", param, ctx)
        return int(match[1]) * _UNITS_MS[match[2]]


@click.group()
def token() -> None:
    """Create, list and revoke tokens of callers of a server."""


@token.command("create")
@click.option("--principal", required=True, help="User or pipeline whose privileges the token has.")
@click.option(
    "--expires", default="90d", show_default=True, type=_Lifetime(), help="How long it is valid: 30d, 12h, 90m, never."
)
@click.option("--read-only", is_flag=True, help="The token changes nothing.")
@click.option("--scope", default="*", show_default=True, help="Only for this catalog, schema or table.")
@output("an object with the attributes of AccessToken, and secret")
def create_token(principal: str, expires: int | None, read_only: bool, scope: str) -> None:
    """Create a token and show its secret, which cannot be shown again."""
    with open_catalog() as catalog:
        created = catalog.tokens.create_token(principal, expires_in_ms=expires, read_only=read_only, scope=scope)
    show({**asdict(created.token), "secret": created.secret}, created.secret)


@token.command("list")
@output("an array with the attributes of each AccessToken")
def list_tokens() -> None:
    """List all tokens without their secrets, with about when each was used last."""
    with open_catalog() as catalog:
        show_records(catalog.tokens.tokens(), _COLUMNS, empty="There is no token.", access=_access)


@token.command("revoke")
@click.argument("token_id")
@click.option("--reason", default="", help="Reason, for the audit.")
@output("an object with the attributes of AccessToken")
def revoke_token(token_id: str, reason: str) -> None:
    """Refuse the token TOKEN_ID from now on."""
    with open_catalog() as catalog:
        revoked = catalog.tokens.revoke_token(token_id, reason=reason)
    show(revoked, f"The token {revoked.token_id} of {revoked.principal} is revoked.")


def _access(record: AccessToken) -> str:
    return "read-only" if record.read_only else "all"
