"""Errors of this package as JSON, for both ends of the HTTP API.

``{"error": {"kind": class, "message": text without the remedy, "remedy": ..., "fields": {...}}}``; ``fields`` has the attributes
that the class documents, by the type hints of its constructor. A client that does not know the class raises CatalogError.
"""

import functools
import inspect
import json
import typing
from collections.abc import Mapping
from typing import Any, Union

from pydantic_core import PydanticSerializationError, to_json

from cm_delta_dagster import errors, remedies
from cm_delta_dagster.catalog.rest.codec import Codec, codec_of
from cm_delta_dagster.errors import CatalogError, CmDeltaError, InvalidArgumentError
from cm_delta_dagster.remedies import Remedy


def as_json(error: CmDeltaError) -> bytes:
    """The JSON text of an error."""
    kind = _kind_of(error)
    fields = {name: codec.encode(getattr(error, name)) for name, codec in _fields_of(kind).items()}
    remedy = b"null" if error.remedy is None else _remedies().encode(error.remedy)
    members = b",".join(_text(name) + b":" + value for name, value in fields.items())
    return b'{"error":{"kind":%s,"message":%s,"remedy":%s,"fields":{%s}}}' % (
        _text(kind.__name__),
        _text(error.message),
        remedy,
        members,
    )


def from_json(text: bytes) -> CmDeltaError | None:
    """The error of a JSON text; None if it is not the error of an operation."""
    try:
        stated = json.loads(text)["error"]
        kind, message = stated["kind"], stated["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(kind, str) or not kind or not isinstance(message, str):
        return None
    cls = _kinds().get(kind)
    if cls is None:
        return CatalogError(message)
    error = _with_fields(cls, message, stated.get("fields") or {})
    if stated.get("remedy") is not None:
        error.remedy = _decoded(_remedies(), stated["remedy"])
    return error


def refusal(text: bytes) -> str | None:
    """The message of a refusal by the server itself, which has no kind; None if the text is something else."""
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return message if isinstance(message, str) else None


def _with_fields(cls: type[CmDeltaError], message: str, stated: Mapping[str, Any]) -> CmDeltaError:
    error = cls(message)
    for name, codec in _fields_of(cls).items():
        if name in stated:
            setattr(error, name, _decoded(codec, stated[name]))
    return error


def _decoded(codec: Codec[Any], value: Any) -> Any:
    """A value of another release, which this one does not know, is left out: the message says the same."""
    try:
        return codec.decode(json.dumps(value).encode())
    except InvalidArgumentError:
        return None


def _text(value: str) -> bytes:
    try:
        return to_json(value)
    except (
        PydanticSerializationError
    ):  # A name from the outside may have a lone surrogate, which JSON's UTF-8 cannot have.
        return to_json(value.encode("utf-8", "backslashreplace").decode())


def _kind_of(error: CmDeltaError) -> type[CmDeltaError]:
    """The class of the error, or the nearest one of this package."""
    return next(cls for cls in type(error).__mro__ if _kinds().get(cls.__name__) is cls)


@functools.cache
def _kinds() -> Mapping[str, type[CmDeltaError]]:
    return {
        name: cls
        for name, cls in vars(errors).items()
        if isinstance(cls, type) and issubclass(cls, CmDeltaError) and cls.__module__ == errors.__name__
    }


def _fields_of(cls: type[CmDeltaError]) -> Mapping[str, Codec[Any]]:
    """Codecs of the attributes that an error of this class has, beside message and remedy."""
    if (known := _FIELDS.get(cls)) is not None:
        return known
    types: dict[str, Any] = {}
    for base in cls.__mro__[:-1]:
        if not issubclass(base, CmDeltaError) or base is CmDeltaError:
            continue
        types |= {name: hint for name, hint in inspect.get_annotations(base).items() if not name.startswith("_")}
        if "__init__" in vars(base):
            hints = typing.get_type_hints(base.__init__)
            types |= {name: hint for name, hint in hints.items() if name not in ("message", "return")}
    _FIELDS[cls] = codecs = {name: codec_of(hint) for name, hint in types.items()}
    return codecs


_FIELDS: dict[type[CmDeltaError], Mapping[str, Codec[Any]]] = {}


@functools.cache
def _remedies() -> Codec[Remedy]:
    known = tuple(
        cls
        for cls in vars(remedies).values()
        if isinstance(cls, type) and issubclass(cls, Remedy) and cls.__module__ == remedies.__name__
    )
    return codec_of(Union[known])  # noqa: UP007  # The members are only known at run time.
