"""The routes of both generations of Unity Catalog's API."""

from cm_delta_dagster.server.unity import delta_routes, older_routes

ROUTERS = (delta_routes.router, older_routes.router)
