"""The components: scaffolded, loaded from YAML in a project of its own, and used. In this process."""

import asyncio
import json
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster.components.core.package_entry import get_package_objects_in_module
from dagster.components.testing import DefsFolderSandbox, create_defs_folder_sandbox

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration import (
    CatalogManagedDelta,
    CatalogSettings,
    CommitSensor,
    DeltaTableProps,
    DeltaTables,
    FirstTick,
    LaunchFor,
    MaintenanceTask,
    SparkSqlAsset,
    TableMaintenance,
)
from cm_delta_dagster.orchestration.components.connection import DescribedModel, SparkSettings
from cm_delta_dagster.orchestration.runs.resources import CatalogResource
from tests.orchestration.conftest import World
from tests.orchestration.log_tables import commit, make_table, report
from tests.orchestration.sensor_bench import Ticker
from tests.support.dagster_assets import raised

pytestmark = [
    pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning"),
    pytest.mark.filterwarnings(
        "ignore::dagster_shared.utils.warnings.PreviewWarning"
    ),  # Of dagster-spark, if installed.
]

COMPONENTS = (CatalogManagedDelta, CommitSensor, DeltaTables, SparkSqlAsset, TableMaintenance)
MODULE = "cm_delta_dagster.orchestration"


@pytest.fixture
def sandbox() -> Iterator[DefsFolderSandbox]:
    with create_defs_folder_sandbox() as sandbox:
        yield sandbox


def location_of(tmp_path: Path) -> dict[str, str]:
    return {"url": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}


def add(sandbox: DefsFolderSandbox, component: type[dg.Component], name: str, **attributes: Any) -> None:
    contents = {"type": f"{MODULE}.{component.__name__}", "attributes": attributes}
    sandbox.scaffold_component(component_cls=component, defs_path=name, defs_yaml_contents=contents)


def add_python(sandbox: DefsFolderSandbox, name: str, text: str) -> None:
    (sandbox.defs_folder_path / name).write_text(text)


def load(sandbox: DefsFolderSandbox) -> dg.Definitions:
    with sandbox.build_all_defs() as defs:
        dg.Definitions.validate_loadable(defs)
        return defs


def refresh(sandbox: DefsFolderSandbox, name: str) -> None:
    """What ``dg utils refresh-defs-state`` does for one component."""
    with sandbox.build_component_tree() as tree:
        component = tree.load_component(sandbox.defs_folder_path / name)
        asyncio.run(component.refresh_state(sandbox.project_root))


def test_dg_finds_every_component_through_the_entry_point_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    (module,) = project["project"]["entry-points"]["dagster_dg_cli.registry_modules"].values()
    assert module == MODULE
    found = {name for name, _ in get_package_objects_in_module(import_module(module))}
    assert found == {component.__name__ for component in COMPONENTS}


