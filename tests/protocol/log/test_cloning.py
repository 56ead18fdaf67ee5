"""What version 0 of a clone contains. Files are tested in tests/operations/tables/test_clone.py too."""

from dataclasses import replace

import pyarrow as pa
import pytest

from cm_delta_dagster.errors import UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.actions import DeletionVectorDescriptor, Metadata, Protocol
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table, table_to_adds
from cm_delta_dagster.protocol.actions.paths import absolute_paths, encode_location, file_keys
from cm_delta_dagster.protocol.log.cloning import (
    cloned_metadata,
    cloned_protocol,
    directories_above,
    renamed_vectors,
    shallow_files,
    vector_names,
)
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType, schema_to_json
from tests.support.actions import add_file

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


_STORED = DeletionVectorDescriptor(
    storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", size_in_bytes=40, cardinality=6, offset=1
)
_INLINE = DeletionVectorDescriptor(storage_type="i", path_or_inline_dv="x", size_in_bytes=34, cardinality=2)


@pytest.mark.requirements("DV-6", "DV-8")
@pytest.mark.parametrize("vectors", [(None, _STORED, _INLINE, _STORED), (_STORED,), (None, None), ()])
def test_a_shallow_clone_has_the_files_of_its_source_with_their_deletion_vectors(
    vectors: tuple[DeletionVectorDescriptor | None, ...],
) -> None:
    """A vector in a file is named by its absolute location; without it, deleted rows would return."""
    absolute = replace(
        _STORED,
        storage_type="p",
        path_or_inline_dv="file:///t/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
    )
    files = [
        replace(add_file(f"f{number}"), deletion_vector=vector, base_row_id=number, default_row_commit_version=7)
        for number, vector in enumerate(vectors)
    ]
    clones = table_to_adds(shallow_files(adds_to_table(files), location="file:///t"))
    assert [clone.deletion_vector for clone in clones] == [
        absolute if vector == _STORED else vector for vector in vectors
    ]
    assert [clone.path for clone in clones] == [f"file:///t/f{number}" for number in range(len(vectors))]
    assert [(clone.base_row_id, clone.default_row_commit_version) for clone in clones] == [
        (number, None) for number in range(len(vectors))
    ]


def test_deletion_vectors_get_other_names_and_keep_the_rest() -> None:
    vectors = adds_to_table([replace(add_file("a"), deletion_vector=vector) for vector in (None, _STORED)])[
        "deletionVector"
    ]
    name = (_STORED.storage_type, _STORED.path_or_inline_dv)
    assert vector_names(vectors) == [None, name]
    renamed = renamed_vectors(vectors, {name: ("p", "file:///x.bin")})
    assert vector_names(pa.chunked_array([renamed])) == [None, ("p", "file:///x.bin")]
    assert [item and item["offset"] for item in renamed.to_pylist()] == [None, 1]


def test_directories_above_files_do_not_include_other_directories() -> None:
    locations = pa.array(["s3://b/t/p=1/a", "s3://b/t/p=1/c", None])
    assert directories_above(locations) == {"s3:", "s3:/", "s3://b", "s3://b/t", "s3://b/t/p=1"}


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
