"""Contract of ``Tokens``: who may create, list and revoke them, and what of them is shown.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import pytest

from cm_delta_dagster.catalog.durations import LONGEST_MS
from cm_delta_dagster.errors import InvalidArgumentError, OperationRefusedError, TableNotFoundError
from tests.contracts.access_control_contract import principal_of
from tests.contracts.catalog_bench import NAME, OTHER, Bench, Rule, create


def a_token_has_its_secret_only_when_it_is_created(bench: Bench) -> None:
    with bench.client_of("owner") as owner:
        create(owner)
        bench.clock.now = 1000
        created = owner.tokens.create_token("etl", expires_in_ms=500)
        bench.clock.now = 2000
        limited = owner.tokens.create_token("ana", read_only=True, scope=str(NAME))
        assert len(created.secret) > 40 and created.secret != limited.secret
        assert created.secret not in repr(created) and created.secret not in repr(owner.tokens.tokens())
        first, second = owner.tokens.tokens()
        assert (first, second) == (created.token, limited.token)
        assert (first.principal, first.created_ms, first.expires_ms) == ("etl", 1000, 1500)
        assert (first.created_by, first.read_only, first.scope) == (principal_of(owner), False, "*")
        assert (second.expires_ms, second.read_only, second.scope) == (None, True, str(NAME))
        assert first.last_used_ms is None and first.revoked_ms is None
        details = [entry.after for entry in owner.audit_log.audit(limit=2)]
        assert details == [
            f"token {first.token_id} of etl",
            f"token {second.token_id} of ana, limited to {NAME}, read-only",
        ]
        assert created.secret not in repr(owner.audit_log.audit())


def a_revoked_token_stays_in_the_list(bench: Bench) -> None:
    with bench.client_of("owner") as owner:
        token = owner.tokens.create_token("etl").token
        bench.clock.now = 3000
        assert owner.tokens.revoke_token(token.token_id, reason="left").revoked_ms == 3000
        bench.clock.now = 4000
        assert owner.tokens.revoke_token(token.token_id).revoked_ms == 3000
        assert [entry.revoked_ms for entry in owner.tokens.tokens()] == [3000]
        (entry,) = owner.audit_log.audit(limit=1)
        assert (entry.action, entry.before, entry.reason) == ("revoke token", f"token {token.token_id} of etl", "left")
        with pytest.raises(InvalidArgumentError, match="There is no token 'none'"):
            owner.tokens.revoke_token("none")


def tokens_require_the_privilege_own_on_everything(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("ana") as ana:
        token_id = owner.tokens.create_token("etl").token.token_id
        owner.access.enable_grants()
        for call in (
            lambda: ana.tokens.create_token("owner"),
            ana.tokens.tokens,
            lambda: ana.tokens.revoke_token(token_id),
        ):
            with pytest.raises(OperationRefusedError, match=r"The operation manage tokens on \*"):
                call()
        assert [token.revoked_ms for token in owner.tokens.tokens()] == [None]


def a_token_of_a_table_shows_the_current_name_of_the_table(bench: Bench) -> None:
    with bench.client_of("owner") as owner:
        table_id = create(owner).table_id
        owner.tokens.create_token("etl", scope=str(NAME))
        owner.registry.rename_table(table_id, OTHER)
        (token,) = owner.tokens.tokens()
        assert (token.scope, token.table_id) == (str(OTHER), table_id)


def an_impossible_token_is_refused(bench: Bench) -> None:
    with bench.client_of("owner") as owner:
        for principal in ("", " a", "a\n", "role:public", "user:ana"):
            with pytest.raises(InvalidArgumentError):
                owner.tokens.create_token(principal)
        for duration in (0, -1, LONGEST_MS + 1):
            with pytest.raises(InvalidArgumentError, match="cannot expire after"):
                owner.tokens.create_token("etl", expires_in_ms=duration)
        with pytest.raises(InvalidArgumentError):
            owner.tokens.create_token("etl", scope="a.b.c.d")
        with pytest.raises(TableNotFoundError):
            owner.tokens.create_token("etl", scope=str(NAME))
        assert owner.tokens.tokens() == ()


TOKENS_CONTRACT: tuple[Rule, ...] = (
    a_token_has_its_secret_only_when_it_is_created,
    a_revoked_token_stays_in_the_list,
    tokens_require_the_privilege_own_on_everything,
    a_token_of_a_table_shows_the_current_name_of_the_table,
    an_impossible_token_is_refused,
)
