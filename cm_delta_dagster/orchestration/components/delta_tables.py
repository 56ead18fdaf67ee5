"""The component ``DeltaTables``: the tables of a scope as external assets, discovered from the catalog."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

import dagster as dg
from dagster.components import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import Field

from cm_delta_dagster.errors import (
    CatalogError,
    CatalogNotFoundError,
    CatalogUnavailableError,
    InvalidArgumentError,
)
from cm_delta_dagster.orchestration.checks.table_checks import table_checks
from cm_delta_dagster.orchestration.components.catalog_reference import CatalogReference
from cm_delta_dagster.orchestration.components.connection import DescribedModel
from cm_delta_dagster.orchestration.components.discovery import (
    DeltaTableProps,
    decode,
    discover,
    encode,
    table_spec,
)
from cm_delta_dagster.orchestration.components.scaffolding import CatalogScaffolder
from cm_delta_dagster.orchestration.sensor.sensors import FirstTick, ratified_commit_sensor

Translation: TypeAlias = TranslationFn[DeltaTableProps]


class _DeltaTablesScaffolder(CatalogScaffolder):
    attributes: ClassVar[Mapping[str, Any]] = {
        "scope": "main",
        "exclude": [],
        "translation": {"group_name": "{{ table.schema }}"},
        "commit_sensor": True,
    }


@dg.scaffold_with(_DeltaTablesScaffolder)
class DeltaTables(dg.StateBackedComponent, DescribedModel):
    """The tables of a catalog or schema as external assets, with partitions, columns and descriptions.

    The tables are read from the catalog when ``dg`` loads the project during development, and by ``dg utils refresh-defs-state``.
    Use it for tables that no asset of this code location writes. ``translation`` changes keys, groups, owners and tags; in Python,
    override ``get_asset_spec``.
    """

    catalog: CatalogReference = Field(
        description="Where the catalog is that lists the tables: the path of a CatalogManagedDelta below defs, or its settings."
    )
    scope: str = Field(description="What to list: catalog or catalog.schema; empty for all tables.")
    include: list[str] = Field(default_factory=lambda: ["*"], description="Patterns of full names, e.g. main.sales.*")
    exclude: list[str] = Field(default_factory=list, description="Patterns of full names of tables to leave out.")
    max_partitions: int = Field(
        default=1000,
        ge=0,
        description="Greatest number of values of a partition column. A table with more has no partitions; 0: none has.",
    )
    translation: Annotated[
        Translation | None,
        TranslationFnResolver(template_vars_for_translation_fn=lambda props: {"table": props}),
    ] = Field(
        default=None, description="Changes the asset of each table; {{ table.name }} and the like are its properties."
    )
    commit_sensor: bool = Field(
        default=False, description="Whether to add a sensor that reports the commits of these tables."
    )
    checks: bool = Field(default=False, description="Whether to add the default table checks to each table.")
    launch_checks: bool = Field(
        default=False, description="Whether the sensor launches the checks of a table when it reports new data of it."
    )
    catalog_key: str = Field(default="catalog", description="Resource key of the catalog, for sensor and checks.")
    io_manager_key: str = Field(
        default="io_manager", description="Resource key of the IO manager that reads the tables."
    )
    defs_state: ResolvedDefsStateConfig = DefsStateConfigArgs.local_filesystem()

    @property
    def defs_state_config(self) -> DefsStateConfig:
        return DefsStateConfig.from_args(self.defs_state, default_key=f"{type(self).__name__}[{self.scope or 'all'}]")

    def get_asset_spec(self, props: DeltaTableProps) -> dg.AssetSpec:
        """The asset of one table, before ``translation``. Override it in a subclass to change the assets in Python."""
        return table_spec(props, max_partitions=self.max_partitions, io_manager_key=self.io_manager_key)

    def write_state_to_path(self, state_path: Path) -> None:
        tables: tuple[DeltaTableProps, ...] = ()
        try:
            with self.catalog.open_client() as client:
                tables = discover(client, self.scope, include=self.include, exclude=self.exclude)
        except CatalogNotFoundError as error:
            self._warn_of_no_tables(error)  # The first run of a new project creates the catalog.
        state_path.parent.mkdir(parents=True, exist_ok=True)
        state_path.write_text(encode(tables), encoding="utf-8")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The assets. If the catalog cannot be reached when ``dg`` reads the tables during development, there are none."""
        try:
            return super().build_defs(context)
        except CatalogUnavailableError as error:
            self._warn_of_no_tables(error)
            return dg.Definitions()

    def _warn_of_no_tables(self, error: CatalogError) -> None:
        dg.get_dagster_logger("cm_delta_dagster").warning("%s shows no tables. %s", self.defs_state_config.key, error)

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        if self.launch_checks and not (self.commit_sensor and self.checks):
            raise InvalidArgumentError(
                f"DeltaTables of {self.scope or 'all tables'} has 'launch_checks', which needs 'commit_sensor' and 'checks'. "
                "Set both to true, or remove 'launch_checks'."
            )
        if state_path is None or not state_path.exists():
            return dg.Definitions()
        specs = [self._translated(props) for props in decode(state_path.read_text(encoding="utf-8"))]
        if not specs:
            return dg.Definitions()
        return dg.Definitions(
            assets=specs, sensors=self._sensors(specs), asset_checks=self._asset_checks(specs) if self.checks else []
        )

    def _translated(self, props: DeltaTableProps) -> dg.AssetSpec:
        spec = self.get_asset_spec(props)
        return spec if self.translation is None else self.translation(spec, props)

    def _sensors(self, specs: Sequence[dg.AssetSpec]) -> list[dg.SensorDefinition]:
        if not self.commit_sensor:
            return []
        name = "commits_of_" + "".join(letter if letter.isalnum() else "_" for letter in self.scope or "all")
        return [
            ratified_commit_sensor(
                name=name,
                assets=specs,
                catalog=self.catalog_key,
                launch_checks=self.launch_checks,
                first_tick=FirstTick.FROM_NOW,
                default_status=dg.DefaultSensorStatus.RUNNING,
            )
        ]

    def _asset_checks(self, specs: Sequence[dg.AssetSpec]) -> list[dg.AssetChecksDefinition]:
        return [definition for spec in specs for definition in table_checks(spec, catalog=self.catalog_key)]
