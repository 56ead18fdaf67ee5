"""What a RESTORE changes of files, metadata and protocol."""

from dataclasses import replace
from typing import Any

import pytest

from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table
from cm_delta_dagster.protocol.features.column_ids import MAX_COLUMN_ID
from cm_delta_dagster.protocol.log.restoration import file_difference, restored_metadata, restored_protocol
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType, parse_schema, schema_to_json
from tests.support.actions import add_file

LONG = PrimitiveType("long")


def metadata(*, identity: dict[str, Any] | None = None, **configuration: str) -> Metadata:
    names = {key.replace("__", "."): value for key, value in configuration.items()}
    marks = {f"delta.identity.{key}": value for key, value in (identity or {}).items()}
    schema = StructType((StructField("id", LONG, True, marks), StructField("n", LONG)))
    return Metadata(id="t", schema_string=schema_to_json(schema), configuration=names)


@pytest.mark.requirements("RESTORE-3")
@pytest.mark.parametrize(
    ("step", "then", "now", "restored"),
    [(1, 5, 9, 9), (1, 9, 5, 9), (-2, -4, -8, -8), (1, None, 9, 9), (1, 5, None, 5)],
)
def test_high_water_marks_of_identity_columns_do_not_go_back(
    step: int, then: int | None, now: int | None, restored: int
) -> None:
    def with_mark(mark: int | None) -> Metadata:
        return metadata(identity={"start": 1, "step": step} | ({} if mark is None else {"highWaterMark": mark}))

    after = restored_metadata(with_mark(now), with_mark(then))
    assert parse_schema(after.schema_string).fields[0].metadata["delta.identity.highWaterMark"] == restored


@pytest.mark.requirements("RESTORE-3")
def test_a_renamed_identity_column_keeps_its_mark() -> None:
    """By its name in files, which is its first name where column mapping came later."""
    old = metadata(identity={"start": 1, "step": 1, "highWaterMark": 5})
    mapped = metadata(identity={"start": 1, "step": 1, "highWaterMark": 5})
    renamed = metadata(identity={"start": 1, "step": 1, "highWaterMark": 9})
    for item, name in ((mapped, "id"), (renamed, "key")):
        (first, *others) = parse_schema(item.schema_string).fields
        first = replace(first, name=name, metadata={**first.metadata, "delta.columnMapping.physicalName": "id"})
        text = schema_to_json(StructType((first, *others)))
        for target in (old, mapped):
            after = restored_metadata(replace(renamed, schema_string=text), target)
            mark = parse_schema(after.schema_string).fields[0].metadata["delta.identity.highWaterMark"]
            assert mark == (9 if name == "key" else 5)


def test_a_column_that_was_no_identity_column_stays_without_a_mark() -> None:
    current, target = metadata(identity={"start": 1, "step": 1, "highWaterMark": 7}), metadata()
    assert restored_metadata(current, target).schema_string == target.schema_string


@pytest.mark.requirements("RESTORE-3")
def test_the_highest_column_id_does_not_go_back() -> None:
    current, target = metadata(**{MAX_COLUMN_ID: "12"}), metadata(**{MAX_COLUMN_ID: "3"})
    assert restored_metadata(current, target).configuration == {MAX_COLUMN_ID: "12"}
    assert restored_metadata(target, metadata()).configuration == {MAX_COLUMN_ID: "3"}
    assert restored_metadata(metadata(**{MAX_COLUMN_ID: "9"}), target).configuration == {MAX_COLUMN_ID: "9"}


def test_a_highest_column_id_that_is_not_a_number_does_not_prevent_a_restore() -> None:
    """Another client wrote it; the highest id is then that of the columns."""
    current, target = metadata(**{MAX_COLUMN_ID: "x"}), metadata(**{MAX_COLUMN_ID: "3"})
    assert restored_metadata(current, target).configuration == {MAX_COLUMN_ID: "3"}
    assert restored_metadata(target, current).configuration == {MAX_COLUMN_ID: "3"}
    assert restored_metadata(current, current).configuration == {MAX_COLUMN_ID: "x"}


def test_files_are_compared_by_path_and_deletion_vector() -> None:
    current = adds_to_table([add_file("same"), add_file("a%20b"), add_file("v", "one"), add_file("gone")])
    target = adds_to_table([add_file("file:///t/same"), add_file("a%20b"), add_file("v"), add_file("new")])
    difference = file_difference(current, target, location="file:///t")
    assert difference.removed["path"].to_pylist() == ["v", "gone"]
    assert difference.added["path"].to_pylist() == ["v", "new"]
    assert difference.removed["deletionVector"].to_pylist()[0] is not None
    assert difference.added["deletionVector"].to_pylist()[0] is None


@pytest.mark.requirements("RESTORE-3")
def test_the_table_keeps_the_id_that_the_catalog_gave_it() -> None:
    """A version before the table was adopted has no id, one of an earlier catalog has another."""
    current = metadata(io__unitycatalog__tableId="mine")
    for target in (metadata(), metadata(io__unitycatalog__tableId="of an earlier catalog")):
        assert restored_metadata(current, target).configuration == {"io.unitycatalog.tableId": "mine"}


@pytest.mark.requirements("RESTORE-3")
def test_in_commit_timestamps_and_checkpoint_protection_continue() -> None:
    of_the_log = {
        "delta__enableInCommitTimestamps": "true",
        "delta__inCommitTimestampEnablementVersion": "4",
        "delta__requireCheckpointProtectionBeforeVersion": "3",
    }
    current = metadata(**of_the_log, delta__appendOnly="true")
    after = restored_metadata(current, metadata(delta__enableInCommitTimestamps="false", owner="me"))
    assert after.configuration == {key.replace("__", "."): value for key, value in of_the_log.items()} | {"owner": "me"}


@pytest.mark.requirements("RESTORE-3")
def test_a_protocol_is_never_lowered_and_regains_dropped_features() -> None:
    def protocol(*features: str) -> Protocol:
        return Protocol(
            min_reader_version=3, min_writer_version=7, reader_features=("deletionVectors",), writer_features=features
        )

    current, target = protocol("deletionVectors", "appendOnly"), protocol("deletionVectors", "domainMetadata")
    after = restored_protocol(current, target)
    assert set(after.writer_features or ()) == {"deletionVectors", "appendOnly", "domainMetadata"}
    assert restored_protocol(current, protocol("deletionVectors")) is current
