"""URLs and SQLAlchemy engines of catalog databases.

Connections to SQLite are set up so that a committed transaction survives a crash; ``postgres_session`` checks this for PostgreSQL.
"""

import os
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

from cm_delta_dagster.catalog.similar_names import did_you_mean, similar_names
from cm_delta_dagster.catalog.sql.database.postgres_session import DatabaseClock
from cm_delta_dagster.errors import CatalogNotFoundError, CatalogUnavailableError, InvalidArgumentError

DEFAULT_DIRECTORY = "cm_delta"
"""Directory of the default catalog, in the working directory."""

_BUSY_TIMEOUT_S = 30
_CONNECT_TIMEOUT_S = 10
_HIDDEN = "***"
_PUBLIC_PARAMETERS = frozenset(
    {
        *("host", "hostaddr", "port", "dbname", "user", "application_name", "client_encoding", "connect_timeout"),
        *(
            "sslmode",
            "sslrootcert",
            "sslcert",
            "sslkey",
            "sslcrl",
            "sslsni",
            "channel_binding",
            "gssencmode",
            "krbsrvname",
        ),
        *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"),
        *("target_session_attrs", "load_balance_hosts", "timeout", "check_same_thread", "mode", "cache", "uri"),
    }
)
"""Parameters of URLs whose values are shown. Others may hold a secret, such as the key of an encrypted database."""


def parsed_url(text: str) -> sa.URL:
    """The URL with the driver of this package, and the absolute path of a SQLite file. Raises InvalidArgumentError."""
    try:
        url = sa.make_url(text)
    except sa.exc.ArgumentError:
        # The URL may contain a password: the message shows neither it nor SQLAlchemy's message.
        raise InvalidArgumentError(
            "The catalog URL cannot be parsed: write sqlite:////absolute/path.db or postgresql://user:password@host/database."
        ) from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite":
        url = url.set(drivername="sqlite+pysqlite")
    if url.drivername not in ("sqlite+pysqlite", "postgresql+psycopg"):
        raise InvalidArgumentError(
            f"The catalog URL asks for {url.drivername!r}; supported are sqlite (one machine) "
            "and postgresql+psycopg (shared)."
        )
    if url.get_backend_name() == "sqlite":
        if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
            raise InvalidArgumentError(
                "A SQLite catalog needs a plain file, because several processes share it: sqlite:////absolute/path.db."
            )
        url = url.set(database=os.path.abspath(url.database))
    return url


def without_secrets(url: sa.URL) -> str:
    """The URL for messages, with ``***`` in place of what may be a secret, and without the name of the driver."""
    hidden = dict.fromkeys(hidden_parameters(url), _HIDDEN)
    shown = url.set(drivername=url.get_backend_name()).update_query_dict(hidden)
    # SQLAlchemy writes asterisks of parameters percent-encoded.
    return shown.render_as_string(hide_password=True).replace(f"={quote(_HIDDEN)}", f"={_HIDDEN}")


def hidden_parameters(url: sa.URL) -> list[str]:
    """Names of the parameters whose values are not shown."""
    return sorted(url.query.keys() - _PUBLIC_PARAMETERS)


def _check_directory(url: sa.URL) -> None:
    """Refuse a directory that does not exist: it may be mistyped. Only that of the default catalog is created."""
    directory = Path(str(url.database)).parent
    if directory.name == DEFAULT_DIRECTORY and directory.parent.is_dir():
        try:
            directory.mkdir(exist_ok=True)
        except OSError as error:
            raise CatalogUnavailableError(
                f"The directory of the catalog {without_secrets(url)} could not be created: {error}. "
                "Check the URL and the permissions."
            ) from error
    if directory.is_dir():
        return
    if directory.exists() or not directory.is_absolute():
        raise CatalogUnavailableError(
            f"The catalog {without_secrets(url)} cannot be used: {directory} is not a directory. Check the URL."
        )
    parent = next(ancestor for ancestor in directory.parents if ancestor.is_dir())
    missing = directory.relative_to(parent).parts[0]
    try:
        near = similar_names(missing, [entry.name for entry in parent.iterdir() if entry.is_dir()])
    except OSError:
        near = ()
    raise CatalogNotFoundError(
        f"The catalog {without_secrets(url)} was not created: {parent} has no directory {missing!r}.{did_you_mean(near)} Check the "
        f"URL, or create the directory: mkdir -p {shlex.quote(str(directory))}."
    )


def sqlite_engine(url: sa.URL) -> sa.Engine:
    """An engine with one connection, whose commits are durable. Raises CatalogNotFoundError, CatalogUnavailableError."""
    _check_directory(url)
    engine = sa.create_engine(
        url,
        hide_parameters=True,  # Messages of SQLAlchemy quote them otherwise: texts of users.
        poolclass=sa.pool.QueuePool,
        pool_size=1,
        max_overflow=0,
        connect_args={"timeout": _BUSY_TIMEOUT_S, "check_same_thread": False, "isolation_level": None},
    )

    @sa.event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    return engine


def postgresql_engine(
    url: sa.URL,
    clock: DatabaseClock,
    *,
    isolation_level: sa.engine.interfaces.IsolationLevel = "AUTOCOMMIT",
    size: int = 5,
    overflow: int = 15,
    wait_seconds: float = 30,
) -> sa.Engine:
    """An engine with a connection pool; ``clock`` prepares each connection.

    Args:
        size, overflow: connections that the pool keeps, and further ones under load.
        wait_seconds: how long a caller waits for a connection of the pool.
    """
    arguments: dict[str, Any] = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_TIMEOUT_S}
    engine = sa.create_engine(
        url,
        hide_parameters=True,
        isolation_level=isolation_level,
        pool_size=size,
        max_overflow=overflow,
        pool_timeout=wait_seconds,
        connect_args=arguments,
    )

    sa.event.listen(engine, "connect", clock.prepare)
    return engine
