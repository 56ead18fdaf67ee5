"""Azure Blob Storage and Data Lake Storage Gen2, through adlfs."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import fsspec
from fsspec.asyn import sync

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.paths import canonical_location
from cm_delta_dagster.storage.backend import WRITE_ID, Backend, Fault

_DIRECTORY_MARKS = ("hdi_isfolder", "is_directory")
"""Metadata of the empty objects that stand for directories: of Hadoop and Azure, and of adlfs."""

_ACCOUNT = re.compile(r"(?:^|;)\s*AccountName=([^;]+)", re.IGNORECASE)

_NOT_EMPTY = "DirectoryIsNotEmpty"
"""Code of an account with a hierarchical namespace: the directory stays because there are files in it."""


class Azure(Backend):
    """``abfss://container@account.dfs.core.windows.net/path``, or ``az://container/path`` with the account in the options.

    Without a key, token or connection string in the options, adlfs uses its environment variables and then
    ``DefaultAzureCredential``.
    """

    name = "Azure"
    schemes = ("abfss", "abfs", "az")
    extra = "azure"
    condition = "If-None-Match: *"
    container = "container"
    codes: ClassVar[Mapping[str, Fault]] = {
        "AccountIsDisabled": Fault.DENIED,
        "AuthenticationFailed": Fault.WRONG_KEY,
        "AuthorizationFailure": Fault.WRONG_KEY,
        "AuthorizationPermissionMismatch": Fault.DENIED,
        "BlobAlreadyExists": Fault.EXISTS,
        "BlobNotFound": Fault.MISSING,
        "ConditionNotMet": Fault.EXISTS,
        "ContainerBeingDeleted": Fault.NO_BUCKET,
        "ContainerNotFound": Fault.NO_BUCKET,
        "ExpiredAuthentication": Fault.EXPIRED,
        "InsufficientAccountPermissions": Fault.DENIED,
        "InternalError": Fault.TRANSIENT,
        "InvalidAuthenticationInfo": Fault.WRONG_KEY,
        "InvalidRange": Fault.OUT_OF_RANGE,
        "NoAuthenticationInformation": Fault.NO_KEY,
        "OperationTimedOut": Fault.TRANSIENT,
        "ServerBusy": Fault.THROTTLED,
        # Of azure-core and azure-identity themselves.
        "ClientAuthenticationError": Fault.WRONG_KEY,
        "CredentialUnavailableError": Fault.NO_KEY,
    }
    own_options = frozenset(
        {"account_name", "account_key", "connection_string", "sas_token", "client_id", "client_secret", "tenant_id"}
    )
    synonyms: ClassVar[Mapping[str, str]] = {
        "account": "account_name",
        "storage_account": "account_name",
        "azure_storage_account_name": "account_name",
        "access_key": "account_key",
        "storage_account_key": "account_key",
        "azure_storage_account_key": "account_key",
        "azure_storage_connection_string": "connection_string",
        "sas": "sas_token",
        "azure_client_id": "client_id",
        "azure_client_secret": "client_secret",
        "azure_tenant_id": "tenant_id",
        "anonymous": "anon",
    }
    more_booleans = frozenset({"anon", "assume_container_exists"})

    def options_for(self, location: str, options: Mapping[str, Any]) -> dict[str, Any]:
        authority = location.partition("://")[2].partition("/")[0]
        account = authority.rpartition("@")[2].partition(".")[0] if "@" in authority else ""
        account_option = options.get("account_name")
        if account and account_option and account_option != account:
            raise InvalidArgumentError(
                f"storage_options say account_name={account_option!r}, and {location} is in the account {account!r}. Leave "
                "account_name out, or give options by prefix, one for each account."
            )
        if account and "connection_string" not in options:
            return {**options, "account_name": account}
        return dict(options)

    def canonical(self, location: str, options: Mapping[str, Any]) -> str:
        canonical = canonical_location(location)
        scheme, separator, rest = canonical.partition("://")
        container, slash, path = rest.partition("/")
        named = _ACCOUNT.search(str(options.get("connection_string") or ""))
        account = options.get("account_name") or (named[1] if named else "")
        if "@" in container or not account:
            return canonical
        return f"{scheme}{separator}{container}@{str(account).lower()}{slash}{path}"

    def open(self, options: Mapping[str, Any]) -> Any:
        # Otherwise adlfs sends a request for each container, and warns where the key may not list containers.
        arguments = {"assume_container_exists": True, **options}
        filesystem = fsspec.filesystem(
            "abfss", **{**arguments, "use_listings_cache": False, "skip_instance_cache": True}
        )
        # FsspecStore retries. Azure's client would wait 15 seconds before its first retry.
        policy = getattr(getattr(filesystem.service_client, "_config", None), "retry_policy", None)
        if policy is not None:
            policy.total_retries = 0
        return filesystem

    def path(self, rest: str) -> str:
        authority, slash, path = rest.partition("/")
        return f"{authority.partition('@')[0]}{slash}{path}"

    def copy(self, filesystem: Any, source: str, target: str) -> None:
        # A copy on the server may be unfinished when it answers.
        filesystem.pipe_file(target, filesystem.cat_file(source))

    def listed(self, filesystem: Any, path: str, *, recursive: bool, start: str = "") -> Iterable[Mapping[str, Any]]:
        if not recursive:
            return super().listed(filesystem, path, recursive=recursive, start=start)
        # adlfs does not show which directories are objects, and lists a missing container as empty.
        infos: list[Mapping[str, Any]] = sync(filesystem.loop, _all_below, filesystem, path)
        return infos

    def delete_directory(self, filesystem: Any, path: str) -> None:
        try:
            filesystem.rm_file(path)
        except Exception as error:  # adlfs raises errors of several libraries.
            if _NOT_EMPTY not in self.codes_of(error):
                raise

    def create(self, filesystem: Any, path: str, data: bytes, *, write_id: str) -> None:
        # pipe_file takes no metadata.
        sync(filesystem.loop, _upload_new, filesystem, path, data, write_id)

    def codes_of(self, error: BaseException) -> tuple[str, ...]:
        if not type(error).__module__.startswith("azure"):
            return ()
        code = getattr(error, "error_code", None)
        answer = str(getattr(code, "value", code) or "")
        if answer == "AuthenticationFailed" and "specified time frame" in str(error):
            answer = "ExpiredAuthentication"
        status = getattr(error, "status_code", None)
        if not answer and status is None:
            return (type(error).__name__,)
        return answer, str(status or "")


async def _upload_new(filesystem: Any, path: str, data: bytes, write_id: str) -> None:
    container, _, blob = path.partition("/")
    metadata = {"is_directory": "false", WRITE_ID: write_id}
    async with filesystem.service_client.get_blob_client(container=container, blob=blob) as client:
        await client.upload_blob(data=data, overwrite=False, metadata=metadata, retry_total=0)


async def _all_below(filesystem: Any, path: str) -> list[Mapping[str, Any]]:
    """Every object below ``path``. The name of one that stands for a directory gets a slash."""
    container, _, key = path.partition("/")
    prefix = f"{key}/" if key else ""
    infos: list[Mapping[str, Any]] = []
    async with filesystem.service_client.get_container_client(container=container) as client:
        async for blob in client.list_blobs(name_starts_with=prefix, include=["metadata"]):
            marks = {name.lower(): value for name, value in (blob.metadata or {}).items()}
            is_directory = any(marks.get(name) == "true" for name in _DIRECTORY_MARKS)
            if is_directory or not blob.name.endswith("/"):
                name = f"{container}/{blob.name}{'/' if is_directory else ''}"
                infos.append({"name": name, "type": "file", "size": blob.size, "last_modified": blob.last_modified})
    return infos
