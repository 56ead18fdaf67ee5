"""Texts in which tables of the catalog are replaced."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from cm_delta_dagster.operations.sql.rewriting import (
    Replacement,
    aliases_of,
    column_replacements,
    table_replacement,
    template,
)
from cm_delta_dagster.operations.sql.table_references import find_references

NAME = ("main", "sales", "orders")


def rewritten(text: str, *names: tuple[str, str, str]) -> str:
    """``text`` with a view ``v`` in place of the tables of these names."""
    found = find_references(text)
    tables = [one for one in found.tables if one.parts in names]
    aliases = aliases_of({one.parts: one.parts for one in tables}, found.columns)  # type: ignore[misc]
    changed = [table_replacement(one, field="v", alias=aliases[one.parts]) for one in tables]
    changed += column_replacements(found.columns, aliases)  # type: ignore[arg-type]
    return template(text, changed).format(v="V")


def test_a_table_is_replaced_by_a_view_under_its_last_name() -> None:
    assert rewritten("select * from main.sales.orders", NAME) == "select * from (V AS `orders`)"
    assert rewritten("table main.sales.orders", NAME) == "table V"
    text = "select 1 from `main`.sales.`orders` version as of 3 o -- main.sales.orders"
    assert rewritten(text, NAME) == "select 1 from (V AS `orders`) o -- main.sales.orders"


def test_other_names_strings_and_braces_stay() -> None:
    text = "select '{main.sales.orders}', {x} from main.sales.other, orders /* {v} main.sales.orders */"
    assert rewritten(text, NAME) == text


def test_columns_qualified_by_the_name_get_the_alias() -> None:
    text = "select main.sales.orders.a, sales.orders.b.c, orders.d, Main.Sales.Orders.* from main.sales.orders"
    expected = "select `orders`.a, `orders`.b.c, orders.d, `orders`.* from (V AS `orders`)"
    assert rewritten(text, NAME) == expected


def test_tables_of_equal_last_names_are_distinguished_if_columns_are() -> None:
    other = ("main", "old", "orders")
    text = "select {} from main.sales.orders, main.old.orders"
    assert rewritten(text.format("sales.orders.x, old.orders.x"), NAME, other) == (
        "select `main.sales.orders`.x, `main.old.orders`.x from (V AS `main.sales.orders`), (V AS `main.old.orders`)"
    )
    assert rewritten(text.format("1"), NAME, other) == "select 1 from (V AS `orders`), (V AS `orders`)"


_PIECES = st.sampled_from(
    [
        "select ",
        " from ",
        " join ",
        "main.sales.orders",
        "`main` . sales.`orders`",
        "main.sales.other",
        "orders",
        " where ",
        "(",
        ")",
        ", ",
        "'main.sales.orders'",
        "'it''s'",
        '"x"',
        " -- main.sales.orders\n",
        " /* from main.sales.orders */ ",
        " version as of 3 ",
        "{x}",
        "{{",
        "}",
        "main.sales.orders.id",
        "sales.orders.*",
        " with c as ",
        " union all ",
        " table ",
        "f(",
        "\n\t",
        "日本",
        "1.5e3",
        "a.b",
        " as o ",
        " lateral view explode(x) t as y ",
    ]
)


@given(st.lists(_PIECES, max_size=25))
def test_only_references_change(pieces: list[str]) -> None:
    """What lies between replaced places is the text itself, and a second rewriting finds nothing to replace."""
    text = "".join(["select 1 ", *pieces])
    found = find_references(text)
    tables = [one for one in found.tables if one.parts == NAME]
    places = [Replacement(start=one.start, end=one.end, before="\0") for one in tables]
    columns = column_replacements(found.columns, {NAME: "orders"})
    places += [Replacement(start=one.start, end=one.end, before="\0") for one in columns]
    places.sort(key=lambda one: one.start)
    assert all(one.end <= other.start for one, other in itertools.pairwise(places))
    kept = template(text, places).format().split("\0")
    expected = [text[a.end : b.start] for a, b in itertools.pairwise(places)]
    if places:
        expected = [text[: places[0].start], *expected, text[places[-1].end :]]
    assert kept == (expected or [text])
    for one in tables:
        name = text[one.start : one.end].replace("`", "").replace(" ", "").lower()
        assert name.startswith("main.sales.orders")


@given(st.text(max_size=60))
def test_text_without_references_stays(text: str) -> None:
    assert template(text, []).format() == text
