"""The plan of a stream: emitted files, batches, and commits that stop the stream."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import (
    CorruptLogError,
    InvalidArgumentError,
    SchemaMismatchError,
    StreamSourceChangedError,
    UnsupportedFeatureError,
)
from cm_delta_dagster.protocol.actions.actions import AddFile, CommitInfo, Metadata, Protocol, RemoveFile
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table
from cm_delta_dagster.protocol.changes.batch_planning import (
    UNBOUNDED,
    AdmissionLimits,
    ChangeHandling,
    StreamPlan,
    StreamRules,
    build_stream_plan,
    initial_files,
)
from cm_delta_dagster.protocol.changes.schema_compatibility import VersionDefinition
from cm_delta_dagster.protocol.changes.stream_offset import StreamOffset
from cm_delta_dagster.protocol.features.column_mapping import COLUMN_ID, PHYSICAL_NAME
from cm_delta_dagster.protocol.schema.types import INTEGER, LONG, STRING, StructField, StructType, schema_to_json
from tests.support.actions import add_file, remove_file
from tests.support.file_columns import removes_to_table

PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
MAPPED = Protocol(min_reader_version=2, min_writer_version=5)
RULES = StreamRules(table="main.test.t")
ID, NAME = StructField("id", LONG), StructField("name", STRING)


def added(path: str, *, size: int = 10, time: int = 0, data_change: bool = True) -> AddFile:
    return add_file(path, size=size, modification_time=time, data_change=data_change)


def removed(path: str, *, data_change: bool = True) -> RemoveFile:
    return remove_file(path, data_change=data_change)


def commit(
    version: int,
    *actions: AddFile | RemoveFile | Metadata | Protocol,
    operation: str = "WRITE",
) -> CommitActions:
    def only(kind: type) -> list[Any]:
        return [action for action in actions if isinstance(action, kind)]

    return CommitActions(
        version=version,
        commit_info=CommitInfo(operation=operation),
        protocol=next(iter(only(Protocol)), None),
        metadata=next(iter(only(Metadata)), None),
        transactions=(),
        domains=(),
        adds=adds_to_table(only(AddFile)),
        removes=removes_to_table(only(RemoveFile)),
        cdc=(),
    )


def metadata(*fields: StructField, partitions: Sequence[str] = (), table_id: str = "t", **more: str) -> Metadata:
    return Metadata(
        id=table_id,
        schema_string=schema_to_json(StructType(fields)),
        partition_columns=tuple(partitions),
        configuration={key.replace("__", "."): value for key, value in more.items()},
    )


def definition(version: int, *fields: StructField, protocol: Protocol = PROTOCOL, **more: Any) -> VersionDefinition:
    return VersionDefinition(version=version, protocol=protocol, metadata=metadata(*(fields or (ID,)), **more))


def at(version: int, index: int = -1, *, is_initial: bool = False) -> StreamOffset:
    return StreamOffset(table_id="t", version=version, index=index, is_initial=is_initial)


def plan(commits: Sequence[CommitActions], start: StreamOffset, **more: Any) -> StreamPlan:
    """The batch after ``start``; ``commits`` are all commits of the table."""
    known = {"reading": definition(0), "current": definition(0), "rules": RULES}
    first = start.version + (1 if start.is_initial else 0)
    return build_stream_plan((item for item in commits if item.version >= first), start=start, **{**known, **more})


def paths(batch: StreamPlan) -> list[str]:
    return [path for part in batch.parts for path in part.files["path"].to_pylist()]


# --- batches ----------------------------------------------------------------------------------------------------------

COMMITS = st.lists(st.lists(st.integers(min_value=0, max_value=100), max_size=5), min_size=1, max_size=6)
LIMITS = st.builds(
    AdmissionLimits,
    max_files=st.none() | st.integers(min_value=1, max_value=4),
    max_bytes=st.none() | st.integers(min_value=1, max_value=150),
)


def table_of(sizes: Sequence[Sequence[int]]) -> list[CommitActions]:
    """A commit for each list of file sizes; files of size 0 have dataChange false."""
    return [
        commit(version, *[added(f"{version}-{n}", size=size, data_change=size > 0) for n, size in enumerate(files)])
        for version, files in enumerate(sizes)
    ]


@pytest.mark.requirements("STREAM-1", "STREAM-2", "STREAM-3")
@settings(deadline=None)
@given(sizes=COMMITS, all_limits=st.lists(LIMITS, min_size=1, max_size=5), data=st.data())
def test_batches_of_any_size_emit_each_file_once_and_in_order(
    sizes: list[list[int]], all_limits: list[AdmissionLimits], data: st.DataObject
) -> None:
    """With any limits, from a snapshot or from commits; replayed batches are equal."""
    commits = table_of(sizes)
    snapshot = data.draw(st.none() | st.integers(min_value=0, max_value=len(sizes) - 1), label="snapshot")
    start = at(0) if snapshot is None else at(snapshot, is_initial=True)
    live = [item for files in table_of(sizes)[: (snapshot or 0) + 1] for item in files.adds.to_pylist()]
    initial = initial_files(adds_to_table([added(item["path"], size=item["size"]) for item in live]))
    expected = [] if snapshot is None else initial["path"].to_pylist()
    first = 0 if snapshot is None else snapshot + 1
    expected += [f"{v}-{n}" for v in range(first, len(sizes)) for n, size in enumerate(sizes[v]) if size]

    emitted: list[str] = []
    for number in range(1000):
        limits = all_limits[number % len(all_limits)]
        batch = plan(commits, start, initial=initial, limits=limits)
        if batch.end == start:
            break
        files = pa.concat_tables([part.files for part in batch.parts]) if batch.parts else adds_to_table([])
        # max_bytes is a soft limit, which the last file may exceed; max_files is hard. A batch has at least one file.
        assert limits.max_files is None or files.num_rows <= limits.max_files
        assert limits.max_bytes is None or sum(files["size"].to_pylist()[:-1]) < limits.max_bytes
        assert files.num_rows or batch.end.position == (len(sizes), -1)
        assert paths(plan(commits, start, initial=initial, until=batch.end)) == paths(batch)
        assert batch.end.position > start.position
        emitted += paths(batch)
        start = batch.end

    assert emitted == expected
    assert start == at(len(sizes))


@pytest.mark.requirements("STREAM-1")
def test_a_snapshot_is_ordered_by_modification_time_then_path() -> None:
    """The order of delta-spark, so that an offset denotes the same file in both."""
    files = adds_to_table([added("b", time=2), added("a", time=2), added("z", time=1), added("é", time=2)])
    assert initial_files(files)["path"].to_pylist() == ["z", "a", "b", "é"]
    assert initial_files(files.slice(0, 0)).num_rows == 0


@pytest.mark.requirements("STREAM-3")
def test_only_the_commits_of_the_batch_are_consumed() -> None:
    """Later commits are not fetched."""
    taken = []

    def commits() -> Iterator[CommitActions]:
        for version in range(100):
            taken.append(version)
            yield commit(version, added(f"{version}"))

    known = definition(0)
    batch = build_stream_plan(
        commits(), start=at(0), reading=known, current=known, rules=RULES, limits=AdmissionLimits(max_files=3)
    )
    assert paths(batch) == ["0", "1", "2"]
    assert taken == [0, 1, 2]
    assert batch.end == at(3)


@pytest.mark.requirements("STREAM-1", "STREAM-3")
def test_a_batch_ends_within_a_commit_and_the_next_continues_there() -> None:
    commits = [commit(0, *[added(name) for name in "abc"])]
    first = plan(commits, at(0), limits=AdmissionLimits(max_files=2))
    assert (paths(first), first.end) == (["a", "b"], at(0, 1))
    assert plan(commits, first.end, limits=AdmissionLimits(max_files=2)).end == at(1)
    assert paths(plan(commits, first.end)) == ["c"]


@pytest.mark.requirements("STREAM-1")
def test_the_last_file_of_a_snapshot_in_an_offset_of_delta_spark_is_followed_by_the_next_commit() -> None:
    """Delta-spark leaves such an offset in the snapshot."""
    commits = [commit(0, added("a")), commit(1, added("b"))]
    start = at(0, 0, is_initial=True)
    assert paths(plan(commits, start, initial=commits[0].adds)) == ["b"]


@pytest.mark.requirements("STREAM-3")
@pytest.mark.parametrize("value", ["3", 1.5, True])
def test_a_bound_is_a_whole_number(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="whole number"):
        AdmissionLimits(max_files=value)


# --- commits that do more than add rows -------------------------------------------------------------------------------

DELETE = commit(1, removed("a"), operation="DELETE")
UPDATE = commit(1, removed("a"), added("b"), operation="UPDATE")
COMPACTION = commit(1, removed("a", data_change=False), added("b", data_change=False), operation="OPTIMIZE")


@pytest.mark.requirements("STREAM-2")
@pytest.mark.parametrize("handling", ChangeHandling)
def test_a_compaction_emits_nothing(handling: ChangeHandling) -> None:
    batch = plan([COMPACTION, commit(2, added("c"))], at(1), rules=StreamRules(table="t", changes=handling))
    assert (paths(batch), batch.end) == (["c"], at(3))


@pytest.mark.requirements("STREAM-3")
@pytest.mark.parametrize(
    ("changed", "handling", "expected"),
    [
        (DELETE, ChangeHandling.IGNORE_DELETES, ["c"]),
        (DELETE, ChangeHandling.IGNORE_CHANGES, ["c"]),
        (DELETE, ChangeHandling.SKIP_CHANGE_COMMITS, ["c"]),
        (UPDATE, ChangeHandling.IGNORE_CHANGES, ["b", "c"]),
        (UPDATE, ChangeHandling.SKIP_CHANGE_COMMITS, ["c"]),
    ],
)
def test_commits_that_remove_rows_are_handled_as_configured(
    changed: CommitActions, handling: ChangeHandling, expected: list[str]
) -> None:
    rules = StreamRules(table="t", changes=handling)
    assert paths(plan([changed, commit(2, added("c"))], at(1), rules=rules)) == expected


@pytest.mark.requirements("STREAM-3")
@pytest.mark.parametrize(
    ("changed", "handling"),
    [
        (DELETE, ChangeHandling.FAIL),
        (UPDATE, ChangeHandling.FAIL),
        (UPDATE, ChangeHandling.IGNORE_DELETES),
    ],
)
def test_a_commit_that_removes_rows_stops_the_stream(changed: CommitActions, handling: ChangeHandling) -> None:
    """The error names table, version, operation and the options."""
    rules = StreamRules(table="main.test.t", changes=handling)
    with pytest.raises(StreamSourceChangedError, match=r"Version 1 of main\.test\.t") as caught:
        plan([changed], at(1), rules=rules)
    text = str(caught.value)
    assert str(changed.commit_info.operation if changed.commit_info else "") in text
    assert "'a'" in text
    assert ("ignoreDeletes" in text) == (changed is DELETE)
    assert "skipChangeCommits" in text


@pytest.mark.requirements("STREAM-3")
def test_rows_before_a_commit_that_stops_the_stream_are_emitted() -> None:
    commits = [commit(0, added("x")), UPDATE]
    batch = plan(commits, at(0))
    assert (paths(batch), batch.end) == (["x"], at(1))
    with pytest.raises(StreamSourceChangedError):
        plan(commits, batch.end)
    with pytest.raises(StreamSourceChangedError):
        plan(commits, at(0), until=at(2))


@pytest.mark.requirements("STREAM-3")
def test_a_stream_that_stopped_within_a_change_can_skip_the_rest() -> None:
    """The offset counts files of the commit, of which the stream emits none any more."""
    commits = [commit(0, removed("x"), added("a"), added("b")), commit(1, added("c"))]
    ignoring = plan(
        commits,
        at(0),
        rules=StreamRules(table="t", changes=ChangeHandling.IGNORE_CHANGES),
        limits=AdmissionLimits(max_files=1),
    )
    assert (paths(ignoring), ignoring.end) == (["a"], at(0, 0))
    skipping = StreamRules(table="t", changes=ChangeHandling.SKIP_CHANGE_COMMITS)
    rest = plan(commits, ignoring.end, rules=skipping)
    assert (paths(rest), rest.end) == (["c"], at(2))


# --- changes of the definition ----------------------------------------------------------------------------------------


def mapped(name: str, physical: str) -> StructField:
    return StructField(name, LONG, True, {COLUMN_ID: 1, PHYSICAL_NAME: physical})


@pytest.mark.requirements("STREAM-4")
@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (definition(0, ID, NAME), metadata(ID), "'name' is missing"),
        (definition(0, ID), metadata(StructField("id", INTEGER)), "type of 'id' changed"),
        (definition(0, ID), metadata(StructField("id", LONG, nullable=False)), "NOT NULL"),
        (definition(0, ID, NAME), metadata(ID, NAME, partitions=["name"]), "partitioned by other columns"),
        (
            definition(0, mapped("id", "p"), protocol=MAPPED, delta__columnMapping__mode="name"),
            metadata(mapped("key", "p"), delta__columnMapping__mode="name"),
            "'id' was renamed to 'key'",
        ),
        (
            definition(0, mapped("id", "p"), protocol=MAPPED, delta__columnMapping__mode="name"),
            metadata(mapped("id", "q"), delta__columnMapping__mode="name"),
            "'id' was dropped",
        ),
    ],
)
def test_an_incompatible_schema_change_stops_the_stream(
    before: VersionDefinition, after: Metadata, reason: str
) -> None:
    """After the rows before the change; a new stream can start at that version."""
    commits = [commit(0, added("a")), commit(1, after, added("b")), commit(2, added("c"))]
    batch = plan(commits, at(0), reading=before, current=before)
    assert (paths(batch), batch.end) == (["a"], at(1))
    with pytest.raises(SchemaMismatchError, match=f"Version 1 of main.test.t .*{reason}.* starting version 1"):
        plan(commits, at(1), reading=before, current=before)

    late = before.after(commits[1])
    assert paths(plan(commits, at(1), reading=late, current=late)) == ["b", "c"]
    # A stream that was started again maps the rows before the change to its schema, if column mapping identifies the columns.
    if "renamed" in reason:
        assert paths(plan(commits, at(0), reading=late, current=before)) == ["a", "b", "c"]
        return
    with pytest.raises(SchemaMismatchError, match=r"is at version 0, .* schema of version 1"):
        plan(commits, at(0), reading=late, current=before)


@pytest.mark.requirements("STREAM-4")
def test_new_columns_start_a_new_batch() -> None:
    """Rows are read with the columns of their version; older rows are emitted before."""
    commits = [commit(0, added("a")), commit(1, metadata(ID, NAME), added("b")), commit(2, added("c"))]
    first = plan(commits, at(0))
    assert (paths(first), first.reading.schema.names) == (["a"], ("id",))
    second = plan(commits, first.end, reading=first.reading, current=first.current)
    assert (paths(second), second.reading.schema.names) == (["b", "c"], ("id", "name"))
    with pytest.raises(SchemaMismatchError, match=r"Version 1 .* lies inside of the batch"):
        plan(commits, at(0), until=at(3))
    # A stream with the latest schema reads all rows with its columns.
    latest = definition(0).after(commits[1])
    assert paths(plan(commits, at(0), reading=latest, current=definition(0), until=at(3))) == ["a", "b", "c"]


@pytest.mark.requirements("STREAM-4")
def test_a_change_of_properties_does_not_affect_a_stream() -> None:
    after = metadata(ID, delta__appendOnly="true")
    batch = plan([commit(0, added("a")), commit(1, after, added("b"))], at(0))
    assert (paths(batch), batch.current.metadata) == (["a", "b"], after)


@pytest.mark.requirements("STREAM-4")
def test_dropping_not_null_starts_a_new_batch() -> None:
    """A schema with NOT NULL must not get a NULL."""
    strict = definition(0, StructField("id", LONG, nullable=False))
    commits = [commit(0, added("a")), commit(1, metadata(ID), added("b"))]
    assert paths(plan(commits, at(0), reading=strict, current=strict)) == ["a"]


@pytest.mark.requirements("STREAM-4")
def test_an_unsupported_reader_feature_stops_the_stream() -> None:
    """At the version that adds it."""
    unknown = Protocol(min_reader_version=3, min_writer_version=7, reader_features=("x",), writer_features=("x",))
    commits = [commit(0, added("a")), commit(1, unknown)]
    assert plan(commits, at(0)).end == at(1)
    with pytest.raises(UnsupportedFeatureError, match=r"main.test.t at version 1 .*'?x"):
        plan(commits, at(1))


@pytest.mark.requirements("STREAM-4")
def test_a_replaced_table_stops_the_stream() -> None:
    commits = [commit(1, metadata(ID, table_id="other"), added("b"))]
    with pytest.raises(StreamSourceChangedError, match="replaces the table"):
        plan(commits, at(1))


# --- invalid logs and offsets -----------------------------------------------------------------------------------------


@pytest.mark.requirements("STREAM-1", "LOG-4")
def test_a_missing_commit_is_an_error() -> None:
    with pytest.raises(CorruptLogError, match=r"version 1 of main\.test\.t is missing"):
        plan([commit(0, added("a")), commit(2, added("c"))], at(0))


@pytest.mark.requirements("STREAM-1")
def test_an_offset_after_the_files_of_its_version_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="lies after the 1 files"):
        plan([commit(0, added("a"))], at(0, 1))


@pytest.mark.requirements("STREAM-1")
def test_an_unreachable_end_is_refused() -> None:
    """Before the start, or after the latest version."""
    commits = [commit(0, added("a")), commit(1, added("b"))]
    with pytest.raises(InvalidArgumentError, match="lies before"):
        plan(commits, at(1), until=at(0))
    with pytest.raises(CorruptLogError, match="it ends at"):
        plan(commits, at(0), until=at(5), limits=UNBOUNDED)
