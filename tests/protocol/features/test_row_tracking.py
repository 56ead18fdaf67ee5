"""Row tracking: columns of row ids, the high-water mark, and fresh ids."""

import itertools
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import CorruptLogError, IllegalCommitError, InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import AddFile, DomainMetadata, Metadata, Protocol
from cm_delta_dagster.protocol.features.column_mapping import COLUMN_ID, PHYSICAL_NAME
from cm_delta_dagster.protocol.features.row_tracking import (
    DOMAIN,
    ENABLED,
    MATERIALIZED_ROW_COMMIT_VERSION,
    MATERIALIZED_ROW_ID,
    RowIdColumns,
    assign_row_ids,
    high_water_mark,
    high_water_mark_domain,
    highest_row_id,
    is_enabled,
    is_supported,
    known_high_water_mark,
    row_id_columns,
    stated_high_water_mark,
)
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType, schema_to_json
from tests.support.actions import add_file

TRACKED = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("rowTracking", "domainMetadata"))
MAPPED = Protocol(
    min_reader_version=2, min_writer_version=7, writer_features=("rowTracking", "domainMetadata", "columnMapping")
)
PLAIN = Protocol(min_reader_version=1, min_writer_version=2)
NAMES = {MATERIALIZED_ROW_ID: "_row-id-col-1", MATERIALIZED_ROW_COMMIT_VERSION: "_row-commit-version-col-2"}

FIELD = StructField("a", LONG)


def metadata(field: StructField = FIELD, **configuration: str) -> Metadata:
    settings = {key.replace("__", "."): value for key, value in configuration.items()}
    return Metadata(id="t", schema_string=schema_to_json(StructType((field,))), configuration=settings)


def enabled(field: StructField = FIELD, **more: Any) -> Metadata:
    return metadata(field, **{ENABLED: "true", **NAMES, **more})


@pytest.mark.requirements("ROWTRK-1", "ROWTRK-9", "ROWTRK-10")
def test_an_enabled_table_has_columns_of_row_ids() -> None:
    columns = row_id_columns(TRACKED, enabled(), "t")
    assert columns == RowIdColumns(row_id="_row-id-col-1", row_commit_version="_row-commit-version-col-2")


@pytest.mark.requirements("ROWTRK-1", "ROWTRK-16")
@pytest.mark.parametrize(
    ("protocol", "properties", "supported"),
    [(TRACKED, NAMES, True), (TRACKED, {**NAMES, ENABLED: "false"}, True), (PLAIN, {**NAMES, ENABLED: "true"}, False)],
)
def test_ids_are_not_offered_unless_they_are_stable(
    protocol: Protocol, properties: dict[str, str], supported: bool
) -> None:
    table = metadata(**properties)
    assert is_supported(protocol) is supported
    assert not is_enabled(protocol, table)
    with pytest.raises(InvalidArgumentError, match=r"Row ids of main\.t cannot be read"):
        row_id_columns(protocol, table, "main.t")


@pytest.mark.requirements("ROWTRK-8")
@pytest.mark.parametrize("missing", sorted(NAMES))
def test_an_enabled_table_without_a_column_name_is_damaged(missing: str) -> None:
    configuration = {key: value for key, value in {ENABLED: "true", **NAMES}.items() if key != missing}
    with pytest.raises(CorruptLogError, match=missing):
        row_id_columns(TRACKED, metadata(**configuration), "t")


@pytest.mark.requirements("ROWTRK-9")
@pytest.mark.parametrize(
    ("protocol", "table"),
    [
        (TRACKED, enabled(StructField("_row-id-col-1", LONG))),
        (TRACKED, enabled(**{MATERIALIZED_ROW_COMMIT_VERSION: "_row-id-col-1"})),
        (
            MAPPED,
            enabled(
                StructField("a", LONG, metadata={PHYSICAL_NAME: "_row-id-col-1", COLUMN_ID: 1}),
                **{"delta.columnMapping.mode": "name"},
            ),
        ),
    ],
)
def test_a_hidden_column_with_the_name_of_another_is_damage(protocol: Protocol, table: Metadata) -> None:
    with pytest.raises(CorruptLogError, match="_row-id-col-1"):
        row_id_columns(protocol, table, "t")


@pytest.mark.requirements("ROWTRK-7")
@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ('{"rowIdHighWaterMark":9}', 9),
        ('{"highWaterMark":4,"other":1}', 4),
        ('{"rowIdHighWaterMark":9,"highWaterMark":12}', 12),
        ('{"rowIdHighWaterMark":-1}', -1),
    ],
)
def test_the_high_water_mark_is_read_under_both_names(text: str, mark: int) -> None:
    assert high_water_mark({DOMAIN: DomainMetadata(domain=DOMAIN, configuration=text)}) == mark


