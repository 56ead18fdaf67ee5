"""Assets of the tests, and the errors of their runs."""

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from cm_delta_dagster.errors import CmDeltaError
from tests.orchestration.conftest import World


def asset(name: str, function: Callable[[dg.AssetExecutionContext], Any], **arguments: Any) -> dg.AssetsDefinition:
    """An asset whose rows come from ``function(context)``."""

    @dg.asset(name=name, **arguments)
    def made(context: dg.AssetExecutionContext) -> Any:
        return function(context)

    return made


def raised(result_or_error: BaseException) -> BaseException:
    error: BaseException | None = result_or_error
    while error is not None and not isinstance(error, CmDeltaError):
        error = error.__cause__ or error.__context__
    assert error is not None, result_or_error
    return error


def refused(world: World, *assets: Any, **arguments: Any) -> BaseException:
    with pytest.raises(Exception) as caught:
        world.materialize(*assets, **arguments)
    return raised(caught.value)
