"""The demo code location: what ``dg dev`` and ``workspace.yaml`` load."""

from pathlib import Path

import dagster as dg

from cm_delta_dagster.orchestration import cm_delta_definitions
from resources import deployment_resources


@dg.definitions
def defs() -> dg.Definitions:
    """Everything under ``definitions/defs``, with the resources of the deployment; the metadata of the assets is checked."""
    loaded = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    resources = dg.Definitions(resources=deployment_resources(), executor=dg.in_process_executor)
    return cm_delta_definitions(dg.Definitions.merge(loaded, resources))
