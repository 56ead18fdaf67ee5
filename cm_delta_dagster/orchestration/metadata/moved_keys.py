"""What the keys of metadata in earlier releases are called now: the only list, for one release.

``moved_names`` of the Python API is its like.
"""

from collections.abc import Mapping

ASSET_KEYS: Mapping[str, str] = {"merge_keys": "on", "merge_on": "on", "replace_where": "where"}
"""Of assets and their outputs, and of run tags after ``cm_delta/``."""

INPUT_KEYS: Mapping[str, str] = {"filter": "where"}
"""Of inputs."""
