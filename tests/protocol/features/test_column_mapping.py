"""Physical names of columns in each column mapping mode."""

from typing import Any

import pytest

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.actions import AddFile, Metadata, Protocol
from cm_delta_dagster.protocol.actions.commit_json import decode_commit, encode_commit
from cm_delta_dagster.protocol.features.column_mapping import (
    COLUMN_ID,
    PHYSICAL_NAME,
    ColumnMappingMode,
    column_mapping_mode,
    physical_name,
    physical_schema,
)
from cm_delta_dagster.protocol.log.action_reconciliation import replay
from cm_delta_dagster.protocol.log.checkpoints import build_checkpoint
from cm_delta_dagster.protocol.schema.types import (
    LONG,
    STRING,
    ArrayType,
    StructField,
    StructType,
    schema_to_json,
    walk_fields,
)

MAPPED = Protocol(
    min_reader_version=3, min_writer_version=7, reader_features=("columnMapping",), writer_features=("columnMapping",)
)
UNMAPPED = Protocol(min_reader_version=1, min_writer_version=2)


def mapped(name: str, kind: Any, physical: str) -> StructField:
    return StructField(name, kind, metadata={COLUMN_ID: 1, PHYSICAL_NAME: physical})


SCHEMA = StructType(
    (
        mapped("id", LONG, "col-1"),
        mapped("s", StructType((mapped("x", LONG, "col-3"),)), "col-2"),
        mapped("l", ArrayType(StructType((mapped("y", LONG, "col-5"),))), "col-4"),
        mapped("p", STRING, "col-6"),
    )
)


def metadata(mode: str | None) -> Metadata:
    configuration = {} if mode is None else {"delta.columnMapping.mode": mode}
    return Metadata(
        id="i",
        schema_string=schema_to_json(SCHEMA),
        partition_columns=("p",),
        configuration={**configuration, "delta.checkpoint.writeStatsAsStruct": "true"},
    )


@pytest.mark.requirements("COLMAP-9")
def test_mode_none_uses_logical_names_whatever_the_metadata_contains() -> None:
    """Fields keep physical names in their metadata when a table stops to use column mapping."""
    assert physical_name(SCHEMA.fields[0], ColumnMappingMode.NONE) == "id"
    assert physical_schema(SCHEMA, ColumnMappingMode.NONE) == SCHEMA


@pytest.mark.requirements("COLMAP-9", "CKPT-11")
@pytest.mark.parametrize("mode", [ColumnMappingMode.NAME, ColumnMappingMode.ID])
def test_mapped_modes_use_physical_names_at_every_depth(mode: ColumnMappingMode) -> None:
    paths = [path for path, _ in walk_fields(physical_schema(SCHEMA, mode))]
    assert paths == [
        ("col-1",), ("col-2",), ("col-2", "col-3"), ("col-4",), ("col-4", "element", "col-5"), ("col-6",),
    ]  # fmt: skip


FOR_WRITERS = Protocol(
    min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=("columnMapping",)
)


@pytest.mark.requirements("COLMAP-3")
@pytest.mark.parametrize("mode", [ColumnMappingMode.NAME, ColumnMappingMode.ID])
def test_a_mapped_column_without_physical_name_is_damage(mode: ColumnMappingMode) -> None:
    with pytest.raises(CorruptLogError, match="'id' has no"):
        physical_name(StructField("id", LONG), mode)


@pytest.mark.requirements("COLMAP-1", "COLMAP-2")
@pytest.mark.parametrize(
    ("protocol", "mode", "expected"),
    [
        (UNMAPPED, "name", ColumnMappingMode.NONE),
        (MAPPED, None, ColumnMappingMode.NONE),
        (MAPPED, "none", ColumnMappingMode.NONE),
        (MAPPED, "name", ColumnMappingMode.NAME),
        (MAPPED, "id", ColumnMappingMode.ID),
        (Protocol(min_reader_version=2, min_writer_version=5), "name", ColumnMappingMode.NAME),
        # delta-spark 3.1.0 wrote such tables.
        (FOR_WRITERS, "name", ColumnMappingMode.NAME),
    ],
)
def test_the_property_has_an_effect_only_with_the_feature(
    protocol: Protocol, mode: str | None, expected: ColumnMappingMode
) -> None:
    assert column_mapping_mode(protocol, metadata(mode)) is expected


@pytest.mark.requirements("CKPT-9", "CKPT-11", "COLMAP-9")
@pytest.mark.parametrize(
    ("protocol", "mode", "id_name", "p_name"),
    [(UNMAPPED, None, "id", "p"), (MAPPED, "none", "id", "p"), (MAPPED, "name", "col-1", "col-6")],
)
def test_a_checkpoint_uses_the_names_of_the_mode(
    protocol: Protocol, mode: str | None, id_name: str, p_name: str
) -> None:
    """Parsed statistics and partition values have the names of the log."""
    add = AddFile(
        path="f",
        partition_values={p_name: "a"},
        size=1,
        modification_time=1,
        stats=f'{{"numRecords":1,"maxValues":{{"{id_name}":9}}}}',
    )
    commit = decode_commit(encode_commit([protocol, metadata(mode), add]), version=0)
    top = build_checkpoint(replay(None, [commit], location="file:///t"), now_ms=1).top
    (row,) = [row for row in top["add"].to_pylist() if row is not None]
    assert row["partitionValues_parsed"] == {p_name: "a"}
    assert row["stats_parsed"]["maxValues"] == {id_name: 9}
