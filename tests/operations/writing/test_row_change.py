"""Row changes as values: what is refused before the table is looked at."""

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.writing.row_change import RowChange, RowClause, check_clauses
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind

DELETE = RowClause(kind=ClauseKind.MATCHED, action=ClauseAction.DELETE)
UPDATE = RowClause(kind=ClauseKind.MATCHED, action=ClauseAction.UPDATE, assignments={"a": "1"})
SOME = RowClause(kind=ClauseKind.MATCHED, action=ClauseAction.DELETE, condition="t.a > 1")
INSERT = RowClause(kind=ClauseKind.NOT_MATCHED, action=ClauseAction.INSERT, assignments=None)
OTHERS = RowClause(kind=ClauseKind.NOT_MATCHED_BY_SOURCE, action=ClauseAction.DELETE)


@pytest.mark.parametrize(
    ("clauses", "twice"),
    [
        ((DELETE,), True),
        ((DELETE, INSERT), True),
        ((INSERT,), True),
        ((SOME,), False),
        ((SOME, UPDATE), False),
        ((OTHERS,), False),
    ],
)
def test_two_partners_matter_unless_nothing_depends_on_them(clauses: tuple[RowClause, ...], twice: bool) -> None:
    change = RowChange(clauses=clauses)
    check_clauses(change)
    assert change.may_match_twice is twice


@pytest.mark.parametrize("clauses", [(), (DELETE, SOME), (UPDATE, INSERT, DELETE)])
def test_clauses_that_can_never_apply_are_refused(clauses: tuple[RowClause, ...]) -> None:
    with pytest.raises(InvalidArgumentError):
        check_clauses(RowChange(clauses=clauses))
