"""The component ``SparkSqlAsset``: a query of Spark SQL whose rows are written to a table."""

from collections.abc import Mapping
from typing import Any, ClassVar

import dagster as dg
from pydantic import Field

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.sql.queries import run_query
from cm_delta_dagster.operations.sql.statements import Family, read_statement
from cm_delta_dagster.operations.sql.table_references import find_references
from cm_delta_dagster.orchestration.audit.audited import audited
from cm_delta_dagster.orchestration.audit.condition_check import condition_check
from cm_delta_dagster.orchestration.components.connection import DescribedModel
from cm_delta_dagster.orchestration.components.scaffolding import ExampleScaffolder
from cm_delta_dagster.orchestration.definitions import checked_contract
from cm_delta_dagster.orchestration.metadata.metadata import STORAGE_KIND, standard_metadata
from cm_delta_dagster.orchestration.metadata.write_contract import NamingDefaults
from cm_delta_dagster.protocol.predicates.sql_lexer import parts_of
from cm_delta_dagster.spark.library import DataFrame

_QUERY_FILE = "query.sql"
_EXAMPLE = """\
SELECT day, sum(amount) AS amount
FROM main.sales.orders
GROUP BY day
"""


class _SparkSqlAssetScaffolder(ExampleScaffolder):
    attributes: ClassVar[Mapping[str, Any]] = {"asset": {"key": "sales/daily_orders"}, "sql_file": _QUERY_FILE}

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        super().scaffold(request)
        query = request.target_path / _QUERY_FILE
        if query.parent.is_dir() and not query.exists():
            query.write_text(_EXAMPLE, encoding="utf-8")


@dg.scaffold_with(_SparkSqlAssetScaffolder)
class SparkSqlAsset(dg.Component, DescribedModel):
    """An asset that writes the rows of a query to its table and shows the query in its description.

    The query names tables of the catalog as ``catalog.schema.table``; each of them becomes a dependency. For a partitioned asset
    the query has the parameters ``:partition_key`` and, for time windows, ``:partition_start`` and ``:partition_end``; for several
    dimensions ``:partition_<dimension>``.
    """

    asset: dg.ResolvedAssetSpec = Field(
        description="Key, metadata (write contract), partitions, group, owners and tags."
    )
    sql: str | None = Field(default=None, description="The query, unless it is in a file.")
    sql_file: str | None = Field(default=None, description="File with the query, relative to this defs.yaml.")
    parameters: dict[str, Any] = Field(default_factory=dict, description="Values of further parameters of the query.")
    audit: dict[str, str] = Field(
        default_factory=dict,
        description="Checks that the rows pass before readers see them: name to an SQL condition that every row satisfies.",
    )
    asset_keys: dict[str, str] = Field(
        default_factory=dict, description="Full name of a table to its asset key, if that is not schema/table."
    )
    default_catalog: str = Field(default="main", description="As for the IO manager.")
    default_schema: str = Field(default="default", description="As for the IO manager.")
    catalog_key: str = Field(default="catalog", description="Resource key of the catalog.")
    spark_key: str = Field(default="spark", description="Resource key of Spark.")
    io_manager_key: str = Field(default="io_manager", description="Resource key of the IO manager.")

    @classmethod
    def from_yaml(cls, attributes: Any) -> Any:
        """Refuses the key ``on`` of the metadata without quotes, which YAML 1.1 reads as the boolean true."""
        match attributes:
            case {"asset": {"metadata": {True: keys}}}:
                raise InvalidArgumentError(
                    f'YAML reads the key on without quotes as true. Write it with quotes in the metadata: "on": {keys!r}.'
                )
        return super().from_yaml(attributes)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        query = self._query(context)
        spec = self._spec(query)

        @dg.asset(
            key=spec.key,
            deps=list(spec.deps),
            description=f"{spec.description or ''}\n\n```sql\n{query.strip()}\n```".strip(),
            metadata=spec.metadata,
            group_name=spec.group_name,
            owners=spec.owners,
            tags=spec.tags,
            kinds=spec.kinds,
            partitions_def=spec.partitions_def,
            code_version=spec.code_version,
            automation_condition=spec.automation_condition,
            freshness_policy=spec.freshness_policy,
            io_manager_key=self.io_manager_key,
            required_resource_keys={self.catalog_key, self.spark_key},
        )
        def rows_of_query(context: dg.AssetExecutionContext) -> DataFrame:
            client = getattr(context.resources, self.catalog_key).client
            spark = getattr(context.resources, self.spark_key).spark_session
            arguments = {**self.parameters, **_partition_arguments(context)}
            return run_query(client, query, spark=spark, args=arguments or None)

        checks = [condition_check(spec, name=name, condition=condition) for name, condition in self.audit.items()]
        return dg.Definitions(assets=[audited(rows_of_query, checks=checks) if checks else rows_of_query])

    def _query(self, context: dg.ComponentLoadContext) -> str:
        if (self.sql is None) == (self.sql_file is None):
            raise InvalidArgumentError(
                f"SparkSqlAsset {self.asset.key.to_user_string()} needs either 'sql', the query, or 'sql_file', a file with it."
            )
        text = self.sql
        if self.sql_file is not None:
            path = context.path / self.sql_file
            if not path.is_file():
                raise InvalidArgumentError(
                    f"SparkSqlAsset {self.asset.key.to_user_string()}: the file {path} does not exist."
                )
            text = path.read_text(encoding="utf-8")
        statement = read_statement(text or "")
        if statement.family is not Family.QUERY:
            raise InvalidArgumentError(
                f"SparkSqlAsset {self.asset.key.to_user_string()}: the statement must be a query that begins with SELECT, WITH, "
                "FROM, VALUES or TABLE."
            )
        return statement.text

    def _spec(self, query: str) -> dg.AssetSpec:
        spec = self.asset
        contract = checked_contract(
            spec, names=NamingDefaults(catalog=self.default_catalog, schema=self.default_schema)
        )
        upstream = {dep.asset_key: dep for dep in spec.deps}
        for table in _tables(query, self.parameters):
            key = dg.AssetKey.from_user_string(self.asset_keys.get(table, "/".join(table.split(".")[1:])))
            if key != spec.key:
                upstream.setdefault(key, dg.AssetDep(key))
        known = standard_metadata(table=str(contract.identifier), location=None, schema=None, counts=None)
        return spec.replace_attributes(
            deps=list(upstream.values()),
            kinds=spec.kinds or {STORAGE_KIND, "pyspark", "sql"},
            metadata={**known, **spec.metadata},
        )


def _tables(query: str, parameters: Mapping[str, Any]) -> list[str]:
    """Full names of the tables of the catalog that a query can read, in the order of the text."""
    references = find_references(query, parameters)
    names = [table.parts for table in references.tables if not table.is_shadowed]
    names += [parts_of(changes.name) for changes in references.changes]
    return list(dict.fromkeys(".".join(parts) for parts in names if len(parts) == 3))


def _partition_arguments(context: dg.AssetExecutionContext) -> dict[str, Any]:
    if not context.has_partition_key:
        return {}
    key = context.partition_key
    arguments: dict[str, Any] = {"partition_key": str(key)}
    if isinstance(key, dg.MultiPartitionKey):
        arguments |= {f"partition_{name}": own for name, own in key.keys_by_dimension.items()}
    definition = context.assets_def.partitions_def
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        window = context.partition_time_window
        arguments |= {"partition_start": window.start, "partition_end": window.end}
    return arguments
