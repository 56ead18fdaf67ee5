"""Routes for those who run the server: whether the process lives, and whether it reaches the catalog."""

from fastapi import APIRouter, Request

router = APIRouter(prefix="/health", tags=["health"])


@router.get("/live")
def live() -> dict[str, str]:
    """Answer that the process lives."""
    return {"status": "live"}


@router.get("/ready")
def ready(request: Request) -> dict[str, str]:
    """Answer that the process reaches the database of the catalog; otherwise the status is 503."""
    request.app.state.catalog.registry.identity()
    return {"status": "ready"}
