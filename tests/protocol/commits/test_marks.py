"""Marks of row ids and identity columns: what a commit states, what lowers them, and how the catalog stores them."""

import json

import pytest

from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.commits.proposal_checks.marks import (
    IdentityMark,
    Marks,
    StatedMarks,
    flaw_of_identity,
    stated_marks,
)

BEFORE = Marks(
    row_id=9,
    identity={
        "up": IdentityMark(1, 2, 11),
        "down": IdentityMark(0, -1, -4),
        "mapped": IdentityMark(1, 1, 5, column_id=3),
    },
)


def _stated(*, redefines_columns: bool = False, **identity: IdentityMark) -> StatedMarks:
    return StatedMarks(identity=identity, redefines_columns=redefines_columns)


def _metadata(*columns: dict[str, object], mode: str = "none") -> Metadata:
    fields = [{"type": "long", "nullable": True, **column} for column in columns]
    schema_string = json.dumps({"type": "struct", "fields": fields})
    return Metadata(id="i", schema_string=schema_string, configuration={"delta.columnMapping.mode": mode})


@pytest.mark.parametrize(
    "marks",
    [
        BEFORE,
        Marks(),
        Marks(row_id=-1),
        Marks(identity={"n": IdentityMark(-(2**63), 1, 2**63 - 1, 7)}),
        Marks(identity={"n": IdentityMark(1, 1, None, earlier=(IdentityMark(2, 1, 5), IdentityMark(1, 2, 6, 3)))}),
    ],
)
def test_stored_marks_are_read_back(marks: Marks) -> None:
    assert Marks.stored(marks.row_id, marks.identity_text()) == marks


@pytest.mark.parametrize(
    ("stated", "field"),
    [
        (StatedMarks(), None),
        (StatedMarks(row_id=9), None),
        (StatedMarks(row_id=8), "configuration"),
        (StatedMarks(row_id=8, redefines_columns=True), "configuration"),
        (_stated(up=IdentityMark(1, 2, 11), down=IdentityMark(0, -1, -5), new=IdentityMark(1, 1, None)), None),
        (_stated(), None),
        (_stated(up=IdentityMark(1, 2, 9)), "schemaString"),
        (_stated(up=IdentityMark(1, 2, None)), "schemaString"),
        (_stated(up=IdentityMark(1, 2, None), redefines_columns=True), None),
        (_stated(up=IdentityMark(1, 3, None)), None),
        (_stated(up=IdentityMark(2, 2, None)), None),
        (_stated(up=IdentityMark(1, 2, 9, column_id=4)), "schemaString"),
        (_stated(down=IdentityMark(0, -1, -3)), "schemaString"),
        (_stated(mapped=IdentityMark(1, 1, 4, column_id=3)), "schemaString"),
        (_stated(mapped=IdentityMark(1, 1, 4)), "schemaString"),
        (_stated(mapped=IdentityMark(1, 1, None, column_id=4)), None),
    ],
)
def test_a_lower_mark_is_a_flaw_unless_the_column_is_defined_again(stated: StatedMarks, field: str | None) -> None:
    flaw = stated.flaw_after(BEFORE)
    assert (None if flaw is None else flaw.field) == field
    assert stated.flaw_after(Marks()) is None, "the first commit that states a mark is right"


def test_a_sequence_that_comes_back_has_its_mark() -> None:
    """Also after the column was not an identity column, and after a commit that exists lowered it."""
    after = _stated(up=IdentityMark(5, 2, 7)).after(BEFORE)
    assert after.identity == {"up": IdentityMark(5, 2, 7, earlier=(IdentityMark(1, 2, 11),))}
    after = StatedMarks(identity={}, other_columns={"up": 4}).after(after)
    for mark, is_lower in (
        (IdentityMark(1, 2, 9), True),
        (IdentityMark(5, 2, None), True),
        (IdentityMark(5, 4, None), False),
        (IdentityMark(1, 2, 11), False),
    ):
        assert (_stated(up=mark).flaw_after(after) is not None) == is_lower, mark
    assert _stated(up=IdentityMark(1, 2, 9)).after(after).identity == {
        "up": IdentityMark(1, 2, 11, earlier=(IdentityMark(5, 2, 7),))
    }
    again = _stated(up=IdentityMark(1, 2, 1), redefines_columns=True).after(after)
    assert again.identity == {"up": IdentityMark(1, 2, 1)}


@pytest.mark.parametrize(
    ("columns", "is_kept"), [({"mapped": 3}, True), ({"mapped": None}, True), ({"mapped": 4}, False), ({}, False)]
)
def test_a_column_that_is_not_numbered_keeps_its_mark_until_it_is_another_column(
    columns: dict[str, int | None], is_kept: bool
) -> None:
    after = StatedMarks(identity={}, other_columns=columns).after(BEFORE)
    assert after.identity == ({"mapped": BEFORE.identity["mapped"]} if is_kept else {})
    redefined = StatedMarks(identity={}, other_columns=columns, redefines_columns=True)
    assert redefined.after(BEFORE).identity == {}


