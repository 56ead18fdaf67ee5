"""The page of clients fits the tests that there are."""

from tests.repository.clients import ACTS, PAGE, WAYS, page, proofs, versions


def test_the_page_of_clients_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.repository.clients --write`"


def test_markers_name_clients_acts_and_ways_of_the_page() -> None:
    stated = proofs()
    assert len(stated) > 20
    assert {proof.client for proof in stated} == set(versions())
    assert {proof.act for proof in stated} == set(ACTS)
    assert {proof.by for proof in stated} == set(WAYS)
