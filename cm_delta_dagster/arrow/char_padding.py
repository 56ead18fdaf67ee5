"""Blanks at the end of ``char(n)`` strings, which files may store without them."""

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.schema.char_types import CharWidths


def padded(array: pa.Array, widths: CharWidths) -> pa.Array:
    """``array`` with every ``char(n)`` string in it padded to its width. The type stays the same."""
    kind = array.type
    if widths.width:
        return pc.utf8_rpad(array, widths.width)
    if pa.types.is_struct(kind):
        children = [
            _part(array.field(position), widths, kind.field(position).name) for position in range(kind.num_fields)
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        entry = pa.struct([kind.key_field, kind.item_field])
        children = [_part(array.keys, widths, "key"), _part(array.items, widths, "value")]
        entries = pa.Array.from_buffers(entry, len(children[0]), [None], children=children)
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], -1, array.offset, [entries])
    values = _part(array.values, widths, "element")
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], -1, array.offset, [values])


def _part(array: pa.Array, widths: CharWidths, name: str) -> pa.Array:
    inside = widths.of(name)
    return array if inside is None else padded(array, inside)
