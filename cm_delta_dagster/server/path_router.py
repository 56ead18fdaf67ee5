"""A router that compares its routes only with the paths of its API.

FastAPI compares a path with all routes one after the other, and with those of a router that includes it twice. The API of this
package has a hundred.
"""

from typing import Any

from fastapi import APIRouter
from starlette.routing import Match
from starlette.types import Scope

from cm_delta_dagster.server.wires import is_below


class PathRouter(APIRouter):
    """Routes of paths that are below one path.

    Args:
        below: the path.
        arguments: of :class:`fastapi.APIRouter`.
    """

    def __init__(self, below: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._below = below

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As of the base class."""
        if not is_below(scope["path"], self._below):
            return Match.NONE, {}
        return super().matches(scope)
