"""Names of modules that are imported when they are first used, so that a process imports only what it needs.

Type checkers see an ordinary import beside it:

    if TYPE_CHECKING:
        from cm_delta_dagster.operations.writing.merge import merge
    else:
        merge = Deferred("cm_delta_dagster.operations.writing.merge", "merge")
"""

import importlib
import typing


class Deferred:
    """A function or class of a module that is imported by the first call, use of an attribute or ``isinstance``.

    In a signature it stands for the class; it is not imported for that.
    """

    __slots__ = ("_module", "_name")

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def resolved(self) -> typing.Any:
        """The function or class."""
        return getattr(importlib.import_module(self._module), self._name)

    def __call__(self, *arguments: typing.Any, **options: typing.Any) -> typing.Any:
        return self.resolved()(*arguments, **options)

    def __getattr__(self, name: str) -> typing.Any:
        if name.startswith("__"):  # Modules that handle annotations look for such attributes.
            raise AttributeError(name)
        return getattr(self.resolved(), name)

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, self.resolved())

    def __subclasscheck__(self, kind: type) -> bool:
        return issubclass(kind, self.resolved())

    def __or__(self, other: object) -> object:
        return typing.Union[self, other]  # noqa: UP007

    def __ror__(self, other: object) -> object:
        return typing.Union[other, self]  # noqa: UP007

    def __repr__(self) -> str:
        return f"{self._module}.{self._name}"


class DeferredModule:
    """A module whose functions and classes are :class:`Deferred`."""

    __slots__ = ("_module",)

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Deferred:
        return Deferred(self._module, name)


def deferred(module: str, *names: str) -> tuple[Deferred, ...]:
    """The names of one module, in the order given."""
    return tuple(Deferred(module, name) for name in names)
