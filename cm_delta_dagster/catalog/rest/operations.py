"""The operations of the HTTP API: each method of each interface of the catalog, read from the signatures of the interfaces.

Client and server are made from this table. Methods whose arguments or answers cannot be sent are not in it: ``commit_lock`` (a lock
would be held by a connection that may be cut), ``back_up`` (a file of the server's machine) and ``now_ms`` (each answer has the
catalog's time in a header).
"""

import functools
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.rest.codec import Codec, arguments_codec, codec_of
from cm_delta_dagster.catalog.rest.repetition import Repetition, repetition_of

API_VERSION = 1
API_PATH = "/api/cm"
PATH = f"{API_PATH}/v{API_VERSION}"

API_VERSION_HEADER = "cm-delta-api-version"
NOW_HEADER = "cm-delta-now-ms"
"""Header of each answer: the catalog's clock, epoch milliseconds."""

NOT_ON_THE_WIRE = frozenset({"coordinator.commit_lock", "coordinator.now_ms", "recovery.back_up"})

MAX_WAIT_SECONDS = 20.0
"""How long the server waits for an event before it answers that there is none; the client then asks again."""


@dataclass(frozen=True, kw_only=True)
class CatalogOperation:
    """One method of one interface.

    Attributes:
        part: attribute of the catalog.
        method: of the interface; has signature and documentation.
    """

    part: str
    name: str
    method: Callable[..., Any]

    @property
    def path(self) -> str:
        """Where the server has it."""
        return f"{PATH}/{self.part}/{self.name}"

    @property
    def repetition(self) -> Repetition:
        """What a client may do if it got no answer."""
        return repetition_of(self.part, self.name)

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The signature of a call, without ``self``."""
        signature = inspect.signature(self.method)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def arguments_of(self, *positional: Any, **named: Any) -> Mapping[str, Any]:
        """The arguments of a call by name. Raises TypeError, as the method does, for others than it takes."""
        return self.signature.bind(*positional, **named).arguments

    @functools.cached_property
    def arguments(self) -> Codec[Mapping[str, Any]]:
        """The codec of the arguments by name."""
        parameters = self.signature.parameters.values()
        optional = frozenset(entry.name for entry in parameters if entry.default is not inspect.Parameter.empty)
        return arguments_codec(str(self), {entry.name: self._hints[entry.name] for entry in parameters}, optional)

    @functools.cached_property
    def answer(self) -> Codec[Any]:
        """The codec of the answer."""
        return codec_of(self._hints["return"])

    @functools.cached_property
    def _hints(self) -> Mapping[str, Any]:
        return typing.get_type_hints(self.method)

    def __str__(self) -> str:
        return f"{self.part}.{self.name}"


def interfaces() -> Mapping[str, type]:
    """The interfaces of the catalog by their attribute."""
    return {
        name: typing.get_type_hints(member.fget)["return"]
        for name, member in vars(Catalog).items()
        if isinstance(member, property)
    }


@functools.cache
def operations() -> Mapping[str, Mapping[str, CatalogOperation]]:
    """The operations by part and name."""
    return {part: {entry.name: entry for entry in _of_part(part, cls)} for part, cls in interfaces().items()}


def _of_part(part: str, interface: type) -> Iterator[CatalogOperation]:
    for name, method in vars(interface).items():
        if not name.startswith("_") and inspect.isfunction(method) and f"{part}.{name}" not in NOT_ON_THE_WIRE:
            yield CatalogOperation(part=part, name=name, method=method)
