"""Clustering columns in the metadata domain ``delta.clustering``."""

import json

import pytest

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.actions import DomainMetadata
from cm_delta_dagster.protocol.features.clustering import (
    DOMAIN,
    clustering_columns,
    clustering_domain,
    physical_path,
    stored_clustering_columns,
)
from cm_delta_dagster.protocol.features.column_mapping import PHYSICAL_NAME, ColumnMappingMode
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType


def _field(name: str, stored: str, type_: object = LONG) -> StructField:
    return StructField(name, type_, True, {PHYSICAL_NAME: stored})  # type: ignore[arg-type]


SCHEMA = StructType((_field("a", "col-1"), _field("s", "col-2", StructType((_field("x.y", "col-3"),)))))


def _domains(configuration: str, *, removed: bool = False) -> dict[str, DomainMetadata]:
    return {DOMAIN: DomainMetadata(domain=DOMAIN, configuration=configuration, removed=removed)}


@pytest.mark.requirements("CLUST-2")
def test_columns_are_written_as_paths_of_physical_names() -> None:
    paths = [physical_path(path, SCHEMA, ColumnMappingMode.NAME) for path in (("s", "x.y"), ("a",))]
    domain = clustering_domain(paths)
    assert domain.domain == "delta.clustering"
    assert json.loads(domain.configuration) == {"clusteringColumns": [["col-2", "col-3"], ["col-1"]]}
    assert clustering_columns({DOMAIN: domain}, SCHEMA, ColumnMappingMode.NAME) == (("s", "x.y"), ("a",))


@pytest.mark.requirements("CLUST-2")
def test_flat_names_are_read_as_top_level_columns() -> None:
    found = stored_clustering_columns(_domains('{"clusteringColumns":["a.b","c"],"domainName":"delta.clustering"}'))
    assert found == (("a.b",), ("c",))


def test_a_table_without_the_domain_or_with_an_empty_list_has_no_columns() -> None:
    assert stored_clustering_columns({}) == ()
    assert stored_clustering_columns(_domains('{"clusteringColumns":[]}')) == ()
    assert stored_clustering_columns(_domains("{}", removed=True)) == ()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"clusteringColumns":[[]]}', '{"clusteringColumns":[[1]]}'])
def test_a_damaged_domain_is_an_error(text: str) -> None:
    with pytest.raises(CorruptLogError, match=r"delta.clustering.*damaged"):
        stored_clustering_columns(_domains(text))


def test_a_column_that_the_schema_lacks_is_an_error() -> None:
    with pytest.raises(CorruptLogError, match="'gone'"):
        clustering_columns(_domains('{"clusteringColumns":[["gone"]]}'), SCHEMA, ColumnMappingMode.NONE)
