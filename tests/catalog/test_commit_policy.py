"""How commits are made, as values and as text."""

import pytest

from cm_delta_dagster.catalog.commit_policy import NOT_THROUGH_CATALOG, CommitMode, CommitPolicy, CommitPolicyKind
from cm_delta_dagster.errors import InvalidArgumentError

TEXTS = ("staged", "inline", "auto:0", "auto:65536", "put_if_absent", "switching")


@pytest.mark.parametrize("text", TEXTS)
def test_a_policy_is_read_as_it_was_written(text: str) -> None:
    policy = CommitPolicy.parse(text)
    assert str(policy) == text
    assert policy.through_catalog is (text not in NOT_THROUGH_CATALOG)


def test_the_policies_without_the_catalog_are_put_if_absent_and_the_way_to_it() -> None:
    assert NOT_THROUGH_CATALOG == ("put_if_absent", "switching")


@pytest.mark.parametrize("text", ["", "auto", "auto:", "auto:-1", "auto:x", "staged:0", "inline:5", "other", "STAGED"])
def test_a_text_that_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        CommitPolicy.parse(text)


@pytest.mark.parametrize(
    ("text", "size", "mode"),
    [
        ("staged", 0, CommitMode.STAGED),
        ("inline", 10**9, CommitMode.INLINE),
        ("auto:10", 10, CommitMode.INLINE),
        ("auto:10", 11, CommitMode.STAGED),
        ("auto:0", 0, CommitMode.INLINE),
    ],
)
def test_the_size_of_a_commit_chooses_its_mode(text: str, size: int, mode: CommitMode) -> None:
    assert CommitPolicy.parse(text).mode_for(size) is mode


def test_only_auto_takes_a_number_of_bytes() -> None:
    for kind in CommitPolicyKind:
        limit = None if kind is CommitPolicyKind.AUTO else 1
        limited = "without a limit" if limit is None else f"with the limit {limit}"
        with pytest.raises(InvalidArgumentError, match=f"{kind.value} was given {limited} of inline commits"):
            CommitPolicy(kind=kind, inline_max_bytes=limit)
