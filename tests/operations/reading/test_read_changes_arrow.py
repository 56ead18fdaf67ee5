"""Change data feed without a JVM: the changes of any range lead from one version to the other."""

import json
import os
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import (
    CorruptLogError,
    InvalidArgumentError,
    ObjectNotFoundError,
    SchemaMismatchError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.reading.change_query import ChangeRange, open_changes
from cm_delta_dagster.operations.reading.read_changes_arrow import read_change_batches, read_changes_arrow
from cm_delta_dagster.protocol.actions.paths import resolve_path
from cm_delta_dagster.protocol.features.deletion_vectors import encode_inline
from cm_delta_dagster.protocol.predicates.predicates import Comparison, ComparisonOperator
from cm_delta_dagster.storage.stores import Stores
from tests.golden.catalog import IDENTIFIER, RecordedCatalog
from tests.support.changes_of import actions, check_every_range, counted, path_table, rewrite, write
from tests.support.golden_tables import GOLDEN, unpack_golden_tables


def rows(*keys: int, value: str = "a") -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "p": [f"p {key % 2}/" for key in keys], "v": [value] * len(keys)})


def basic(path: Path) -> None:
    """Versions: 0 inserts 1..4, 1 updates 2, 2 deletes 3, 3 appends 5, 4 compacts."""
    write(path, rows(1, 2, 3, 4), partition_by=["p"])
    table = deltalake.DeltaTable(str(path))
    table.update(updates={"v": "'b'"}, predicate="k = 2")
    table.delete("k = 3")
    deltalake.write_deltalake(str(path), rows(5), mode="append")
    deltalake.DeltaTable(str(path)).optimize.compact()


def triples(changes: pa.Table) -> list[tuple[Any, ...]]:
    columns = ("_commit_version", "_change_type", "k", "v")
    return sorted(tuple(row[name] for name in columns) for row in changes.to_pylist())


def local(table: Path, path: str) -> Path:
    return Path(resolve_path(f"file://{table}", path).removeprefix("file://"))


@pytest.mark.requirements("CDF-4", "CDF-5", "CDF-6", "CDF-7", "CDF-8")
def test_changes_of_a_range_of_versions(tmp_path: Path) -> None:
    """Both ends are included, and a compaction changes nothing."""
    basic(tmp_path / "t")
    table = path_table(tmp_path / "t")
    changes = read_changes_arrow(open_changes(table, ChangeRange(starting_version=0)))
    assert changes.schema.names == ["k", "p", "v", "_change_type", "_commit_version", "_commit_timestamp"]
    assert triples(changes) == [
        (0, "insert", 1, "a"), (0, "insert", 2, "a"), (0, "insert", 3, "a"), (0, "insert", 4, "a"),
        (1, "update_postimage", 2, "b"), (1, "update_preimage", 2, "a"),
        (2, "delete", 3, "a"),
        (3, "insert", 5, "a"),
    ]  # fmt: skip
    assert triples(read_changes_arrow(open_changes(table, ChangeRange(starting_version=2, ending_version=2)))) == [
        (2, "delete", 3, "a")
    ]
    assert read_changes_arrow(open_changes(table, ChangeRange(starting_version=4, ending_version=4))).num_rows == 0
    assert triples(read_changes_arrow(open_changes(table, ChangeRange(starting_version=3, ending_version=99)))) == [
        (3, "insert", 5, "a")
    ]


