"""The standard metadata of a definition, before the first run."""

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration.assets.definition_metadata import definition_metadata
from cm_delta_dagster.orchestration.metadata.write_contract import NamingDefaults
from tests.orchestration.log_tables import SCHEMA


def test_a_definition_gets_table_name_and_kind_and_what_exists_of_the_table() -> None:
    plain = definition_metadata({}, asset_path=["sales", "orders"], names=NamingDefaults())
    assert plain == {"dagster/table_name": "main.sales.orders", "dagster/storage_kind": "deltalake"}
    full = definition_metadata(
        {"table": "s.t", "dagster/storage_kind": "mine"},
        asset_path=["x"],
        names=NamingDefaults(),
        location="file:///w/t",
        schema=SCHEMA,
    )
    assert (full["dagster/table_name"], full["dagster/uri"]) == ("main.s.t", "file:///w/t")
    assert [column.name for column in full["dagster/column_schema"].columns] == ["id"]
    assert "dagster/storage_kind" not in full


def test_a_misspelt_key_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="probably 'on' is meant"):
        definition_metadata({"merge_key": "id"}, asset_path=["t"], names=NamingDefaults())
