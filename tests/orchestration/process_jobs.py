"""Jobs whose steps are processes of their own.

The folder they work in comes from the environment, as in a deployment, and so do the server of the catalog and its token.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from pyspark.sql import DataFrame

from cm_delta_dagster import connect
from cm_delta_dagster.catalog.rest.server_connection import TOKEN_VARIABLE
from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager, CatalogResource, SparkResource, audited

ROOT = "CM_DELTA_TEST_ROOT"
SERVER = "CM_DELTA_TEST_SERVER"
"""URL of the server of the catalog; without it, steps open the database."""


def root() -> Path:
    return Path(os.environ[ROOT])


class DiesAfterItsFirstCommit(CatalogManagedDeltaIOManager):
    """The process is killed between the ratification of its commit and the event, once."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        super().handle_output(context, obj)
        once = root() / "killed"
        if not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def catalog_of() -> CatalogResource:
    if SERVER in os.environ:
        return CatalogResource(url=dg.EnvVar(SERVER), token=dg.EnvVar(TOKEN_VARIABLE))
    return CatalogResource(url=f"sqlite:///{root()}/catalog.db", warehouse=f"file://{root()}/warehouse")


def resources(manager: type[CatalogManagedDeltaIOManager] = CatalogManagedDeltaIOManager) -> dict[str, Any]:
    catalog = catalog_of()
    config = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": f"{root()}/spark-warehouse",
    }
    spark = SparkResource(master="local[1]", config=config)
    return {"catalog": catalog, "spark": spark, "io_manager": manager(catalog=catalog, spark=spark)}


PROCESSES = dg.multiprocess_executor.configured({"max_concurrent": 1})


def job_of(*assets: dg.AssetsDefinition, manager: type[CatalogManagedDeltaIOManager]) -> dg.JobDefinition:
    job = dg.define_asset_job("job", selection=list(assets), executor_def=PROCESSES)
    return dg.Definitions(assets=list(assets), resources=resources(manager), jobs=[job]).resolve_job_def("job")


def three_steps() -> dg.JobDefinition:
    """``base`` is written, read by ``first``, changed by another writer, and read by ``second``."""

    @dg.asset(metadata={"mode": "append"})
    def base(spark: SparkResource) -> DataFrame:
        return spark.spark_session.range(2)

    @dg.asset
    def first(base: DataFrame) -> DataFrame:
        rows = base.count()
        with connect(f"sqlite:///{root()}/catalog.db", warehouse=f"file://{root()}/warehouse") as lake:
            lake.table("main.default.base").append(base.sparkSession.range(10, 15))
        return base.sparkSession.createDataFrame([(os.getpid(), rows)], "process long, n long")

    @dg.asset(deps=[first])
    def second(base: DataFrame) -> DataFrame:
        return base.sparkSession.createDataFrame([(os.getpid(), base.count())], "process long, n long")

    return job_of(base, first, second, manager=CatalogManagedDeltaIOManager)


def killed_step() -> dg.JobDefinition:
    """The process that appends to ``t`` dies after its commit."""

    @dg.asset(metadata={"mode": "append"})
    def t(spark: SparkResource) -> DataFrame:
        return spark.spark_session.range(1)

    return job_of(t, manager=DiesAfterItsFirstCommit)


def killed_check() -> dg.JobDefinition:
    """The process that appends to ``t`` dies in the check of its audit, once."""

    @dg.asset(metadata={"mode": "append"})
    def t(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
        return spark.spark_session.createDataFrame([(context.run_id,)], "run string")

    @dg.asset_check(asset=t, blocking=True)
    def survives(t: pa.Table) -> dg.AssetCheckResult:
        once = root() / "killed"
        if not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return dg.AssetCheckResult(passed=True, metadata={"runs": t["run"].to_pylist()})

    return job_of(audited(t, checks=[survives]), manager=CatalogManagedDeltaIOManager)


def mapped_steps() -> dg.JobDefinition:
    """Each mapped step reads the rows of its mapping key from a table that all outputs share, and appends to another one."""
    columns = {"process": pa.int64(), "key": pa.string(), "n": pa.int64()}

    def rows(*found: tuple[int, str, int]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in found], schema=pa.schema(columns))

    @dg.op(out=dg.DynamicOut(pa.Table, metadata={"table": "main.s.parts", "mode": "append"}))
    def split() -> Iterator[dg.DynamicOutput[pa.Table]]:
        for number, key in enumerate("abc"):
            yield dg.DynamicOutput(rows((os.getpid(), key, number)), mapping_key=key)

    @dg.op(out=dg.Out(metadata={"table": "main.s.doubled", "mode": "append"}))
    def doubled(context: dg.OpExecutionContext, part: pa.Table) -> pa.Table:
        (row,) = part.to_pylist()
        return rows((os.getpid(), f"{context.get_mapping_key()} read {row['key']}", 2 * row["n"]))

    @dg.op(out=dg.Out(metadata={"table": "main.s.collected"}))
    def collected(parts: list[pa.Table]) -> pa.Table:
        return pa.concat_tables(parts)

    @dg.job(resource_defs=resources(), executor_def=PROCESSES)
    def job() -> None:
        collected(split().map(doubled).collect())

    return job
