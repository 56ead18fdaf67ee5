"""Hints for methods that a class does not have, and another class of tables or another library has under that name."""

import typing
from collections.abc import Mapping


class AbsentMethods:
    """A base of classes whose users may look for a method of another class; the AttributeError says what to call."""

    _absent: typing.ClassVar[str] = ""
    """Why public methods are absent and what to call, as the end of the message."""
    _peer_names: typing.ClassVar[Mapping[str, str]] = {}
    """For names of delta-spark and deltalake, what to write here."""

    if not typing.TYPE_CHECKING:  # Type checkers would take every name for a method.

        def __getattr__(self, name: str) -> typing.NoReturn:
            here = self._peer_names.get(name)
            hint = self._absent if here is None else f"write {here}"
            hint = "" if name.startswith("_") or not hint else f": {hint}"
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}", name=name, obj=self)