@pytest.mark.requirements("ROWTRK-7")
@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"rowIdHighWaterMark":true}', '{"rowIdHighWaterMark":-2}'])
def test_a_damaged_high_water_mark_is_not_guessed(text: str) -> None:
    """The ids of the files decide about the next ones."""
    domains = {DOMAIN: DomainMetadata(domain=DOMAIN, configuration=text)}
    with pytest.raises(CorruptLogError, match="high-water mark"):
        high_water_mark(domains)
    assert known_high_water_mark(domains) == -1
    assert stated_high_water_mark(domains) is None


@pytest.mark.requirements("ROWTRK-6")
def test_the_high_water_mark_is_minus_one_before_the_first_id() -> None:
    assert high_water_mark({}) == -1
    removed = DomainMetadata(domain=DOMAIN, configuration="", removed=True)
    assert high_water_mark({DOMAIN: removed}) == -1


@pytest.mark.requirements("ROWTRK-7")
@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", '{"rowIdHighWaterMark":"9"}', '{"rowIdHighWaterMark":true}', '{"highWaterMark":1.5}',
             '{"rowIdHighWaterMark":-2}', '{"rowIdHighWaterMark":9223372036854775808}', "[" * 100_000],
)  # fmt: skip
def test_a_domain_without_a_number_is_damage(text: str) -> None:
    with pytest.raises(CorruptLogError, match="high-water mark"):
        high_water_mark({DOMAIN: DomainMetadata(domain=DOMAIN, configuration=text)})


def _file(rows: int, **ids: int) -> AddFile:
    return add_file("f", stats=json.dumps({"numRecords": rows}), **ids)


@pytest.mark.requirements("ROWTRK-2", "ROWTRK-3", "ROWTRK-4", "ROWTRK-6")
@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=5))
def test_no_id_is_given_twice(commits: list[list[int]]) -> None:
    mark, given_ids = -1, []
    for version, sizes in enumerate(commits):
        fresh = assign_row_ids([_file(rows) for rows in sizes], high_water_mark=mark, version=version)
        for add, rows in zip(fresh.adds, sizes, strict=True):
            assert add.base_row_id is not None and add.base_row_id > mark
            assert add.default_row_commit_version == version
            given_ids += range(add.base_row_id, add.base_row_id + rows)
        assert fresh.high_water_mark >= mark
        mark = fresh.high_water_mark
    assert all(one < other for one, other in itertools.pairwise(given_ids))
    assert mark == (given_ids[-1] if given_ids else -1)
    assert high_water_mark({DOMAIN: high_water_mark_domain(mark)}) == mark


@pytest.mark.requirements("ROWTRK-3")
@pytest.mark.parametrize(
    ("ids", "rows", "highest"),
    [
        ([], [], -1),
        ([None, None], [5, None], -1),
        ([0, 10, None], [10, 5, 99], 14),
        ([0, 10], [100, 5], 99),
        ([7, 3], [None, 0], 7),
        ([2**63 - 2, -5], [10, 3], 2**63 - 1),
    ],
)
def test_the_highest_row_id_of_files(ids: list[int | None], rows: list[int | None], highest: int) -> None:
    """Also of files that overlap, without a number of rows, and with damaged numbers."""
    assert highest_row_id(pa.array(ids, pa.int64()), pa.array(rows, pa.int64())) == highest
    chunks = pa.chunked_array([pa.array(ids[:1], pa.int64()), pa.array(ids[1:], pa.int64())])
    assert highest_row_id(chunks, pa.array(rows, pa.int64())) == highest


@pytest.mark.requirements("ROWTRK-3")
def test_ids_beyond_64_bits_are_refused() -> None:
    full = assign_row_ids([_file(2)], high_water_mark=2**63 - 3, version=1)
    assert full.high_water_mark == 2**63 - 1
    with pytest.raises(IllegalCommitError, match="64 bits"):
        assign_row_ids([_file(1)], high_water_mark=full.high_water_mark, version=2)


@pytest.mark.requirements("ROWTRK-5")
def test_a_file_that_is_committed_again_keeps_its_ids() -> None:
    old = _file(5, base_row_id=3, default_row_commit_version=1)
    fresh = assign_row_ids([old, _file(2)], high_water_mark=9, version=4)
    assert fresh.adds == (old, _file(2, base_row_id=10, default_row_commit_version=4))
    assert fresh.high_water_mark == 11
