"""Marks of row ids and identity columns: what a commit states, what lowers them, and how the catalog stores them."""

import json

import pytest

from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.commits.proposal_checks.marks import Marks, StatedMarks, stated_marks

BEFORE = Marks(row_id=9, identity={"up": (1, 2, 11), "down": (0, -1, -4)})


def _metadata(*columns: dict[str, object]) -> Metadata:
    fields = [{"type": "long", "nullable": True, **column} for column in columns]
    return Metadata(id="i", schema_string=json.dumps({"type": "struct", "fields": fields}))


@pytest.mark.parametrize("marks", [BEFORE, Marks(), Marks(row_id=-1), Marks(identity={"n": (-(2**63), 1, 2**63 - 1)})])
def test_stored_marks_are_read_back(marks: Marks) -> None:
    assert Marks.stored(marks.row_id, marks.identity_text()) == marks


@pytest.mark.parametrize(
    ("stated", "field"),
    [
        (StatedMarks(), None),
        (StatedMarks(row_id=9), None),
        (StatedMarks(row_id=8), "configuration"),
        (StatedMarks(row_id=8, redefines_columns=True), "configuration"),
        (StatedMarks(identity={"up": (1, 2, 11), "down": (0, -1, -5), "new": (1, 1, None)}), None),
        (StatedMarks(identity={}), None),
        (StatedMarks(identity={"up": (1, 2, 9)}), "schemaString"),
        (StatedMarks(identity={"up": (1, 2, None)}), "schemaString"),
        (StatedMarks(identity={"up": (1, 2, None)}, redefines_columns=True), None),
        (StatedMarks(identity={"up": (1, 3, None)}), None),
        (StatedMarks(identity={"down": (0, -1, -3)}), "schemaString"),
    ],
)
def test_a_lower_mark_is_a_flaw_unless_the_column_is_defined_again(stated: StatedMarks, field: str | None) -> None:
    flaw = stated.flaw_after(BEFORE)
    assert (None if flaw is None else flaw.field) == field
    assert stated.flaw_after(Marks()) is None, "the first commit that states a mark is right"


def test_what_a_commit_does_not_say_stays() -> None:
    assert StatedMarks().after(BEFORE) == BEFORE
    assert StatedMarks(row_id=12).after(BEFORE) == Marks(row_id=12, identity=BEFORE.identity)
    assert StatedMarks(forgets_row_id=True).after(BEFORE) == Marks(identity=BEFORE.identity)
    assert StatedMarks(identity={"n": (1, 1, 3), "m": (1, 1, None)}).after(BEFORE) == Marks(
        row_id=9, identity={"n": (1, 1, 3)}
    )


def test_marks_belong_to_the_physical_name_of_a_column() -> None:
    numbers = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.highWaterMark": 4}
    metadata = _metadata(
        {"name": "renamed", "metadata": {**numbers, "delta.columnMapping.physicalName": "col-1"}},
        {"name": "plain", "metadata": numbers},
        {"name": "other", "metadata": {}},
    )
    stated = stated_marks(domain=None, metadata=metadata, protocol=None, operation="CREATE OR REPLACE TABLE AS SELECT")
    assert stated.identity == {"col-1": (1, 1, 4), "plain": (1, 1, 4)} and stated.redefines_columns
