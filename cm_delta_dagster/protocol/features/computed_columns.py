"""Columns whose values the table computes (protocol headings "Default Columns", "Generated Columns" and "Identity Columns")."""

from cm_delta_dagster.errors import SchemaMismatchError
from cm_delta_dagster.protocol.features.default_columns import default_of, has_defaults
from cm_delta_dagster.protocol.features.generated_columns import generated_columns, sources_of
from cm_delta_dagster.protocol.features.identity_columns import identity_columns
from cm_delta_dagster.protocol.schema.types import StructType


def computed_columns(schema: StructType) -> tuple[str, ...]:
    """Columns that have a default, are generated or are identity columns."""
    if not has_defaults(schema) and not generated_columns(schema) and not identity_columns(schema):
        return ()
    identities, generated = identity_columns(schema), generated_columns(schema)
    return tuple(
        item.name
        for item in schema.fields
        if default_of(item) is not None or item.name in identities or item.name in generated
    )


def check_sources(schema: StructType, offered: StructType) -> None:
    """Refuse rows that lack a generated column and a column that it is computed from.

    Args:
        offered: the columns of the rows.

    Raises:
        SchemaMismatchError: names both columns.
    """
    missing = [name for name in computed_columns(schema) if offered.field(name) is None]
    for name in missing:
        for source in sources_of(schema, name):
            if offered.field(source) is None and source not in missing:
                raise SchemaMismatchError(
                    f"The rows lack column {source!r}, from which the generated column {name!r} is computed; they have the columns "
                    f"{', '.join(offered.names)}. Nothing was written. Add the column, with NULL where there is no value."
                )
