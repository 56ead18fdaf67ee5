"""What pyarrow cannot do with arrays of the types that files store: filter views, and cast list views to lists."""

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.types as pat


@cache
def has_filter(stored: pa.DataType) -> bool:
    """Whether pyarrow can filter arrays of the type: not if they hold ``string_view`` or ``binary_view`` at any level."""
    try:
        pa.array([], stored).filter(pa.array([], pa.bool_()))
    except pa.ArrowNotImplementedError:
        return False
    return True


def is_list_view(arrow: pa.DataType) -> bool:
    """Whether ``arrow`` is ``list_view`` or ``large_list_view``."""
    return bool(pat.is_list_view(arrow) or pat.is_large_list_view(arrow))


def plain_list(array: pa.Array) -> pa.Array:
    """An array of any list type as a ``list`` with elements of the same type.

    Raises:
        pa.ArrowInvalid: it has more elements than a ``list`` can have.
    """
    target = pa.list_(array.type.value_field)
    if not is_list_view(array.type):
        return array.cast(target)
    # The elements of list views stand in any order, which a cast of pyarrow 26 ignores.
    ends = np.cumsum(array.value_lengths().fill_null(0).to_numpy().astype(np.int64))
    if len(ends) and ends[-1] > np.iinfo(np.int32).max:
        raise pa.ArrowInvalid(f"{ends[-1]} elements of list views do not fit into a list")
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    validity = pa.array(array.is_valid().to_numpy(zero_copy_only=False)).buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(target, len(array), [validity, pa.py_buffer(offsets)], children=[array.flatten()])
