"""Sources of columns in plans as Spark prints them. No Spark: ``orchestration/test_column_lineage`` has the plans of queries."""

from typing import Any

from cm_delta_dagster.spark.expressions.column_sources import column_sources

Node = dict[str, Any]

LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
EXPRESSION = "org.apache.spark.sql.catalyst.expressions."


def node(name: str, children: int = 1, **fields: Any) -> Node:
    return {"class": LOGICAL + name, "num-children": children, **fields}


def attribute(number: int, name: str = "c") -> Node:
    return {"class": EXPRESSION + "AttributeReference", "num-children": 0, "name": name, "exprId": {"id": number}}


def alias(number: int, *items: Node) -> list[Node]:
    return [{"class": EXPRESSION + "Alias", "num-children": 1, "exprId": {"id": number}}, *items]


def relation(*columns: tuple[int, str]) -> Node:
    name = "org.apache.spark.sql.execution.datasources.LogicalRelation"
    return {"class": name, "num-children": 0, "output": [[attribute(*column)] for column in columns]}


def project(*items: list[Node]) -> Node:
    return node("Project", projectList=list(items))


def test_an_expression_has_the_sources_of_all_columns_that_it_names() -> None:
    plan = [project(alias(3, attribute(1), attribute(2)), alias(4), [attribute(2)]), relation((1, "a"), (2, "b"))]
    assert column_sources(plan, [0]) == [{(0, "a"), (0, "b")}, frozenset(), {(0, "b")}]


def test_columns_of_a_relation_without_a_number_are_unknown() -> None:
    plan = [node("Join", 2, joinType={"object": "Inner$"}), relation((1, "a")), relation((2, "b"))]
    assert column_sources(plan, [None, 7]) == [None, {(7, "b")}]


def test_an_unknown_node_makes_the_columns_above_it_unknown() -> None:
    plan = [project([attribute(1)], alias(2, attribute(1)), alias(3)), node("MapInPandas"), relation((1, "a"))]
    assert column_sources(plan, [0]) == [None, None, frozenset()]


def test_a_subquery_is_unknown() -> None:
    subquery = {"class": EXPRESSION + "ScalarSubquery", "num-children": 0, "plan": [relation((9, "z"))]}
    plan = [project(alias(2, subquery), [attribute(1)]), relation((1, "a"))]
    assert column_sources(plan, [0]) == [None, {(0, "a")}]


def test_columns_of_a_union_have_the_sources_of_their_position() -> None:
    plan = [node("Union", 2), project([attribute(1)], alias(3)), relation((1, "a")), relation((4, "b"), (5, "c"))]
    assert column_sources(plan, [0, 1]) == [{(0, "a"), (1, "b")}, {(1, "c")}]


def test_an_id_with_different_sources_in_two_children_is_unknown() -> None:
    join = node("Join", 2, joinType={"object": "Inner$"})
    plan = [project([attribute(1)]), join, relation((1, "a")), relation((1, "b"))]
    assert column_sources(plan, [0, 1]) == [None]


def test_a_semi_join_has_the_columns_of_its_left_side() -> None:
    plan = [node("Join", 2, joinType={"object": "plans.LeftSemi$"}), relation((1, "a")), relation((2, "b"))]
    assert column_sources(plan, [0, 1]) == [{(0, "a")}]
