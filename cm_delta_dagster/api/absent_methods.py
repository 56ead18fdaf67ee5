"""Hints for methods that a class of tables does not have and another class of tables does."""

import typing


class AbsentMethods:
    """A base of classes that lack public methods of DeltaTable; the AttributeError says where they are."""

    _absent: typing.ClassVar[str]
    """Why a method is absent and what to call, as the end of the message."""

    if not typing.TYPE_CHECKING:  # Type checkers would take every name for a method.

        def __getattr__(self, name: str) -> typing.NoReturn:
            kind = type(self).__name__
            hint = "" if name.startswith("_") else f": {self._absent}"
            raise AttributeError(f"{kind} has no attribute {name!r}{hint}", name=name, obj=self)
