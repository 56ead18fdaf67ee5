"""What a catalog on SQLite answers if its copy of the metadata or the protocol of a table cannot be read."""

import sqlite3
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.schema import DEFINITIONS
from cm_delta_dagster.catalog.sql.rows import definitions
from tests.contracts.catalog_bench import NAME, defined
from tests.support.log_records import messages_of


@pytest.mark.parametrize("column", ["metadata", "protocol"])
@pytest.mark.parametrize("text", ["", "{", '{"metaData":5}', '{"commitInfo":{}}'])
def test_a_damaged_copy_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, column: str, text: str
) -> None:
    """Clients read both actions from the log then."""
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse="memory://w") as catalog:
        defined(catalog)
        assert catalog.registry.load_table(NAME).definition is not None
        with sqlite3.connect(tmp_path / "catalog.db") as connection:
            connection.execute(f"UPDATE {DEFINITIONS.name} SET {column} = ?", (text,))
        assert catalog.registry.load_table(NAME).definition is None
    (message,) = messages_of(caplog, definitions)
    assert "is damaged; clients read them from the log" in message
