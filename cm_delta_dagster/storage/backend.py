"""What differs between object stores: names, exclusive creation, and the meaning of errors.

Each store has one module with a subclass of :class:`Backend`; ``fsspec_store.BACKENDS`` lists them.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import fsspec

from cm_delta_dagster.protocol.actions.paths import canonical_location
from cm_delta_dagster.storage.option_names import check_names, constructors_of, parameters_of
from cm_delta_dagster.storage.option_values import boolean_parameters, checked_values

WRITE_ID = "cmdeltawrite"
"""Name in the metadata of an object: identifies the call that created it."""


class Fault(enum.StrEnum):
    """What a failed request means."""

    EXISTS = "exists"
    CONFLICT = "conflict"
    MISSING = "missing"
    NO_BUCKET = "no_bucket"
    NO_KEY = "no_key"
    WRONG_KEY = "wrong_key"
    EXPIRED = "expired"
    DENIED = "denied"
    WRONG_REGION = "wrong_region"
    WRONG_CLOCK = "wrong_clock"
    FULL = "full"
    NO_STORE = "no_store"
    UNSENDABLE = "unsendable"
    REJECTED = "rejected"
    OUT_OF_RANGE = "out_of_range"
    THROTTLED = "throttled"
    TRANSIENT = "transient"
    UNREACHABLE = "unreachable"
    CORRUPT = "corrupt"
    OTHER = "other"


_STATUS = {
    "401": Fault.WRONG_KEY,
    "403": Fault.DENIED,
    "404": Fault.MISSING,
    "405": Fault.NO_STORE,
    "408": Fault.TRANSIENT,
    "412": Fault.EXISTS,
    "416": Fault.OUT_OF_RANGE,
    "429": Fault.THROTTLED,
    "500": Fault.TRANSIENT,
    "502": Fault.TRANSIENT,
    "503": Fault.THROTTLED,
    "504": Fault.TRANSIENT,
    "507": Fault.FULL,
}

_TRANSIENT_ERRORS = frozenset(
    {
        "aiohttp.ClientError",
        "azure.IncompleteReadError",
        "azure.ServiceResponseError",
        "botocore.ConnectionError",
        "botocore.HTTPClientError",
        "botocore.IncompleteReadError",
        "botocore.ResponseParserError",
        "builtins.ConnectionError",
        "builtins.TimeoutError",
        "requests.RequestException",
    }
)
"""Errors of connections that were made: first part of the module's name, and the class. Named, because the libraries are
optional.
"""


_UNREACHABLE_ERRORS = frozenset(
    {
        "aiohttp.ClientConnectorError",
        "azure.ServiceRequestError",
        "botocore.EndpointConnectionError",
        "builtins.ConnectionRefusedError",
    }
)
"""The same, of connections that could not be made."""


class Backend(ABC):
    """One kind of object store.

    Attributes:
        name: what messages call the store.
        schemes: schemes of its locations; the first is passed to fsspec.
        extra: extra of this package that installs the file system.
        condition: how the server is asked to create only.
        container: what the store calls a bucket.
        codes: meaning of the server's error codes.
        when_denied: what messages add if access is denied.
        own_options: options that no other store has.
        synonyms: what other programs call an option, and its name here.
        more_booleans: options that are true or false, and whose default does not show it; ``option.name`` within a mapping.
        booleans_or_text: options that are true, false or a text.
    """

    name: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]]
    extra: ClassVar[str]
    condition: ClassVar[str]
    container: ClassVar[str] = "bucket"
    codes: ClassVar[Mapping[str, Fault]]
    when_denied: ClassVar[str] = ""
    own_options: ClassVar[frozenset[str]]
    synonyms: ClassVar[Mapping[str, str]] = {}
    more_booleans: ClassVar[frozenset[str]] = frozenset()
    booleans_or_text: ClassVar[frozenset[str]] = frozenset()

    def checked_options(self, options: Mapping[str, Any], others: "Iterable[Backend]") -> dict[str, Any]:
        """``options`` as the file system takes them: texts of true and false are decoded.

        Args:
            others: stores whose options a user may have given to this one.

        Raises:
            ImportError: the file system is not installed.
            InvalidArgumentError: the file system does not take an option or its value.
        """
        elsewhere = {name: other.name for other in others if other.name != self.name for name in other.own_options}
        nested = self.nested_options()
        check_names(
            options,
            known=self.option_names(),
            nested=nested,
            synonyms=self.synonyms,
            elsewhere=elsewhere,
            store=self.name,
        )
        booleans = boolean_parameters(*constructors_of(fsspec.get_filesystem_class(self.schemes[0])))
        return checked_values(
            options,
            booleans=(booleans | self.more_booleans) - self.booleans_or_text,
            booleans_or_text=self.booleans_or_text,
            nested=nested,
        )

    def option_names(self) -> frozenset[str]:
        """Names that the file system takes. Raises ImportError."""
        return parameters_of(fsspec.get_filesystem_class(self.schemes[0]))

    def nested_options(self) -> Mapping[str, frozenset[str]]:
        """Names within those options that are mappings. Raises ImportError."""
        return {}

    def options_for(self, location: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """``options`` with what the location itself says. Raises InvalidArgumentError if the two contradict each other."""
        return dict(options)

    def canonical(self, location: str, options: Mapping[str, Any]) -> str:
        """``paths.canonical_location``, with what ``options`` say of the store and the location does not."""
        return canonical_location(location)

    @abstractmethod
    def open(self, options: Mapping[str, Any]) -> Any:
        """A file system without a cache of listings that sends each request once. Raises ImportError."""

    def path(self, rest: str) -> str:
        """Path for the file system: bucket and key, of a location without its scheme."""
        return rest

    def read(self, filesystem: Any, path: str, *, start: int | None = None, end: int | None = None) -> bytes:
        """The object, or the bytes from ``start`` to before ``end``, with one request."""
        return bytes(filesystem.cat_file(path, start=start, end=end))

    def copy(self, filesystem: Any, source: str, target: str) -> None:
        """Copy one object by a request to the server. The copy is complete when the call returns."""
        filesystem.cp_file(source, target)

    @abstractmethod
    def delete_directory(self, filesystem: Any, path: str) -> None:
        """Delete the empty object that stands for the directory ``path``, unless the store keeps it because of what is in it."""

    def listed(self, filesystem: Any, path: str, *, recursive: bool, start: str = "") -> Iterable[Mapping[str, Any]]:
        """The objects below ``path``, or directly in it, as fsspec describes them; names below ``start`` may be left out.

        The name of an empty object that stands for a directory ends with a slash. Without ``recursive`` it may be left out.
        """
        if recursive:
            return list(filesystem.find(path, detail=True).values())
        return list(filesystem.ls(path, detail=True))

    @abstractmethod
    def create(self, filesystem: Any, path: str, data: bytes, *, write_id: str) -> None:
        """Create only, with ``WRITE_ID`` in the metadata."""

    def sends_once(self, filesystem: Any) -> bool:
        """Whether each call of ``create`` sends one request, so that a refusal shows that nothing was written."""
        return False

    def write_id(self, filesystem: Any, path: str) -> str | None:
        """``WRITE_ID`` of an object; None if it has none."""
        write_id = (filesystem.info(path).get("metadata") or {}).get(WRITE_ID)
        return None if write_id is None else str(write_id)

    @abstractmethod
    def codes_of(self, error: BaseException) -> tuple[str, ...]:
        """Error code and HTTP status of one error of the client library; empty if it is no answer of the server."""

    def fault(self, error: BaseException) -> Fault:
        """What the error means.

        Its causes are considered too, because fsspec maps several codes of the server to one errno.
        """
        answers = [code for link in _chain(error) for code in self.codes_of(link)]
        for code in answers:
            if code in self.codes:
                return self.codes[code]
        if isinstance(error, FileExistsError):
            return Fault.EXISTS
        if isinstance(error, FileNotFoundError):
            return Fault.MISSING
        for code in answers:
            if code in _STATUS:
                return _STATUS[code]
        if isinstance(error, PermissionError):
            return Fault.DENIED
        if any(_names(link) & _UNREACHABLE_ERRORS for link in _chain(error)):
            return Fault.UNREACHABLE
        if any(_names(link) & _TRANSIENT_ERRORS for link in _chain(error)):
            return Fault.TRANSIENT
        return Fault.OTHER


def _chain(error: BaseException) -> Iterator[BaseException]:
    # Not the context: it may be an error that the caller is handling.
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__


def _names(error: BaseException) -> set[str]:
    return {f"{cls.__module__.partition('.')[0]}.{cls.__name__}" for cls in type(error).__mro__}
