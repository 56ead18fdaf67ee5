"""Metadata with which no row of a table can be read."""

from dataclasses import replace

import pytest

from cm_delta_dagster.errors import CorruptLogError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.action_fields import NO_SCHEMA
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.features.metadata_validation import check_metadata
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType, schema_to_json

SCHEMA = StructType((StructField("a", LONG), StructField("b", LONG)))
GOOD = Metadata(id="i", schema_string=schema_to_json(SCHEMA), partition_columns=("a",))


def test_metadata_whose_partition_columns_are_columns_is_accepted() -> None:
    for columns in ((), ("a",), ("b", "a")):
        check_metadata(replace(GOOD, partition_columns=columns), "t")


@pytest.mark.parametrize(
    ("metadata", "field", "why"),
    [
        (replace(GOOD, schema_string=NO_SCHEMA), "schemaString", "it is missing"),
        (replace(GOOD, schema_string="5"), "schemaString", ""),
        (
            replace(GOOD, partition_columns=("a", "c")),
            "partitionColumns",
            "must be different columns of the schema, a, b",
        ),
        (replace(GOOD, partition_columns=("a", "a")), "partitionColumns", "the partition columns are a, a"),
    ],
)
def test_damaged_metadata_is_refused_with_its_field_and_version(metadata: Metadata, field: str, why: str) -> None:
    for version, commit in ((None, ""), (0, " of the commit of version 0"), (7, " of the commit of version 7")):
        with pytest.raises(
            CorruptLogError, match=f"Table t cannot be read because of metaData.{field}{commit}: .*{why}"
        ) as caught:
            check_metadata(metadata, "t", version=version)
        assert (caught.value.version, caught.value.action, caught.value.field) == (version, "metaData", field)


def test_data_files_of_another_format_are_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="'orc'"):
        check_metadata(replace(GOOD, format_provider="orc"), "t")
