"""Definitions that are checked when they are loaded, and that show table, location and kinds before the first run."""

import itertools
import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.definitions.sensor_definition import SensorType

from cm_delta_dagster.catalog.sql.database.database import IfMissing
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CatalogNotFoundError, CmDeltaError, InvalidArgumentError
from cm_delta_dagster.orchestration.assets.commit_together import OutputDefinition, check_group
from cm_delta_dagster.orchestration.assets.io_manager import CatalogManagedDeltaIOManager
from cm_delta_dagster.orchestration.automation.automation import (
    DATA_VERSION_SENSOR,
    MAX_ASSETS_OF_SENSOR,
    data_version_sensor,
)
from cm_delta_dagster.orchestration.automation.unread_changes import holds_unread_changes
from cm_delta_dagster.orchestration.metadata.audit_mode import AUDITED_BY, ops_of_audit
from cm_delta_dagster.orchestration.metadata.metadata import STORAGE_KIND, standard_metadata
from cm_delta_dagster.orchestration.metadata.partitions import check_partition_expr
from cm_delta_dagster.orchestration.metadata.write_contract import (
    NamingDefaults,
    WriteContract,
    parse_read_contract,
    parse_write_contract,
)
from cm_delta_dagster.orchestration.runs.resources import CatalogResource, SparkResource

