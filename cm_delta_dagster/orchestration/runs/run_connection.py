"""The Python API inside of a run: ``catalog.lake``."""

from collections.abc import Callable

import dagster as dg

from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.orchestration.runs.runs import RUN_ID_TAG, WriteOrigin
from cm_delta_dagster.spark.library import SparkSession


class RunConnection(Connection):
    """A connection whose client belongs to a resource, which closes it at the end of the run."""

    def close(self) -> None:
        """Wait for asynchronous post-commit work. The catalog stays open for the other users of the resource."""
        self.client.wait_for_background()


def connection_of_run(
    client: DeltaClient, *, run_id: str | None, spark: Callable[[], SparkSession] | None
) -> RunConnection:
    """The connection for the step that executes now, or for the run if none does in this thread.

    Args:
        run_id: the run; None outside of a run, as in a sensor.
        spark: supplies the Spark session on first use.
    """
    return RunConnection(client.of_run(_commit_context(run_id), run_id=run_id), spark=spark)


def _commit_context(run_id: str | None) -> CommitProperties:
    """What the commits of the run record."""
    if run_id is None:
        return CommitProperties()
    try:
        context = dg.OpExecutionContext.get()
    except dg.DagsterInvariantViolationError:  # A thread of the function's own.
        return CommitProperties(tags={RUN_ID_TAG: run_id})
    step = context.get_step_execution_context()
    (asset_key, *others) = step.get_output_asset_keys() or (None,)
    if others:
        asset_key = None  # It is not known to which of the assets a commit belongs.
    return WriteOrigin(
        name="" if asset_key is None else asset_key.to_user_string(),
        partition_keys=() if asset_key is None else _partition_keys(context, asset_key),
        asset_key=asset_key,
        step_key=step.step.key,
        step_context=step,
    ).commit_context()


def _partition_keys(context: dg.OpExecutionContext, asset_key: dg.AssetKey) -> tuple[str, ...]:
    """The partitions of the asset that the step materializes."""
    step = context.get_step_execution_context()
    is_partitioned = context.assets_def.specs_by_key[asset_key].partitions_def is not None
    return tuple(context.partition_keys) if is_partitioned and step.has_partitions else ()
