"""The page of old and new names has what the tables of moved names and commands have."""

from tests.repository.renamed import PAGE, page


def test_the_page_of_old_and_new_names_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.repository.renamed --write`"
