"""The rows of an output: a DataFrame of Spark, or Arrow data, which is written without Spark where nothing needs it.

No value changes. What would be stored as another value is refused with the name of the column.
"""

from typing import Any

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.writing.engine_choice import SessionSource
from cm_delta_dagster.operations.writing.rows import WriteRows
from cm_delta_dagster.orchestration.metadata.frame_types import FrameType, frame_type


def output_rows(value: Any, *, name: str, session: SessionSource) -> WriteRows:
    """The rows of an output.

    Args:
        name: of the asset, for messages.
        session: for what only Spark can do with rows of Arrow.

    Raises:
        InvalidArgumentError: a type that is not supported, values that have no Arrow type in common, or a column that Delta
            cannot store.
        EngineStoppedError: the Spark session of a DataFrame has ended.
    """
    kind = frame_type(type(value))
    if kind is None or kind is FrameType.SNAPSHOT or type(value) is object:
        raise InvalidArgumentError(
            f"{name} returned a {type(value).__module__}.{type(value).__qualname__}; the Delta IO manager writes "
            f"{', '.join(kind for kind in FrameType if kind is not FrameType.SNAPSHOT)}. Return one of them, return nothing, or "
            "give the output another io_manager_key."
        )
    return WriteRows.of(value, session, what=f"The {type(value).__name__} that {name} returned")
