"""Calls of the two interfaces and their answers as values that can be compared, stored and given again."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cm_delta_dagster.errors import CmDeltaError

STORE, CATALOG = "store", "catalog"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a member to the store or to the catalog, to one of its ``part``s. ``key`` is equal for equal calls."""

    service: str
    method: str
    arguments: tuple[Any, ...] = field(compare=False)
    named: dict[str, Any] = field(compare=False)
    key: str
    part: str | None = None

    @classmethod
    def of(
        cls, service: str, method: str, arguments: tuple[Any, ...], named: dict[str, Any], part: str | None = None
    ) -> "Call":
        key = f"{service}.{part or ''}.{method}{arguments!r}{sorted(named.items())!r}"
        return cls(service, method, arguments, named, key, part)

    def __str__(self) -> str:
        shown = [_short(value) for value in self.arguments]
        shown += [f"{name}={_short(value)}" for name, value in self.named.items() if value is not None]
        return f"{self.service}.{self.method}({', '.join(shown)})"

    def argument(self, position: int, name: str) -> Any:
        """An argument that may be given by position or by name; None if it was not given."""
        return self.arguments[position] if position < len(self.arguments) else self.named.get(name)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call answered: a value, or an error of the package."""

    key: str
    value: Any = field(compare=False, default=None)
    error: CmDeltaError | None = field(compare=False, default=None)
    is_iterator: bool = field(compare=False, default=False)

    @classmethod
    def of(cls, value: Any) -> "Answer":
        if isinstance(value, Iterator):
            listed = list(value)
            return cls(f"iterator {listed!r}", listed, None, True)
        return cls(repr(value), value)

    @classmethod
    def failed(cls, error: CmDeltaError) -> "Answer":
        error.__traceback__ = error.__context__ = error.__cause__ = None
        return cls(f"raise {type(error).__name__}: {error}", None, error)

    def give(self) -> Any:
        """The value for the caller, a fresh one if it can be changed; or raise the error."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        if self.is_iterator:
            return iter(list(self.value))
        return list(self.value) if isinstance(self.value, list) else self.value

    def __str__(self) -> str:
        if self.error is not None:
            return f"raises {type(self.error).__name__}"
        if isinstance(self.value, list):
            return f"[{len(self.value)} items]"
        return _short(self.value)


def perform(target: Any, call: Call) -> Answer:
    """Make the call on a real object. Only errors of the package are answers; any other one is a bug and passes."""
    try:
        real = target if call.part is None else getattr(target, call.part)
        return Answer.of(getattr(real, call.method)(*call.arguments, **call.named))
    except CmDeltaError as error:
        return Answer.failed(error)


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if hasattr(value, "version"):
        name = getattr(value, "file_name", "")
        return f"{type(value).__name__}(version={value.version}{', ' + name if name else ''})"
    if hasattr(value, "latest_version"):
        versions = [commit.version for commit in value.commits]
        return f"latest {value.latest_version}, published {value.published_version}, served {versions}"
    text = str(value)
    text = text.rpartition("/_delta_log/")[2] if "/_delta_log/" in text else text
    return text if len(text) <= 90 else f"{text[:87]}..."
