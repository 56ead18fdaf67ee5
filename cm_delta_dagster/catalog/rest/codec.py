"""Values of the catalog's interfaces as JSON, by their type hints.

A dataclass is an object with a member for each field, ``bytes`` are base64, durations are texts in ISO 8601, and a value of a union
of dataclasses is an object whose only member has the name of the class. A mapping whose keys are dataclasses is an array of pairs.
Unknown members, missing ones and values of another type are refused.

The validators of pydantic are built once for each type, from schemas that this module makes: pydantic's own schemas for dataclasses
neither name the class in a union nor leave out the fields that only the catalog sets.
"""

import functools
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, TypeVar

from pydantic_core import (
    CoreConfig,
    PydanticSerializationError,
    SchemaSerializer,
    SchemaValidator,
    ValidationError,
    core_schema,
)

from cm_delta_dagster.catalog.ratification import CommitProposal, InitialCommit
from cm_delta_dagster.errors import InvalidArgumentError

T = TypeVar("T")
Schema = core_schema.CoreSchema

_CONFIG: CoreConfig = {
    "ser_json_bytes": "base64",
    "val_json_bytes": "base64",
    "extra_fields_behavior": "forbid",
    "ser_json_inf_nan": "constants",
    "hide_input_in_errors": True,
}
_SET_BY_CATALOG: frozenset[tuple[type, str]] = frozenset({(CommitProposal, "checked"), (InitialCommit, "checked")})
"""Fields that a client cannot set: what the catalog has parsed of a commit."""

_READ_BY_SERVER: frozenset[tuple[type, str]] = frozenset(
    {(CommitProposal, "content_to_check"), (InitialCommit, "content_to_check")}
)
"""Bytes of a file that the server reads itself: of a large one they are not sent, which a limit of bodies would refuse."""

_MAX_SENT_BYTES = 1024 * 1024
_LEAVES: Mapping[object, Callable[[], Schema]] = {
    str: core_schema.str_schema,
    int: core_schema.int_schema,
    float: core_schema.float_schema,
    bool: core_schema.bool_schema,
    bytes: core_schema.bytes_schema,
    timedelta: core_schema.timedelta_schema,
    type(None): core_schema.none_schema,
}
_MAX_FAULTS = 3