@pytest.mark.parametrize("component", COMPONENTS)
def test_what_dg_scaffolds_is_valid_and_loads(
    sandbox: DefsFolderSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, component: type[DescribedModel]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = sandbox.scaffold_component(component_cls=component, defs_path="new")
    written = yaml.safe_load((path / "defs.yaml").read_text())
    assert written["type"] == f"{component.__module__}.{component.__name__}"
    component.model().model_validate(written["attributes"])
    with sandbox.load_component_and_build_defs(defs_path=path) as (made, defs):
        assert isinstance(made, component) and isinstance(defs, dg.Definitions)
    assert not (tmp_path / "catalog.db").exists()


def test_options_of_the_scaffolder_set_the_catalog(sandbox: DefsFolderSandbox) -> None:
    options = {"url": "postgresql://host/db", "warehouse": "s3://bucket/w"}
    path = sandbox.scaffold_component(component_cls=CatalogManagedDelta, defs_path="lake", scaffold_params=options)
    assert yaml.safe_load((path / "defs.yaml").read_text())["attributes"]["catalog"] == options


@pytest.mark.parametrize("component", COMPONENTS)
def test_an_unknown_attribute_is_refused_by_the_schema_that_dg_check_yaml_uses(component: type[DescribedModel]) -> None:
    with pytest.raises(ValueError, match="Extra inputs are not permitted"):
        component.model().model_validate({"no_such_attribute": 1})


@pytest.mark.parametrize("component", [*COMPONENTS, CatalogSettings])
def test_the_schema_that_dg_shows_describes_every_attribute(component: type[DescribedModel]) -> None:
    properties = component.model().model_json_schema()["properties"]
    assert [name for name, shown in properties.items() if not shown.get("description")] == []


def test_a_connection_has_resources_and_runs_assets_in_one_process(sandbox: DefsFolderSandbox, tmp_path: Path) -> None:
    add(sandbox, CatalogManagedDelta, "lake", catalog=location_of(tmp_path), default_schema="mine")
    defs = load(sandbox)
    assert set(defs.resources) == {"catalog", "spark", "io_manager"}
    assert defs.executor is dg.in_process_executor
    assert defs.resources["io_manager"].default_schema == "mine"
    assert defs.resources["spark"].master == "local[*]"
    assert defs.resources["catalog"].spark is defs.resources["spark"], "catalog.lake has the session"


def test_contradictions_of_a_connection_are_errors_of_the_load(tmp_path: Path) -> None:
    context = dg.ComponentTree.for_test().load_context
    catalog = CatalogSettings(**location_of(tmp_path))
    with pytest.raises(InvalidArgumentError, match="same key"):
        CatalogManagedDelta(catalog=catalog, spark_key="catalog").build_defs(context)
    with pytest.raises(InvalidArgumentError, match="either classic or Connect"):
        spark = {"master": "local", "remote": "sc://h"}
        CatalogManagedDelta.model_validate({"catalog": catalog, "spark": spark}).build_defs(context)


def test_tables_of_a_scope_are_external_assets_with_partitions_and_columns(
    sandbox: DefsFolderSandbox, catalog: CatalogResource, tmp_path: Path
) -> None:
    by_day = make_table(catalog.client, "main.sales.by_day", by={"day": "date"})
    commit(by_day, partitions=[{"day": "2026-01-02"}, {"day": "2026-01-04"}])
    mixed = make_table(catalog.client, "main.sales.mixed", by={"day": "date", "who": "string"})
    commit(mixed, partitions=[{"day": "2026-01-02", "who": "a"}, {"day": "2026-01-03", "who": "b"}])
    make_table(catalog.client, "main.sales.hidden_one")
    make_table(catalog.client, "main.other.t")
    add(
        sandbox,
        DeltaTables,
        "tables",
        catalog=location_of(tmp_path),
        scope="main.sales",
        exclude=["*.hidden_*"],
        checks=True,
        translation={"key": "lake/{{ table.table }}", "owners": ["team:{{ table.schema }}"], "tags": {"tier": "raw"}},
    )
    assert load(sandbox).assets is None or not list(load(sandbox).resolve_all_asset_specs())
    refresh(sandbox, "tables")
    add(sandbox, CatalogManagedDelta, "lake", catalog=location_of(tmp_path))
    specs = {spec.key.to_user_string(): spec for spec in load(sandbox).resolve_all_asset_specs()}
    assert set(specs) == {"lake/by_day", "lake/mixed"}
    spec = specs["lake/by_day"]
    assert spec.owners == ["team:sales"] and spec.tags["tier"] == "raw" and spec.group_name == "sales"
    assert spec.metadata["dagster/table_name"] == "main.sales.by_day"
    assert spec.metadata["dagster/uri"] == by_day.location
    assert [column.name for column in spec.metadata["dagster/column_schema"].columns] == ["id", "day"]
    assert spec.partitions_def == dg.DailyPartitionsDefinition("2026-01-02")
    assert spec.metadata["partition_expr"] == "day"
    assert specs["lake/mixed"].partitions_def.partition_dimension_names == ["day", "who"]
    assert specs["lake/mixed"].metadata["partition_expr"] == {"day": "day", "who": "who"}


def test_the_sensor_of_discovered_tables_reports_their_commits_by_partition(
    sandbox: DefsFolderSandbox, catalog: CatalogResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    table = make_table(catalog.client, "main.sales.by_day", by={"day": "date"})
    commit(table, partitions=[{"day": "2026-01-02"}])
    location = location_of(tmp_path)
    add(sandbox, DeltaTables, "tables", catalog=location, scope="main.sales", commit_sensor=True)
    add(sandbox, CatalogManagedDelta, "lake", catalog=location)
    refresh(sandbox, "tables")
    defs = load(sandbox)
    (sensor,) = defs.sensors
    assert sensor.name == "commits_of_main_sales"

    def tick(cursor: str | None) -> SensorExecutionData:
        with dg.build_sensor_context(instance=instance, cursor=cursor, resources={"catalog": catalog}) as context:
            return sensor.evaluate_tick(context)

    first = tick(None)
    commit(table, partitions=[{"day": "2026-01-03"}])
    result = tick(first.cursor)
    report(instance, result)
    key = dg.AssetKey(["sales", "by_day"])
    assert instance.get_materialized_partitions(key) == {"2026-01-03"}


@pytest.mark.slow
def test_tables_are_discovered_with_the_connection_of_another_component(
    sandbox: DefsFolderSandbox, catalog: CatalogResource, tmp_path: Path
) -> None:
    """So that the catalog stands in one file: its path, or an expression."""
    make_table(catalog.client, "main.sales.orders")
    add(sandbox, CatalogManagedDelta, "lake", catalog=location_of(tmp_path))
    for catalog_of in ("lake", "{{ context.load_component('lake').catalog }}", location_of(tmp_path)):
        add(sandbox, DeltaTables, "tables", catalog=catalog_of, scope="main.sales")
        refresh(sandbox, "tables")
        assert [spec.key.to_user_string() for spec in load(sandbox).resolve_all_asset_specs()] == ["sales/orders"]
    for path, message in (("nowhere", "no component can be loaded"), ("sensor", "CommitSensor without a catalog")):
        add(sandbox, CommitSensor, "sensor", tables={"a": "main.s.a"})
        add(sandbox, DeltaTables, "tables", catalog=path, scope="main.sales")
        with pytest.raises(Exception) as caught:
            load(sandbox)
        assert message in str(raised(caught.value))


def test_checks_of_tables_are_launched_after_a_foreign_commit_if_a_component_says_so(
    sandbox: DefsFolderSandbox, catalog: CatalogResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    table = make_table(catalog.client, "main.sales.orders")
    add(sandbox, CatalogManagedDelta, "lake", catalog=location_of(tmp_path))
    given = {"scope": "main.sales", "commit_sensor": True, "launch_checks": True}
    with pytest.raises(InvalidArgumentError, match="needs 'commit_sensor' and 'checks'"):
        DeltaTables(catalog=CatalogSettings(**location_of(tmp_path)), **given).build_defs_from_state(None, None)
    add(sandbox, DeltaTables, "tables", catalog="lake", checks=True, **given)
    refresh(sandbox, "tables")
    defs = load(sandbox)
    ticker = Ticker(defs.resolve_sensor_def("commits_of_main_sales"), catalog, instance, defs)
    ticker.tick()
    commit(table)
    (request,) = ticker.tick().run_requests
    assert request.job_name == "commits_of_main_sales_checks" and request.run_key == f"{table.table_id}:1:checks"
    assert {key.asset_key.to_user_string() for key in request.asset_check_keys} == {"sales/orders"}
    job = defs.resolve_job_def(request.job_name).get_subset(asset_check_selection=set(request.asset_check_keys))
    done = job.execute_in_process(instance=instance).get_asset_check_evaluations()
    assert {each.asset_check_key for each in done} == set(request.asset_check_keys)


def test_a_subclass_changes_the_assets_in_python(tmp_path: Path) -> None:
    class Mine(DeltaTables):
        def get_asset_spec(self, props: DeltaTableProps) -> dg.AssetSpec:
            return super().get_asset_spec(props).replace_attributes(key=f"mine_{props.table}", group_name="mine")

    client = CatalogSettings(**location_of(tmp_path)).resource()
    make_table(client.client, "main.sales.t")
    client.close()
    component = Mine(catalog=CatalogSettings(**location_of(tmp_path)), scope="")
    state = tmp_path / "state" / "file"
    component.write_state_to_path(state)
    defs = component.build_defs_from_state(dg.ComponentTree.for_test().load_context, state)
    (spec,) = defs.resolve_all_asset_specs()
    assert (spec.key.to_user_string(), spec.group_name) == ("mine_t", "mine")


def test_a_missing_catalog_and_the_state_of_another_release_have_no_tables(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    component = DeltaTables(catalog=CatalogSettings(**location_of(tmp_path)), scope="main")
    context = dg.ComponentTree.for_test().load_context
    component.write_state_to_path(tmp_path / "state")
    assert "There is no catalog at" in caplog.text and not (tmp_path / "catalog.db").exists()
    assert not component.build_defs_from_state(context, tmp_path / "state").assets
    (tmp_path / "state").write_text(json.dumps({"format": 99, "tables": [{"x": 1}]}))
    assert not component.build_defs_from_state(context, tmp_path / "state").assets


@pytest.mark.slow
def test_a_table_with_too_many_partition_values_has_no_partitions(tmp_path: Path) -> None:
    resource = CatalogSettings(**location_of(tmp_path)).resource()
    table = make_table(resource.client, "main.sales.t", by={"who": "string"})
    commit(table, partitions=[{"who": str(number)} for number in range(5)])
    resource.close()
    for limit, kind in ((4, type(None)), (5, dg.StaticPartitionsDefinition), (0, type(None))):
        component = DeltaTables(catalog=CatalogSettings(**location_of(tmp_path)), scope="main", max_partitions=limit)
        component.write_state_to_path(tmp_path / "state")
        defs = component.build_defs_from_state(dg.ComponentTree.for_test().load_context, tmp_path / "state")
        (spec,) = defs.resolve_all_asset_specs()
        assert isinstance(spec.partitions_def, kind)


ORDERS = """
import dagster as dg

@dg.asset(key=["sales", "orders"], partitions_def=dg.DailyPartitionsDefinition("2026-01-01"), metadata={"partition_expr": "day"})
def orders() -> None: ...
"""


def test_a_commit_sensor_watches_the_assets_of_other_files_with_their_partitions(
    sandbox: DefsFolderSandbox, catalog: CatalogResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    add_python(sandbox, "orders.py", ORDERS)
    add(sandbox, CatalogManagedDelta, "lake", catalog=location_of(tmp_path))
    add(sandbox, CommitSensor, "sensor", watch=["orders.py"], first_tick="from_beginning", target="sales/orders")
    table = make_table(catalog.client, "main.sales.orders", by={"day": "date"})
    commit(table, partitions=[{"day": "2026-01-02"}])
    (sensor,) = load(sandbox).sensors
    with dg.build_sensor_context(instance=instance, resources={"catalog": catalog}) as context:
        result = sensor.evaluate_tick(context)
    assert [event.partition for event in result.asset_events if isinstance(event, dg.AssetMaterialization)] == [
        "2026-01-02"
    ]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "either 'watch'"),
        ({"watch": ["x.py"], "tables": {"a": "main.s.a"}}, "either 'watch'"),
        ({"watch": ["x.py"]}, "x.py, which does not exist"),
        ({"tables": {"a": "main.s.a"}, "launch_on": ["b"], "target": "c"}, "does not watch: b"),
        ({"tables": {"a": "main.s.a"}, "launch_on": ["a"]}, "has no 'target'"),
        ({"tables": {"a": "main.s.a"}, "batch_size": 0}, "batch_size is 0"),
    ],
)
def test_a_commit_sensor_that_cannot_work_is_an_error_of_the_load(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        CommitSensor(**attributes).build_defs(dg.ComponentTree.for_test().load_context)


@pytest.mark.parametrize("value", ["from_beginning", "FROM_BEGINNING"])
def test_values_of_attributes_are_written_in_either_case(sandbox: DefsFolderSandbox, value: str) -> None:
    tables = {"a": "main.s.a"}
    add(sandbox, CommitSensor, "sensor", tables=tables, first_tick=value, launch_for="FOREIGN_COMMITS")
    add(sandbox, TableMaintenance, "maintenance", tables=["main.s.a"], tasks=["PUBLISH", "vacuum"])
    with sandbox.build_component_tree() as tree:
        sensor = tree.load_component(sandbox.defs_folder_path / "sensor")
        maintenance = tree.load_component(sandbox.defs_folder_path / "maintenance")
    assert (sensor.first_tick, sensor.launch_for) == (FirstTick.FROM_BEGINNING, LaunchFor.FOREIGN_COMMITS)
    assert maintenance.tasks == [MaintenanceTask.PUBLISH, MaintenanceTask.VACUUM]
    with pytest.raises(ValueError):
        FirstTick("from_beginnings")


def listed_attributes(page: str, heading: str) -> dict[str, bool]:
    """The names in the table of that section of the page, and those that are required."""
    section = page.split(f"\n### {heading}\n")[1].split("\n#")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    return {name.strip().strip("`"): default.strip() == "required" for name, default in rows}


def test_the_page_lists_every_attribute_of_every_component() -> None:
    page = (Path(__file__).parents[3] / "docs" / "components.md").read_text()
    sections = {f"`{component.__name__}`": component for component in COMPONENTS}
    sections |= {
        "`catalog` of `CatalogManagedDelta`": CatalogSettings,
        "`spark` of `CatalogManagedDelta`": SparkSettings,
    }
    for heading, model in sections.items():
        found = {name: field.is_required() for name, field in model.model_fields.items()}
        assert listed_attributes(page, heading) == found, heading


def test_maintenance_has_a_schedule_for_each_table_and_shows_results_on_its_asset(
    sandbox: DefsFolderSandbox, tmp_path: Path
) -> None:
    add(sandbox, CatalogManagedDelta, "lake", catalog=location_of(tmp_path))
    add(sandbox, TableMaintenance, "maintenance", tables=["main.s.a", "main.s.b"], cron="5 * * * *", min_small_files=9)
    schedules = load(sandbox).schedules
    assert {(one.name, one.cron_schedule) for one in schedules} == {
        ("maintain_main_s_a_schedule", "5 * * * *"),
        ("maintain_main_s_b_schedule", "5 * * * *"),
    }
    policy = TableMaintenance(tables=["main.s.a"], min_small_files=9).policy()
    assert policy.asset_keys == {"main.s.a": dg.AssetKey(["s", "a"])} and policy.min_small_files == 9


QUERY = """
WITH big AS (SELECT * FROM main.sales.orders WHERE amount > :least)
SELECT o.day, count(*) AS n FROM big o JOIN main.crm.customers c USING (id) JOIN session_view v USING (id)
WHERE o.day = DATE(:partition_key) GROUP BY o.day
"""


def test_a_query_depends_on_the_tables_that_it_names(sandbox: DefsFolderSandbox, tmp_path: Path) -> None:
    add(sandbox, CatalogManagedDelta, "lake", catalog=location_of(tmp_path))
    add(
        sandbox,
        SparkSqlAsset,
        "report",
        sql_file="report.sql",
        parameters={"least": 10},
        asset_keys={"main.crm.customers": "customers"},
        asset={
            "key": "sales/report",
            "group_name": "reports",
            "metadata": {"partition_expr": "day", "mode": "overwrite"},
            "partitions_def": {"type": "daily", "start_date": "2026-01-01"},
        },
    )
    (sandbox.defs_folder_path / "report" / "report.sql").write_text(QUERY)
    spec = next(s for s in load(sandbox).resolve_all_asset_specs() if s.key == dg.AssetKey(["sales", "report"]))
    assert {dep.asset_key.to_user_string() for dep in spec.deps} == {"sales/orders", "customers"}
    assert spec.kinds == {"deltalake", "pyspark", "sql"} and spec.group_name == "reports"
    assert spec.metadata["dagster/table_name"] == "main.sales.report"


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "either 'sql'"),
        ({"sql": "DELETE FROM main.s.t"}, "must be a query"),
        ({"sql": "SHOW TABLES"}, "must be a query"),
        ({"sql_file": "missing.sql"}, "does not exist"),
    ],
)
def test_a_query_that_cannot_work_is_an_error_of_the_load(attributes: dict[str, Any], message: str) -> None:
    component = SparkSqlAsset(asset=dg.AssetSpec("t"), **attributes)
    with pytest.raises(InvalidArgumentError, match=message):
        component.build_defs(dg.ComponentTree.for_test().load_context)


