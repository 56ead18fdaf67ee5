"""Which types are wider than others."""

from tests.api_model.model import Version
from tests.api_model.values import INTEGERS, arguments, base_type

_ORDER = ("tinyint", "smallint", "int", "bigint")


def is_wider(before: str, after: str, version: Version) -> bool:
    """Whether a column of the type ``before`` can be changed to ``after``."""
    old, new = base_type(before), base_type(after)
    if old == "varchar":  # Its values are texts already.
        return new == "string" or (new == "varchar" and arguments(after) > arguments(before))
    if not version.has("delta.enableTypeWidening"):
        return False
    if old in _ORDER and new in _ORDER:
        return _ORDER.index(new) > _ORDER.index(old)
    if old in INTEGERS:
        if new == "decimal":
            precision, scale = arguments(after)
            return precision - scale >= (10 if INTEGERS[old] <= 32 else 20)
        return new == "double" and old != "bigint"
    if old == "decimal" and new == "decimal":
        (precision, scale), (wider, finer) = arguments(before), arguments(after)
        return finer >= scale and wider - finer >= precision - scale
    return (old, new) in (("float", "double"), ("date", "timestamp_ntz"))
