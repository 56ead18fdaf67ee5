"""Hints for methods that a class does not have, and another class of tables or another library has under that name."""

import functools
import os
import typing
from abc import ABCMeta
from collections.abc import Callable, Mapping

from cm_delta_dagster.api.keyword_hints import with_keyword_hints
from cm_delta_dagster.api.moved_names import MOVED_NAMES

_Function = typing.TypeVar("_Function", bound=Callable[..., None])


def refuses_paths(construct: _Function) -> _Function:
    """Decorate the ``__init__`` of a class of tables, which a connection calls: an error for a path says how to open it."""

    @functools.wraps(construct)
    def checked(self: object, *arguments: typing.Any, **keywords: typing.Any) -> None:
        if len(arguments) + len(keywords) < 2 or isinstance(arguments[0] if arguments else None, str | os.PathLike):
            raise TypeError(
                f"{type(self).__name__} is opened by a connection: write connect(...).table(name), or "
                "connect(...).path_table(location)"
            )
        construct(self, *arguments, **keywords)

    return typing.cast(_Function, checked)


class _Hidden:
    """A name that only classes have which define it themselves."""

    def __get__(self, owner: object, kind: type) -> typing.NoReturn:
        raise AttributeError


class _HintsOfClass(ABCMeta):
    """The type of such classes, for names that another library has on the class itself, such as ``DeltaTable.forName``."""

    if not typing.TYPE_CHECKING:  # Type checkers would take every name for an attribute.

        def __getattr__(cls, name: str) -> typing.NoReturn:
            here = cls.__dict__.get("_peer_class_names", {}).get(name)
            hint = "" if here is None else f": write {here}"
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}{hint}", name=name, obj=cls)

        register = _Hidden()  # That of ABCMeta is not a method of our classes.


class AbsentMethods(metaclass=_HintsOfClass):
    """A base of classes whose users may look for a method elsewhere; the AttributeError says what to call."""

    _absent: typing.ClassVar[str] = ""
    """Why public methods are absent and what to call, as the end of the message."""
    _peer_names: typing.ClassVar[Mapping[str, str]] = {}
    """For names of other libraries, what to write here."""

    _peer_class_names: typing.ClassVar[Mapping[str, str]] = {}
    """For names that other libraries have on the class, what to write here."""

    def __init_subclass__(cls, **arguments: typing.Any) -> None:
        super().__init_subclass__(**arguments)
        with_keyword_hints(cls)  # A keyword that a public method does not have is a TypeError that names the right one.

    if not typing.TYPE_CHECKING:  # Type checkers would take every name for a method.

        def __getattr__(self, name: str) -> object:
            if any(name in vars(base) for base in type(self).__mro__):
                return object.__getattribute__(
                    self, name
                )  # A property raised an AttributeError, which this raises again.
            kind = type(self).__name__
            here = MOVED_NAMES.get(kind, {}).get(name) or self._peer_names.get(name)
            hint = self._absent if here is None else f"write {here}"
            hint = "" if name.startswith("_") or not hint else f": {hint}"
            raise AttributeError(f"{kind} has no attribute {name!r}{hint}", name=name, obj=self)

        def __getitem__(self, key: object) -> typing.NoReturn:
            here = self._peer_names.get("[]")
            hint = "" if here is None else f": write {here}"
            raise TypeError(f"{type(self).__name__!r} object is not subscriptable{hint}")
