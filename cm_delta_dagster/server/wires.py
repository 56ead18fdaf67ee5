"""The APIs of the server, and which one a path belongs to."""

from enum import StrEnum

from cm_delta_dagster.catalog.rest.operations import PATH

NATIVE_PATH = PATH
PAGE_PATH = "/page"
UNITY_PATH = "/api/2.1/unity-catalog"
UNITY_DELTA_PATH = f"{UNITY_PATH}/delta/v1"


class Wire(StrEnum):
    """An API, or the page for people, which has its own form of errors."""

    NATIVE = "native"
    UNITY_DELTA = "unity delta"
    UNITY = "unity"
    PAGE = "page"


def wire_of(path: str) -> Wire:
    """The API that answers at ``path``; paths of none are answered as those of this package."""
    if is_below(path, UNITY_DELTA_PATH):
        return Wire.UNITY_DELTA
    if is_below(path, UNITY_PATH):
        return Wire.UNITY
    return Wire.PAGE if path == "/" or is_below(path, PAGE_PATH) else Wire.NATIVE


def is_below(path: str, prefix: str) -> bool:
    """Whether a path is ``prefix`` or one below it."""
    return path == prefix or path.startswith(f"{prefix}/")
