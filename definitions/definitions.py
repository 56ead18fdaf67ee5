"""The demo code location: what ``dg dev`` and ``workspace.yaml`` load."""

from pathlib import Path

import dagster as dg

from resources import deployment_resources


@dg.definitions
def defs() -> dg.Definitions:
    """Everything under ``definitions/defs``, with the resources of the deployment."""
    loaded = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    return dg.Definitions.merge(
        loaded, dg.Definitions(resources=deployment_resources(), executor=dg.in_process_executor)
    )
