"""The plan of a change feed: the files with changes of each commit, and the checks of a range of versions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError, SchemaMismatchError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.actions import (
    AddCdcFile,
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    Metadata,
    Protocol,
    RemoveFile,
)
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA, adds_to_table
from cm_delta_dagster.protocol.changes.change_data_feed import (
    ChangePart,
    ChangePlan,
    ChangeType,
    VectorChange,
    change_file_schema,
    change_schema,
    is_change_type,
    plan_changes,
    replaces_rows,
    resolve_vector_changes,
    without_empty,
)
from cm_delta_dagster.protocol.changes.schema_breaks import SchemaBreak
from cm_delta_dagster.protocol.changes.schema_compatibility import VersionDefinition
from cm_delta_dagster.protocol.features.column_mapping import COLUMN_ID, PHYSICAL_NAME
from cm_delta_dagster.protocol.features.deletion_vectors import decode_inline, encode_inline
from cm_delta_dagster.protocol.schema.types import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    schema_to_json,
)
from cm_delta_dagster.remedies import SetTableProperty
from tests.support.actions import add_file, remove_file
from tests.support.file_columns import removes_to_table

LOCATION = "file:///t"
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=4)
MAPPED = Protocol(min_reader_version=2, min_writer_version=5)


@dataclass(frozen=True)
class Commit:
    version: int
    actions: CommitActions

    @property
    def timestamp_ms(self) -> int:
        return 1000 * self.version


def commit(version: int, **parts: Any) -> Commit:
    parts["adds"] = adds_to_table(parts.get("adds", ()))
    parts["removes"] = removes_to_table(parts.get("removes", ()))
    empty: dict[str, Any] = dict.fromkeys(("commit_info", "protocol", "metadata")) | dict.fromkeys(
        ("transactions", "domains", "cdc"), ()
    )
    return Commit(version, CommitActions(version=version, **{**empty, **parts}))


def fields(**types: DataType) -> StructType:
    return StructType(tuple(StructField(name, kind) for name, kind in types.items()))


def metadata(schema: StructType, partitions: Sequence[str] = (), enabled: str = "true", **more: str) -> Metadata:
    configuration = {"delta.enableChangeDataFeed": enabled, **more}
    return Metadata(
        id="t", schema_string=schema_to_json(schema), partition_columns=tuple(partitions), configuration=configuration
    )


BASIC = metadata(fields(a=LONG))


def planned(
    *commits: Commit, start: Metadata = BASIC, latest: Metadata | None = None, protocol: Protocol = PROTOCOL
) -> ChangePlan:
    first = VersionDefinition(version=commits[0].version, protocol=protocol, metadata=start)
    last = VersionDefinition(version=9, protocol=protocol, metadata=latest or start)
    return plan_changes(commits, start=first, latest=last, location=LOCATION, table="main.t")


def add(path: str, deleted: Iterable[int] = (), **more: Any) -> AddFile:
    return add_file(path, encode_inline(deleted) if deleted else None, **more)


def remove(path: str, deleted: Iterable[int] = (), **more: Any) -> RemoveFile:
    return remove_file(path, encode_inline(deleted) if deleted else None, **({"partition_values": {}} | more))


def summary(plan: ChangePlan) -> list[tuple[int, str | None, list[str]]]:
    return [
        (part.version, part.change_type, part.files["path"].to_pylist())
        for part in without_empty(part for part in plan.parts if isinstance(part, ChangePart))
    ]


@pytest.mark.requirements("CDF-5", "CDCA-1")
def test_change_data_files_replace_the_other_actions_of_their_version() -> None:
    file = AddCdcFile(path="_change_data/c", partition_values={"p": None}, size=7)
    plan = planned(commit(3, cdc=(file,), adds=[add("a")], removes=[remove("b")]))
    assert summary(plan) == [(3, None, ["_change_data/c"])]
    (part,) = plan.parts
    assert isinstance(part, ChangePart)
    assert part.timestamp_ms == 3000
    assert part.files.schema == ADD_SCHEMA
    assert part.files["partitionValues"].to_pylist() == [[("p", None)]]


@pytest.mark.requirements("CDF-6")
def test_without_change_data_files_adds_insert_and_removes_delete() -> None:
    plan = planned(
        commit(
            3,
            adds=[add("a", [1]), add("kept", data_change=False)],
            removes=[remove("b"), remove("c", data_change=False)],
        ),
        commit(4, removes=[remove("a", [1])]),
    )
    assert summary(plan) == [(3, "delete", ["b"]), (3, "insert", ["a"]), (4, "delete", ["a"])]
    assert all(part.files.schema == ADD_SCHEMA for part in plan.parts if isinstance(part, ChangePart))


@pytest.mark.requirements("CDF-6")
def test_a_merge_that_only_copied_rows_has_no_changes() -> None:
    """Delta-spark uses the metrics of a MERGE in the same way."""
    metrics = {"numTargetRowsInserted": "0", "numTargetRowsUpdated": "0", "numTargetRowsDeleted": "0"}
    copied = commit(
        3, adds=[add("a")], removes=[remove("b")], commit_info=CommitInfo(operation="MERGE", operation_metrics=metrics)
    )
    assert summary(planned(copied)) == []
    for operation, other in (("MERGE", {**metrics, "numTargetRowsUpdated": "1"}), ("MERGE", {}), ("WRITE", metrics)):
        info = CommitInfo(operation=operation, operation_metrics=other)
        assert len(summary(planned(commit(3, adds=[add("a")], removes=[remove("b")], commit_info=info)))) == 2


@pytest.mark.requirements("CDF-6")
def test_a_file_with_another_deletion_vector_is_a_vector_change() -> None:
    """Paths are compared as locations."""
    adds = [add("new"), add("file:///t/a%20b", [1, 2])]
    plan = planned(commit(3, adds=adds, removes=[remove("gone"), remove("a b", [1])]))
    assert summary(plan) == [(3, "delete", ["gone"]), (3, "insert", ["new"])]
    (change,) = (part for part in plan.parts if isinstance(part, VectorChange))
    assert change.before["path"].to_pylist() == ["a b"]
    assert change.after["path"].to_pylist() == ["file:///t/a%20b"]


@pytest.mark.requirements("REC-6")
def test_a_commit_with_contradicting_actions_is_corrupt() -> None:
    with pytest.raises(CorruptLogError, match=r"Version 3 of main\.t adds or removes the file"):
        planned(commit(3, adds=[add("a", [1]), add("a", [2])], removes=[remove("a")]))


@pytest.mark.requirements("CDF-6", "FILE-9")
def test_removes_must_have_partition_values() -> None:
    partitioned = metadata(fields(a=LONG, p=STRING), ["p"])
    with pytest.raises(CorruptLogError, match="removes the file 'a' without its partition values"):
        planned(commit(3, removes=[remove("a", partition_values=None)]), start=partitioned)
    assert summary(planned(commit(3, removes=[remove("a", partition_values=None)]))) == [(3, "delete", ["a"])]


positions = st.frozensets(st.integers(0, 7))


@pytest.mark.requirements("CDF-6")
@given(st.lists(st.tuples(positions, positions), min_size=1, max_size=4))
def test_resolved_files_contain_exactly_the_changed_rows(
    vectors: list[tuple[frozenset[int], frozenset[int]]],
) -> None:
    """Of eight rows each, with every pair of deletion vectors."""
    files = adds_to_table(add(f"f{number}") for number in range(len(vectors)))
    change = VectorChange(version=1, timestamp_ms=1, before=files, after=files)
    before, after = ([BitMap64(pair[side]) for pair in vectors] for side in (0, 1))
    parts = resolve_vector_changes(change, before=before, after=after, num_rows=[8] * len(vectors))
    assert [part.change_type for part in parts] == [ChangeType.DELETE, ChangeType.INSERT]
    for part, left, right in ((parts[0], 1, 0), (parts[1], 0, 1)):
        found = {}
        for row in part.files.to_pylist():
            vector = row["deletionVector"]
            hidden = set() if vector is None else set(decode_inline(DeletionVectorDescriptor(
                storage_type=vector["storageType"], path_or_inline_dv=vector["pathOrInlineDv"],
                size_in_bytes=vector["sizeInBytes"], cardinality=vector["cardinality"], offset=vector["offset"])))  # fmt: skip
            found[row["path"]] = set(range(8)) - hidden
        expected = {f"f{number}": set(pair[left] - pair[right]) for number, pair in enumerate(vectors)}
        assert found == {path: rows for path, rows in expected.items() if rows}


@pytest.mark.requirements("DV-27")
def test_a_deletion_vector_beyond_the_end_of_the_file_is_corrupt() -> None:
    files = adds_to_table([add("f")])
    change = VectorChange(version=1, timestamp_ms=1, before=files, after=files)
    with pytest.raises(CorruptLogError, match="deletes row 8, and the file has 8 rows"):
        resolve_vector_changes(change, before=[BitMap64()], after=[BitMap64([8])], num_rows=[8])


TO_RECORD = SetTableProperty(key="delta.enableChangeDataFeed", value="true")


@pytest.mark.requirements("CDF-1", "CDF-8")
@pytest.mark.parametrize(
    ("protocol", "enabled"),
    [
        (PROTOCOL, "false"),
        (Protocol(min_reader_version=1, min_writer_version=3), "true"),
        (Protocol(min_reader_version=1, min_writer_version=7, writer_features=("appendOnly",)), "true"),
    ],
)
def test_change_data_feed_must_be_active_at_the_start(protocol: Protocol, enabled: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"not active at version 3 .*Choose ") as refused:
        planned(commit(3), start=metadata(fields(a=LONG), enabled=enabled), protocol=protocol)
    assert refused.value.remedy == TO_RECORD


@pytest.mark.requirements("CDF-8")
def test_a_refused_range_says_where_change_data_feed_was_active() -> None:
    """And how to enable it, unless it is enabled at the latest version."""
    on, off = metadata(fields(a=LONG)), metadata(fields(a=LONG), enabled="false")
    with pytest.raises(InvalidArgumentError, match=r"at version 5 .* of the versions 3 to 4, .*active\.") as refused:
        planned(commit(3), commit(4), commit(5, metadata=off), start=on, latest=off)
    assert refused.value.remedy == TO_RECORD
    with pytest.raises(
        InvalidArgumentError, match=r"at version 3 .* from version 5 on, at which it was active\.$"
    ) as refused:
        planned(commit(3), commit(4), commit(5, metadata=on), start=off, latest=on)
    assert refused.value.remedy is None


@pytest.mark.requirements("CDF-8", "PROT-3")
def test_change_data_feed_must_stay_active_and_readable() -> None:
    listed = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("changeDataFeed",))
    assert summary(planned(commit(3), commit(4, protocol=listed, adds=[add("a")]))) == [(4, "insert", ["a"])]
    with pytest.raises(InvalidArgumentError, match="not active at version 4"):
        planned(commit(3), commit(4, metadata=metadata(fields(a=LONG), enabled="false")))
    unlisted = Protocol(min_reader_version=1, min_writer_version=7, writer_features=())
    with pytest.raises(InvalidArgumentError, match="not active at version 4"):
        planned(commit(3), commit(4, protocol=unlisted))
    unknown = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=("x",), writer_features=("changeDataFeed", "x")
    )
    with pytest.raises(UnsupportedFeatureError, match="x"):
        planned(commit(3), commit(4, protocol=unknown))


NESTED = StructType((StructField("s", fields(x=LONG)),))


@pytest.mark.requirements("CDF-6")
@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (fields(a=LONG), fields(b=STRING, a=LONG)),
        (NESTED, StructType((StructField("s", fields(x=LONG, y=LONG)),))),
        (StructType((StructField("a", LONG, nullable=False),)), fields(a=LONG)),
        (fields(a=ArrayType(LONG, False)), fields(a=ArrayType(LONG, True))),
    ],
)
def test_new_columns_and_dropped_not_null_are_compatible(older: StructType, newer: StructType) -> None:
    """The latest schema reads the whole range."""
    plan = planned(commit(3, metadata=metadata(older)), start=metadata(older), latest=metadata(newer))
    assert plan.definition.schema == newer


@pytest.mark.requirements("CDF-6", "CDF-8")
@pytest.mark.parametrize(
    ("older", "newer", "reason"),
    [
        (fields(a=LONG, b=LONG), fields(a=LONG), "'b' is missing"),
        (fields(a=LONG), fields(A=LONG), "'a' is spelled 'A'"),
        (fields(a=LONG), StructType((StructField("a", LONG, nullable=False),)), "'a' became NOT NULL"),
        (NESTED, fields(s=fields(x=STRING)), "'s.x' changed"),
        (fields(a=ArrayType(LONG)), fields(a=ArrayType(LONG, False)), "elements of 'a' became NOT NULL"),
        (fields(a=ArrayType(LONG)), fields(a=ArrayType(STRING)), "'a.element' changed"),
        (fields(a=MapType(LONG, LONG)), fields(a=MapType(LONG, LONG, False)), "values of 'a' became NOT NULL"),
        (fields(a=MapType(LONG, LONG)), fields(a=MapType(STRING, LONG)), "'a.key' changed"),
        (fields(a=MapType(LONG, LONG)), fields(a=MapType(LONG, STRING)), "'a.value' changed"),
        (fields(a=LONG), fields(a=STRING), "the type of 'a' changed"),
        (fields(a=LONG), fields(a=INTEGER), "the type of 'a' changed"),
    ],
)
def test_a_schema_that_cannot_represent_earlier_rows_ends_the_plan(
    older: StructType, newer: StructType, reason: str
) -> None:
    """Versions before the change are read with a schema of their own."""
    assert planned(commit(3), start=metadata(older), latest=metadata(newer)).definition.schema == older
    plan = planned(
        commit(3, adds=[add("a")]),
        commit(4, metadata=metadata(newer), adds=[add("b")]),
        commit(5, adds=[add("c")]),
        start=metadata(older),
        latest=metadata(newer),
    )
    assert plan.stopped_before is not None
    assert plan.stopped_before.version == 4 and reason in plan.stopped_before.reason
    assert plan.definition.schema == older
    assert summary(plan) == [(3, "insert", ["a"])]


@pytest.mark.requirements("CDF-6")
@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (fields(a=INTEGER), fields(a=LONG)),
        (fields(a=INTEGER), fields(a=DOUBLE)),
        (fields(a=INTEGER), fields(a=DecimalType(12, 2))),
        (fields(a=DecimalType(5, 2)), fields(a=DecimalType(7, 3))),
        (fields(a=DATE), fields(a=TIMESTAMP_NTZ)),
        (fields(s=fields(x=FLOAT)), fields(s=fields(x=DOUBLE))),
        (fields(a=MapType(BYTE, ArrayType(SHORT))), fields(a=MapType(LONG, ArrayType(INTEGER)))),
    ],
)
def test_values_of_a_type_that_became_wider_are_read_as_the_wider_one(older: StructType, newer: StructType) -> None:
    """Within the range, and after it."""
    assert planned(commit(3), start=metadata(older), latest=metadata(newer)).definition.schema == newer
    plan = planned(commit(3), commit(4, metadata=metadata(newer)), start=metadata(older), latest=metadata(newer))
    assert (plan.definition.schema, plan.stopped_before) == (newer, None)


@pytest.mark.requirements("CDF-6")
def test_other_partition_columns_end_the_plan() -> None:
    """The partition values of older files would be lost."""
    older, newer = metadata(fields(a=LONG)), metadata(fields(a=LONG), ["a"])
    assert planned(commit(3), start=older, latest=newer).definition.metadata is older
    plan = planned(commit(3), commit(4, metadata=newer), start=older, latest=newer)
    assert plan.stopped_before == SchemaBreak(version=4, reason="the table was partitioned by other columns")


@pytest.mark.requirements("CDF-6")
def test_rows_that_a_commit_removes_must_be_readable_with_the_schema_that_it_brings() -> None:
    """In the first commit of a range, and in a later one."""
    older, newer = metadata(fields(a=INTEGER)), metadata(fields(a=STRING))
    swap = commit(4, metadata=newer, removes=[remove("a")], adds=[add("b")])
    plan = planned(commit(3, adds=[add("a")]), swap, start=older, latest=newer)
    assert plan.stopped_before is not None and plan.stopped_before.version == 4
    at, before = (VersionDefinition(version=v, protocol=PROTOCOL, metadata=m) for v, m in ((4, newer), (3, older)))
    with pytest.raises(SchemaMismatchError, match=r"version 4 of main\.t .*the type of 'a' changed.*from version 5 on"):
        plan_changes([swap], start=at, latest=at, before=before, location=LOCATION, table="main.t")
    assert replaces_rows(swap.actions) and not replaces_rows(commit(4, metadata=newer).actions)


def mapped(mode: str = "name", **names: str) -> Metadata:
    columns = tuple(
        StructField(name, LONG, metadata={PHYSICAL_NAME: physical, COLUMN_ID: number})
        for number, (name, physical) in enumerate(names.items())
    )
    return metadata(StructType(columns), **{"delta.columnMapping.mode": mode})


def within_struct(**names: str) -> Metadata:
    """A struct ``st`` with these fields, mapped by name."""
    fields_of = tuple(
        StructField(name, LONG, metadata={PHYSICAL_NAME: physical, COLUMN_ID: number})
        for number, (name, physical) in enumerate(names.items(), start=1)
    )
    struct = StructField("st", StructType(fields_of), metadata={PHYSICAL_NAME: "s1", COLUMN_ID: 0})
    return metadata(StructType((struct,)), **{"delta.columnMapping.mode": "name"})


@pytest.mark.requirements("CDF-6", "COLMAP-15")
def test_column_mapping_reads_with_the_schema_of_the_last_version() -> None:
    """A later rename does not matter."""
    plan = planned(commit(3), start=mapped(a="c1"), latest=mapped(b="c1"), protocol=MAPPED)
    assert plan.definition.schema.names == ("a",)
    grown = planned(commit(3), commit(4, metadata=mapped(a="c1", b="c2")), start=mapped(a="c1"), protocol=MAPPED)
    assert grown.definition.schema.names == ("a", "b")
    upgraded = planned(commit(3), commit(4, metadata=mapped(a="a")), start=metadata(fields(a=LONG)), protocol=MAPPED)
    assert upgraded.definition.version == 4


@pytest.mark.requirements("CDF-6", "COLMAP-15")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (mapped(a="c1"), mapped(b="c1")),
        (mapped(a="c1", b="c2"), mapped(b="c1", a="c2")),
        (mapped(a="c1", b="c2"), mapped(a="c1")),
        (mapped(a="c1", b="c2"), mapped(a="c2")),
        (mapped(a="c1"), mapped(b="c1", a="c3")),
        (within_struct(a="c1", b="c2"), within_struct(b="c2")),
        (within_struct(a="c1"), within_struct(b="c1")),
        (metadata(fields(a=LONG)), mapped(b="a")),
    ],
)
def test_renamed_and_dropped_columns_within_the_range_are_mapped(before: Metadata, after: Metadata) -> None:
    plan = planned(commit(3), commit(4, metadata=after), start=before, protocol=MAPPED)
    assert (plan.definition.metadata, plan.stopped_before) == (after, None)


@pytest.mark.requirements("CDF-6", "COLMAP-15")
@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (mapped(a="c1"), mapped(a="c2"), "'a' was dropped, and another column of that name was added"),
        (within_struct(a="c1"), within_struct(a="c2"), "'st.a' was dropped, and another"),
        (mapped(a="c1"), mapped("id", a="c1"), "mode changed from name to id"),
        (mapped(a="c1"), metadata(fields(a=LONG)), "mode changed from name to none"),
    ],
)
def test_columns_that_are_others_under_the_same_name_end_the_plan(
    before: Metadata, after: Metadata, reason: str
) -> None:
    plan = planned(commit(3), commit(4, metadata=after), start=before, protocol=MAPPED)
    assert plan.stopped_before is not None and reason in plan.stopped_before.reason


@pytest.mark.requirements("CDF-9")
@pytest.mark.parametrize("name", ["_change_type", "_COMMIT_version", "_commit_timestamp"])
def test_a_table_with_a_reserved_column_name_is_refused(name: str) -> None:
    with pytest.raises(SchemaMismatchError, match="name of a column of the change feed"):
        planned(commit(3), start=metadata(fields(**{name: LONG})))


@pytest.mark.requirements("CDF-4", "CDF-7")
def test_the_feed_adds_three_columns_and_its_files_one() -> None:
    assert change_schema(fields(a=LONG)).names == ("a", "_change_type", "_commit_version", "_commit_timestamp")
    kind = change_file_schema(fields(a=LONG)).fields[-1]
    assert is_change_type(kind)
    assert not is_change_type(StructField("_change_type", STRING, metadata={PHYSICAL_NAME: "c", COLUMN_ID: 1}))
    assert isinstance(planned(commit(3)).parts, tuple)
    assert pa.types.is_string(ADD_SCHEMA.field("path").type)