class Codec(Generic[T]):
    """Encodes and decodes the values of one type. Thread-safe.

    Attributes:
        schema: of pydantic, e.g. for a JSON schema.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._validator = SchemaValidator(schema, _CONFIG)
        self._serializer = SchemaSerializer(schema, _CONFIG)

    def encode(self, value: T) -> bytes:
        """The JSON text of a value. Raises InvalidArgumentError for one that does not have the type."""
        try:
            return self._serializer.to_json(value, warnings="error")
        except (PydanticSerializationError, UnicodeEncodeError) as error:
            raise InvalidArgumentError(
                f"A value does not have the type that the interface of the catalog states, and was not sent: {error}"
            ) from error

    def decode(self, text: bytes) -> T:
        """The value of a JSON text. Raises InvalidArgumentError, which names the first members that do not fit."""
        try:
            value: T = self._validator.validate_json(text, strict=True)
        except ValidationError as error:
            raise InvalidArgumentError(_faults(error)) from error
        except RecursionError as error:
            raise InvalidArgumentError("The JSON is nested too deeply. Nothing was changed.") from error
        return value


def codec_of(annotation: object) -> Codec[Any]:
    """The codec of a type. Raises TypeError for one that has no form in JSON."""
    return Codec(schema_of(annotation))


def arguments_codec(title: str, parameters: Mapping[str, object], optional: Collection[str]) -> Codec[Any]:
    """The codec of the arguments of a function, as a mapping by name.

    Args:
        parameters: types by name of the argument.
        optional: the arguments that may be left out.
    """
    members = {
        argument: core_schema.typed_dict_field(schema_of(annotation), required=argument not in optional)
        for argument, annotation in parameters.items()
    }
    schema = core_schema.typed_dict_schema(members, config={**_CONFIG, "title": title})
    return Codec(schema)


@functools.cache
def schema_of(annotation: Any) -> Schema:
    """The schema of a type. Raises TypeError for one that has no form in JSON."""
    if annotation in _LEAVES:
        return _LEAVES[annotation]()
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return core_schema.enum_schema(annotation, list(annotation), sub_type="str")
    if isinstance(annotation, type) and is_dataclass(annotation):
        return _schema_of_dataclass(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _schema_of_union(arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return core_schema.tuple_variable_schema(schema_of(arguments[0]))
    if origin in (Iterable, Sequence, Collection):
        return _array(schema_of(arguments[0]))
    if origin is frozenset:
        return core_schema.frozenset_schema(schema_of(arguments[0]))
    if origin is Mapping:
        return _schema_of_mapping(*arguments)
    raise TypeError(f"{annotation!r} has no form in JSON.")


def _array(items: Schema) -> Schema:
    """A tuple; sent is any sequence or set of such items."""
    serialized = core_schema.tuple_variable_schema(items)
    as_tuple = core_schema.wrap_serializer_function_ser_schema(
        lambda value, encode: encode(value if type(value) is tuple else tuple(value)), schema=serialized
    )
    return core_schema.tuple_variable_schema(items, serialization=as_tuple)


def _schema_of_mapping(key: Any, value: Any) -> Schema:
    if key in _LEAVES:
        mapping = core_schema.dict_schema(schema_of(key), schema_of(value))
        as_dict = core_schema.wrap_serializer_function_ser_schema(
            lambda stated, encode: encode(stated if type(stated) is dict else dict(stated)), schema=mapping
        )
        return core_schema.dict_schema(schema_of(key), schema_of(value), serialization=as_dict)
    pairs = core_schema.tuple_variable_schema(core_schema.tuple_positional_schema([schema_of(key), schema_of(value)]))
    as_pairs = core_schema.wrap_serializer_function_ser_schema(
        lambda mapping, encode: encode(tuple(mapping.items())), schema=pairs
    )
    return core_schema.no_info_after_validator_function(dict, pairs, serialization=as_pairs)


def _schema_of_union(members: tuple[Any, ...]) -> Schema:
    classes = tuple(member for member in members if isinstance(member, type) and is_dataclass(member))
    if len(classes) > 1:
        schema = _schema_of_classes(classes)
        return core_schema.nullable_schema(schema) if type(None) in members else schema
    others = [schema_of(member) for member in members if member is not type(None)]
    schema = others[0] if len(others) == 1 else core_schema.union_schema(list(others))
    return core_schema.nullable_schema(schema) if type(None) in members else schema


def _schema_of_classes(classes: tuple[type, ...]) -> Schema:
    """A union of dataclasses: an object whose only member has the name of the class."""
    wrapped: list[Schema | tuple[Schema, str]] = [
        core_schema.typed_dict_schema({cls.__name__: core_schema.typed_dict_field(schema_of(cls))}, config=_CONFIG)
        for cls in classes
    ]
    named = core_schema.union_schema(wrapped, mode="left_to_right")
    by_name = core_schema.wrap_serializer_function_ser_schema(
        lambda value, encode: encode({type(value).__name__: value}), schema=named
    )
    return core_schema.no_info_after_validator_function(_only_value, named, serialization=by_name)


def _only_value(named: Mapping[str, Any]) -> Any:
    return next(iter(named.values()))


def _schema_of_dataclass(cls: type) -> Schema:
    hints = typing.get_type_hints(cls)
    stated = fields(cls)
    arguments = [_schema_of_field(cls, field, hints[field.name]) for field in stated]
    names = [field.name for field in stated]
    return core_schema.dataclass_schema(
        cls,
        core_schema.dataclass_args_schema(cls.__name__, arguments),
        names,
        post_init=hasattr(cls, "__post_init__"),
        slots="__slots__" in vars(cls),
        frozen=True,
        config={**_CONFIG, "title": cls.__name__},
    )


def _schema_of_field(cls: type, field: Field[Any], annotation: Any) -> core_schema.DataclassField:
    if (cls, field.name) in _SET_BY_CATALOG:
        absent = core_schema.with_default_schema(core_schema.none_schema(), default=None)
        return core_schema.dataclass_field(field.name, absent, kw_only=True, serialization_exclude=True)
    schema = schema_of(annotation)
    if (cls, field.name) in _READ_BY_SERVER:
        sent = core_schema.wrap_serializer_function_ser_schema(_small_bytes, schema=schema)
        schema = core_schema.nullable_schema(core_schema.bytes_schema(), serialization=sent)
    if field.default is not MISSING:
        schema = core_schema.with_default_schema(schema, default=field.default)
    elif field.default_factory is not MISSING:
        schema = core_schema.with_default_schema(schema, default_factory=field.default_factory)
    return core_schema.dataclass_field(field.name, schema, kw_only=field.kw_only is True)


def _small_bytes(data: bytes | None, encode: Callable[[bytes | None], Any]) -> Any:
    return encode(data if data is None or len(data) <= _MAX_SENT_BYTES else None)


def _faults(error: ValidationError) -> str:
    """The first faults of a JSON text, without its values, which may be secret or large."""
    entries = error.errors(include_url=False, include_input=False, include_context=False)
    shown = "; ".join(
        f"{'.'.join(map(str, entry['loc'])) or 'the JSON'}: {entry['msg']}" for entry in entries[:_MAX_FAULTS]
    )
    return f"The JSON does not have the form of the interface ({shown}). Nothing was changed."
