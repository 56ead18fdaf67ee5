"""``cm_delta_definitions``: what is wrong with assets is found when they are loaded, and what is known of tables is shown."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration import (
    CatalogManagedDeltaIOManager,
    SparkResource,
    cm_delta_definitions,
    data_version_sensor,
    on_new_data_version,
)
from tests.orchestration.log_tables import make_table, resource_at


def loaded(
    tmp_path: Path,
    *assets: Any,
    executor: dg.ExecutorDefinition | None = dg.in_process_executor,
    spark: SparkResource | None = None,
    **arguments: Any,
) -> dg.Definitions:
    catalog = resource_at(tmp_path)
    spark = SparkResource(master="local[2]") if spark is None else spark
    manager = CatalogManagedDeltaIOManager(catalog=catalog, spark=spark)
    resources = {"catalog": catalog, "spark": spark, "io_manager": manager, "other": dg.InMemoryIOManager()}
    return cm_delta_definitions(
        dg.Definitions(assets=list(assets), resources=resources, executor=executor), **arguments
    )


def spec_of(defs: dg.Definitions, key: str | list[str]) -> dg.AssetSpec:
    return next(spec for spec in defs.resolve_all_asset_specs() if spec.key == dg.AssetKey(key))


def an_asset(name: str, **arguments: Any) -> dg.AssetsDefinition:
    @dg.asset(name=name, key_prefix=["s"], **arguments)
    def made() -> DataFrame: ...

    return made


def test_definitions_show_table_storage_kind_and_kinds_before_the_first_run(tmp_path: Path) -> None:
    spec = spec_of(loaded(tmp_path, an_asset("t", metadata={"mode": "append"})), ["s", "t"])
    assert spec.metadata["dagster/table_name"] == "main.s.t"
    assert spec.metadata["dagster/storage_kind"] == "deltalake"
    assert "dagster/uri" not in spec.metadata and spec.kinds == {"deltalake", "pyspark"}
    assert not (tmp_path / "catalog.db").exists()


def test_the_location_of_a_table_that_exists_is_shown(tmp_path: Path) -> None:
    catalog = resource_at(tmp_path)
    location = make_table(catalog.client, "main.s.t").location
    catalog.close()
    assert spec_of(loaded(tmp_path, an_asset("t")), ["s", "t"]).metadata["dagster/uri"] == location
    without = loaded(tmp_path, an_asset("t"), look_up_locations=False)
    assert "dagster/uri" not in spec_of(without, ["s", "t"]).metadata


def test_what_the_asset_says_itself_stays(tmp_path: Path) -> None:
    asset = an_asset("t", kinds={"gold", "spark", "s3"}, metadata={"dagster/uri": "s3://own", "table": "a.b.c"})
    spec = spec_of(loaded(tmp_path, asset), ["s", "t"])
    assert spec.kinds == {"gold", "spark", "s3"}
    assert spec.metadata["dagster/uri"] == "s3://own" and spec.metadata["dagster/table_name"] == "a.b.c"


def test_all_wrong_contracts_are_listed_when_the_definitions_are_loaded(tmp_path: Path) -> None:
    days = dg.DailyPartitionsDefinition("2026-01-01")
    two = dg.MultiPartitionsDefinition({"day": days, "who": dg.StaticPartitionsDefinition(["a"])})
    with pytest.raises(InvalidArgumentError) as raised:
        loaded(
            tmp_path,
            an_asset("a", metadata={"mode": "merge", "merge_key": ["id"]}),
            an_asset("b", partitions_def=days),
            an_asset("c", partitions_def=two, metadata={"partition_expr": "day"}),
            an_asset("d", metadata={"mode": "merge"}),
            an_asset("fine"),
        )
    text = str(raised.value)
    assert text.startswith("4 problems in the definitions of tables:\n- Asset s/a: ")
    assert "probably 'on' is meant" in text and "'partition_expr' must name the column" in text
    assert "partition dimensions day, who" in text and "needs 'on'" in text and "Nothing was" not in text


def test_two_assets_with_one_table_are_refused_unless_both_name_it(tmp_path: Path) -> None:
    first = an_asset("t")

    @dg.asset(key=["x", "s", "t"])
    def second() -> DataFrame: ...

    with pytest.raises(InvalidArgumentError, match=r"Assets s/t and x/s/t write one table, main\.s\.t"):
        loaded(tmp_path, first, second)
    named = {"metadata": {"table": "main.s.shared"}}
    loaded(tmp_path, an_asset("one", **named), an_asset("two", **named))


def one_function(can_subset: bool = False, **outs: Mapping[str, Any]) -> dg.AssetsDefinition:
    """A function with these outputs, given as their metadata."""

    @dg.multi_asset(
        outs={name: dg.AssetOut(metadata={"table": "main.s.shared", **given}) for name, given in outs.items()},
        can_subset=can_subset,
    )
    def both() -> tuple[DataFrame, DataFrame]: ...

    return both


def test_outputs_of_one_function_that_replace_the_same_rows_are_refused(tmp_path: Path) -> None:
    """Other outputs are compared when they are written: which ones a run has is not known before."""
    where = {"mode": "replace_where", "where": "who = 'a'"}
    other, merged = {**where, "where": "who = 'b'"}, {"mode": "merge", "on": "id"}
    cleared = {
        **merged,
        "merge_clauses": [{"when": "not_matched_by_source", "then": "delete", "condition": "target.n < 5"}],
    }
    emptied = {**merged, "merge_clauses": [{"when": "not_matched_by_source", "then": "update", "set": {"n": "0"}}]}
    unmatched = {**merged, "merge_mode": "delete_unmatched"}
    for one, two in (({}, {}), (where, where), ({}, unmatched), (cleared, cleared), (emptied, unmatched)):
        with pytest.raises(
            InvalidArgumentError, match=r"Assets one and two .* replace the same rows of main\.s\.shared"
        ):
            loaded(tmp_path, one_function(one=one, two=two))
        loaded(tmp_path, one_function(one=one, two=two, can_subset=True))
    for one, two in (
        ({}, merged),
        ({}, {"mode": "append"}),
        (where, other),
        (cleared, merged),
        ({}, {"table": "main.s.another"}),
    ):
        loaded(tmp_path, one_function(one=one, two=two))


def test_an_asset_that_several_modules_import_is_one_asset(tmp_path: Path) -> None:
    asset = an_asset("t")
    assert [spec.key.path for spec in loaded(tmp_path, asset, asset).resolve_all_asset_specs()] == [["s", "t"]]


def test_wrong_metadata_of_an_input_is_found(tmp_path: Path) -> None:
    @dg.asset(ins={"t": dg.AssetIn(["s", "t"], metadata={"version": 1, "timestamp": "2026-01-01T00:00:00Z"})})
    def down(t: DataFrame) -> DataFrame: ...

    with pytest.raises(InvalidArgumentError, match=r"Input t of down: .*both 'version' and 'timestamp'"):
        loaded(tmp_path, an_asset("t"), down)


def test_misspelt_and_foreign_keys_are_found_when_the_definitions_are_loaded(tmp_path: Path) -> None:
    @dg.asset(ins={"fine": dg.AssetIn(["s", "fine"], metadata={"wher": "id = 5"})})
    def down(fine: DataFrame) -> DataFrame: ...

    with pytest.raises(InvalidArgumentError, match="3 problems") as raised:
        loaded(
            tmp_path,
            an_asset("misspelt", metadata={"modee": "append"}),
            an_asset("foreign", metadata={"primary_key": ["id"]}),
            an_asset("fine", metadata={"owner": "a", "model": "b"}),
            down,
        )
    text = str(raised.value)
    assert "Asset s/misspelt: The asset's metadata contains the key 'modee'; probably 'mode' is meant" in text
    assert "Asset s/foreign: The asset's metadata contains the key 'primary_key', which only other writers" in text
    assert "Input fine of down: The input's metadata contains the key 'wher'; probably 'where' is meant" in text


def test_assets_that_no_delta_manager_stores_are_left_alone(tmp_path: Path) -> None:
    @dg.asset(metadata={"mode": "anything"})
    def alone() -> None: ...

    @dg.asset(metadata={"mode": "anything"}, io_manager_key="other")
    def elsewhere() -> int: ...

    defs = loaded(tmp_path, alone, elsewhere, dg.AssetSpec("external"))
    assert [spec.kinds for spec in defs.resolve_all_asset_specs()] == [set()] * 3


def test_definitions_without_a_delta_manager_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="together with their resources"):
        cm_delta_definitions(dg.Definitions())


@pytest.mark.parametrize("executor", [None, dg.multiprocess_executor])
def test_an_executor_that_starts_spark_for_each_asset_is_a_warning(tmp_path: Path, executor: Any) -> None:
    with pytest.warns(UserWarning, match="Each of the 2 assets of a run starts Java and Spark again"):
        loaded(tmp_path, an_asset("a"), an_asset("b"), executor=executor)


@pytest.mark.parametrize("remote", ["sc://host:15002"])
def test_spark_connect_one_asset_and_one_process_are_no_reason_to_warn(tmp_path: Path, remote: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded(tmp_path, an_asset("a"), an_asset("b"), executor=None, spark=SparkResource(remote=remote))
        loaded(tmp_path, an_asset("a"), executor=None)
        loaded(tmp_path, an_asset("a"), an_asset("b"))


@pytest.mark.slow
def test_an_unreachable_catalog_does_not_stop_the_load(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "catalog.db").write_bytes(b"not a database, but a file of some length" * 50)
    defs = loaded(tmp_path, an_asset("t"))
    assert "dagster/uri" not in spec_of(defs, ["s", "t"]).metadata
    assert "could not be asked" in caplog.text


def test_outputs_that_cannot_be_committed_together_are_found(tmp_path: Path) -> None:
    together = {"commit_together": True}

    @dg.multi_asset(outs={"a": dg.AssetOut(metadata=together), "b": dg.AssetOut(metadata=together)})
    def both() -> tuple[DataFrame, DataFrame]: ...

    loaded(tmp_path, both)
    with pytest.raises(InvalidArgumentError, match=r"Assets of s__alone: .* has only one output with that key"):
        loaded(tmp_path, both, an_asset("alone", metadata=together))


def automated() -> dg.AssetsDefinition:
    return an_asset("t", deps=["up"], automation_condition=dg.AutomationCondition.eager() | on_new_data_version())


def sensors_of(
    tmp_path: Path, *assets: Any, sensors: Sequence[dg.SensorDefinition] = ()
) -> dict[str, dg.AssetSelection | None]:
    manager = CatalogManagedDeltaIOManager(catalog=resource_at(tmp_path), spark=SparkResource(master="local[2]"))
    found = dg.Definitions(
        assets=list(assets), resources={"io_manager": manager}, sensors=sensors, executor=dg.in_process_executor
    )
    completed = cm_delta_definitions(found, look_up_locations=False)
    completed.get_repository_def()
    return {sensor.name: sensor.asset_selection for sensor in completed.sensors}


def test_a_condition_that_no_sensor_evaluates_gets_one(tmp_path: Path) -> None:
    eager = an_asset("e", deps=["up"], automation_condition=dg.AutomationCondition.eager())
    found = sensors_of(tmp_path, automated(), eager)
    assert found == {"data_version_sensor": dg.AssetSelection.assets(["s", "t"])}
    assert sensors_of(tmp_path, eager) == {}
    own = data_version_sensor(dg.AssetSelection.all(), name="own")
    assert list(sensors_of(tmp_path, automated(), sensors=[own])) == ["own"]


def test_the_added_sensor_has_a_name_that_is_free(tmp_path: Path) -> None:
    other = an_asset("u", deps=["up"], automation_condition=on_new_data_version())
    own = data_version_sensor(dg.AssetSelection.assets(["s", "u"]))
    found = sensors_of(tmp_path, automated(), other, sensors=[own])
    assert found == {
        "data_version_sensor": dg.AssetSelection.assets(["s", "u"]),
        "data_version_sensor_2": dg.AssetSelection.assets(["s", "t"]),
    }


def test_many_assets_get_several_sensors_that_can_evaluate_them(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    many = [dg.AssetSpec(f"a{number:03}", deps=["up"]) for number in range(501)]

    @dg.multi_asset(specs=[spec.replace_attributes(automation_condition=on_new_data_version()) for spec in many])
    def assets() -> dg.MaterializeResult: ...

    manager = CatalogManagedDeltaIOManager(catalog=resource_at(tmp_path), spark=SparkResource(master="local[2]"))
    found = dg.Definitions(assets=[assets], resources={"io_manager": manager}, executor=dg.in_process_executor)
    completed = cm_delta_definitions(found, look_up_locations=False)
    sizes = {}
    for sensor in completed.sensors:
        sizes[sensor.name] = len(sensor.asset_selection.resolve(completed.resolve_asset_graph()))
        context = dg.build_sensor_context(instance=instance, repository_def=completed.get_repository_def())
        assert not sensor.evaluate_tick(context).run_requests
    assert sizes == {"data_version_sensor": 500, "data_version_sensor_2": 1}


def test_a_sensor_that_would_ignore_the_condition_is_refused(tmp_path: Path) -> None:
    ignores = dg.AutomationConditionSensorDefinition("by_the_daemon", target=dg.AssetSelection.all())
    with pytest.raises(InvalidArgumentError, match=r"Sensor by_the_daemon: it does not evaluate .* of s/t, because"):
        sensors_of(tmp_path, automated(), sensors=[ignores])
