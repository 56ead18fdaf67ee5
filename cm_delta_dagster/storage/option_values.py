"""Values of storage options: texts of true and false are decoded, and what no request can carry is refused.

Options come from environment variables, Dagster's configuration and command lines, where every value is a text. For Python each
text but the empty one is true.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cm_delta_dagster.errors import InvalidArgumentError

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ENDPOINT = "endpoint_url"
_HOST = re.compile(r"(?:\w+://)?[\w.-]+(?::\d+)?")
_TEXTS = frozenset(
    {
        *(_ENDPOINT, "key", "secret", "profile", "username", "password", "region_name"),  # S3
        *(
            "account_name",
            "account_key",
            "connection_string",
            "sas_token",
            "tenant_id",
            "client_id",
            "client_secret",
        ),  # Azure
        *("project", "default_location"),  # Google
    }
)
"""Options that have no other values but texts, by their last part."""
_WEB_ADDRESS = re.compile(r"https?://[^/]", re.IGNORECASE)


def boolean_parameters(*functions: Callable[..., Any]) -> frozenset[str]:
    """Names of the parameters that are true or false by default."""
    return frozenset(
        name
        for function in functions
        for name, parameter in inspect.signature(function).parameters.items()
        if isinstance(parameter.default, bool)
    )


def checked_values(
    options: Mapping[str, Any],
    *,
    booleans: Iterable[str],
    booleans_or_text: Iterable[str],
    nested: Iterable[str],
) -> dict[str, Any]:
    """``options`` with texts of true and false decoded. No message has a value but that of an endpoint.

    Args:
        booleans: options that are true or false; ``option.name`` for one within a mapping.
        booleans_or_text: options that are true, false or a text, as the path of a file.
        nested: options that are mappings of options.

    Raises:
        InvalidArgumentError: a boolean has another value, a text has a control character, or an endpoint has no scheme.
    """
    strict, lenient, mappings = frozenset(booleans), frozenset(booleans_or_text), frozenset(nested)

    def checked(name: str, value: Any) -> Any:
        if name in mappings and isinstance(value, Mapping):
            return {key: checked(f"{name}.{key}", inner) for key, inner in value.items()}
        _check_type(name, value)
        if isinstance(value, str):
            _check_text(name, value)
        return _boolean(name, value, is_strict=name in strict) if name in strict | lenient else value

    return {name: checked(name, value) for name, value in options.items()}


def _check_type(name: str, value: Any) -> None:
    if name.rpartition(".")[2] in _TEXTS and value is not None and not isinstance(value, str):
        raise InvalidArgumentError(
            f"The value of the storage option {name} is of type {type(value).__name__}. Give a text."
        )


def _check_text(name: str, value: str) -> None:
    if _CONTROL.search(value):
        raise InvalidArgumentError(
            f"The value of the storage option {name} has a line break or another control character, which no request can carry. "
            "Remove it, for example the line break at the end of the file that the value was read from."
        )
    if name.rpartition(".")[2] != _ENDPOINT or not value:
        return
    if "@" in value:
        raise InvalidArgumentError(
            f"The storage option {name} has an '@', as before a host name after a user and a password. Give only the address of "
            "the server, and the credentials in the options that are made for them, e.g. key and secret."
        )
    if not _WEB_ADDRESS.match(value):
        shown = f" is {value!r}, which" if _HOST.fullmatch(value) else ""
        raise InvalidArgumentError(
            f"The storage option {name}{shown} does not begin with http:// or https://. Give the whole address, e.g. "
            "https://minio.example.org, or http://localhost:9000 for a server without TLS."
        )


def _boolean(name: str, value: Any, *, is_strict: bool) -> Any:
    if value is None or isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if not is_strict:
        return value
    raise InvalidArgumentError(
        f"The storage option {name} is neither true nor false. Give true or false, as a boolean or as a text."
    )
