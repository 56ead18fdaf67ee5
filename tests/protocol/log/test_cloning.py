"""What version 0 of a clone contains. Files are tested in tests/operations/tables/test_clone.py too."""

import pyarrow as pa
import pytest

from cm_delta_dagster.errors import UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.actions.paths import absolute_paths, encode_location, file_keys
from cm_delta_dagster.protocol.log.cloning import cloned_metadata, cloned_protocol
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType, schema_to_json

MARKS = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.highWaterMark": 7}
SCHEMA = schema_to_json(StructType((StructField("id", PrimitiveType("long"), True, MARKS),)))


@pytest.mark.parametrize(
    ("location", "encoded"),
    [
        ("file:///a b/ü%", "file:///a%20b/%C3%BC%25"),
        ("s3://bucket/x=1", "s3://bucket/x=1"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
        ("/plain/a:b", "file:///plain/a:b"),
    ],
)
def test_a_location_is_encoded_as_an_absolute_path(location: str, encoded: str) -> None:
    assert encode_location(location) == encoded


def test_absolute_paths_name_the_same_files() -> None:
    paths = pa.chunked_array(
        [["a.parquet", "p=50%2525/b%20c"], ["file:/other/x", "s3://b/k%20", "/rooted/y%20z", "p%3A/x"]]
    )
    absolute = absolute_paths("file:///my table", paths)
    assert absolute.to_pylist() == [
        "file:///my%20table/a.parquet",
        "file:///my%20table/p=50%2525/b%20c",
        "file:/other/x",
        "s3://b/k%20",
        "file:///rooted/y%20z",
        "file:///my%20table/p%3A/x",
    ]
    assert file_keys("memory://clone", absolute).to_pylist() == file_keys("file:///my table", paths).to_pylist()


def test_a_clone_keeps_columns_marks_and_properties() -> None:
    of_the_log = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "4",
        "delta.requireCheckpointProtectionBeforeVersion": "3",
        "io.unitycatalog.tableId": "t",
    }
    kept = {
        "delta.columnMapping.maxColumnId": "5",
        "delta.rowTracking.materializedRowIdColumnName": "_r",
        "owner": "me",
    }
    source = Metadata(id="t", name="t", schema_string=SCHEMA, configuration=of_the_log | kept, description="d")
    found = cloned_metadata(
        source, {"owner": "you", "delta.feature.v2Checkpoint": "supported"}, metadata_id="c", created_ms=9
    )
    assert (found.id, found.name, found.created_time, found.schema_string, found.description) == (
        "c",
        None,
        9,
        SCHEMA,
        "d",
    )
    assert found.configuration == kept | {"owner": "you"}


def test_a_protocol_is_never_lowered() -> None:
    metadata = Metadata(id="t", schema_string=SCHEMA, configuration={})
    protocol = cloned_protocol(Protocol(min_reader_version=2, min_writer_version=5), metadata, {})
    assert {"columnMapping", "catalogManaged"} <= set(protocol.reader_features or ())
    assert {"identityColumns", "generatedColumns", "checkConstraints", "changeDataFeed"} <= set(
        protocol.writer_features or ()
    )
    unknown = Protocol(min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=("future",))
    with pytest.raises(UnsupportedFeatureError, match="future"):
        cloned_protocol(unknown, metadata, {})
    protected = Protocol(
        min_reader_version=1, min_writer_version=7, writer_features=("checkpointProtection", "appendOnly")
    )
    assert "checkpointProtection" not in (cloned_protocol(protected, metadata, {}).writer_features or ())
