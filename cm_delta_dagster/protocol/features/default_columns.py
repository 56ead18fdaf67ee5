"""Default values of columns (protocol heading "Default Columns").

The metadata of a field holds the default as SQL text. A write that gives no value for the column stores the value of that
expression. Readers ignore defaults.
"""

from dataclasses import replace

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.features.expressions import check_constant, columns_of_expression
from cm_delta_dagster.protocol.schema.column_paths import ColumnName, column_path, path_text
from cm_delta_dagster.protocol.schema.evolution import CURRENT_DEFAULT
from cm_delta_dagster.protocol.schema.types import StructField, StructType, walk_fields


def default_of(item: StructField) -> str | None:
    """The SQL text of the default of a top-level column; None if it has none."""
    text = item.metadata.get(CURRENT_DEFAULT)
    return None if text is None else str(text)


def has_defaults(schema: StructType) -> bool:
    """Whether a column has a default."""
    return any(CURRENT_DEFAULT in item.metadata for item in schema.fields)


def check_defaults(schema: StructType) -> None:
    """Refuse defaults that a write could not evaluate.

    Raises:
        InvalidArgumentError: a nested field has a default, the text is not an expression, its value differs from one evaluation to
            the next (except for the current time), or it uses a column, a lambda function or a function over several rows.
    """
    top = {item.name for item in schema.fields}
    for path, item in walk_fields(schema):
        text = default_of(item)
        if text is None:
            continue
        name = ".".join(path)
        if len(path) > 1 or item.name not in top:
            raise InvalidArgumentError(
                f"The nested field {name!r} has a default value; only top-level columns can. Nothing was written. Leave it out."
            )
        check_default(text, name)


def check_default(text: str, name: str) -> None:
    """Refuse the default of one column. Raises InvalidArgumentError as :func:`check_defaults`."""
    check_constant(text, what=f"the default of column {name!r}")
    used = [path for path in columns_of_expression(text) if path]
    if used:
        raise InvalidArgumentError(
            f"The default {text!r} of column {name!r} uses {'.'.join(used[0])!r}; a default cannot depend on columns. Nothing was "
            "written. Use a constant expression, or a generated column."
        )


def with_default(schema: StructType, column: ColumnName, text: str | None) -> StructType:
    """The schema with a new default of one column; without its default for None.

    Raises:
        InvalidArgumentError: the schema has no such column, it is a nested field, or the default is not valid.
    """
    name, *nested = column_path(column)
    item = schema.field(name)
    if item is None or nested:
        raise InvalidArgumentError(
            f"The table has no column {path_text((name, *nested))!r} that can have a default; its columns are "
            f"{', '.join(schema.names)}. Nothing was changed. Name one of them; nested fields have no defaults."
        )
    metadata = {key: value for key, value in item.metadata.items() if key not in (CURRENT_DEFAULT, "EXISTS_DEFAULT")}
    if text is not None:
        check_default(text, item.name)
        metadata[CURRENT_DEFAULT] = text
    changed = replace(item, metadata=metadata)
    return StructType(tuple(changed if field.name == item.name else field for field in schema.fields))
