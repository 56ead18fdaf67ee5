"""Settings with which Google's connector works in a session with Hadoop 3.5, whose defaults are for a connector of its own."""

from collections.abc import Mapping
from typing import Any

CONNECTOR_CLASS = "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"

_SIZES = (
    "fs.gs.block.size",
    "fs.gs.rewrite.max.chunk.size",
    "fs.gs.outputstream.buffer.size",
    "fs.gs.inputstream.inplace.seek.limit",
    "fs.gs.inputstream.min.range.request.size",
)
"""Hadoop's defaults have units (``64m``), which the connector cannot parse."""

_DEFAULTS = "core-default.xml"


def connector_settings(configuration: Any, implementation: str | None) -> Mapping[str, str]:
    """Settings for reads and writes of ``gs``; empty if the session uses another file system.

    Args:
        configuration: Hadoop's, as a Java object.
        implementation: the class that Hadoop has for ``gs``; None if it has none, because it looks for its own connector.
    """
    if implementation not in (None, CONNECTOR_CLASS) or configuration.getClassByNameOrNull(CONNECTOR_CLASS) is None:
        return {}
    sizes = [name for name in _SIZES if list(configuration.getPropertySources(name) or ()) == [_DEFAULTS]]
    settings = {name: str(configuration.getLongBytes(name, 0)) for name in sizes}
    if sizes:  # The connector was compiled for an older Hadoop, whose vectored reads have other methods.
        settings["parquet.hadoop.vectored.io.enabled"] = "false"
    return settings if implementation else {"fs.gs.impl": CONNECTOR_CLASS, **settings}
