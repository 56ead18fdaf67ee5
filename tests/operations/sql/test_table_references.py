"""Where an SQL text names tables."""

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.sql.table_references import find_references
from cm_delta_dagster.operations.sql.time_travel import VersionText

CASES = {
    "select * from a.b.c": ["a.b.c"],
    "SELECT * FROM a.b.c AS x, d.e.f y JOIN g.h.i USING (id), j": ["a.b.c", "d.e.f", "g.h.i", "j"],
    "select * from a.b.c left anti join d on a.b.c.x = d.x where x in (select y from e.f.g)": ["a.b.c", "d", "e.f.g"],
    "select 'from a.b.c', \"from d.e.f\", r'from \\' from g": ["g"],
    "select 1 -- from a.b.c\n from /* from d.e.f /* , x */ */ g": ["g"],
    "select /*+ BROADCAST(a.b.c) */ * from a.b.c": ["a.b.c"],
    "select `from`, t.`select` from `a`.`b.c`.`d``e` t": ["a|b.c|d`e"],
    "with c as (select * from a.b.c) select * from c": ["a.b.c", "c!"],
    "with c(x, y) as (with d as (select * from c) select * from d) select * from c, d": ["c", "d!", "c!", "d"],
    "with c as (select 1), d as (select * from c) select * from (select * from d) join e": ["c!", "d!", "e"],
    "with recursive r as (select 1 union all select * from r) select * from r": ["r!", "r!"],
    "with r as (select 1 union all select * from r) select * from r": ["r", "r!"],
    "select (select max(x) from a.b.c) from d where exists (from e.f.g select 1)": ["a.b.c", "d", "e.f.g"],
    "select * from (a.b.c join d.e.f on true) x join (select * from g) y": ["a.b.c", "d.e.f", "g"],
    "select * from ((select * from a) union (select * from b)) t, c": ["a", "b", "c"],
    "select extract(year from d), trim(both 'x' from s), substring(s from 1 for 2) from t": ["t"],
    "select a is distinct from b, a is not distinct from c from t": ["t"],
    "select * from range(10) r, explode(array(1, 2)), t": ["t"],
    "select * from t lateral view explode(m) x as k, v where k > 1": ["t"],
    "select * from t, lateral (select * from u where u.id = t.id), lateral explode(t.a) as e": ["t", "u"],
    "select * from t tablesample (10 percent) s, u": ["t", "u"],
    "select * from t pivot (sum(x) for y in ('a', 'b')) p, u": ["t", "u"],
    "select * from values (1, 2), (3, 4) as v(a, b), t": ["t"],
    "table a.b.c": ["a.b.c/"],
    "select * from f(table a.b.c, 3), g(table(d.e.f) partition by x)": ["a.b.c/", "d.e.f/"],
    "from a.b.c |> where x > 1 |> join d.e.f using (x) |> select x, y": ["a.b.c", "d.e.f"],
    "select x from a union all select x from b except table c order by x, y": ["a", "b", "c/"],
    "select sum(x) over (partition by y order by z), w from t window w as (order by a, b), v as (order by c)": ["t"],
    "explain formatted with c as (select 1) select * from a.b.c, c": ["a.b.c", "c!"],
    "describe query select * from a.b.c": ["a.b.c"],
    "select case when a then b else c end, transform(m, x -> x.y), m['k'].z, :p, ? from t": ["t"],
    "select * from a.b.c group by x, y having count(*) > 1 limit 3;": ["a.b.c"],
    "select * except (a, b) from t, u": ["t", "u"],
    "select from_json(s, 'a int') from t natural join u cross join v": ["t", "u", "v"],
    "select max(update), f(insert), (select min(delete) from u) from t": ["u", "t"],
    "select * from 日本.s.表, ö.ä.ü": ["日本.s.表", "ö.ä.ü"],
}


