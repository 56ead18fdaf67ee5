"""How object stores are reached: options of fsspec file systems, by location.

Options hold credentials. They are never written to a catalog or a log file; ``repr``, ``str`` and error messages show no secret.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.paths import OBJECT_STORE_SCHEMES

REDACTED = "***"

_SECRET = re.compile(r"key|secret|token|passw|sas|credential|connection_string|auth|signature", re.I)
_PUBLIC = frozenset(
    {
        *("endpoint_url", "endpoint", "aws_endpoint", "aws_endpoint_url", "region_name", "region", "aws_region"),
        *("account_name", "account", "storage_account", "azure_storage_account_name", "project", "default_location"),
        *("s3", "addressing_style", "access", "consistency", "location_mode", "use_ssl", "verify", "anon", "anonymous"),
        *("block_size", "blocksize", "default_block_size", "cache_timeout", "max_concurrency", "max_pool_connections"),
        *("connect_timeout", "read_timeout", "timeout", "retries", "max_attempts", "requester_pays", "mode"),
    }
)
"""Options whose values are shown. Others may hold a secret, also those whose names do not say so."""
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+:[^/@\s]*@|(?<=http://)[^/@\s]+@|(?<=https://)[^/@\s]+@")
_QUERY_IN_URL = re.compile(r"(?<=\?)\S*=\S*")
_SHORTEST_SECRET = 4
_WAYS_TO_SIGN_IN = frozenset({"anon", "browser", "cache", "cloud", "google_default"})
"""Values of gcsfs's option ``token`` that are no secrets."""

_EXAMPLE = '{"s3://bucket-a": {"key": ...}, "abfss://container@account.dfs.core.windows.net": {"account_key": ...}}'


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StorageOptions:
    """Options of fsspec file systems by prefix of the location.

    Attributes:
        by_prefix: for each prefix, as :func:`canonical_location` writes it, the options of the locations below it.
    """

    by_prefix: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, Any] | None, *, warehouse: str | None) -> "StorageOptions":
        """Validate what a user gives.

        Args:
            options: flat options, which apply to the store of the warehouse (all buckets of its scheme; in Azure all containers
                of its account), or options by prefix: ``{"s3://bucket-a": {...}, "gs://": {...}}``.
            warehouse: directory or URI of new tables; None if it is not known, and flat options then apply to every store.

        Raises:
            InvalidArgumentError: flat options and prefixes are mixed, a prefix occurs twice, or the warehouse is a local
                directory and the options are flat.
        """
        if options is None:
            return cls()
        if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
            got = (
                "has keys that are not text" if isinstance(options, Mapping) else f"is of type {type(options).__name__}"
            )
            raise InvalidArgumentError(
                f"storage_options {got}; give a mapping of names to values, e.g. "
                f'{{"key": ..., "secret": ...}}, or options by prefix: {_EXAMPLE}.'
            )
        if not options:
            return cls()
        prefixed = [key for key in options if "://" in key]
        if not prefixed and warehouse is None:
            return cls(by_prefix={"": dict(options)})
        if not prefixed and warehouse is not None:
            if "://" not in warehouse or warehouse.lower().startswith("file:"):
                raise InvalidArgumentError(
                    f"storage_options got {', '.join(sorted(options))}, but the warehouse {warehouse} is a local directory, "
                    f"which takes no options. If it is in an object store, begin it with a scheme, such as s3://. "
                    f"For tables elsewhere give options by prefix: {_EXAMPLE}."
                )
            return cls(by_prefix={_store_of(warehouse): dict(options)})
        if len(prefixed) < len(options) or not all(isinstance(value, Mapping) for value in options.values()):
            wrong = sorted(key for key, value in options.items() if "://" not in key or not isinstance(value, Mapping))
            raise InvalidArgumentError(
                f"storage_options mixes prefixes of locations and single options ({', '.join(wrong)}). Give either options "
                f"of the warehouse's store, or for each prefix a mapping: {_EXAMPLE}."
            )
        by_prefix: dict[str, Mapping[str, Any]] = {}
        for key, value in options.items():
            prefix = canonical_location(key)
            if prefix in by_prefix:
                raise InvalidArgumentError(
                    f"storage_options names one store twice: {key} is the same prefix as another one. Keep one of them."
                )
            by_prefix[prefix] = dict(value)
        return cls(by_prefix=by_prefix)

    def for_location(self, location: str) -> Mapping[str, Any]:
        """The options of the longest prefix that holds ``location``; empty if there is none."""
        prefix = self.prefix_of(location)
        return MappingProxyType(dict(self.by_prefix[prefix])) if prefix is not None else MappingProxyType({})

    def prefix_of(self, location: str) -> str | None:
        """The longest prefix that holds ``location``, or None. ``s3://a`` holds ``s3a://a/x`` and not ``s3://ab``."""
        place = canonical_location(location)
        prefixes = [prefix for prefix in self.by_prefix if _holds(prefix, place)]
        return max(prefixes, key=len, default=None)

    def __repr__(self) -> str:
        return f"StorageOptions({redacted(self.by_prefix)!r})"


