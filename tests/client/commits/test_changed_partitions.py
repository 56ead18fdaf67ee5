"""What the feed says of the partitions that a commit changes."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.changed_partitions import (
    CHANGED_PARTITIONS_TAG,
    MAX_PARTITIONS_WITH_FIGURES,
    PARTITION_FIGURES_TAG,
    ChangedPartition,
    PartitionFigures,
    changed_partitions,
    feed_tags,
)
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.protocol.actions.actions import AddFile, DeletionVectorDescriptor, Metadata, RemoveFile
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode
from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA
from cm_delta_dagster.protocol.schema.types import STRING, StructField, StructType

NewTable = Callable[..., Table]


def a_file(day: str, *, rows: int | None = 3, size: int = 10) -> AddFile:
    stats = None if rows is None else json.dumps({"numRecords": rows})
    name = f"{day}-{rows}-{size}.parquet"
    return AddFile(path=name, partition_values={"day": day}, size=size, modification_time=0, stats=stats)


def figures_after(client: DeltaClient) -> Mapping[str, list[int | None]]:
    """The figures of the last commit, by the value of its partition."""
    tags = list(client.catalog.feed.feed(after=0, limit=100))[-1].summary.tags
    days = [values["day"] for values in json.loads(tags[CHANGED_PARTITIONS_TAG])]
    return dict(zip(days, json.loads(tags[PARTITION_FIGURES_TAG]), strict=True))


def test_the_feed_has_what_a_commit_did_to_each_partition(new_table: NewTable, client: DeltaClient) -> None:
    table = new_table()
    first, second = a_file("2026-01-01"), a_file("2026-01-01", rows=4, size=20)
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([first, second, a_file("2026-01-02", rows=None)])
    transaction.commit()
    assert figures_after(client) == {"2026-01-01": [7, 2, 30, 0, 0], "2026-01-02": [None, 1, 10, 0, 0]}
    transaction = table.start_transaction(table.snapshot(), operation="DELETE")
    gone = RemoveFile(path=first.path, deletion_timestamp=1, partition_values=first.partition_values, size=10)
    unsized = replace(gone, path=second.path, size=None)
    transaction.remove_files([gone, unsized])
    transaction.commit()
    assert figures_after(client) == {"2026-01-01": [0, 0, 0, 2, None]}


def test_a_file_with_another_deletion_vector_is_not_added(new_table: NewTable, client: DeltaClient) -> None:
    table = new_table(delta__enableDeletionVectors="true")
    file, other = a_file("2026-01-01", rows=4), a_file("2026-01-01", rows=1, size=5)
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([file])
    transaction.commit()
    vector = DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv="a" * 20, size_in_bytes=40, cardinality=1, offset=1
    )
    for added, figures in (([], [0, 0, 0, 0, 0]), ([other], [1, 1, 5, 0, 0])):
        transaction = table.start_transaction(table.snapshot(), operation="UPDATE")
        transaction.remove_files(removes_of(table.snapshot().files, data_change=True))
        transaction.add_files([replace(file, deletion_vector=vector), *added])
        transaction.commit()
        vector = replace(vector, offset=2)
        assert figures_after(client) == {"2026-01-01": figures}


@pytest.mark.parametrize(
    ("number", "has_figures"), [(MAX_PARTITIONS_WITH_FIGURES, True), (MAX_PARTITIONS_WITH_FIGURES + 1, False)]
)
def test_figures_are_of_a_limited_size(number: int, has_figures: bool) -> None:
    largest = PartitionFigures(10**12, 10**6, 10**15, 10**6, 10**15)
    tags = feed_tags([ChangedPartition({"day": str(position)}, largest) for position in range(number)])
    assert (PARTITION_FIGURES_TAG in tags) == has_figures
    assert len(tags.get(PARTITION_FIGURES_TAG, "")) < 24 * 1024
    assert len(json.loads(tags[CHANGED_PARTITIONS_TAG])) == number


def metadata_of(table: Table, **columns: str) -> Metadata:
    """The metadata of the table as another writer spells it, with further columns."""
    metadata = table.snapshot().metadata
    schema = json.loads(metadata.schema_string)
    for name, kind in columns.items():
        schema["fields"].append({"name": name, "type": kind, "nullable": True, "metadata": {}})
    return replace(metadata, schema_string=json.dumps(schema, indent=1))


def test_the_partitions_of_files_are_known_though_the_commit_writes_the_same_columns_again(
    new_table: NewTable, client: DeltaClient
) -> None:
    """As RESTORE and writes with identity columns do. Another column, or metadata without files, changes all partitions."""
    table = new_table()
    same = metadata_of(table)
    properties = replace(same, configuration={**same.configuration, "custom.owner": "us"})
    for number, (metadata, file, known) in enumerate(
        (
            (same, True, True),
            (properties, True, True),
            (properties, False, False),
            (metadata_of(table, extra="string"), True, False),
        )
    ):
        transaction = table.start_transaction(table.snapshot(), operation="WRITE")
        transaction.set_metadata(metadata)
        transaction.add_files([a_file("2026-01-01", rows=number)] if file else [])
        transaction.commit()
        tags = list(client.catalog.feed.feed(after=0, limit=100))[-1].summary.tags
        assert json.loads(tags.get(CHANGED_PARTITIONS_TAG, "null")) == ([{"day": "2026-01-01"}] if known else None), (
            number
        )


def test_a_char_has_no_blanks_in_the_feed() -> None:
    """So that the text is that of a partition key."""
    schema = StructType((StructField("c", STRING, metadata={CHAR_METADATA: "char(5)"}), StructField("s", STRING)))
    file = replace(a_file("x"), partition_values={"c": "ab   ", "s": "ab   "})
    found = changed_partitions([file], [], columns=("c", "s"), schema=schema, mapping=ColumnMappingMode.NONE)
    assert found is not None
    assert [dict(each.values) for each in found] == [{"c": "ab", "s": "ab   "}]
