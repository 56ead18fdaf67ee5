"""Credentials for the files of tables, as the server is configured to get them. They are kept in memory only, and not logged.

The catalog decides who gets them. A credential is for the files of one table, if the store can limit it.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from cm_delta_dagster.catalog.storage_credentials import FileAccess, LocationCredentials
from cm_delta_dagster.protocol.actions.paths import canonical_location
from cm_delta_dagster.server.aws_roles import AssumedRole, temporary_keys

_MAX_CACHED = 10_000
_USED_SHARE = 2 / 3
"""The share of their life for which credentials are given to callers. They are valid for a third of it after that."""


class _OfPrefix(BaseModel):
    """Credentials for the tables below a prefix.

    Attributes:
        endpoint: URL of the store; None for that of the cloud.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    prefix: str = Field(pattern=r"^[a-z][a-z0-9]*://[^/?#]+")
    endpoint: str | None = None
    region: str | None = None


class StaticKeys(_OfPrefix):
    """Keys that callers get as they are, whatever the table is.

    Attributes:
        access: what they are given for. Keys to write are not given to those who may only read.
    """

    kind: Literal["static"]
    access: FileAccess
    access_key_id: SecretStr
    secret_access_key: SecretStr
    session_token: SecretStr | None = None


class RoleKeys(_OfPrefix):
    """Keys of a role of AWS, limited to the files of one table.

    Attributes:
        duration_seconds: their life.
        sts_endpoint: URL of the Security Token Service; None for that of the region.
        access_key_id: with which the server assumes the role; None for the keys of its environment.
    """

    kind: Literal["aws-role"]
    role_arn: str = Field(pattern=r"^arn:[a-z0-9-]+:iam::[0-9]*:role/.+$")
    external_id: SecretStr | None = None
    duration_seconds: int = Field(default=3600, ge=900, le=43_200)
    sts_endpoint: str | None = None
    access_key_id: SecretStr | None = None
    secret_access_key: SecretStr | None = None


PrefixCredentials: TypeAlias = Annotated[StaticKeys | RoleKeys, Field(discriminator="kind")]
"""An entry of the setting ``storage_credentials``."""


class ConfiguredIssuer:
    """Implements :class:`~cm_delta_dagster.catalog.storage_credentials.CredentialIssuer` by the settings. Thread-safe.

    Args:
        entries: of which the one with the longest prefix applies to a table.
        now_ms: epoch milliseconds, of the clock by which the store lets credentials expire.
    """

    def __init__(self, entries: Sequence[StaticKeys | RoleKeys], *, now_ms: Callable[[], int] | None = None) -> None:
        self._entries = [(canonical_location(entry.prefix) + "/", entry) for entry in entries]
        self._now_ms = now_ms or _wall_clock_ms
        self._cached: OrderedDict[tuple[str, FileAccess], tuple[LocationCredentials, float]] = OrderedDict()
        self._lock = threading.Lock()

    def issue(self, location: str, access: FileAccess) -> LocationCredentials | None:
        """Credentials for the files of a table; None if no prefix holds its location. Raises StorageError."""
        place = canonical_location(location) + "/"
        holding = [
            (prefix, entry)
            for prefix, entry in self._entries
            if place.startswith(prefix) and not (isinstance(entry, StaticKeys) and entry.access is not access)
        ]
        if not holding:
            return None
        _, entry = max(holding, key=lambda pair: len(pair[0]))
        if isinstance(entry, StaticKeys):
            return _static(entry, location, access)
        key = (location, access)
        with self._lock:
            known, until_ms = self._cached.get(key, (None, 0.0))
        if known is None or self._now_ms() >= until_ms:
            known, until_ms = self._of_role(entry, location, access)
            with self._lock:
                self._cached[key] = (known, until_ms)
                self._cached.move_to_end(key)
                while len(self._cached) > _MAX_CACHED:
                    self._cached.popitem(last=False)
        return known

    def _of_role(self, entry: RoleKeys, location: str, access: FileAccess) -> tuple[LocationCredentials, float]:
        """New credentials, and until when they are given to callers."""
        begun_ms = self._now_ms()
        role = AssumedRole(
            arn=entry.role_arn,
            external_id=_revealed(entry.external_id),
            duration_seconds=entry.duration_seconds,
            region=entry.region,
            endpoint=entry.sts_endpoint,
            access_key_id=_revealed(entry.access_key_id),
            secret_access_key=_revealed(entry.secret_access_key),
        )
        keys = temporary_keys(role, location, access)
        config = _config(entry, keys.access_key_id, keys.secret_access_key, keys.session_token)
        issued = LocationCredentials(prefix=location, access=access, config=config, expires_ms=keys.expires_ms)
        return issued, begun_ms + (keys.expires_ms - begun_ms) * _USED_SHARE


def _static(entry: StaticKeys, location: str, access: FileAccess) -> LocationCredentials:
    token = _revealed(entry.session_token)
    config = _config(entry, entry.access_key_id.get_secret_value(), entry.secret_access_key.get_secret_value(), token)
    return LocationCredentials(prefix=location, access=access, config=config)


def _config(entry: _OfPrefix, key: str, secret: str, token: str | None) -> dict[str, str]:
    named = {
        "s3.access-key-id": key,
        "s3.secret-access-key": secret,
        "s3.session-token": token,
        "s3.endpoint": entry.endpoint,
        "client.region": entry.region,
    }
    return {name: value for name, value in named.items() if value is not None}


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000
