"""What messages show of the URL of a catalog and of the values in its statements."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.backup import dump_command
from cm_delta_dagster.catalog.sql.database.engines import parsed_url, sqlite_engine, without_secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:s3cr3t@host/base", "postgresql://u:***@host/base"),
        ("postgresql://u@host/base?password=s3cr3t", "postgresql://u@host/base?password=***"),
        ("postgresql://u@host/base?sslpassword=s3cr3t", "postgresql://u@host/base?sslpassword=***"),
        (
            "postgresql://u@host/base?options=s3cr3t&sslmode=require",
            "postgresql://u@host/base?options=***&sslmode=require",
        ),
        ("sqlite:////a/c.db?key=s3cr3t", "sqlite:////a/c.db?key=***"),
        ("sqlite:////a/c.db?cipher_key=s3cr3t&timeout=5", "sqlite:////a/c.db?cipher_key=***&timeout=5"),
        ("sqlite:////a/c.db?x=s3cr3t&x=s3cr3t", "sqlite:////a/c.db?x=***"),
    ],
)
def test_parameters_of_a_url_are_shown_only_if_they_are_known(url: str, shown: str) -> None:
    assert without_secrets(parsed_url(url)) == shown
    assert "s3cr3t" not in repr(SqlCatalog(url))


def test_a_dump_command_has_only_known_parameters() -> None:
    url = sa.make_url("postgresql+psycopg://u@host/base?sslpassword=s3cr3t&own=s3cr3t&sslmode=require")
    command = dump_command(url, Path("a.dump"))
    assert "s3cr3t" not in command and "sslmode=require" in command
    assert "The parameters own, sslpassword are left out, because they may be secrets" in command


def test_a_failed_statement_does_not_show_its_values(tmp_path: Path) -> None:
    engine = sqlite_engine(parsed_url(f"sqlite:///{tmp_path}/c.db"))
    with engine.connect() as connection, pytest.raises(sa.exc.OperationalError) as failed:
        connection.execute(sa.text("INSERT INTO nothing VALUES (:value)"), {"value": "s3cr3t"})
    assert "s3cr3t" not in str(failed.value) and "SQL parameters hidden" in str(failed.value)
    engine.dispose()
