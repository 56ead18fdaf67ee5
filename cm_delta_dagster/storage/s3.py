"""Amazon S3 and servers with its interface, through s3fs."""

from collections.abc import Mapping
from typing import Any, ClassVar

import fsspec

from cm_delta_dagster.storage.backend import WRITE_ID, Backend, Fault

_SEND_ONCE = {"total_max_attempts": 1}
_CONNECTIONS = 64
"""Requests at a time. With botocore's default of 10, the footers of 1,000 files would take at least 5 s at 50 ms."""


class S3(Backend):
    """``s3://bucket/key``. Without keys in the options botocore's own chain applies: environment, profile, instance role."""

    name = "S3"
    schemes = ("s3", "s3a")
    extra = "s3"
    condition = "If-None-Match: *"
    codes: ClassVar[Mapping[str, Fault]] = {
        "301": Fault.WRONG_REGION,
        "307": Fault.WRONG_REGION,
        "409": Fault.CONFLICT,
        "AccessDenied": Fault.DENIED,
        "AuthorizationHeaderMalformed": Fault.WRONG_REGION,
        "ConditionalRequestConflict": Fault.CONFLICT,
        "ExpiredToken": Fault.EXPIRED,
        "IllegalLocationConstraintException": Fault.WRONG_REGION,
        "InternalError": Fault.TRANSIENT,
        "InvalidAccessKeyId": Fault.WRONG_KEY,
        "InvalidRange": Fault.OUT_OF_RANGE,
        "InvalidToken": Fault.WRONG_KEY,
        "NoSuchBucket": Fault.NO_BUCKET,
        "NoSuchKey": Fault.MISSING,
        "OperationAborted": Fault.CONFLICT,
        "PermanentRedirect": Fault.WRONG_REGION,
        "PreconditionFailed": Fault.EXISTS,
        "RequestTimeout": Fault.TRANSIENT,
        "ServiceUnavailable": Fault.THROTTLED,
        "SignatureDoesNotMatch": Fault.WRONG_KEY,
        "SlowDown": Fault.THROTTLED,
        "Throttling": Fault.THROTTLED,
        "TokenRefreshRequired": Fault.EXPIRED,
        "XAmzContentSHA256Mismatch": Fault.TRANSIENT,
        # Of botocore itself.
        "NoCredentialsError": Fault.WRONG_KEY,
        "PartialCredentialsError": Fault.WRONG_KEY,
        "CredentialRetrievalError": Fault.WRONG_KEY,
        "TokenRetrievalError": Fault.EXPIRED,
    }

    def open(self, options: Mapping[str, Any]) -> Any:
        config = {"retries": _SEND_ONCE, "max_pool_connections": _CONNECTIONS, **(options.get("config_kwargs") or {})}
        given = {**options, "config_kwargs": config, "use_listings_cache": False, "skip_instance_cache": True}
        filesystem = fsspec.filesystem("s3", **given)
        filesystem.retries = 1  # FsspecStore retries; s3fs would multiply the attempts.
        return filesystem

    def read(self, filesystem: Any, path: str, *, start: int | None = None, end: int | None = None) -> bytes:
        # With more than one thread s3fs asks for the size first.
        return bytes(filesystem.cat_file(path, start=start, end=end, max_concurrency=1))

    def create(self, filesystem: Any, path: str, data: bytes, *, write_id: str) -> None:
        filesystem.pipe_file(path, data, mode="create", Metadata={WRITE_ID: write_id})

    def write_id(self, filesystem: Any, path: str) -> str | None:
        found = filesystem.metadata(path).get(WRITE_ID)
        return None if found is None else str(found)

    def codes_of(self, error: BaseException) -> tuple[str, ...]:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
            return str(response.get("Error", {}).get("Code", "")), str(status)
        return (type(error).__name__,) if type(error).__module__.startswith("botocore") else ()
