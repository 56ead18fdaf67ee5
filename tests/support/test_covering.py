"""The choice of combinations of parameters."""

from tests.support.covering import covering


def test_each_value_is_in_a_combination_of_each_run() -> None:
    parameters = covering("abcde", [1, 2])
    assert [item.values for item in parameters] == [(letter, number) for letter in "abcde" for number in (1, 2)]
    in_each_run = {item.values for item in parameters if not item.marks}
    assert in_each_run == {("a", 1), ("b", 2), ("c", 1), ("d", 2), ("e", 1)}