@pytest.mark.parametrize(
    ("operation", "redefines"),
    [
        ("REPLACE TABLE", True),
        ("REPLACE TABLE AS SELECT", True),
        ("CREATE OR REPLACE TABLE", True),
        ("CREATE OR REPLACE TABLE AS SELECT", True),
        ("CLONE", True),
        ("CLONEX", False),
        ("REPLACE TABLES", False),
        ("clone", False),
        ("", False),
        (None, False),
    ],
)
def test_only_operations_that_replace_a_table_define_its_columns_again(operation: str | None, redefines: bool) -> None:
    stated = stated_marks(domain=None, metadata=_metadata(), protocol=None, operation=operation)
    assert stated.redefines_columns == redefines


@pytest.mark.parametrize("key", ["start", "step", "highWaterMark"])
@pytest.mark.parametrize("value", ["7", 7.0, True, 2**63, -(2**63) - 1, [7]])
def test_a_number_that_is_not_a_64_bit_integer_is_a_flaw(key: str, value: object) -> None:
    numbers = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.highWaterMark": 4}
    valid = _metadata({"name": "n", "metadata": numbers}, {"name": "m", "metadata": {}})
    assert flaw_of_identity(valid) is None
    flaw = flaw_of_identity(_metadata({"name": "n", "metadata": {**numbers, f"delta.identity.{key}": value}}))
    assert flaw is not None and (flaw.action, flaw.field) == ("metaData", "schemaString")
    assert f"delta.identity.{key}" in flaw.why and "column n" in flaw.why


def test_what_a_commit_does_not_say_stays() -> None:
    assert StatedMarks().after(BEFORE) == BEFORE
    assert StatedMarks(row_id=12).after(BEFORE) == Marks(row_id=12, identity=BEFORE.identity)
    assert StatedMarks(forgets_row_id=True).after(BEFORE) == Marks(identity=BEFORE.identity)
    assert _stated(n=IdentityMark(1, 1, 3), m=IdentityMark(1, 1, None)).after(BEFORE) == Marks(
        row_id=9, identity={"n": IdentityMark(1, 1, 3)}
    )


def test_a_lower_mark_of_a_commit_that_exists_does_not_replace_the_higher_one() -> None:
    lower = StatedMarks(row_id=3, identity={"up": IdentityMark(1, 2, 9), "mapped": IdentityMark(1, 1, 6, column_id=3)})
    assert lower.after(BEFORE) == Marks(
        row_id=9, identity={"up": IdentityMark(1, 2, 11), "mapped": IdentityMark(1, 1, 6, column_id=3)}
    )


@pytest.mark.parametrize(("num_files", "is_believed"), [(None, True), (0, True), (2, True), (3, False)])
def test_a_replacement_that_leaves_files_of_the_table_is_not_believed(num_files: int | None, is_believed: bool) -> None:
    stated = StatedMarks(identity={"up": IdentityMark(1, 2, None)}, redefines_columns=True, num_removed=2)
    assert (stated.believed(num_files=num_files).flaw_after(BEFORE) is None) == is_believed


def test_names_that_an_earlier_release_stored_are_read_in_lower_case() -> None:
    assert Marks.stored(None, '{"Number":[1,1,5]}').identity == {"number": IdentityMark(1, 1, 5)}


@pytest.mark.parametrize(("features", "forgets"), [(("catalogManaged",), True), (("rowTracking",), False)])
def test_a_protocol_without_row_tracking_ends_its_mark(features: tuple[str, ...], forgets: bool) -> None:
    protocol = Protocol(min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=features)
    stated = stated_marks(domain=None, metadata=None, protocol=protocol, operation=None)
    assert stated.forgets_row_id == forgets and (stated.after(BEFORE).row_id is None) == forgets


@pytest.mark.parametrize(
    ("mode", "features", "is_mapped"),
    [
        ("name", None, True),
        ("id", ("columnMapping",), True),
        ("name", (), False),
        ("none", ("columnMapping",), False),
        ("wrong", None, False),
    ],
)
def test_marks_belong_to_the_physical_name_of_a_column_if_the_table_has_column_mapping(
    mode: str, features: tuple[str, ...] | None, is_mapped: bool
) -> None:
    numbers = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.highWaterMark": 4}
    metadata = _metadata(
        {
            "name": "Renamed",
            "metadata": {**numbers, "delta.columnMapping.physicalName": "Col-1", "delta.columnMapping.id": 7},
        },
        {"name": "plain", "metadata": numbers},
        {"name": "Other", "metadata": {}},
        mode=mode,
    )
    protocol = None
    if features is not None:
        protocol = Protocol(
            min_reader_version=3, min_writer_version=7, reader_features=features, writer_features=features
        )
    operation = "CREATE OR REPLACE TABLE AS SELECT"
    stated = stated_marks(domain=None, metadata=metadata, protocol=protocol, operation=operation)
    of_renamed = {"col-1": IdentityMark(1, 1, 4, column_id=7)} if is_mapped else {"renamed": IdentityMark(1, 1, 4)}
    assert stated.identity == {**of_renamed, "plain": IdentityMark(1, 1, 4)}
    assert stated.other_columns == {"other": None}
    assert stated.redefines_columns
