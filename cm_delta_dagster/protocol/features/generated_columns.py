"""Generated columns (protocol heading "Generated Columns").

The metadata of a field holds its generation expression as SQL text. A write that gives no value for the column stores the value of
that expression; a value that is given must equal it.
"""

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.features.expressions import (
    check_deterministic,
    check_same_in_every_session,
    has_lambda,
    known_columns,
)
from cm_delta_dagster.protocol.schema.evolution import CURRENT_DEFAULT, GENERATION_EXPRESSION, IDENTITY_PREFIX
from cm_delta_dagster.protocol.schema.types import VARIANT, StructField, StructType, walk_fields, walk_types


def generation_expression(item: StructField) -> str | None:
    """The SQL text that computes a top-level column; None if it is not a generated column."""
    text = item.metadata.get(GENERATION_EXPRESSION)
    return None if text is None else str(text)


def generated_columns(schema: StructType) -> dict[str, str]:
    """The generation expressions by the name of the column."""
    return {item.name: text for item in schema.fields if (text := generation_expression(item)) is not None}


def check_generated_columns(schema: StructType) -> None:
    """Refuse generation expressions that the text shows to be invalid; Spark checks their types.

    Raises:
        InvalidArgumentError: a nested field is generated, an expression is not deterministic, contains a query, a lambda function
            or a function over several rows, or uses a generated column; or a generated column has a default, is an identity column
            too, or has the type variant.
    """
    generated = generated_columns(schema)
    for path, item in walk_fields(schema):
        text = generation_expression(item)
        if text is None:
            continue
        name = ".".join(path)
        if len(path) > 1:
            raise InvalidArgumentError(
                f"The nested field {name!r} has a generation expression; only top-level columns can. Nothing was written. Leave it "
                "out."
            )
        if VARIANT in walk_types(item.type):
            raise InvalidArgumentError(
                f"The generated column {name!r} has the type variant, whose values cannot be compared with that of its expression. "
                "Nothing was written. Store the variant in an ordinary column, and generate a column of another type from it."
            )
        if CURRENT_DEFAULT in item.metadata or any(key.startswith(IDENTITY_PREFIX) for key in item.metadata):
            raise InvalidArgumentError(
                f"Column {name!r} is generated and also has a default or is an identity column. Nothing was written. Choose one of "
                "them."
            )
        check_deterministic(text, what=f"the generated column {name!r}")
        check_same_in_every_session(text, what=f"the generated column {name!r}")
        if has_lambda(text):
            raise InvalidArgumentError(
                f"The expression {text!r} of the generated column {name!r} has a lambda function (x -> ..., or array_sort, which "
                "Spark computes by one). Delta-spark refuses it and could not write to the table. Nothing was written. Compute the "
                "value before the write and store it in an ordinary column; sort_array can replace array_sort."
            )
        others = [used[0] for used in known_columns(text, schema) if used[0] in generated]
        if others:
            raise InvalidArgumentError(
                f"The expression {text!r} of the generated column {name!r} uses {others[0]!r}, which is generated itself. Nothing "
                f"was written. Repeat its expression instead: {generated[others[0]]}"
            )


def check_no_default(schema: StructType, column: str) -> None:
    """Refuse DEFAULT as the value of a generated column. Raises InvalidArgumentError.

    Args:
        column: as the schema spells it.
    """
    text = generated_columns(schema).get(column)
    if text is not None:
        raise InvalidArgumentError(
            f"DEFAULT is given as the value of the generated column {column!r}, which has no default: its value is always {text}. "
            "Nothing was written. Leave the column out; the table then computes it."
        )


def sources_of(schema: StructType, name: str) -> tuple[str, ...]:
    """The top-level columns that the expression of a generated column uses."""
    item = schema.field(name)
    text = None if item is None else generation_expression(item)
    return () if text is None else tuple(dict.fromkeys(path[0] for path in known_columns(text, schema)))
