"""Refuses a run that would show readers rows of an audited table which its checks have not read."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration.assets.audited_tables import others_with_table
from cm_delta_dagster.orchestration.assets.io_manager import CatalogManagedDeltaIOManager
from cm_delta_dagster.orchestration.definitions import registered_as_step


def refuse_visible_rows(step: Any, manager: CatalogManagedDeltaIOManager) -> None:
    """Check the other assets and checks of the run, before the audited step computes anything.

    Raises:
        InvalidArgumentError: another asset of the run writes to a table of the step, or a blocking check of one of its assets runs
            as a step of its own, when readers see the rows already.
    """
    layer, own = step.job_def.asset_layer, step.get_output_asset_keys()
    tables = {manager.table_of(layer.get(key).metadata, key): key for key in own}
    for key, table in others_with_table(step, own, manager.table_of):
        if table in tables:
            raise InvalidArgumentError(
                f"{tables[table].to_user_string()} is audited, and {key.to_user_string()} writes to its table {table} in the same "
                "run, so that readers would see rows that were not checked. Nothing was computed. Give each asset a table of its "
                "own, or materialize them in runs of their own."
            )
    for spec in _separate_checks(layer, step):
        raise InvalidArgumentError(registered_as_step(spec) + " Nothing was computed.")


def _separate_checks(layer: Any, step: Any) -> Iterator[dg.AssetCheckSpec]:
    """The blocking checks of the assets of the step that the step does not run."""
    graph = layer.asset_graph
    keys = graph.get_check_keys_for_assets(step.get_output_asset_keys())
    for check_key in sorted(keys - set(layer.get_assets_def_for_node(step.node_handle).check_keys)):
        spec = graph.get_check_spec(check_key)
        if spec.blocking:
            yield spec
