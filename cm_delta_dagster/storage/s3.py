"""Amazon S3 and servers with its interface, through s3fs."""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

import fsspec

from cm_delta_dagster.storage.backend import WRITE_ID, Backend, Fault
from cm_delta_dagster.storage.option_names import named_parameters

_SEND_ONCE = {"total_max_attempts": 1}
_BAD_REQUEST = "BadRequest"
_UNSENDABLE = "ControlCharacterInHeader"
_CONNECTIONS = 64
"""Requests at a time. With botocore's default of 10, the footers of 1,000 files would take at least 5 s at 50 ms."""


class S3(Backend):
    """``s3://bucket/key``. Without keys in the options botocore's own chain applies: environment, profile, instance role."""

    name = "S3"
    schemes = ("s3", "s3a")
    extra = "s3"
    condition = "If-None-Match: *"
    when_denied = (
        " Without the permission to list the bucket (s3:ListBucket), S3 also answers so for objects that do not exist."
    )
    codes: ClassVar[Mapping[str, Fault]] = {
        "301": Fault.WRONG_REGION,
        "307": Fault.WRONG_REGION,
        "409": Fault.CONFLICT,
        "AccessDenied": Fault.DENIED,
        "AuthorizationHeaderMalformed": Fault.WRONG_REGION,
        "BadDigest": Fault.TRANSIENT,
        "ConditionalRequestConflict": Fault.CONFLICT,
        "ExpiredToken": Fault.EXPIRED,
        "IllegalLocationConstraintException": Fault.WRONG_REGION,
        "IncompleteBody": Fault.TRANSIENT,
        "InternalError": Fault.TRANSIENT,
        "InvalidAccessKeyId": Fault.WRONG_KEY,
        "InvalidRange": Fault.OUT_OF_RANGE,
        "InvalidToken": Fault.WRONG_KEY,
        "MethodNotAllowed": Fault.NO_STORE,
        "NoSuchBucket": Fault.NO_BUCKET,
        "NoSuchKey": Fault.MISSING,
        "OperationAborted": Fault.CONFLICT,
        "PermanentRedirect": Fault.WRONG_REGION,
        "PreconditionFailed": Fault.EXISTS,
        "QuotaExceeded": Fault.FULL,
        "RequestExpired": Fault.WRONG_CLOCK,
        "RequestTimeTooSkewed": Fault.WRONG_CLOCK,
        "RequestTimeout": Fault.TRANSIENT,
        "ServiceUnavailable": Fault.THROTTLED,
        "SignatureDoesNotMatch": Fault.WRONG_KEY,
        "SlowDown": Fault.THROTTLED,
        "Throttling": Fault.THROTTLED,
        "TokenRefreshRequired": Fault.EXPIRED,
        "XAmzContentSHA256Mismatch": Fault.TRANSIENT,
        "XMinioAdminBucketQuotaExceeded": Fault.FULL,
        "XMinioStorageFull": Fault.FULL,
        _BAD_REQUEST: Fault.REJECTED,
        # Of botocore itself, and of this module.
        _UNSENDABLE: Fault.UNSENDABLE,
        "FlexibleChecksumError": Fault.CORRUPT,
        "NoCredentialsError": Fault.NO_KEY,
        "PartialCredentialsError": Fault.WRONG_KEY,
        "CredentialRetrievalError": Fault.WRONG_KEY,
        "TokenRetrievalError": Fault.EXPIRED,
    }
    own_options = frozenset({"key", "secret", "profile", "username", "password", "client_kwargs", "config_kwargs"})
    synonyms: ClassVar[Mapping[str, str]] = {
        "access_key": "key",
        "access_key_id": "key",
        "aws_access_key_id": "key",
        "fs.s3a.access.key": "key",
        "secret_key": "secret",
        "secret_access_key": "secret",
        "aws_secret_access_key": "secret",
        "fs.s3a.secret.key": "secret",
        "session_token": "token",
        "aws_session_token": "token",
        "aws_profile": "profile",
        "profile_name": "profile",
        "anonymous": "anon",
        "endpoint": "endpoint_url",
        "aws_endpoint": "endpoint_url",
        "aws_endpoint_url": "endpoint_url",
        "region": "client_kwargs.region_name",
        "aws_region": "client_kwargs.region_name",
        "addressing_style": "config_kwargs.s3",
    }
    more_booleans = frozenset(
        {
            "client_kwargs.use_ssl",
            "config_kwargs.parameter_validation",
            "config_kwargs.use_dualstack_endpoint",
            "config_kwargs.use_fips_endpoint",
        }
    )
    booleans_or_text = frozenset({"client_kwargs.verify"})  # Or the path of a file with certificates.

    def option_names(self) -> frozenset[str]:
        return super().option_names() | {"profile"}

    def nested_options(self) -> Mapping[str, frozenset[str]]:
        client = named_parameters(import_module("botocore.session").Session.create_client)
        config = frozenset(import_module("botocore.config").Config.OPTION_DEFAULTS)
        aio = named_parameters(import_module("aiobotocore.config").AioConfig)
        return {"client_kwargs": client - {"service_name", "config"}, "config_kwargs": config | aio}

    def open(self, options: Mapping[str, Any]) -> Any:
        own_config = options.get("config_kwargs") or {}
        config = {
            "retries": _SEND_ONCE,
            "max_pool_connections": _CONNECTIONS,
            **_session_without_repeats(),
            **own_config,
        }
        arguments = {**options, "config_kwargs": config, "use_listings_cache": False, "skip_instance_cache": True}
        filesystem = fsspec.filesystem("s3", **arguments)
        filesystem.retries = 1  # FsspecStore retries; s3fs would multiply the attempts.
        return filesystem

    def read(self, filesystem: Any, path: str, *, start: int | None = None, end: int | None = None) -> bytes:
        # With more than one thread s3fs asks for the size first.
        return bytes(filesystem.cat_file(path, start=start, end=end, max_concurrency=1))

    def listed(self, filesystem: Any, path: str, *, recursive: bool, start: str = "") -> Iterable[Mapping[str, Any]]:
        # One request for each 1,000 objects. s3fs lists from the first name on, and sends more requests if it finds nothing.
        bucket, _, key = path.partition("/")
        prefix = f"{key}/" if key else ""
        request = {"Bucket": bucket, "Prefix": prefix}
        if not recursive:
            request["Delimiter"] = "/"
        if start:
            request["StartAfter"] = (
                prefix + start[:-1]
            )  # Without the last character: the server leaves out the name itself.
        infos: list[Mapping[str, Any]] = []
        while True:
            page = filesystem.call_s3("list_objects_v2", **request)
            for item in page.get("Contents", ()):
                infos.append({**item, "name": f"{bucket}/{item['Key']}", "size": item["Size"], "type": "file"})
            if not page.get("IsTruncated"):
                return infos
            request["ContinuationToken"] = page["NextContinuationToken"]

    def delete_directory(self, filesystem: Any, path: str) -> None:
        # s3fs removes the slash at the end of the key.
        bucket, _, key = path.partition("/")
        filesystem.call_s3("delete_object", Bucket=bucket, Key=f"{key}/")

    def create(self, filesystem: Any, path: str, data: bytes, *, write_id: str) -> None:
        filesystem.pipe_file(path, data, mode="create", Metadata={WRITE_ID: write_id})

    def sends_once(self, filesystem: Any) -> bool:
        config = filesystem.config_kwargs
        is_own = getattr(config.get("http_session_cls"), "_repeats_nothing", False)
        return is_own and config.get("retries") == _SEND_ONCE

    def write_id(self, filesystem: Any, path: str) -> str | None:
        write_id = filesystem.metadata(path).get(WRITE_ID)
        return None if write_id is None else str(write_id)

    def codes_of(self, error: BaseException) -> tuple[str, ...]:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
            code = str(response.get("Error", {}).get("Code", ""))
            # The answer to HEAD has no body that would give the reason.
            return (_BAD_REQUEST,) if code == "400" else (code, str(status))
        if not type(error).__module__.startswith("botocore"):
            return ()
        # aiohttp refuses headers with control characters, as a key from the environment puts them there.
        refused = isinstance(getattr(error, "kwargs", {}).get("error"), ValueError) and "header" in str(error)
        return (_UNSENDABLE if refused else type(error).__name__,)


@cache
def _session_without_repeats() -> Mapping[str, Any]:
    """The setting of aiobotocore without which aiohttp sends a PUT again, unnoticed, if a connection in use is lost.

    Empty if the installed versions do not have it.
    """
    base, session = import_module("aiobotocore.httpsession").AIOHTTPSession, import_module("aiohttp").ClientSession
    can_be_set = "http_session_cls" in named_parameters(import_module("aiobotocore.config").AioConfig)
    if not can_be_set or not hasattr(base, "_get_session") or "_retry_connection" not in session.ATTRS:
        return {}

    class Session(base):  # type: ignore[misc, valid-type]  # The package is optional.
        _repeats_nothing = True

        async def _get_session(self, proxy_url: str | None) -> Any:
            session = await super()._get_session(proxy_url)
            session._retry_connection = False
            return session

    return {"http_session_cls": Session}
