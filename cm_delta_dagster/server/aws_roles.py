"""Keys of a role of AWS that permit nothing but the files of one table: AssumeRole with a session policy.

The keys have what the role and the policy both permit.
"""

import json
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

from cm_delta_dagster.catalog.storage_credentials import FileAccess
from cm_delta_dagster.errors import StorageError
from cm_delta_dagster.protocol.actions.paths import canonical_location

_SESSION = "cm-delta"
_READ = ("s3:GetObject",)
_WRITE = (*_READ, "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedRole:
    """A role, and how the server assumes it.

    Attributes:
        endpoint: URL of the Security Token Service; None for that of the region.
        access_key_id: of the server; None for the keys of its environment.
    """

    arn: str
    duration_seconds: int
    external_id: str | None = field(default=None, repr=False)
    region: str | None = None
    endpoint: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryKeys:
    """Keys that expire.

    Attributes:
        expires_ms: epoch milliseconds.
    """

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False)
    expires_ms: int


def temporary_keys(role: AssumedRole, location: str, access: FileAccess) -> TemporaryKeys:
    """Keys for the files below a location of S3.

    Raises:
        StorageError: the service gave none, or botocore is not installed.
    """
    partition = role.arn.split(":")[1]
    arguments: dict[str, Any] = {
        "RoleArn": role.arn,
        "RoleSessionName": _SESSION,
        "Policy": session_policy(location, access, partition=partition),
        "DurationSeconds": role.duration_seconds,
    }
    if role.external_id is not None:
        arguments["ExternalId"] = role.external_id
    try:
        issued = _client(role).assume_role(**arguments)["Credentials"]
    except Exception as error:  # Of botocore, which has no common class; its text may have what the server sent.
        code = getattr(error, "response", {}).get("Error", {}).get("Code", type(error).__name__)
        raise StorageError(
            f"The role {role.arn} gave no credentials for {location}: {code}. Check the setting storage_credentials of the "
            "server, its own credentials, and the trust policy of the role."
        ) from None
    return TemporaryKeys(
        access_key_id=issued["AccessKeyId"],
        secret_access_key=issued["SecretAccessKey"],
        session_token=issued["SessionToken"],
        expires_ms=int(issued["Expiration"].timestamp() * 1000),
    )


def session_policy(location: str, access: FileAccess, *, partition: str) -> str:
    """The policy that permits the files below a location of S3, and to list them, as JSON of ASCII characters."""
    bucket, _, key = canonical_location(location).partition("://")[2].partition("/")
    path = _literal(key)
    resource = f"arn:{partition}:s3:::{bucket}"
    statements = [
        {
            "Effect": "Allow",
            "Action": list(_READ if access is FileAccess.READ else _WRITE),
            "Resource": f"{resource}/{path}/*",
        },
        {
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": resource,
            "Condition": {"StringLike": {"s3:prefix": [path, f"{path}/*"]}},
        },
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))


def _literal(text: str) -> str:
    """A text as policies write it, in which some characters stand for any text or begin a variable."""
    return "".join(f"${{{character}}}" if character in "*?$" else character for character in text)


@cache
def _client(role: AssumedRole) -> Any:
    """The client of the service, which is thread-safe."""
    session = import_module("botocore.session").get_session()
    return session.create_client(
        "sts",
        region_name=role.region,
        endpoint_url=role.endpoint,
        aws_access_key_id=role.access_key_id,
        aws_secret_access_key=role.secret_access_key,
    )