def test_the_write_contract_of_a_query_is_checked_when_it_is_loaded() -> None:
    days = dg.DailyPartitionsDefinition("2026-01-01")
    for spec, message in (
        (dg.AssetSpec("t", metadata={"mode": "merge"}), "needs 'on'"),
        (dg.AssetSpec("t", partitions_def=days), "partition_expr"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            SparkSqlAsset(asset=spec, sql="SELECT 1").build_defs(dg.ComponentTree.for_test().load_context)


def test_the_key_on_without_quotes_in_yaml_is_an_error_that_says_so() -> None:
    """YAML 1.1 reads the word as the boolean true."""
    text = "sql: SELECT 1 AS id\nasset: {key: t, metadata: {mode: merge, %s: [id]}}"
    with pytest.raises(ValueError, match=r"""Write it with quotes in the metadata: "on": \['id'\]"""):
        SparkSqlAsset.resolve_from_yaml(text % "on")
    for key in ('"on"', "cm_delta/on"):
        metadata = SparkSqlAsset.resolve_from_yaml(text % key).asset.metadata
        assert metadata == {"mode": "merge", key.strip('"'): ["id"]}


@pytest.mark.slow
def test_a_query_is_written_for_the_partition_of_the_run(world: World) -> None:
    @dg.asset(key=["sales", "orders"])
    def orders() -> Any:
        return world.frame([(1, "2026-01-01"), (2, "2026-01-02"), (3, "2026-01-02")], "id int, day string")

    component = SparkSqlAsset(
        asset=dg.AssetSpec(
            ["sales", "report"],
            partitions_def=dg.DailyPartitionsDefinition("2026-01-01"),
            metadata={"partition_expr": "day"},
        ),
        sql="SELECT DATE(day) AS day, count(*) + :more AS n FROM main.sales.orders WHERE day = :partition_key AND "
        "timestamp(day) >= :partition_start AND timestamp(day) < :partition_end GROUP BY day",
        parameters={"more": 10},
    )
    (report_asset,) = component.build_defs(dg.ComponentTree.for_test().load_context).assets
    world.materialize(orders)
    world.materialize(orders, report_asset, selection=[report_asset], partition_key="2026-01-02")
    assert [row[1] for row in world.rows("main.sales.report")] == [12]


@pytest.mark.slow
@pytest.mark.requirements("WAP-3", "WAP-4")
def test_the_conditions_of_a_component_audit_the_rows_of_its_query(world: World) -> None:
    days = dg.StaticPartitionsDefinition(["1", "2"])
    component = SparkSqlAsset(
        asset=dg.AssetSpec("report", partitions_def=days, metadata={"partition_expr": "day"}),
        sql="SELECT int(:partition_key) AS day, CASE :partition_key WHEN 1 THEN 5.0 END AS amount",
        audit={"positive": "amount > 0"},
    )
    (report_asset,) = component.build_defs(dg.ComponentTree.for_test().load_context).assets
    assert world.materialize(report_asset, partition_key="1").get_asset_check_evaluations()[0].passed
    result = world.materialize(report_asset, partition_key="2", raises=False)
    (evaluation,) = result.get_asset_check_evaluations()
    assert not result.success
    assert evaluation.description == (
        "1 row does not satisfy amount > 0. The rows were discarded, and readers never saw them."
    )
    assert evaluation.metadata["cm_delta/wrong_rows"].value == 1
    assert evaluation.metadata["cm_delta/sample"].records[0].data == {"day": "2", "amount": "NULL"}
    assert [row[0] for row in world.rows("main.default.report")] == [1]


def test_a_condition_of_a_component_that_is_no_expression_is_an_error_of_the_load() -> None:
    component = SparkSqlAsset(asset=dg.AssetSpec("t"), sql="SELECT 1 AS a", audit={"broken": "EXISTS (SELECT 1)"})
    with pytest.raises(InvalidArgumentError):
        component.build_defs(dg.ComponentTree.for_test().load_context)
