"""Which values of a merge's conditions are converted before they are compared, as text."""

import pytest

from cm_delta_dagster.operations.writing.row_change import RowChange, RowClause
from cm_delta_dagster.operations.writing.stored_comparisons import StoredComparisons
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind
from cm_delta_dagster.protocol.features.column_specs import Column, schema_of_columns
from cm_delta_dagster.protocol.predicates.references import Side

TARGET = (
    Column("sku", "char(5)"),
    Column("d", "decimal(10,2)"),
    Column("id", "bigint"),
    Column("p", "string"),
    Column("st", "struct<c: char(3)>"),
)
SOURCE = (
    Column("sku", "string"),
    Column("d", "double"),
    Column("id", "int"),
    Column("p", "string"),
    Column("k", "string"),
    Column("wide", "char(8)"),
)
PADDED = "(CASE WHEN char_length({0}) < {1} THEN rpad({0}, {1}, ' ') ELSE {0} END)"
TRIMMED = "CAST(trim(s.k) AS STRING)"
STORED_TEXT = "(CASE WHEN s.p NOT IN ('', '__HIVE_DEFAULT_PARTITION__') THEN s.p END)"


def rewritten(text: str, assignments: dict[str, str] | None = None) -> str:
    clause = RowClause(kind=ClauseKind.NOT_MATCHED, action=ClauseAction.INSERT, assignments=assignments)
    change = RowChange(clauses=(clause,), target_alias="t", source_alias="s")
    target, source = (
        Side(alias="t", schema=schema_of_columns(TARGET)),
        Side(alias="s", schema=schema_of_columns(SOURCE)),
    )
    return StoredComparisons(change, target, source, ("p",)).condition(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t.sku = s.sku", f"t.sku = {PADDED.format('s.sku', 5)}"),
        ("k == T.SKU AND t.id = 1", f"{PADDED.format('k', 5)} == T.SKU AND t.id = 1"),
        ("t.sku = trim(s.k)", f"t.sku = {PADDED.format(TRIMMED, 5)}"),
        ("t.st.c < s.k", f"t.st.c < {PADDED.format('s.k', 3)}"),
        ("NOT (`t`.`d` <> `s`.`d`)", "NOT (`t`.`d` <> (TRY_CAST(`s`.`d` AS decimal(10,2))))"),
        ("t.p <=> s.p OR t.id > 5", f"t.p <=> {STORED_TEXT} OR t.id > 5"),
        ("t.p = s.k", "t.p = s.k"),
        ("t.id = s.id", "t.id = s.id"),
        ("t.sku = s.wide", "t.sku = s.wide"),
        ("t.sku = 'ab'", "t.sku = 'ab'"),
        ("t.sku = t.p", "t.sku = t.p"),
        ("t.d = s.d + 1", "t.d = s.d + 1"),
        ("t.sku = (SELECT max(s.k))", "t.sku = (SELECT max(s.k))"),
        ("t.sku = ", "t.sku = "),
    ],
)
def test_values_are_compared_as_they_are_stored(text: str, expected: str) -> None:
    assert rewritten(text) == expected


def test_only_what_a_clause_stores_is_converted() -> None:
    assert rewritten("t.d = s.d", {"d": "s.id"}) == "t.d = s.d"
    for given in ("d", "s.d", "`S`.D"):
        assert rewritten("t.d = s.d", {"T.d": given}) == "t.d = (TRY_CAST(s.d AS decimal(10,2)))"
    assert rewritten("t.d = s.d + 1", {"d": "s.d  + 1"}) == "t.d = (TRY_CAST(s.d + 1 AS decimal(10,2)))"
