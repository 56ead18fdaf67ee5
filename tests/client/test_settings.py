"""Values that the settings of a client accept."""

from datetime import timedelta
from typing import Any

import pytest

from cm_delta_dagster.client.settings import ClientSettings, OnCatalogBehind
from cm_delta_dagster.errors import InvalidArgumentError


@pytest.mark.parametrize("value", ["refuse", OnCatalogBehind.REFUSE])
def test_the_reaction_to_a_catalog_behind_storage_may_be_given_as_text(value: Any) -> None:
    assert ClientSettings(on_catalog_behind_storage=value).on_catalog_behind_storage is OnCatalogBehind.REFUSE


@pytest.mark.parametrize(
    "wrong",
    [
        {"on_catalog_behind_storage": "fail"},
        {"read_threads": 0},
        {"max_commit_attempts": -1},
        {"retry_max_delay": timedelta(seconds=-0.5)},
        {"retry_initial_delay": 0.5},
        {"copied_content_bytes": "16k"},
        {"snapshot_cache_size": True},
        {"max_commit_attempts": 2.5},
        {"max_resolve_attempts": 1.5},
        {"read_threads": 4.0},
        {"max_commit_attempts": float("inf")},
        {"publish_delay": timedelta.max},
        {"commit_lock_timeout": True},
        {"maintenance_lease": timedelta(0)},
        {"max_deleted_rows_ratio": float("inf")},
    ],
    ids=str,
)
def test_a_value_out_of_range_is_refused_with_the_name_of_the_setting(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"ClientSettings\.{next(iter(wrong))} cannot be"):
        ClientSettings(**wrong)


def test_a_refusal_says_whether_the_setting_is_an_integer() -> None:
    with pytest.raises(InvalidArgumentError, match=r"cannot be 1\.5; it is an integer of at least 1\."):
        ClientSettings(max_resolve_attempts=1.5)  # type: ignore[arg-type]  # Refused at run time too.
    with pytest.raises(InvalidArgumentError, match=r"cannot be inf; it is a finite number of at least 0\."):
        ClientSettings(max_deleted_rows_ratio=float("inf"))
    with pytest.raises(InvalidArgumentError, match=r"cannot be 1; it is a datetime\.timedelta of at least 0 seconds"):
        ClientSettings(retry_max_delay=1)  # type: ignore[arg-type]  # Refused at run time too.
    assert ClientSettings(max_deleted_rows_ratio=1).max_deleted_rows_ratio == 1
