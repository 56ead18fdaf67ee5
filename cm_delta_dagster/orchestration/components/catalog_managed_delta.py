"""The component ``CatalogManagedDelta``: catalog, Spark and IO manager as resources."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import dagster as dg
from pydantic import Field

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration.assets.io_manager import CatalogManagedDeltaIOManager
from cm_delta_dagster.orchestration.components.connection import CatalogSettings, DescribedModel, SparkSettings
from cm_delta_dagster.orchestration.components.scaffolding import CatalogScaffolder


class _CatalogScaffolder(CatalogScaffolder):
    attributes: ClassVar[Mapping[str, Any]] = {"spark": {"master": "local[*]"}}


@dg.scaffold_with(_CatalogScaffolder)
class CatalogManagedDelta(dg.Component, DescribedModel):
    """Resources for tables whose commits a catalog ratifies: the catalog, Spark, and the IO manager that writes and reads the
    DataFrames of assets.
    """

    catalog: CatalogSettings = Field(description="Where the catalog and its tables are.")
    spark: SparkSettings = Field(
        default_factory=lambda: SparkSettings(master="local[*]"),
        description="The Spark session; by default on this machine.",
    )
    default_catalog: str = Field(default="main", description="Catalog of tables whose asset does not name one.")
    default_schema: str = Field(default="default", description="Schema of tables whose asset key has one part.")
    catalog_key: str = Field(default="catalog", description="Resource key of the catalog.")
    spark_key: str = Field(default="spark", description="Resource key of Spark.")
    io_manager_key: str = Field(default="io_manager", description="Resource key of the IO manager.")
    executor: Literal["in_process", "default"] = Field(
        default="in_process",
        description="in_process: all assets of a run share one Spark session. default: the executor of the code location.",
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        keys = (self.catalog_key, self.spark_key, self.io_manager_key)
        if len(set(keys)) < len(keys):
            raise InvalidArgumentError(f"Two resources have the same key: {', '.join(keys)}. Give each its own.")
        spark = self.spark.resource()
        spark.check()
        catalog = self.catalog.resource(spark=spark)
        manager = CatalogManagedDeltaIOManager(
            catalog=catalog, spark=spark, default_catalog=self.default_catalog, default_schema=self.default_schema
        )
        resources = {self.catalog_key: catalog, self.spark_key: spark, self.io_manager_key: manager}
        executor = dg.in_process_executor if self.executor == "in_process" else None
        return dg.Definitions(resources=resources, executor=executor)
