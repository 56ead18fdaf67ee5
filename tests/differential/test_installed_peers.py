"""The environments of peers hold what is listed, and the packages in them work."""

from pathlib import Path

import pytest

from tests.differential.other_readers import duckdb_answers
from tests.support.cached_folders import or_skip
from tests.support.peer_environments import peer_environment, pinned_packages

pytestmark = [pytest.mark.slow, pytest.mark.peers]

_PROGRAMS = Path(__file__).parent
MODULES = {
    "duckdb": ["duckdb", "duckdb_extension_delta", "duckdb_extension_httpfs", "duckdb_extension_unity_catalog"],
    "iceberg": ["pyiceberg.catalog.rest", "pyiceberg.io.pyarrow"],
    "no-packages": [],
    "sail": ["pysail.spark"],
    "schemathesis": ["schemathesis.cli"],
    "unitycatalog": ["unitycatalog.client", "unitycatalog.delta.models.delta_protocol"],
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODULES)
def test_an_environment_has_the_listed_packages_and_no_others(name: str) -> None:
    environment = or_skip(peer_environment, name)
    answer = environment.run_json(_PROGRAMS / "imports_program.py", MODULES[name])
    assert sorted("==".join(item) for item in answer["versions"].items()) == sorted(pinned_packages()[name])


def test_every_environment_is_tested() -> None:
    assert set(MODULES) == set(pinned_packages())


def test_pyiceberg_answers_in_arrow() -> None:
    rows = [{"id": 1, "name": "one"}, {"id": 2, "name": None}]
    table = or_skip(peer_environment, "iceberg").run_arrow(_PROGRAMS / "iceberg_program.py", rows)
    assert table.to_pylist() == rows
    assert table.schema.field("id").metadata == {b"PARQUET:field_id": b"1"} and not table.schema.field("id").nullable


def test_duckdb_loads_its_extensions_and_keeps_a_ducklake(tmp_path: Path) -> None:
    names = ("delta", "unity_catalog", "httpfs", "ducklake")
    loaded, *_, rows = or_skip(
        duckdb_answers,
        "SELECT extension_name AS name FROM duckdb_extensions() WHERE loaded AND NOT installed",
        f"ATTACH 'ducklake:{tmp_path}/lake.ducklake' AS lake (DATA_PATH '{tmp_path}/data', DATA_INLINING_ROW_LIMIT 0)",
        "CREATE TABLE lake.t AS SELECT range AS id FROM range(3)",
        "SELECT id FROM lake.t ORDER BY id",
        extensions=names,
    )
    assert sorted(row["name"] for row in loaded) == sorted(names)
    assert rows == [{"id": 0}, {"id": 1}, {"id": 2}]
    assert list((tmp_path / "data").rglob("*.parquet"))
