"""Strings with a declared type or a collation, which Spark writes to the metadata of the field: ``char(n)``, ``varchar(n)``."""

import re

from cm_delta_dagster.protocol.schema.types import STRING, StructField

CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"
"""Key of the declared type in the metadata of a field."""
COLLATIONS_METADATA = "__COLLATIONS"
"""Key of the collations in the metadata of a field."""
_CHAR = re.compile(r"char\((\d+)\)", re.IGNORECASE)


def char_width(item: StructField) -> int:
    """Width of a ``char(n)`` column, 0 for any other column. Files may store values without the blanks that fill the width."""
    declared = _CHAR.fullmatch(str(item.metadata.get(CHAR_METADATA, "")))
    return int(declared[1]) if declared and item.type == STRING else 0
