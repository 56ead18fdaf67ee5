"""Kinds of statements, and statements that are refused."""

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.sql.descriptions import Detail, read_description
from cm_delta_dagster.operations.sql.statements import REFUSED, Family, read_statement


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("select 1", Family.QUERY),
        ("  -- first\n WITH x AS (SELECT 1) TABLE x;", Family.QUERY),
        ("(select 1) union (select 2)", Family.QUERY),
        ("values (1)", Family.QUERY),
        ("explain extended select 1", Family.QUERY),
        ("desc query select 1", Family.QUERY),
        ("describe main.sales.orders", Family.DESCRIBE),
        ("show tables in main like 'x*'", Family.SHOW),
        ("insert overwrite a.b.c select 1", Family.INSERT),
        ("merge with schema evolution into a.b.c", Family.MERGE),
        ("create table if not exists a.b.c (d int)", Family.CREATE),
        ("comment on table a.b.c is null", Family.COMMENT),
    ],
)
def test_the_first_words_decide(text: str, family: Family) -> None:
    read = read_statement(text)
    assert read.family is family
    assert not read.text.endswith(";")


@pytest.mark.parametrize("words", REFUSED)
def test_refused_statements_name_what_to_use(words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_statement(" ".join(words).lower() + " main.sales.orders")
    assert REFUSED[words] in str(caught.value)
    assert f"does not run {' '.join(words)} statements" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"), [("", "no statement"), (" ; ", "no statement"), ("set x = 1", "The Spark session itself")]
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        read_statement(text)


@pytest.mark.parametrize(
    ("text", "detail", "name"),
    [
        ("describe a.b.c", Detail.COLUMNS, ("a", "b", "c")),
        ("desc table a.b.c", Detail.COLUMNS, ("a", "b", "c")),
        ("describe extended `a`.b.`c.d`", Detail.EXTENDED, ("a", "b", "c.d")),
        ("describe table formatted t", Detail.EXTENDED, ("t",)),
        ("describe detail a.b.c", Detail.DETAIL, ("a", "b", "c")),
        ("describe history a.b.c", Detail.HISTORY, ("a", "b", "c")),
        ("describe history", Detail.COLUMNS, ("history",)),
        ("describe history.b.c", Detail.COLUMNS, ("history", "b", "c")),
        ("describe detail", Detail.COLUMNS, ("detail",)),
    ],
)
def test_what_describe_shows(text: str, detail: Detail, name: tuple[str, ...]) -> None:
    found = read_description(read_statement(text))
    assert found is not None and (found.detail, found.name) == (detail, name)


def test_describe_of_other_things_is_left_to_spark() -> None:
    assert read_description(read_statement("describe function abs")) is None
    assert read_description(read_statement("describe v column")) is None
    limited = read_description(read_statement("describe history a.b.c limit 3"))
    assert limited is not None and limited.limit == 3


@pytest.mark.parametrize(
    "text", ["describe history a.b.c limit x", "describe detail a.b.c d", "describe a.b.c d", "describe 'x'"]
)
def test_malformed_describe_has_its_place(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="at line 1, column"):
        read_description(read_statement(text))