_MAX_KINDS = 3
"""Dagster accepts no more for one asset."""
_KINDS = {"pyspark": "pyspark", "polars": "polars", "pandas": "pandas", "pyarrow": "arrow", "duckdb": "duckdb"}
"""Kind of an asset by the package of its annotation."""
_ONE_PROCESS_PER_STEP = (None, "multiprocess", "multi_or_in_process_executor")
"""Names of executors that start a process for each step; None is Dagster's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredAsset:
    """An asset whose output a Delta IO manager stores."""

    spec: dg.AssetSpec
    definition: dg.AssetsDefinition
    output_type: dg.DagsterType
    manager_key: str
    contract: WriteContract


def cm_delta_definitions(defs: dg.Definitions, *, look_up_locations: bool = True) -> dg.Definitions:
    """Check the assets that a ``CatalogManagedDeltaIOManager`` of ``defs`` stores, and complete their definitions.

    The metadata of outputs and inputs is checked as a write or read would check it, so that a wrong key, a missing
    ``partition_expr`` or two assets with one table are errors of ``dg check defs``. Each asset gets the kinds of its storage and
    of its DataFrame, ``dagster/table_name``, ``dagster/storage_kind`` and, if the table exists, ``dagster/uri``. An executor that
    starts Spark for each asset is a warning. For assets with a condition of this package and without a sensor that evaluates it,
    :func:`data_version_sensor` are added, one for 500 assets, stopped as the sensor that Dagster adds.

    Args:
        defs: definitions with their resources.
        look_up_locations: whether to ask the catalog for the locations of the tables, in one query. The catalog is not created.

    Raises:
        InvalidArgumentError: no resource is a Delta IO manager, or assets cannot be written or read as they say; the message lists
            all of them.
    """
    managers = {
        key: resource
        for key, resource in (defs.resources or {}).items()
        if isinstance(resource, CatalogManagedDeltaIOManager)
    }
    if not managers:
        raise InvalidArgumentError(
            "No resource of these definitions is a CatalogManagedDeltaIOManager, so there is nothing to check. Pass the "
            "definitions together with their resources: cm_delta_definitions(dg.Definitions(assets, resources=resources))."
        )
    defs = _without_repetition(defs)
    problems: list[str] = []
    stored = list(_stored_assets(defs, managers, problems))
    problems += _shared_without_consent(stored)
    problems += _replaced_by_siblings(stored)
    problems += _wrong_groups(stored)
    problems += _wrong_audits(defs, stored)
    problems += _wrong_inputs(defs, managers, stored)
    defs = _with_data_version_sensor(defs, problems)
    if problems:
        listed = "".join(f"\n- {problem.replace(' Nothing was written.', '')}" for problem in problems)
        raise InvalidArgumentError(f"{len(problems)} problems in the definitions of tables:{listed}")
    _warn_of_executor(defs, managers, stored)
    locations = _locations(managers, stored) if look_up_locations else {}
    completed = {asset.spec.key: _completed(asset, locations) for asset in stored}
    return defs.permissive_map_resolved_asset_specs(lambda spec: completed.get(spec.key, spec), None)


def _with_data_version_sensor(defs: dg.Definitions, problems: list[str]) -> dg.Definitions:
    """The definitions with a sensor for the conditions that no sensor evaluates."""
    conditions = {
        spec.key: spec.automation_condition
        for asset in defs.assets or ()
        for spec in (asset.specs if isinstance(asset, dg.AssetsDefinition) else ())
    }
    keys = {key for key, condition in conditions.items() if condition is not None and holds_unread_changes(condition)}
    if not keys:
        return defs
    graph = defs.resolve_asset_graph()
    for sensor in defs.sensors or ():
        if not isinstance(sensor, dg.AutomationConditionSensorDefinition) or sensor.asset_selection is None:
            continue
        evaluated = keys & sensor.asset_selection.resolve(graph)
        keys -= evaluated
        if evaluated and sensor.sensor_type is not SensorType.AUTOMATION:
            named = ", ".join(sorted(key.to_user_string() for key in evaluated))
            problems.append(
                f"Sensor {sensor.name}: it does not evaluate the automation conditions of {named}, because Dagster's daemon "
                "ignores conditions that Dagster does not define. Use data_version_sensor(...), or set use_user_code_server=True."
            )
    if not keys:
        return defs
    return dg.Definitions.merge(defs, dg.Definitions(sensors=list(_data_version_sensors(defs, sorted(keys)))))


def _data_version_sensors(defs: dg.Definitions, keys: Sequence[dg.AssetKey]) -> Iterator[dg.SensorDefinition]:
    """Sensors with names that the definitions do not have, each for at most as many assets as a sensor can evaluate."""
    taken = {sensor.name for sensor in defs.sensors or ()}
    numbered = (
        DATA_VERSION_SENSOR if number == 1 else f"{DATA_VERSION_SENSOR}_{number}" for number in itertools.count(1)
    )
    names = (name for name in numbered if name not in taken)
    for start in range(0, len(keys), MAX_ASSETS_OF_SENSOR):
        yield data_version_sensor(
            dg.AssetSelection.assets(*keys[start : start + MAX_ASSETS_OF_SENSOR]), name=next(names)
        )


def _without_repetition(defs: dg.Definitions) -> dg.Definitions:
    """The same definitions with each asset once, and without the checks that are a part of an audited asset.

    A folder with modules that import assets from each other has the assets repeatedly, and the checks of an audit as well.
    """
    audits = [ops_of_audit(asset) for asset in defs.assets or () if isinstance(asset, dg.AssetsDefinition)]
    in_audits = {id(op) for ops in audits for op in ops}
    return dg.Definitions(
        assets=list({id(asset): asset for asset in defs.assets or ()}.values()),
        schedules=defs.schedules,
        sensors=defs.sensors,
        jobs=defs.jobs,
        resources=defs.resources,
        executor=defs.executor,
        loggers=defs.loggers,
        asset_checks=[check for check in defs.asset_checks or () if id(check.op) not in in_audits],
        metadata=defs.metadata,
        component_tree=defs.component_tree,
    )


def _stored_assets(
    defs: dg.Definitions, managers: Mapping[str, CatalogManagedDeltaIOManager], problems: list[str]
) -> Iterator[_StoredAsset]:
    for definition in defs.assets or ():
        if not isinstance(definition, dg.AssetsDefinition) or not definition.is_materializable:
            continue
        for spec in definition.specs:
            key = definition.get_io_manager_key_for_asset_key(spec.key)
            output = definition.node_def.output_dict[definition.get_output_name_for_asset_key(spec.key)]
            if key not in managers or output.dagster_type.is_nothing:
                continue  # The asset stores its result itself.
            try:
                contract = checked_contract(spec, names=_names(managers[key]))
            except InvalidArgumentError as error:
                problems.append(f"Asset {spec.key.to_user_string()}: {error}")
                continue
            yield _StoredAsset(
                spec=spec,
                definition=definition,
                output_type=output.dagster_type,
                manager_key=key,
                contract=contract,
            )


def checked_contract(spec: dg.AssetSpec, *, names: NamingDefaults) -> WriteContract:
    """How the asset is written, as its definition says. Raises InvalidArgumentError for what no write could follow."""
    contract = parse_write_contract(
        definition=spec.metadata,
        run={},
        output={},
        asset_path=spec.key.path,
        partitioned=spec.partitions_def is not None,
        names=names,
    )
    if spec.partitions_def is not None:
        check_partition_expr(spec.partitions_def, contract.partition_expr)
    return contract


def _names(manager: CatalogManagedDeltaIOManager) -> NamingDefaults:
    return NamingDefaults(catalog=manager.default_catalog, schema=manager.default_schema)


def _shared_without_consent(stored: list[_StoredAsset]) -> Iterator[str]:
    """Tables that several assets write, unless the metadata of each of these assets names the table."""
    by_table: dict[str, list[_StoredAsset]] = {}
    for asset in stored:
        by_table.setdefault(str(asset.contract.identifier), []).append(asset)
    for table, assets in by_table.items():
        if len(assets) < 2 or not any(asset.contract.named_after for asset in assets):
            continue
        keys = " and ".join(asset.spec.key.to_user_string() for asset in assets)
        yield (
            f"Assets {keys} write one table, {table}, so that each would overwrite the other. Set the metadata key 'table' in "
            "one of them to give it another table, or in all of them to share it."
        )


def _replaced_by_siblings(stored: list[_StoredAsset]) -> Iterator[str]:
    """Outputs of one function that replace the same rows of one table in each run."""
    for first, second in itertools.combinations(stored, 2):
        if first.definition is not second.definition or first.definition.can_subset or not _same_rows(first, second):
            continue
        name, other = first.spec.key.to_user_string(), second.spec.key.to_user_string()
        yield (
            f"Assets {name} and {other} are outputs of one function and replace the same rows of {first.contract.identifier}, so "
            "that only those of the last one would stay. Set the mode 'append' or 'merge' in the metadata, let each replace rows "
            "of its own (mode 'replace_where'), or give each a table of its own."
        )


def _same_rows(first: _StoredAsset, second: _StoredAsset) -> bool:
    """Whether both replace the same rows of one table, whatever these rows are."""
    contract, other = first.contract, second.contract
    if contract.identifier != other.identifier or not contract.replaced_conditions & other.replaced_conditions:
        return False
    return first.spec.partitions_def == second.spec.partitions_def and contract.partition_expr == other.partition_expr


def _wrong_audits(defs: dg.Definitions, stored: list[_StoredAsset]) -> Iterator[str]:
    """Audited assets whose table shows rows that were not checked, or whose blocking checks run when readers see the rows."""
    audited = {asset.spec.key: asset for asset in stored if AUDITED_BY in asset.spec.metadata}
    for definition in defs.asset_checks or ():
        separate = (spec for spec in definition.check_specs if spec.blocking and spec.asset_key in audited)
        yield from map(registered_as_step, separate)
    for asset in stored:
        if asset.contract.audit is not None and asset.spec.key not in audited:
            yield (
                f"Asset {asset.spec.key.to_user_string()} has 'audit' in its metadata, and no audit: its rows would be published "
                "unchecked. Give it to audited(asset, checks=[...]), or remove the key."
            )
    for asset, other in itertools.permutations(stored, 2):
        if asset.spec.key in audited and asset.contract.identifier == other.contract.identifier:
            yield (
                f"Asset {asset.spec.key.to_user_string()} is audited, and {other.spec.key.to_user_string()} writes to the same "
                f"table, {asset.contract.identifier}, so that readers see rows that its checks have not read. Give each a table "
                "of its own."
            )


def registered_as_step(spec: dg.AssetCheckSpec) -> str:
    """What is wrong with a blocking check of an audited asset that is not a part of the audit."""
    return (
        f"The check {spec.name} of {spec.asset_key.to_user_string()} is blocking and is a step of its own, and the asset is "
        "audited: the check would run when readers see the rows already. Add it to the checks of the audit, or let it not block."
    )


def _wrong_groups(stored: list[_StoredAsset]) -> Iterator[str]:
    """Functions whose outputs cannot be committed together."""
    groups: dict[str, dict[str, OutputDefinition]] = {}
    for asset in stored:
        if asset.contract.commit_together:
            name = asset.definition.get_output_name_for_asset_key(asset.spec.key)
            outputs = groups.setdefault(asset.definition.node_def.name, {})
            outputs[name] = asset.definition.node_def.output_dict[name]
    for function, outputs in groups.items():
        try:
            check_group(function, outputs)
        except InvalidArgumentError as error:
            yield f"Assets of {function}: {error}"


def _wrong_inputs(
    defs: dg.Definitions, managers: Mapping[str, CatalogManagedDeltaIOManager], stored: list[_StoredAsset]
) -> Iterator[str]:
    """Inputs whose metadata is not a valid read contract."""
    upstream = {asset.spec.key: asset for asset in stored}
    for definition in defs.assets or ():
        if not isinstance(definition, dg.AssetsDefinition) or not isinstance(definition.node_def, dg.OpDefinition):
            continue
        for name, key in definition.keys_by_input_name.items():
            input_definition = definition.node_def.input_dict.get(name)
            if (
                key not in upstream
                or input_definition is None
                or input_definition.dagster_type.is_nothing
                or input_definition.input_manager_key
            ):
                continue
            try:
                parse_read_contract(
                    upstream=upstream[key].spec.metadata,
                    own=input_definition.metadata or {},
                    asset_path=key.path,
                    names=_names(managers[upstream[key].manager_key]),
                )
            except InvalidArgumentError as error:
                own = ", ".join(sorted(own.to_user_string() for own in definition.keys))
                yield f"Input {name} of {own}: {error}"


def _warn_of_executor(
    defs: dg.Definitions, managers: Mapping[str, CatalogManagedDeltaIOManager], stored: list[_StoredAsset]
) -> None:
    on_spark = [asset for asset in stored if _kind(asset.output_type) == "pyspark"]
    local = sorted({asset.manager_key for asset in on_spark if _starts_local_spark(managers[asset.manager_key])})
    executor = getattr(defs.executor, "name", None)
    if len(on_spark) < 2 or not local or executor not in _ONE_PROCESS_PER_STEP:
        return
    chosen = f"the executor {executor}" if executor else "Dagster's default executor"
    warnings.warn(
        f"These definitions use {chosen}, which starts a process for each asset, and the Spark session of {', '.join(local)} "
        f"runs in that process. Each of the {len(on_spark)} assets of a run starts Java and Spark again, which takes some "
        "seconds and about 1 GB of memory each. Set Definitions(executor=dg.in_process_executor), or use Spark Connect "
        "(SparkResource(remote=...)).",
        stacklevel=3,
    )


def _starts_local_spark(manager: CatalogManagedDeltaIOManager) -> bool:
    spark = manager.spark
    if not isinstance(spark, SparkResource) or spark.remote is not None or "SPARK_REMOTE" in os.environ:
        return False
    return spark.master is None or spark.master.startswith("local")


def _kind(output_type: dg.DagsterType) -> str | None:
    """The kind of the DataFrame in the annotation. Without annotation it is PySpark's."""
    annotation = output_type.typing_type
    if annotation is Any:
        return "pyspark"
    parts = [annotation, *getattr(annotation, "__args__", ())]
    packages = (str(getattr(part, "__module__", "")).partition(".")[0] for part in parts)
    return next((_KINDS[package] for package in packages if package in _KINDS), None)


