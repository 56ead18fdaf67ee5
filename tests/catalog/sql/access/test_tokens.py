"""Which tokens a server accepts, and what the catalog keeps of them."""

import dataclasses
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.errors import NotAuthenticatedError
from tests.contracts.catalog_bench import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(now=1_000_000)


@pytest.fixture
def catalog(catalog_url: str, clock: Clock) -> Iterator[SqlCatalog]:
    with SqlCatalog(catalog_url, warehouse="memory://w", now_ms=clock) as catalog:
        yield catalog


def test_a_token_is_valid_until_it_expires(catalog: SqlCatalog, clock: Clock) -> None:
    created = catalog.tokens.create_token("etl", expires_in_ms=500)
    clock.now += 499
    assert catalog.tokens.authenticate(created.secret) == created.token
    clock.now += 1
    with pytest.raises(NotAuthenticatedError, match=f"The token {created.token.token_id} has expired"):
        catalog.tokens.authenticate(created.secret)


def test_a_revoked_or_unknown_token_is_refused(catalog: SqlCatalog) -> None:
    created = catalog.tokens.create_token("etl")
    catalog.tokens.revoke_token(created.token.token_id)
    with pytest.raises(NotAuthenticatedError, match="was revoked"):
        catalog.tokens.authenticate(created.secret)
    for secret in ("", "x", created.secret[:-1], f"{created.secret} ", "\udcff\0é" * 100):
        with pytest.raises(NotAuthenticatedError, match="does not know the token") as unknown:
            catalog.tokens.authenticate(secret)
        assert not secret or secret not in str(unknown.value)


def test_the_database_has_no_secret(catalog: SqlCatalog, catalog_url: str) -> None:
    secret = catalog.tokens.create_token("etl").secret
    engine = sa.create_engine(catalog_url)
    tables = sa.MetaData()
    tables.reflect(engine)
    with engine.connect() as connection:
        rows = [str(row) for table in tables.sorted_tables for row in connection.execute(table.select())]
    engine.dispose()
    assert any("etl" in row for row in rows)
    assert not any(secret in row or secret.removeprefix("cmd_") in row for row in rows)


def test_the_use_of_a_token_is_recorded_once_a_minute(catalog: SqlCatalog, clock: Clock) -> None:
    token = catalog.tokens.create_token("etl").token
    for used_ms, recorded_ms in ((70_000, 70_000), (129_999, 70_000), (130_000, 130_000), (80_000, 130_000)):
        catalog.tokens.record_uses({token.token_id: used_ms, "purged": used_ms})
        assert catalog.tokens.tokens() == (dataclasses.replace(token, last_used_ms=recorded_ms),)
