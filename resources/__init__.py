"""Resources of a deployment. ``CM_DELTA_DEPLOYMENT`` picks one: ``local`` (default) or ``production``."""

import os

from resources.local import local_resources
from resources.production import production_resources

_DEPLOYMENTS = {"local": local_resources, "production": production_resources}


def deployment_resources() -> dict[str, object]:
    """The resources of the deployment named by the environment. Raises KeyError naming the known ones."""
    name = os.environ.get("CM_DELTA_DEPLOYMENT", "local")
    if name not in _DEPLOYMENTS:
        raise KeyError(f"CM_DELTA_DEPLOYMENT is {name!r}; known deployments are {', '.join(_DEPLOYMENTS)}.")
    return _DEPLOYMENTS[name]()
