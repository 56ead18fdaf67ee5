"""Misspelt keys of metadata are errors, and the words of users are not."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration.metadata.metadata_keys import (
    DEFAULT_READ_KEYS,
    NAMING_KEYS,
    READ_KEYS,
    RUN_TIME_KEYS,
    WRITE_KEYS,
    own_entries,
    own_run_tags,
)
from cm_delta_dagster.orchestration.metadata.peer_keys import READER_KEYS, WRITER_KEYS
from cm_delta_dagster.orchestration.metadata.similar_keys import ORDINARY_WORDS, edit_distance, letters

_ASSET = WRITE_KEYS | DEFAULT_READ_KEYS
_INPUT = READ_KEYS | NAMING_KEYS


def _entries(metadata: Mapping[str, Any], known: frozenset[str] = _ASSET) -> dict[str, Any]:
    return own_entries(metadata, known=known, place="The metadata")


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("modee", "mode"),
        ("moed", "mode"),
        ("mdoe", "mode"),
        ("mod", "mode"),
        ("Modes", "mode"),
        ("ON", "on"),
        ("replace_wher", "where"),
        ("wehre", "where"),
        ("schema_mod", "schema_mode"),
        ("schema-mode", "schema_mode"),
        ("column", "columns"),
        ("tabel", "table"),
        ("Table", "table"),
        ("shema", "schema"),
        ("catalogue", "catalog"),
        ("partiton_exp", "partition_expr"),
        ("partitionned_by", "partition_by"),
        ("partition_column", "partition_by"),
        ("on_conflicts", "on_conflict"),
        ("commit_togehter", "commit_together"),
        ("mergekeyz", "on"),
    ],
)
def test_a_misspelt_key_of_an_asset_is_an_error_that_names_the_key(key: str, meant: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"the key '{key}'; probably '{meant}' is meant.*'team/{key}'"):
        _entries({key: "x"})


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("wher", "where"),
        ("Where", "where"),
        ("filtr", "where"),
        ("column", "columns"),
        ("verison", "version"),
        ("Version", "version"),
        ("time_stamp", "timestamp"),
        ("change", "changes"),
        ("allow_missing_partition", "allow_missing_partitions"),
    ],
)
def test_a_misspelt_key_of_an_input_is_an_error_that_names_the_key(key: str, meant: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"the key '{key}'; probably '{meant}' is meant"):
        _entries({key: "x"}, _INPUT)


@pytest.mark.parametrize("key", ["modee", "upsert", "merge_keyz", "wher"])
def test_a_misspelt_key_of_an_output_is_an_error(key: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"the key '{key}'"):
        _entries({key: "x"}, RUN_TIME_KEYS)


@pytest.mark.parametrize("key", WRITER_KEYS)
def test_every_key_of_another_writer_is_an_error_of_an_asset(key: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(WRITER_KEYS[key])):
        _entries({key: "x"})


@pytest.mark.parametrize("key", READER_KEYS)
def test_every_key_of_another_reader_is_an_error_of_an_input(key: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(READER_KEYS[key])):
        _entries({key: "x"}, _INPUT)


_WORDS_OF_USERS = """
owner model models node nodes code codes commode tables team where_from who when why what order orders origin one no
source sources rows row_count num_rows size priority domain description quality tier sla cost label labels stable
moved more partition partitions partition_key partition_id cluster clusters clustered index entity generator
schemas scheme versions release query sql notebook columns_documented_by data_steward merged upserts appended
inserted updated deleted path location url format engine compression filter condition name table_1 mode2
retention freshness department contact runbook dashboard classification pii safe_mode output_model
dagster/owner dagster/table_name team/mode team/modee delta_docs metrics constants interval
"""


@pytest.mark.parametrize("known", [_ASSET, RUN_TIME_KEYS], ids=["asset", "output"])
@pytest.mark.parametrize("key", _WORDS_OF_USERS.split())
def test_words_of_users_are_metadata_of_their_own(key: str, known: frozenset[str]) -> None:
    assert _entries({key: "x"}, known) == {}


@pytest.mark.parametrize("key", ["owner", "note", "charges", "tables", "reason", "team/where"])
def test_words_of_users_may_be_metadata_of_an_input(key: str) -> None:
    assert _entries({key: "x"}, _INPUT) == {}


def test_no_key_is_an_ordinary_word_of_the_exceptions() -> None:
    assert not ORDINARY_WORDS & {letters(key) for key in (*WRITE_KEYS, *READ_KEYS, *WRITER_KEYS, *READER_KEYS)}


@pytest.mark.parametrize("prefix", ["cm_delat", "cm-delta", "cmdelta", "CM_DELTA", "c_delta", "delta"])
def test_a_misspelt_prefix_is_an_error_in_metadata_and_run_tags(prefix: str) -> None:
    with pytest.raises(InvalidArgumentError, match="keys of this package start with 'cm_delta/'"):
        _entries({f"{prefix}/mode": "append"})
    with pytest.raises(InvalidArgumentError, match="keys of this package start with 'cm_delta/'"):
        own_run_tags({f"{prefix}/mode": "append"})


def test_run_tags_of_others_are_ignored() -> None:
    tags = {"mode": "x", "dagster/partition": "p", "delta/owner": "x", "cm_delta_dagster/other": "x", "team": "x"}
    assert own_run_tags(tags) == {}


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [("", "", 0), ("", "ab", 2), ("mode", "mode", 0), ("mode", "mdoe", 1), ("mode", "modee", 1), ("node", "model", 2)],
)
def test_the_distance_counts_letters_and_exchanges(first: str, second: str, distance: int) -> None:
    assert edit_distance(first, second) == edit_distance(second, first) == distance
