"""The demo code location: what ``dg dev`` and ``workspace.yaml`` load."""

import functools
from pathlib import Path

import dagster as dg

from cm_delta_dagster.orchestration import cm_delta_definitions
from resources import deployment_resources


@dg.definitions
def defs() -> dg.Definitions:
    """Everything under ``definitions/defs``, with the resources of the deployment; the metadata of the assets is checked.

    The assets link to their code, and the metadata lists the components for the UI. Dagster asks for the definitions at the start
    of each run; a process loads them once.
    """
    return _loaded()


@functools.cache
def _loaded() -> dg.Definitions:
    loaded = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    # Modules that import assets from each other have them repeatedly.
    assets = list(dict.fromkeys(loaded.assets or ()))
    completed = dg.Definitions(
        assets=dg.with_source_code_references(assets),
        asset_checks=loaded.asset_checks,
        jobs=loaded.jobs,
        schedules=loaded.schedules,
        sensors=loaded.sensors,
        component_tree=loaded.component_tree,
        resources=deployment_resources(),
        executor=dg.in_process_executor,
        metadata=loaded.metadata,
    )
    return cm_delta_definitions(completed)