@pytest.mark.requirements("CDF-7", "CDF-8")
def test_times_of_commits_choose_a_range(tmp_path: Path) -> None:
    """The first commit at or after the start, the last one at or before the end."""
    basic(tmp_path / "t")
    for version in range(5):
        os.utime(tmp_path / "t/_delta_log" / f"{version:020d}.json", (1000 + 10 * version, 1000 + 10 * version))
    table = path_table(tmp_path / "t")
    changes = read_changes_arrow(
        open_changes(table, ChangeRange(starting_timestamp_ms=1_005_000, ending_timestamp_ms=1_020_000))
    )
    assert set(changes["_commit_version"].to_pylist()) == {1, 2}
    assert set(changes["_commit_timestamp"].to_pylist()) == {
        datetime.fromtimestamp(second, UTC) for second in (1010, 1020)
    }
    assert changes.schema.field("_commit_timestamp").type == pa.timestamp("us", "UTC")
    between = read_changes_arrow(
        open_changes(table, ChangeRange(starting_timestamp_ms=1_011_000, ending_timestamp_ms=1_019_000))
    )
    assert between.num_rows == 0
    assert read_changes_arrow(open_changes(table, ChangeRange(starting_timestamp_ms=0))).num_rows == 8
    for start, end in ((1_041_000, None), (0, 1_041_000), (0, 999_000)):
        with pytest.raises(VersionNotFoundError):
            read_changes_arrow(open_changes(table, ChangeRange(starting_timestamp_ms=start, ending_timestamp_ms=end)))
    with pytest.raises(InvalidArgumentError, match="before"):
        read_changes_arrow(
            open_changes(table, ChangeRange(starting_timestamp_ms=1_019_000, ending_timestamp_ms=1_011_000))
        )


@pytest.mark.requirements("CDF-8")
@pytest.mark.parametrize(
    ("wanted", "error", "message"),
    [
        ({}, InvalidArgumentError, "have no start"),
        ({"starting_version": 1, "starting_timestamp_ms": 1}, InvalidArgumentError, "start at .* not both"),
        (
            {"starting_version": 1, "ending_version": 2, "ending_timestamp_ms": 1},
            InvalidArgumentError,
            "end at .* not both",
        ),
        ({"starting_version": 2, "ending_version": 1}, InvalidArgumentError, "end at version 1, before"),
        ({"starting_version": True}, InvalidArgumentError, "whole number"),
        ({"starting_version": -1}, VersionNotFoundError, "its versions are 0 to 4"),
        ({"starting_version": 5}, VersionNotFoundError, "its versions are 0 to 4"),
        ({"starting_timestamp_ms": 10**15}, VersionNotFoundError, "its latest version 4 is of"),
        (
            {"starting_version": 0, "ending_timestamp_ms": 1},
            VersionNotFoundError,
            "its oldest readable version 0 is of",
        ),
        ({"starting_version": 0, "columns": ["nope"]}, InvalidArgumentError, "no column 'nope'"),
        ({"starting_version": 0, "columns": "k"}, InvalidArgumentError, "'k'"),
        ({"starting_version": 0, "columns": ["k", "K"]}, InvalidArgumentError, "(?i)'k'"),
        ({"starting_version": 0, "where": "nope = 1"}, InvalidArgumentError, "nope"),
        ({"starting_version": 0, "where": "upper(v) = 'A'"}, InvalidArgumentError, "upper"),
    ],
)
def test_a_range_or_query_that_means_nothing_is_refused(
    tmp_path: Path, wanted: dict[str, Any], error: type, message: str
) -> None:
    basic(tmp_path / "t")
    query = {name: value for name, value in wanted.items() if name in ("columns", "where")}
    versions = ChangeRange(**{name: value for name, value in wanted.items() if name not in query})
    with pytest.raises(error, match=message) as refused:
        read_changes_arrow(open_changes(path_table(tmp_path / "t"), versions, **query))
    assert str(tmp_path) in str(refused.value)


@pytest.mark.requirements("ROWTRK-15")
def test_row_ids_of_changes_are_refused(tmp_path: Path) -> None:
    basic(tmp_path / "t")
    with pytest.raises(InvalidArgumentError, match="changes have no row ids"):
        read_changes_arrow(
            open_changes(path_table(tmp_path / "t"), ChangeRange(starting_version=0), columns=["k", "_row_id"])
        )


