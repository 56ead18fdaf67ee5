"""Asset metadata as the write contract."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.writing.merge import MergeMode
from cm_delta_dagster.orchestration.metadata.metadata_keys import PREFIX, own_run_tags
from cm_delta_dagster.orchestration.metadata.moved_keys import ASSET_KEYS, INPUT_KEYS
from cm_delta_dagster.orchestration.metadata.write_contract import (
    NamingDefaults,
    ReadContract,
    WriteContract,
    WriteMode,
    parse_read_contract,
    parse_write_contract,
)
from cm_delta_dagster.protocol.schema.evolution import SchemaMode


def contract(
    definition: Mapping[str, Any] | None = None,
    *,
    run: Mapping[str, str] | None = None,
    output: Mapping[str, Any] | None = None,
    path: Sequence[str] = ("sales", "orders"),
    partitioned: bool = False,
) -> WriteContract:
    return parse_write_contract(
        definition=definition or {},
        run=own_run_tags(run or {}),
        output=output or {},
        asset_path=path,
        partitioned=partitioned,
        names=NamingDefaults(),
    )


def reading(own: Mapping[str, Any], upstream: Mapping[str, Any] | None = None) -> ReadContract:
    return parse_read_contract(upstream=upstream or {}, own=own, asset_path=("t",), names=NamingDefaults())


def test_without_metadata_the_table_is_named_by_the_asset_key_and_overwritten() -> None:
    plain = contract()
    assert (str(plain.identifier), plain.mode, plain.schema_mode) == (
        "main.sales.orders",
        WriteMode.OVERWRITE,
        SchemaMode.STRICT,
    )


@pytest.mark.parametrize(
    ("path", "metadata", "name"),
    [
        (("orders",), {}, "main.default.orders"),
        (("a", "b", "sales", "orders"), {}, "main.sales.orders"),
        (("orders",), {"schema": "s"}, "main.s.orders"),
        (("x", "orders"), {"schema": "s", "catalog": "c"}, "c.s.orders"),
        (("x", "y"), {"table": "orders"}, "main.default.orders"),
        (("x", "y"), {"table": "s.orders", "cm_delta/catalog": "c"}, "c.s.orders"),
        (("x", "y"), {"cm_delta/table": "c.s.orders"}, "c.s.orders"),
        ((), {"table": "c.s.orders"}, "c.s.orders"),
    ],
)
def test_the_name_of_the_table(path: tuple[str, ...], metadata: dict[str, Any], name: str) -> None:
    assert str(contract(metadata, path=path).identifier) == name


@pytest.mark.parametrize(
    ("path", "metadata"),
    [
        ((), {}),
        (("t",), {"table": "a.b.c.d"}),
        (("t",), {"table": "s.t", "schema": "other"}),
        (("t",), {"table": ""}),
        (("t",), {"table": "a..c"}),
    ],
)
def test_a_name_that_cannot_be_formed_is_refused(path: tuple[str, ...], metadata: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        contract(metadata, path=path)


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        ("delta_write_options", "'schema_mode'"),
        ("overwrite_schema", "'schema_mode': 'overwrite'"),
        ("custom_metadata", "commit_tags"),
        ("root_name", "'table'"),
        ("append", "'mode': 'append'"),
        ("merge", "'mode': 'merge'"),
        ("primary_key", "'on'"),
        ("predicate", "'replace_where'"),
        ("partitionOverwriteMode", "'partition_expr'"),
        ("write_disposition", "'mode'"),
        ("if_exist", "'mode'"),
    ],
)
def test_a_key_of_another_io_manager_is_refused_with_what_to_write(key: str, ours: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=f"contains the key '{key}', which only other writers and readers have: .*{ours}"
    ):
        contract({key: {"schema_mode": "merge"}})


def test_everything_can_be_said_with_the_prefix_and_as_metadata_values() -> None:
    full = contract(
        {
            "cm_delta/mode": dg.MetadataValue.text("merge"),
            "cm_delta/on": dg.MetadataValue.json(["a", "b"]),
            "cm_delta/merge_mode": "insert_only",
            "partition_expr": {"day": "d", "region": "r"},
            "partition_by": "d, r",
            "schema_mode": "merge",
            "table_properties": {"delta.checkpointInterval": "7"},
            "dagster/owner": "someone",
            "columns_documented_by": "x",
            "Version": 3,
        },
        partitioned=True,
    )
    assert full.on == ("a", "b")
    assert full.merge_mode is MergeMode.INSERT_ONLY
    assert full.partition_expr == {"day": "d", "region": "r"}
    assert full.partition_by == ("d", "r")
    assert full.declaration.properties == {"delta.checkpointInterval": "7"}


@pytest.mark.parametrize(
    "key",
    [
        "cm_delta/merge_key",
        "cm_delta/anything",
        "merge_key",
        "mergeKeys",
        "Merge_Keys",
        "write_mode",
        "replaceWhere",
        "partitionBy",
        "partition_columns",
        "cm-delta:on",
    ],
)
def test_a_misspelt_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidArgumentError, match="key"):
        contract({key: "x"})


@pytest.mark.parametrize(("old", "new"), [*ASSET_KEYS.items()])
@pytest.mark.parametrize("prefix", ["", PREFIX])
def test_an_old_key_of_an_asset_is_an_error_that_names_the_new_one(old: str, new: str, prefix: str) -> None:
    for place in ("definition", "output") if not prefix else ("definition", "output", "run"):
        with pytest.raises(InvalidArgumentError, match=f"contains the key '{prefix}{old}', which is now '{new}'"):
            contract(**{place: {prefix + old: "id"}})


@pytest.mark.parametrize(("old", "new"), [*INPUT_KEYS.items()])
@pytest.mark.parametrize("prefix", ["", PREFIX])
def test_an_old_key_of_an_input_is_an_error_that_names_the_new_one(old: str, new: str, prefix: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"contains the key '{prefix}{old}', which is now '{new}'"):
        reading({prefix + old: "id"})


@pytest.mark.parametrize("key", ["filter", "condition"])
def test_an_asset_may_have_metadata_of_other_packages(key: str) -> None:
    assert contract({key: "x"}).mode is WriteMode.OVERWRITE


_CLAUSES = [{"when": "matched", "then": "delete"}]


@pytest.mark.parametrize(
    ("on", "parsed"),
    [
        ("id", ("id",)),
        ("id, day", ("id", "day")),
        (["id", "order id"], ("id", "order id")),
        ("target.id = source.id", "target.id = source.id"),
        ("true", "true"),
    ],
)
def test_a_merge_matches_rows_by_keys_or_a_condition(on: Any, parsed: tuple[str, ...] | str) -> None:
    assert contract({"mode": "merge", "on": on, "merge_clauses": _CLAUSES}).on == parsed


def test_a_condition_of_a_merge_needs_clauses() -> None:
    with pytest.raises(InvalidArgumentError, match=r"needs 'merge_clauses'.*list of their names"):
        contract({"mode": "merge", "on": "target.id = source.id"})


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="with and without"):
        contract({"mode": "append", "cm_delta/mode": "overwrite"})


@pytest.mark.parametrize(
    ("metadata", "partitioned"),
    [
        ({"mode": "upsert"}, False),
        ({"mode": "merge"}, False),
        ({"mode": "append", "on": ["a"]}, False),
        ({"mode": "replace_where"}, False),
        ({"mode": "append", "where": "a = 1"}, False),
        ({"mode": "append", "schema_mode": "overwrite"}, False),
        ({"mode": "overwrite", "schema_mode": "overwrite", "partition_expr": "p"}, True),
        ({"mode": "create_or_replace", "partition_expr": "p"}, True),
        ({"mode": "create_or_replace", "schema_mode": "merge"}, False),
        ({}, True),
        ({"partition_expr": "p"}, False),
        ({"partition_expr": {"a": "c", "b": "C"}}, True),
        ({"mode": "merge", "on": ["a", "A"]}, False),
        ({"mode": "merge", "on": []}, False),
        ({"table_properties": {"a": 1}}, False),
    ],
)
def test_combinations_without_meaning_are_refused(metadata: dict[str, Any], partitioned: bool) -> None:
    with pytest.raises(InvalidArgumentError):
        contract(metadata, partitioned=partitioned)


def test_a_partition_expression_without_partitions_says_what_to_write() -> None:
    with pytest.raises(InvalidArgumentError, match=r"the asset has none.*partitions_def, or write 'partition_by'"):
        contract({"mode": "append", "partition_expr": "day"})


def test_output_wins_over_run_and_run_over_definition() -> None:
    definition = {"mode": "overwrite"}
    assert contract(definition, run={"cm_delta/mode": "append", "team": "x"}).mode is WriteMode.APPEND
    merged = contract(definition, run={"cm_delta/mode": "merge", "cm_delta/on": '["a"]'})
    assert (merged.mode, merged.on) == (WriteMode.MERGE, ("a",))
    both = contract(definition, run={"cm_delta/mode": "append"}, output={"mode": "error_if_exists"})
    assert both.mode is WriteMode.ERROR_IF_EXISTS


@pytest.mark.parametrize("tags", [{"cm_delta/table": "a.b.c"}, {"cm_delta/on": "[1"}, {"cm_delta/mod": "x"}])
def test_a_run_cannot_change_the_table_nor_say_nonsense(tags: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError):
        contract(run=tags)


def test_results_of_the_user_may_have_any_name() -> None:
    assert contract(output={"table": "preview", "columns": 3, "version": "x"}).mode is WriteMode.OVERWRITE


def test_an_input_takes_the_table_from_upstream_and_the_rest_from_itself() -> None:
    found = reading(
        {"columns": "a", "where": "a > 1", "version": 3},
        {"table": "c.s.t", "partition_expr": "p", "mode": "append", "version": "ignored"},
    )
    assert (str(found.identifier), found.columns, found.where, found.version) == ("c.s.t", ("a",), "a > 1", 3)
    assert found.partition_expr == {"": "p"}


def test_a_time_of_an_input_needs_a_zone() -> None:
    assert reading({"timestamp": "2026-01-01T00:00:00+00:00"}).timestamp_ms == 1767225600000
    assert reading({"timestamp": dg.MetadataValue.timestamp(1767225600.0)}).timestamp_ms == 1767225600000
    with pytest.raises(InvalidArgumentError, match="zone"):
        reading({"timestamp": "2026-01-01T00:00:00"})


@pytest.mark.parametrize(
    "own", [{"version": 1, "timestamp": "2026-01-01T00:00:00Z"}, {"version": "-1"}, {"columns": []}]
)
def test_an_input_without_meaning_is_refused(own: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        reading(own)


def test_a_mode_set_at_run_time_leaves_the_keys_of_the_old_mode_behind() -> None:
    merging = {"mode": "merge", "on": ["id"]}
    arguments = {"asset_path": ["t"], "partitioned": False, "names": NamingDefaults()}
    replaced = parse_write_contract(definition=merging, run={"mode": "overwrite"}, output={}, **arguments)
    assert (replaced.mode, replaced.on) == (WriteMode.OVERWRITE, ())
    kept = parse_write_contract(definition=merging, run={"mode": "merge"}, output={}, **arguments)
    assert kept.on == ("id",)
    with pytest.raises(InvalidArgumentError, match="'on' belong"):
        parse_write_contract(definition={"mode": "append", "on": ["id"]}, run={}, output={}, **arguments)


@pytest.mark.parametrize("key", ["Mode", "modes", "save_mode", "cm-delta/mode", "cm_delta:mode", "CM_DELTA/mode"])
def test_slips_of_the_mode_are_refused(key: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_write_contract(
            definition={key: "append"}, run={}, output={}, asset_path=["t"], partitioned=False, names=NamingDefaults()
        )
