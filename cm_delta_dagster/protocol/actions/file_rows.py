"""File actions of parsed JSON lines as columns (protocol heading "Add File and Remove File").

For commits with few lines. Others are converted by :mod:`~cm_delta_dagster.protocol.actions.json_columns`.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.actions.file_columns import (
    ADD_SCHEMA,
    REMOVE_SCHEMA,
    STRING_MAP,
    VECTOR_FIELDS,
    dv_ids,
    refuse_incomplete,
)
from cm_delta_dagster.protocol.actions.json_fields import FieldError, as_long, as_text, nullable_texts, text
from cm_delta_dagster.protocol.actions.paths import first_flaw

SCHEMAS = (ADD_SCHEMA, REMOVE_SCHEMA)
_MAPS, _STRUCTS, _LONGS = (
    tuple(chosen(schema) for schema in (REMOVE_SCHEMA, ADD_SCHEMA))
    for chosen in (
        lambda schema: [field.name for field in schema if pa.types.is_map(field.type)],
        lambda schema: pa.struct(list(schema)),
        lambda schema: [field.name for field in schema if pa.types.is_integer(field.type)],
    )
)


def file_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """The fields of file actions as columns of ``schema``.

    Raises:
        FieldError: a field has another type, is missing, or names no file.
        ValueError, TypeError, AttributeError, pa.ArrowException: as FieldError, which :func:`raise_flaw` then raises.
    """
    is_add = schema is ADD_SCHEMA
    if not rows:
        return no_files(is_add)
    for row in rows:
        text(row, "path")
    # One conversion for all columns: with few rows, an array for each column would take most of the time.
    values = [_arrow_values(row, is_add) for row in rows]
    batch = pa.RecordBatch.from_struct_array(pa.array(values, type=_STRUCTS[is_add]))
    return pa.Table.from_batches([batch], schema=schema)


def _arrow_values(row: Mapping[str, Any], is_add: bool) -> dict[str, Any]:
    values = {**row, **{name: list(row[name].items()) for name in _MAPS[is_add] if row.get(name) is not None}}
    # Arrow would cut fractions off.
    for name in _LONGS[is_add]:
        if type(values.get(name)) in (float, bool):
            values[name] = as_long(values[name], name)
    vector = values.get("deletionVector")
    if vector is not None:
        values["deletionVector"] = _vector(vector)
    return values


def _vector(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FieldError("deletionVector", "is not an object")
    fields = dict(value)
    for name, bits in VECTOR_FIELDS.items():
        if fields.get(name) is None:
            if name != "offset":
                raise FieldError("deletionVector", f"has no {name}")
        elif bits:
            try:
                fields[name] = as_long(fields[name], name, bits=bits)
            except FieldError as error:
                raise FieldError("deletionVector", f"is damaged: {error}") from None
    return fields


@functools.cache
def no_files(of_adds: bool) -> pa.Table:
    """A table without rows; made on first use, because pyarrow imports pandas to make its columns."""
    return (ADD_SCHEMA if of_adds else REMOVE_SCHEMA).empty_table()


def check_files(files: pa.Table) -> None:
    """Refuse file actions that name no file or whose deletion vector is incomplete. Raises FieldError."""
    flaw = first_flaw(files["path"])
    if flaw is not None:
        raise FieldError("path", f"names no file of the table. {flaw[1].removesuffix('.')}")
    try:
        refuse_incomplete(files)
    except ValueError as error:
        raise FieldError("deletionVector", f"is incomplete: {error}") from None


def one_vector_a_path(adds: pa.Table) -> pa.Table:
    """Refuse two adds of one file with different deletion vectors, because it is undefined which of them applies."""
    if adds["deletionVector"].null_count < adds.num_rows and pc.count_distinct(adds["path"]).as_py() < adds.num_rows:
        files = pa.table({"path": adds["path"], "vector": dv_ids(adds)})
        if files.group_by(["path", "vector"]).aggregate([]).num_rows > pc.count_distinct(files["path"]).as_py():
            raise FieldError("deletionVector", "differs in two adds of one file")
    return adds


def raise_flaw(row: Mapping[str, Any], schema: pa.Schema) -> None:
    """Raise FieldError for the first field of a file action that cannot be converted; return if all can."""
    text(row, "path")
    for field in schema:
        value = row.get(field.name)
        if value is None:
            continue
        if field.type == STRING_MAP:
            nullable_texts(value, field.name)
        elif pa.types.is_integer(field.type):
            as_long(value, field.name)
        elif pa.types.is_string(field.type):
            as_text(value, field.name)
        elif pa.types.is_boolean(field.type) and not isinstance(value, bool):
            raise FieldError(field.name, "is not true or false")
        elif pa.types.is_struct(field.type):
            for name, bits in VECTOR_FIELDS.items():
                if not bits and not isinstance(_vector(value)[name], str):
                    raise FieldError(field.name, f"is damaged: {name} is not a string")