@pytest.mark.requirements("CDF-7", "SKIP-1")
def test_columns_and_conditions_are_those_of_the_feed(tmp_path: Path) -> None:
    basic(tmp_path / "t")
    table = path_table(tmp_path / "t")

    def asked(where: Any, *columns: str) -> list[tuple[Any, ...]]:
        changes = read_changes_arrow(
            open_changes(table, ChangeRange(starting_version=0), columns=list(columns), where=where)
        )
        assert changes.schema.names == list(columns)
        return sorted(tuple(row.values()) for row in changes.to_pylist())

    assert asked("_change_type = 'delete'", "k") == [(3,)]
    assert asked("_commit_version >= 2 and k > 3", "_commit_version", "k") == [(3, 5)]
    assert asked(Comparison("k", ComparisonOperator.EQ, 4), "v", "_change_type") == [("a", "insert")]
    assert asked("p = 'p 1/' and v = 'a'", "k") == [(1,), (3,), (3,), (5,)]
    assert asked("k = 3 or _change_type like 'update%'", "_change_type", "k") == [
        ("delete", 3), ("insert", 3), ("update_postimage", 2), ("update_preimage", 2)]  # fmt: skip
    assert asked(None, "_change_type").count(("insert",)) == 5


def test_a_stream_reads_files_only_when_they_are_wanted(tmp_path: Path) -> None:
    basic(tmp_path / "t")
    (path,) = [line["add"]["path"] for line in actions(tmp_path / "t", 3) if "add" in line]
    stream = read_change_batches(open_changes(path_table(tmp_path / "t"), ChangeRange(starting_version=0)))
    local(tmp_path / "t", path).unlink()
    with pytest.raises(ObjectNotFoundError, match=path.rpartition("/")[2]):
        stream.read_all()


@pytest.mark.requirements("CDF-1", "CDF-8")
def test_change_data_feed_must_have_been_active_in_all_of_the_range(tmp_path: Path) -> None:
    basic(tmp_path / "t")
    metadata = next(line for line in actions(tmp_path / "t", 0) if "metaData" in line)
    for version, value in ((2, "false"), (3, "true")):
        metadata["metaData"]["configuration"]["delta.enableChangeDataFeed"] = value
        rewrite(tmp_path / "t", version, [*actions(tmp_path / "t", version), metadata])
    table = path_table(tmp_path / "t")
    assert read_changes_arrow(open_changes(table, ChangeRange(starting_version=0, ending_version=1))).num_rows == 6
    assert read_changes_arrow(open_changes(table, ChangeRange(starting_version=3))).num_rows == 1
    for start, end in ((0, 2), (2, 2), (2, 4)):
        with pytest.raises(InvalidArgumentError, match="not active at version"):
            read_changes_arrow(open_changes(table, ChangeRange(starting_version=start, ending_version=end)))


@pytest.mark.requirements("CDF-6")
def test_new_columns_are_null_in_older_changes_and_other_changes_of_the_schema_are_refused(tmp_path: Path) -> None:
    """The schema of the latest version is used, as by delta-spark."""
    basic(tmp_path / "t")
    more = rows(6).append_column("w", pa.array([1.5]))
    deltalake.write_deltalake(str(tmp_path / "t"), more, mode="append", schema_mode="merge")
    table = path_table(tmp_path / "t")
    changes = read_changes_arrow(open_changes(table, ChangeRange(starting_version=3)))
    assert [(row["k"], row["w"]) for row in changes.to_pylist()] == [(5, None), (6, 1.5)]
    assert (
        "w" in read_changes_arrow(open_changes(table, ChangeRange(starting_version=1, ending_version=1))).schema.names
    )
    dropped = rows(7).drop_columns(["v"])
    deltalake.write_deltalake(str(tmp_path / "t"), dropped, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SchemaMismatchError, match="'v' is missing"):
        read_changes_arrow(open_changes(table, ChangeRange(starting_version=5)))
    assert read_changes_arrow(open_changes(table, ChangeRange(starting_version=6))).num_rows == 6


@pytest.mark.requirements("CDF-4")
def test_a_change_file_that_does_not_say_what_changed_is_an_error(tmp_path: Path) -> None:
    basic(tmp_path / "t")
    (path,) = [line["cdc"]["path"] for line in actions(tmp_path / "t", 2) if "cdc" in line]
    file = local(tmp_path / "t", path)
    held = pq.read_table(file, partitioning=None)
    other = held.drop_columns(["_change_type"])
    for broken in (other, other.append_column("_change_type", pa.array(["x"]))):
        pq.write_table(broken, file)
        lines = actions(tmp_path / "t", 2)
        for line in lines:
            if "cdc" in line:
                line["cdc"]["size"] = file.stat().st_size
        rewrite(tmp_path / "t", 2, lines)
        with pytest.raises(CorruptLogError, match="version 2"):
            read_changes_arrow(
                open_changes(path_table(tmp_path / "t"), ChangeRange(starting_version=2, ending_version=2))
            )


