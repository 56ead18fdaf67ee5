"""What the demo prints is folded and aligned."""

from definitions.console import folded, text_table


def test_long_text_is_folded_at_words_and_indented() -> None:
    assert folded("    one two three", width=13) == ["    one two", "      three"]


def test_numbers_of_a_table_are_aligned_to_the_right() -> None:
    assert text_table([("a", 1000), ("bcd", 7)], ("name", "rows")).splitlines() == [
        "name   rows",
        "----  -----",
        "a     1,000",
        "bcd       7",
    ]