@pytest.mark.parametrize("text", CASES)
def test_tables_are_found_and_nothing_else(text: str) -> None:
    found = []
    for one in find_references(text).tables:
        separator = "|" if any("." in part for part in one.parts) else "."
        found.append(separator.join(one.parts) + "!" * one.is_shadowed + "/" * one.is_bare)
        written = text[one.start : one.end].replace("``", "\0").replace("`", "").replace("\0", "`")
        assert written == ".".join(one.parts)
    assert found == CASES[text]


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("version as of 3", VersionText(version=3)),
        ("VERSION AS OF '3'", VersionText(version=3)),
        ("for system_version as of 3", VersionText(version=3)),
        ("for version as of 3", VersionText(version=3)),
        ("timestamp as of '2026-01-01'", VersionText(timestamp="'2026-01-01'")),
        ("for system_time as of date '2026-01-01'", VersionText(timestamp="date '2026-01-01'")),
        ("timestamp as of now() - interval 1 day", VersionText(timestamp="now() - interval 1 day")),
        ("timestamp as of now() - interval '1' year - interval '2-1' year to month", None),
        ("timestamp as of date_sub(current_date(), 1)", VersionText(timestamp="date_sub(current_date(), 1)")),
        ("timestamp as of cast('2026' as timestamp)", VersionText(timestamp="cast('2026' as timestamp)")),
        ("timestamp as of '2026'::timestamp", VersionText(timestamp="'2026'::timestamp")),
        ("timestamp as of (now())", VersionText(timestamp="(now())")),
        ("timestamp as of :day", VersionText(timestamp=":day")),
        ("timestamp as of current_timestamp", VersionText(timestamp="current_timestamp")),
    ],
)
@pytest.mark.parametrize(
    "rest", ["", " x", " as x", ", d.e.f", " join d.e.f", " where x = 1", ")", " tablesample (1 rows) x"]
)
def test_the_time_travel_clause_ends_where_it_does(clause: str, expected: VersionText | None, rest: str) -> None:
    text = f"select * from a.b.c {clause}{rest}"
    reference = find_references(text).tables[0]
    assert text[reference.start : reference.end] == f"a.b.c {clause}"
    version = expected or VersionText(timestamp=clause.removeprefix("timestamp as of "))
    assert reference.version == version


def test_a_word_of_a_time_travel_clause_can_be_an_alias() -> None:
    assert [one.version for one in find_references("select * from a version join b timestamp").tables] == [None, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select * from t version as of x", "number of a version at line 1, column 31"),
        ("select *\nfrom t version as of", "line 2, column 21"),
        ("select * from t timestamp as of (select 1)", "without a query"),
        ("select * from t timestamp as of ?", "no name"),
        ("select * from t timestamp as of )", "a time at line 1, column 33"),
        ("select * from table_changes(t, 1)", "table_changes at line 1, column 15"),
        ("select * from table_changes('t')", "first and optionally the last"),
        ("select * from table_changes('t', ?)", "parameter without a name"),
        ("select 1; select 2", "second statement at line 1, column 10"),
        ("select 'abc", "line 1, column 8 is not closed"),
        ("select 'a''b', -- '\n `a``b` /* ' */ from `x", "line 2, column 22"),
        ("select 1 /* from t", "line 1, column 10"),
        ("with c as (select 1) insert into t select * from c", "after INSERT INTO name"),
        ("from t insert overwrite u select *", "after INSERT INTO name"),
    ],
)
def test_malformed_text_is_an_error_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        find_references(text)


def test_calls_of_table_changes_are_found() -> None:
    text = "select * from table_changes('a.b.c', 1, date_sub(now(), 2)) x join Table_Changes(\"d.e.f\", '2026-01-01')"
    first, second = find_references(text).changes
    assert (first.name, first.first, first.last) == ("a.b.c", "1", "date_sub(now(), 2)")
    assert text[first.start : first.end] == "table_changes('a.b.c', 1, date_sub(now(), 2))"
    assert (second.name, second.first, second.last) == ("d.e.f", "'2026-01-01'", None)


def test_identifier_with_a_text_or_a_parameter_is_a_name() -> None:
    tables = ("identifier('a.`b.c`.d') version as of 1 x", "IDENTIFIER(:t)", "identifier(:u)", "identifier('a' || 'b')")
    text = "select identifier('x') from " + ", ".join(tables)
    found = find_references(text, {"t": "e.f.g", "u": 3}).tables
    assert [one.parts for one in found] == [("a", "b.c", "d"), ("e", "f", "g")]
    assert text[found[0].start : found[0].end] == "identifier('a.`b.c`.d') version as of 1"
    assert text[found[1].start : found[1].end] == "IDENTIFIER(:t)"


def test_qualified_columns_are_found() -> None:
    text = "select t.a, a.b.c.d, f.g(x.y), main.s.t.*, 1.5, 'x.y' from a.b.c where t.`x.y` = z"
    assert [one.parts for one in find_references(text).columns] == [
        ("t", "a"),
        ("a", "b", "c", "d"),
        ("x", "y"),
        ("main", "s", "t", "*"),
        ("t", "x.y"),
    ]