def vectors(path: Path, *deleted: tuple[int, ...]) -> None:
    """A table of one file of four rows whose deletion vector is replaced by each version."""
    write(path, rows(0, 1, 2, 3))
    first = actions(path, 0)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    protocol["writerFeatures"] = ["deletionVectors", "changeDataFeed"]
    rewrite(path, 0, [{"protocol": protocol} if "protocol" in line else line for line in first])
    (added,) = [line["add"] for line in first if "add" in line]
    before: dict[str, Any] = {}
    for version, positions in enumerate(deleted, start=1):
        vector = encode_inline(positions) if positions else None
        after = {} if vector is None else {"deletionVector": {
            "storageType": "i", "pathOrInlineDv": vector.path_or_inline_dv, "sizeInBytes": vector.size_in_bytes,
            "cardinality": vector.cardinality}}  # fmt: skip
        remove = {"path": added["path"], "deletionTimestamp": 0, "dataChange": True, **before}
        rewrite(path, version, [{"remove": remove}, {"add": {**added, **after}}])
        before = after


@pytest.mark.requirements("CDF-6")
def test_another_deletion_vector_changes_only_the_rows_in_which_it_differs(tmp_path: Path) -> None:
    """Deleted, deleted and restored at once, restored wholly, and nothing."""
    vectors(tmp_path / "t", (1,), (0, 3), (), (0, 1, 2, 3), (0, 1, 2, 3))
    table = path_table(tmp_path / "t")
    found = [triple[:3] for triple in triples(read_changes_arrow(open_changes(table, ChangeRange(starting_version=1))))]
    assert found == [
        (1, "delete", 1),
        (2, "delete", 0), (2, "delete", 3), (2, "insert", 1),
        (3, "insert", 0), (3, "insert", 3),
        (4, "delete", 0), (4, "delete", 1), (4, "delete", 2), (4, "delete", 3),
    ]  # fmt: skip
    assert check_every_range(table, range(6)) == 14


@pytest.mark.requirements("CDF-6")
def test_the_footer_has_the_number_of_rows_of_a_file_without_statistics(tmp_path: Path) -> None:
    vectors(tmp_path / "t", (1,), (0, 1))
    for version in range(3):
        lines = actions(tmp_path / "t", version)
        for line in lines:
            line.get("add", {}).pop("stats", None)
        rewrite(tmp_path / "t", version, lines)
    changes = read_changes_arrow(open_changes(path_table(tmp_path / "t"), ChangeRange(starting_version=1)))
    assert [triple[:3] for triple in triples(changes)] == [(1, "delete", 1), (2, "delete", 0)]


@pytest.fixture(scope="module")
def golden_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tables = {case["table"] for case in json.loads((GOLDEN / "cases.json").read_text()) if case["kind"] == "cdf"}
    return unpack_golden_tables(
        tmp_path_factory.mktemp("golden"), lambda path: any(path.startswith(f"{name}/") for name in tables)
    )


@pytest.mark.requirements("CDF-10")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "versions"),
    [
        ("spark44/cdf_basic", range(6)),
        ("spark44/cdf_cm_id_dv", range(5)),
        ("spark44/cdf_dv", range(7)),
        ("spark44/cdf_disabled_later", range(3)),
        ("spark44/cdf_widen", range(3, 5)),
        ("spark44/special_values_dv", range(4)),
        ("spark44/special_values_nocm_cdf", range(5)),
        pytest.param("krs-data/cdf-table-with-cdc-and-dvs", range(26), marks=pytest.mark.exhaustive),
        ("delta-rs/checkpoint-cdf-table", range(3, 6)),
    ],
)
def test_changes_of_other_writers_lead_from_version_to_version(golden_tables: Path, name: str, versions: range) -> None:
    """With deletion vectors, column mapping, type widening, partitions and encoded paths."""
    table = path_table(golden_tables / name / "delta")
    assert check_every_range(table, versions) > 0


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 9), min_size=1, max_size=3)),
        st.tuples(st.sampled_from(["delete", "update", "merge", "overwrite"]), st.integers(0, 9)),
        st.tuples(st.just("compact"), st.none()),
    ),
    min_size=2,
    max_size=5,
)