def _locations(
    managers: Mapping[str, CatalogManagedDeltaIOManager], stored: list[_StoredAsset]
) -> Mapping[tuple[str, TableIdentifier], str]:
    """Locations of the tables that exist, by manager and name. A catalog that cannot be asked has none."""
    locations: dict[tuple[str, TableIdentifier], str] = {}
    for key, manager in managers.items():
        identifiers = {asset.contract.identifier for asset in stored if asset.manager_key == key}
        if not identifiers:
            continue
        try:
            entries = _tables_of(manager.catalog, identifiers)
        except CatalogNotFoundError:
            continue  # The first run creates the catalog.
        except (CmDeltaError, dg.DagsterError) as error:
            dg.get_dagster_logger("cm_delta_dagster").warning(
                "The locations of the tables are not shown, because the catalog of %s could not be asked: %s",
                key,
                error,
            )
            continue
        locations |= {(key, identifier): location for identifier, location in entries.items()}
    return locations


def _tables_of(catalog: CatalogResource, identifiers: Collection[TableIdentifier]) -> Mapping[TableIdentifier, str]:
    """Locations of the tables of ``identifiers`` that exist. Does not create a catalog.

    Raises:
        CatalogNotFoundError: there is no catalog.
        CatalogError: the catalog cannot be asked.
        DagsterError: a variable of the environment is not set.
    """
    with catalog.process_config_and_initialize_cm() as resolved:
        opened = resolved.open_catalog(if_missing=IfMissing.REFUSE)
        try:
            return {entry.identifier: entry.location for entry in opened.registry.load_tables(identifiers)}
        finally:
            opened.close()


def _completed(asset: _StoredAsset, locations: Mapping[tuple[str, TableIdentifier], str]) -> dg.AssetSpec:
    """The spec of an asset with what is known about its table. What the spec says has priority."""
    spec, identifier = asset.spec, asset.contract.identifier
    location = locations.get((asset.manager_key, identifier))
    metadata = standard_metadata(table=str(identifier), location=location, schema=None, counts=None)
    kinds = set(spec.kinds)
    for kind in (STORAGE_KIND, _kind(asset.output_type)):
        if kind is not None and len(kinds) < _MAX_KINDS:
            kinds.add(kind)
    return spec.replace_attributes(metadata={**metadata, **spec.metadata}, kinds=kinds)
