"""File actions as columns."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.protocol.actions.actions import AddFile, DeletionVectorDescriptor, RemoveFile
from cm_delta_dagster.protocol.actions.file_columns import (
    ADD_SCHEMA,
    REMOVE_SCHEMA,
    adds_to_table,
    dv_ids,
    partition_column,
    remove_of,
    removes_of,
    table_to_adds,
    table_to_new_adds,
    table_to_removes,
)
from cm_delta_dagster.protocol.commits.commit_validation import checked_line
from tests.support.actions import add_file as _add
from tests.support.file_columns import removes_to_table

_TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
_LONG = st.integers(-(2**63), 2**63 - 1)
_MAP = st.dictionaries(_TEXT, st.none() | _TEXT, max_size=3)
_VECTORS = st.builds(
    DeletionVectorDescriptor,
    storage_type=st.sampled_from("upi"),
    path_or_inline_dv=_TEXT,
    size_in_bytes=st.integers(0, 2**31 - 1),
    cardinality=st.integers(0, 2**63 - 1),
    offset=st.none() | st.integers(0, 2**31 - 1),
)
ADDS = st.builds(
    AddFile,
    path=_TEXT,
    partition_values=_MAP,
    size=_LONG,
    modification_time=_LONG,
    data_change=st.booleans(),
    stats=st.none() | _TEXT,
    tags=st.none() | _MAP,
    deletion_vector=st.none() | _VECTORS,
    base_row_id=st.none() | _LONG,
    default_row_commit_version=st.none() | _LONG,
    clustering_provider=st.none() | _TEXT,
)
REMOVES = st.builds(
    RemoveFile,
    path=_TEXT,
    data_change=st.booleans(),
    deletion_timestamp=st.none() | _LONG,
    extended_file_metadata=st.none() | st.booleans(),
    partition_values=st.none() | _MAP,
    size=st.none() | _LONG,
    stats=st.none() | _TEXT,
    tags=st.none() | _MAP,
    deletion_vector=st.none() | _VECTORS,
    base_row_id=st.none() | _LONG,
    default_row_commit_version=st.none() | _LONG,
)


@pytest.mark.requirements("FILE-1", "CKPT-3")
@settings(deadline=None)
@given(st.lists(ADDS, max_size=4))
def test_adds_survive_the_conversion_to_columns_and_back(adds: list[AddFile]) -> None:
    table = adds_to_table(adds)
    assert table.schema.equals(ADD_SCHEMA)
    assert table_to_adds(table) == adds


@pytest.mark.requirements("FILE-1", "CKPT-3")
@settings(deadline=None)
@given(st.lists(REMOVES, max_size=4))
def test_removes_survive_the_conversion_to_columns_and_back(removes: list[RemoveFile]) -> None:
    table = removes_to_table(removes)
    assert table.schema.equals(REMOVE_SCHEMA)
    assert table_to_removes(table) == removes


@pytest.mark.requirements("REC-5", "DV-13")
@settings(deadline=None)
@given(st.lists(ADDS, max_size=4))
def test_columns_and_values_have_the_same_vector_ids(adds: list[AddFile]) -> None:
    expected = [None if add.deletion_vector is None else add.deletion_vector.unique_id for add in adds]
    assert dv_ids(adds_to_table(adds)).to_pylist() == expected


@pytest.mark.requirements("PART-1")
def test_null_absent_and_empty_partition_values_are_null() -> None:
    values: list[dict[str, str | None]] = [{"p": "a"}, {"p": ""}, {"p": None}, {}, {"q": "x", "p": " "}]
    table = adds_to_table([_add(str(number), partition_values=value) for number, value in enumerate(values)])
    assert partition_column(table, "p").to_pylist() == ["a", None, None, None, " "]
    assert partition_column(pa.concat_tables([table.slice(3), table.slice(0, 2)]), "p").to_pylist() == [
        None,
        " ",
        "a",
        None,
    ]
    assert partition_column(table.slice(0, 0), "p").to_pylist() == []


@pytest.mark.requirements("FILE-8", "FILE-9", "FILE-10")
@settings(deadline=None)
@given(ADDS)
def test_a_remove_has_all_fields_of_the_add(add: AddFile) -> None:
    remove = remove_of(add, deletion_timestamp=1_700_000_000_000, data_change=False)
    assert (remove.path, remove.size, remove.partition_values) == (add.path, add.size, add.partition_values)
    assert (remove.tags, remove.deletion_vector) == (add.tags, add.deletion_vector)
    assert (remove.base_row_id, remove.default_row_commit_version) == (add.base_row_id, add.default_row_commit_version)
    assert (remove.extended_file_metadata, remove.deletion_timestamp) == (True, 1_700_000_000_000)
    assert remove.data_change is False


@pytest.mark.requirements("FILE-8")
def test_removes_of_a_table_are_the_removes_of_its_rows() -> None:
    adds = [_add("a"), _add("b", tags={"k": "v"})]
    removes = removes_of(adds_to_table(adds), deletion_timestamp=5, data_change=True)
    assert removes == tuple(remove_of(add, deletion_timestamp=5, data_change=True) for add in adds)


@pytest.mark.requirements("FILE-1")
def test_a_field_of_the_wrong_type_does_not_become_a_column() -> None:
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError)):
        adds_to_table([_add("a", size="big")])


def test_live_files_of_other_writers_can_be_added_again() -> None:
    """Statistics that are not JSON, and fields that were left out, do not stop a restoration."""
    files = adds_to_table(
        [
            AddFile(path="a", partition_values={}, size=1, modification_time=1, stats='{"numRecords":1}'),
            AddFile(path="b", partition_values={}, size=1, modification_time=1, stats="{"),
            AddFile(path="c", partition_values={}, size=1, modification_time=1, stats="[" * 5000),
        ]
    )
    for name in ("dataChange", "modificationTime"):
        index = files.column_names.index(name)
        files = files.set_column(
            index, files.schema.field(name), pa.nulls(files.num_rows, files.schema.field(name).type)
        )
    adds = table_to_new_adds(files)
    assert [(add.stats, add.data_change, add.modification_time) for add in adds] == [
        ('{"numRecords":1}', True, 0),
        (None, True, 0),
        (None, True, 0),
    ]
    assert all(checked_line(add) for add in adds)


@pytest.mark.parametrize(
    ("stats", "repeatable"),
    [
        (None, None),
        ("", None),
        ("null", None),
        ("[]", None),
        ('{"numRecords":2, "maxValues":{"x":1.50}}', '{"numRecords":2, "maxValues":{"x":1.50}}'),
        (
            '{"numRecords":2,"maxValues":{"x":NaN,"d":0.10,"s":"NaN"}}',
            '{"numRecords":2,"maxValues":{"x":null,"d":0.10,"s":"NaN"}}',
        ),
        ('{"minValues":{"x":-Infinity},"numRecords":2}', '{"numRecords":2,"minValues":{"x":null}}'),
        ('{"numRecords":2.0,"maxValues":{"i":[1,true]}}', '{"numRecords":2,"maxValues":{"i":[1,true]}}'),
        ('{"numRecords":2e0}', '{"numRecords":2}'),
        ('{"numRecords":1.5,"a":1}', '{"a":1}'),
        ('{"numRecords":"x"}', "{}"),
        ('{"numRecords":-1}', "{}"),
        ('{"numRecords":' + "9" * 5000 + "}", "{}"),
        ('{"numRecords":NaN,"maxValues":{"d":' + "9" * 5000 + "}}", '{"maxValues":{"d":' + "9" * 5000 + "}}"),
    ],
)
def test_statistics_of_other_writers_are_committed_again_without_what_readers_ignore(
    stats: str | None, repeatable: str | None
) -> None:
    files = adds_to_table(
        [AddFile(path="a", partition_values={}, size=1, modification_time=1_700_000_000_000_000_000, stats=stats)]
    )
    (add,) = table_to_new_adds(files)
    assert (add.stats, add.modification_time) == (repeatable, 0)
    assert checked_line(add)