def perform(path: Path, number: int, verb: str, argument: Any) -> None:
    table = deltalake.DeltaTable(str(path))
    match verb:
        case "append":
            deltalake.write_deltalake(str(path), rows(*argument, value=f"v{number}"), mode="append")
        case "delete":
            table.delete(f"k = {argument}")
        case "update":
            table.update(updates={"v": f"'u{number}'"}, predicate=f"k >= {argument}")
        case "merge":
            source = rows(argument, 100 + number, value=f"m{number}")
            merge = table.merge(source, predicate="t.k = s.k and t.v <> 'a'", source_alias="s", target_alias="t")
            merge.when_matched_update({"v": "s.v"}).when_not_matched_insert_all().execute()
        case "overwrite":
            deltalake.write_deltalake(str(path), rows(argument, value=f"o{number}"), mode="overwrite")
        case "compact":
            table.optimize.compact()


@pytest.mark.requirements("CDF-10")
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps, st.booleans())
def test_changes_of_random_statements_lead_from_version_to_version(
    tmp_path: Path, statements: list[tuple[str, Any]], is_partitioned: bool
) -> None:
    """Appends, deletes, updates, merges, overwrites and compactions of deltalake."""
    path = tmp_path / uuid.uuid4().hex
    write(path, rows(1, 2, 3, 4), partition_by=["p"] if is_partitioned else None)
    for number, (verb, argument) in enumerate(statements):
        perform(path, number, verb, argument)
    table = path_table(path)
    check_every_range(table, range(table.snapshot().version + 1))


@pytest.mark.requirements("CDF-7", "CM-R4")
def test_staged_commits_of_a_catalog_managed_table_have_changes(tmp_path: Path) -> None:
    """The catalog's commits count, and times are in-commit timestamps."""
    basic(tmp_path / "t")
    path, log = tmp_path / "t", tmp_path / "t/_delta_log"
    features = ["catalogManaged", "changeDataFeed", "inCommitTimestamp", "vacuumProtocolCheck"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": features}
    protocol["readerFeatures"] = ["catalogManaged", "vacuumProtocolCheck"]
    for version in range(5):
        lines = [{"protocol": protocol} if "protocol" in line else line for line in actions(path, version)]
        info = next(line for line in lines if "commitInfo" in line)
        info["commitInfo"]["inCommitTimestamp"] = 5_000 + version
        for line in lines:
            if "metaData" in line:
                line["metaData"]["configuration"]["delta.enableInCommitTimestamps"] = "true"
        rewrite(path, version, [info, *(line for line in lines if line is not info)])
    (log / "_staged_commits").mkdir()
    commits = []
    for version in (3, 4):
        name = f"{version:020d}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"
        (log / f"{version:020d}.json").rename(log / "_staged_commits" / name)
        staged = log / "_staged_commits" / name
        commits.append(
            {
                "version": version,
                "file_name": name,
                "path": str(staged),
                "content": None,
                "file_size": staged.stat().st_size,
                "file_modification_timestamp": 1,
                "timestamp": 5_000 + version,
            }
        )
    catalog: Any = RecordedCatalog(f"file://{path}", commits, 4)
    table = DeltaClient(catalog, stores=Stores()).table(IDENTIFIER)
    changes = read_changes_arrow(open_changes(table, ChangeRange(starting_timestamp_ms=5_002)))
    assert triples(changes) == [(2, "delete", 3, "a"), (3, "insert", 5, "a")]
    milliseconds = pc.cast(changes["_commit_timestamp"].cast(pa.timestamp("ms", "UTC")), pa.int64()).to_pylist()
    assert sorted(milliseconds) == [5_002, 5_003]
    assert counted(changes)


def test_importing_the_reader_needs_no_spark() -> None:
    script = "import sys, cm_delta_dagster.operations.reading.read_changes_arrow; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
