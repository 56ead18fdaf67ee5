"""Store assignment of INSERT: the columns of a query as the columns of the table, by position or by name.

As delta-spark does, a value is cast where an ANSI cast to the type of the column exists, e.g. a text to a number. A type without
one is an error before anything runs, a value that its column cannot hold is an error when it is stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cm_delta_dagster.errors import SchemaMismatchError
from cm_delta_dagster.protocol.features.type_widening import Widens, never_widens
from cm_delta_dagster.protocol.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    check_unique_names,
)
from cm_delta_dagster.spark.expressions.align import check_assignable, converted
from cm_delta_dagster.spark.expressions.schema import from_spark, quoted, same_shape, schema_of
from cm_delta_dagster.spark.library import Column, DataFrame, F, SparkSession

_NESTED = StructType | ArrayType | MapType


def by_position(
    frame: DataFrame, fields: Sequence[StructField], *, evolves: bool = False, widens: Widens = never_widens
) -> DataFrame:
    """The columns of ``frame`` as ``fields``, in order. Fields of structs are matched by position too.

    Args:
        evolves: further columns keep their names; otherwise they are an error.
        widens: whether the type of a column (first argument) may become that of the query (second), which then stays.

    Raises:
        SchemaMismatchError: there are fewer or more columns, or a type that cannot be assigned.
    """
    offered = from_spark(frame.schema).fields
    if len(offered) < len(fields) or (len(offered) > len(fields) and not evolves):
        raise SchemaMismatchError(
            f"The query returns {len(offered)} columns ({', '.join(item.name for item in offered)}) for {len(fields)} columns of "
            f"the table ({', '.join(item.name for item in fields)}). Nothing was written. Return one value for each column, or "
            "list the columns that get one: INSERT INTO name (a, b)."
        )
    names = [f"c{number}" for number in range(len(offered))]
    assignment = _Assignment(session=frame.sparkSession, by_name=False, widens=widens)
    columns = [
        assignment.value(F.col(name), have.type, want.type, want.name).alias(want.name)
        for name, have, want in zip(names, offered, fields, strict=False)
    ]
    more = [F.col(name).alias(item.name) for name, item in zip(names, offered, strict=True)][len(fields) :]
    return frame.toDF(*names).select(*columns, *more)


def by_name(frame: DataFrame, schema: StructType, *, evolves: bool = False, widens: Widens = never_widens) -> DataFrame:
    """The columns of ``frame`` with the types of the columns of the same names; names of other columns stay.

    Args:
        evolves: nested values stay as they are, so that they can have new fields.
        widens: as in :func:`by_position`.

    Raises:
        SchemaMismatchError: two columns have the same name, or a type that cannot be assigned.
    """
    offered = schema_of(frame)
    check_unique_names(offered)
    assignment = _Assignment(session=frame.sparkSession, by_name=True, widens=widens)
    columns: list[Column] = []
    for have in offered.fields:
        want = schema.field(have.name)
        column = F.col(quoted(have.name))
        if want is not None and not (evolves and isinstance(have.type, _NESTED)):
            column = assignment.value(column, have.type, want.type, want.name)
            column = column.alias(want.name)
        columns.append(column)
    return frame.select(*columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assignment:
    """How values are assigned.

    Attributes:
        by_name: how the fields of structs are matched.
        widens: as in :func:`by_position`.
    """

    session: SparkSession
    by_name: bool
    widens: Widens

    def value(self, value: Column, have: DataType, want: DataType, path: str) -> Column:
        """``value`` of type ``have`` as a value of type ``want``, or unchanged where the column becomes wider.

        Args:
            path: of the column, for messages.

        Raises:
            SchemaMismatchError: the type cannot be assigned.
        """
        if same_shape(have, want) or self.widens(want, have):
            return value
        match have, want:
            case StructType(), StructType():
                pairs = _paired(have, want, path, by_name=self.by_name)
                fields = [
                    self.value(value.getField(offered.name), offered.type, other.type, f"{path}.{other.name}").alias(
                        other.name
                    )
                    for offered, other in pairs
                ]
                return F.when(value.isNotNull(), F.struct(*fields))
            case ArrayType(), ArrayType():
                element = f"{path}.element"
                return F.transform(value, lambda item: self.value(item, have.element_type, want.element_type, element))
            case MapType(), MapType():
                # Keys first: transform_keys fails on duplicate keys, so that no entry is lost silently.
                keyed = F.transform_keys(
                    value, lambda key, _: self.value(key, have.key_type, want.key_type, f"{path}.key")
                )
                return F.transform_values(
                    keyed, lambda _, item: self.value(item, have.value_type, want.value_type, f"{path}.value")
                )
        check_assignable(self.session, have, want, path)
        return converted(value, have, want, path)


def _paired(have: StructType, want: StructType, path: str, *, by_name: bool) -> list[tuple[StructField, StructField]]:
    """The offered field of each field of ``want``."""
    if by_name:
        candidates = [(have.field(item.name), item) for item in want.fields]
        pairs = [(offered, item) for offered, item in candidates if offered is not None]
    else:
        pairs = list(zip(have.fields, want.fields, strict=False))
    if len(pairs) != len(want.fields) or len(have.fields) != len(want.fields):
        raise SchemaMismatchError(
            f"A struct with the fields {', '.join(have.names)} cannot be assigned to {path!r}, which has the fields "
            f"{', '.join(want.names)}. Nothing was written. Give every field a value, e.g. with named_struct(...)."
        )
    return pairs
