"""The parts of a pyarrow expression, for readers that skip files by it.

pyarrow shows an expression only as text. Its pickled form states each part exactly: a stream of Arrow's IPC format, whose schema
metadata is the expression in prefix notation and whose columns are the literals and options.
"""

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A column, or a field of a struct column: the names from the top-level column on."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant as a Python value; None for null."""

    value: Any


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function, named as in ``pyarrow.compute``."""

    function: str
    arguments: tuple["ExpressionNode", ...]
    options: Mapping[str, Any] = field(default_factory=dict)


ExpressionNode: TypeAlias = FieldPath | Literal | FunctionCall


class UnknownExpressionError(Exception):
    """The expression has a part that this module cannot represent."""


def parse_expression(expression: pc.Expression) -> ExpressionNode:
    """The parts of ``expression``.

    Raises:
        UnknownExpressionError: a reference by position, a literal that Python cannot represent exactly, or an unknown form.
    """
    try:
        (buffer,) = expression.__reduce__()[1]
        with pa.ipc.open_file(buffer) as reader:
            return _parsed(_Parts(_metadata(reader.schema), reader.get_batch(0)))
    except (pa.ArrowException, LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise UnknownExpressionError(str(error)) from error


def fields_of(expression: ExpressionNode) -> frozenset[str]:
    """The top-level columns that the expression uses."""
    names: set[str] = set()
    pending = [expression]
    while pending:
        node = pending.pop()
        if isinstance(node, FieldPath):
            names.add(node.names[0])
        elif isinstance(node, FunctionCall):
            pending.extend(node.arguments)
    return frozenset(names)


@dataclass(slots=True)
class _Parts:
    """The expression in prefix notation, read from the front."""

    entries: Iterator[tuple[str, str]]
    values: pa.RecordBatch

    def literal(self, position: str) -> Any:
        return python_value(self.values.column(int(position))[0])


@dataclass(slots=True)
class _OpenCall:
    function: str
    arguments: list[ExpressionNode] = field(default_factory=list)
    options: Mapping[str, Any] = field(default_factory=dict)


def _parsed(parts: _Parts) -> ExpressionNode:
    """Not recursive, because a filter may be nested thousands deep."""
    calls = [_OpenCall("")]
    for key, value in parts.entries:
        if key == "call":
            calls.append(_OpenCall(value))
        elif key == "end":
            done = calls.pop()
            calls[-1].arguments.append(FunctionCall(done.function, tuple(done.arguments), done.options))
        elif key == "options":
            calls[-1].options = parts.literal(value)
        elif key == "literal":
            calls[-1].arguments.append(Literal(parts.literal(value)))
        else:
            calls[-1].arguments.append(_field(key, value, parts))
    (root,) = calls
    (expression,) = root.arguments
    return expression


def _field(key: str, value: str, parts: _Parts) -> FieldPath:
    if key == "field_ref":
        return FieldPath((value,))
    if key != "nested_field_ref":
        raise UnknownExpressionError(f"The expression has a part {key!r}.")
    names = [next(parts.entries) for _ in range(int(value))]
    if any(kind != "field_ref" for kind, _ in names):
        raise UnknownExpressionError("The expression refers to a field by its position.")
    return FieldPath(tuple(name for _, name in names))


def python_value(scalar: pa.Scalar) -> Any:
    """The value of a scalar. Raises ArrowException, ValueError or OverflowError if Python has no equal value."""
    if isinstance(scalar, pa.TimestampScalar) and scalar.type.unit == "ns":
        scalar = scalar.cast(pa.timestamp("us", scalar.type.tz))  # Fails for a fraction of a microsecond.
    return scalar.as_py()


class _ArrowSchema(ctypes.Structure):
    """The first members of ``ArrowSchema`` of Arrow's C data interface."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _metadata(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """All entries of the metadata in order. ``Schema.metadata`` is a dictionary and has each key only once."""
    capsule = schema.__arrow_c_schema__()
    address = _ArrowSchema.from_address(_pointer_of(capsule, b"arrow_schema")).metadata
    texts: list[str] = []
    if address is not None:
        count = ctypes.c_int32.from_address(address).value
        address += 4
        for _ in range(2 * count):
            length = ctypes.c_int32.from_address(address).value
            texts.append(ctypes.string_at(address + 4, length).decode())
            address += 4 + length
    return iter(list(zip(texts[::2], texts[1::2], strict=True)))
