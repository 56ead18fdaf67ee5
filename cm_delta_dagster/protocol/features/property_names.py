"""The spelling of table properties and of table features that users name (protocol headings "Table Properties", "Table Features").

Case does not matter in what a user sets, as in delta-spark; the log has one spelling. Names in the log are compared as they are.
"""

from collections.abc import Mapping
from typing import TypeVar

from cm_delta_dagster.protocol.features.table_features import FEATURES, canonical_name
from cm_delta_dagster.protocol.features.table_properties import CONSTRAINT_PREFIX, FEATURE_PREFIX, KNOWN_KEYS

_Value = TypeVar("_Value")

_KEYS: Mapping[str, str] = {key.lower(): key for key in KNOWN_KEYS}
_FEATURES: Mapping[str, str] = {name.lower(): name for name in FEATURES}


def canonical_properties(properties: Mapping[str, _Value]) -> dict[str, _Value]:
    """``properties`` with keys as :func:`canonical_key` spells them. Of two spellings of a key, the last one counts."""
    return {canonical_key(key): value for key, value in properties.items()}


def canonical_key(key: str) -> str:
    """The spelling of a known key with the prefix ``delta.``; another key as it is given."""
    for prefix in (FEATURE_PREFIX, CONSTRAINT_PREFIX):
        if key.lower().startswith(prefix):
            return prefix + key[len(prefix) :]
    return _KEYS.get(key.lower(), key)


def feature_named(name: str) -> str:
    """The spelling of a known feature to add; another name as it is given."""
    return _FEATURES.get(name.lower(), canonical_name(name))
