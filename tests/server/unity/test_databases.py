"""Unity Catalog's API on each kind of database."""

import pytest

from tests.server.unity.test_commits import error_of
from tests.support.live_server import LiveServer
from tests.support.unity_wire import UnityWire, add_action, stage
from tests.support.waiting import until


def test_a_table_is_created_written_loaded_renamed_and_dropped_on_each_database(server: LiveServer) -> None:
    wire = UnityWire(server)
    loaded = wire.create("t")
    staged = stage(loaded, add_action("a.parquet"))
    assert [wire.commit("t", staged).status_code for _ in range(2)] == [200, 200]
    assert error_of(wire.commit("t", stage(loaded, add_action("b.parquet")))) == (409, "CommitVersionConflictException")
    until(lambda: wire.load("t")["commits"] == [])
    assert wire.load("t")["latest-table-version"] == 1
    listed = wire.older("GET", "tables", catalog_name="main", schema_name="s").json()["tables"]
    assert [table["name"] for table in listed] == ["t"]
    assert wire.table("POST", "t/rename", {"new-name": "u"}).status_code == 204
    assert wire.table("DELETE", "u").status_code == 204
    wire.http.close()


@pytest.mark.parametrize("name", ["a%00b", "%ED%A0%80", "%FF", "a" * 5000, "..", "%2E%2E"])
def test_impossible_names_are_refused_on_each_database(server: LiveServer, name: str) -> None:
    wire = UnityWire(server)
    wire.create("t")
    for path in (
        f"delta/v1/catalogs/main/schemas/s/tables/{name}",
        f"delta/v1/catalogs/{name}/schemas/s/tables/t",
        f"tables/main.s.{name}",
        f"tables/{name}.s.t",
        f"schemas/main.{name}",
        f"schemas?catalog_name={name}",
        f"tables?catalog_name=main&schema_name={name}",
    ):
        assert wire.http.get(f"/api/2.1/unity-catalog/{path}").status_code in (400, 404), path
    assert wire.delta("POST", "catalogs/main/schemas/s/staging-tables", {"name": "a\0b"}).status_code in (400, 404)
    wire.http.close()
