"""The routes of Unity Catalog's API: the Delta API, and what its clients use of the older one."""

from fastapi import APIRouter

from cm_delta_dagster.server.unity import delta_routes, older_routes

router = APIRouter()
router.include_router(delta_routes.router)
router.include_router(older_routes.router)