def canonical_location(location: str) -> str:
    """One spelling for each object, to compare locations.

    ``s3a`` is ``s3`` and ``gcs`` is ``gs``. Azure locations become ``az://account/container/path``, with an empty account if the
    location has none. Trailing slashes are removed.
    """
    scheme, separator, rest = location.partition("://")
    scheme = scheme.lower()
    if not separator:
        return location.rstrip("/") or "/"
    scheme = OBJECT_STORE_SCHEMES.get(scheme, scheme)
    rest = rest.rstrip("/")
    if scheme == "az" and rest:
        authority, slash, path = rest.partition("/")
        container, _, account = authority.rpartition("@") if "@" in authority else (authority, "", "")
        rest = f"{account.lower().replace('.blob.', '.dfs.')}/{container}{slash}{path}"
    return f"{scheme}://{rest}"


def is_secret(name: str) -> bool:
    """Whether the value of the option or setting ``name`` is never shown."""
    return _SECRET.search(name) is not None


def redacted(options: Mapping[str, Any]) -> dict[str, Any]:
    """A copy to show: only values of options that are known to hold no secret, and true, false and None, are not replaced."""
    return {key: _shown(key, value) for key, value in options.items()}


def without_secrets(text: str, options: Mapping[str, Any]) -> str:
    """``text`` with every value of ``options`` replaced that may be a secret."""
    for secret in sorted(set(_secrets(options)), key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return _USER_IN_URL.sub(f"{REDACTED}@", text)


def _is_shown(name: str) -> bool:
    return "://" in name or (name in _PUBLIC and not is_secret(name))


def _shown(key: str, value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Mapping) and (not is_secret(key) or "://" in key):
        return redacted(value)
    if not _is_shown(key):
        return REDACTED
    if isinstance(value, list | tuple):
        return [_shown(key, item) for item in value]
    if isinstance(value, str):
        return _QUERY_IN_URL.sub(REDACTED, _USER_IN_URL.sub(f"{REDACTED}@", value))
    # The repr of a credential object may contain the credential.
    return value if isinstance(value, int | float) else f"<{type(value).__name__}>"


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for key, value in options.items():
        if isinstance(value, Mapping):
            # Everything below {"token": {...}}, as of a service account, is secret.
            yield from _texts(value) if is_secret(key) and "://" not in key else _secrets(value)
        elif not _is_shown(key):
            yield from _texts({key: value})


def _texts(options: Mapping[Any, Any]) -> Iterator[str]:
    for value in options.values():
        if isinstance(value, Mapping):
            yield from _texts(value)
        elif isinstance(value, list | tuple):
            yield from _texts(dict(enumerate(value)))
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            text = str(value)
            if len(text) >= _SHORTEST_SECRET and text not in _WAYS_TO_SIGN_IN:
                yield text


def _store_of(warehouse: str) -> str:
    """The prefix of the whole store that holds the warehouse: a scheme, and in Azure the account."""
    scheme, _, rest = canonical_location(warehouse).partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/" if scheme == "az" else f"{scheme}://"


def _holds(prefix: str, place: str) -> bool:
    return prefix in ("", place) or place.startswith(prefix if prefix.endswith("/") else prefix + "/")
