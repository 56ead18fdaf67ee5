"""Roles of a PostgreSQL server, and clients that log in as them."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import sqlalchemy as sa


def create_role(url: str, name: str) -> str:
    """Create a role that may log in. Returns its name, which is unique on the server."""
    role = f"{name}_{uuid.uuid4().hex[:8]}"
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text(f"CREATE ROLE {role} LOGIN"))
    return role


def url_as(url: str, role: str) -> str:
    """The URL of the same database for a client that logs in as ``role``."""
    return sa.make_url(url).set(username=role).render_as_string(hide_password=False)


@contextmanager
def raw_client(url: str, role: str) -> Iterator[Any]:
    """A connection of a client that does not use this package."""
    plain = sa.make_url(url_as(url, role)).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        yield connection
