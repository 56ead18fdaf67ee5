"""From the options of an fsspec file system to the settings of Hadoop's file system for the same place.

Catalog and log keep the location that the user gave (``s3://bucket/path``); Spark gets the same place under the scheme of its own
file system (``s3a://bucket/path``). Pure functions, without Spark. Settings hold credentials and are never shown.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cm_delta_dagster.errors import InvalidArgumentError, StoreNotSupportedError
from cm_delta_dagster.protocol.actions.paths import OBJECT_STORE_SCHEMES

_S3A = "org.apache.hadoop.fs.s3a"
_KEYS = f"{_S3A}.SimpleAWSCredentialsProvider"
_SESSION_KEYS = f"{_S3A}.TemporaryAWSCredentialsProvider"
_ANONYMOUS = f"{_S3A}.AnonymousAWSCredentialsProvider"
_PROFILE = f"{_S3A}.auth.ProfileAWSCredentialsProvider"
ENVIRONMENT_CHAIN = f"{_SESSION_KEYS},{_KEYS},software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
"""Keys in Hadoop's settings, then the chain of the AWS SDK: environment, web identity, profile, container, instance."""

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}|(?:{_LABEL}\.)+(?=[A-Za-z]){_LABEL}")
"""What ``java.net.URI`` takes for a host, but for addresses."""
_AWS_HOST = re.compile(r"\.amazonaws\.com(\.cn)?(:\d+)?/?$")
_AZURE_HOST = "dfs.core.windows.net"
_ACCOUNT_IN_TEXT = re.compile(r"(?:^|;)\s*(AccountName|AccountKey)=([^;]+)")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HadoopOptions:
    """How Hadoop's file systems reach one table.

    Attributes:
        prefix: the start of locations in the catalog, e.g. ``s3://``.
        spark_prefix: the start of the same locations in Spark, e.g. ``s3a://``.
        settings: Hadoop settings by name; values may be secret.
    """

    prefix: str
    spark_prefix: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"HadoopOptions({self.prefix!r} -> {self.spark_prefix!r}, settings {sorted(self.settings)})"


def hadoop_options(location: str, options: Mapping[str, Any], *, scheme: str | None = None) -> HadoopOptions | None:
    """How Spark reaches ``location``; None for a location that is not in an object store.

    Args:
        options: of the fsspec file system, in its words.
        scheme: the scheme to use in Spark instead of ``s3a``, ``abfss`` or ``gs``.

    Raises:
        InvalidArgumentError: the options contradict each other, or Hadoop has no setting for them.
    """
    written_scheme, _, rest = location.partition("://")
    authority = rest.partition("/")[0]
    match OBJECT_STORE_SCHEMES.get(written_scheme.lower()):
        case "s3":
            settings = dict(_s3(authority, options))
            return HadoopOptions(prefix="s3://", spark_prefix=f"{scheme or 's3a'}://", settings=settings)
        case "az":
            container, account = _azure_account(authority, options)
            own = scheme or ("abfs" if written_scheme.lower() == "abfs" else "abfss")
            return HadoopOptions(
                prefix=f"{written_scheme}://{authority}/",
                spark_prefix=f"{own}://{container}@{account}/",
                settings=dict(_azure(account, options)),
            )
        case "gs":
            return HadoopOptions(
                prefix=f"{written_scheme}://", spark_prefix=f"{scheme or 'gs'}://", settings=dict(_google(options))
            )
    return None


def check_bucket(location: str, places: HadoopOptions) -> None:
    """Raise StoreNotSupportedError for a bucket that S3A cannot have: S3A reads its name from the host of a Java URI."""
    bucket = location.partition("://")[2].partition("/")[0]
    if places.spark_prefix == "s3a://" and not _HOST.fullmatch(bucket):
        raise StoreNotSupportedError(
            f"Spark cannot reach the bucket {bucket!r}, so that it can neither read nor write rows there. Nothing was written. "
            "S3A, Hadoop's client of S3, takes the name of the bucket for the name of a host, which has letters, digits, hyphens "
            "and dots only, and after a dot a letter. Put the tables into a bucket with such a name. Without Spark the bucket "
            "can be used: Arrow, DuckDB, polars and the command line read its tables."
        )


def spark_location(location: str, places: HadoopOptions) -> str:
    """The location as Spark opens it; a location of another store is returned as it is."""
    written_scheme, separator, rest = location.partition("://")
    if separator and places.prefix == "s3://" and OBJECT_STORE_SCHEMES.get(written_scheme.lower()) == "s3":
        return places.spark_prefix + rest
    if location.startswith(places.prefix):
        return places.spark_prefix + location[len(places.prefix) :]
    # The root of an Azure container, without a slash.
    return places.spark_prefix.rstrip("/") if location == places.prefix.rstrip("/") else location


def _s3(bucket: str, options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not bucket:
        raise InvalidArgumentError("The location names no bucket; write it as s3://bucket/path.")
    client = _mapping(options, "client_kwargs")
    prefix = f"fs.s3a.bucket.{bucket}."
    yield from ((prefix + name, value) for name, value in _s3_credentials(options, client))
    endpoint = options.get("endpoint_url") or client.get("endpoint_url")
    region = client.get("region_name")
    if endpoint:
        own_server = _AWS_HOST.search(str(endpoint)) is None
        style = _mapping(_mapping(options, "config_kwargs"), "s3").get("addressing_style", "auto")
        yield f"{prefix}endpoint", str(endpoint)
        yield f"{prefix}connection.ssl.enabled", str(str(endpoint).lower().startswith("https")).lower()
        # botocore's rules: another server is addressed by path unless the options say otherwise.
        yield f"{prefix}path.style.access", str(own_server if style == "auto" else style == "path").lower()
        region = region or ("us-east-1" if own_server else None)
    elif options.get("use_ssl") is False:
        yield f"{prefix}connection.ssl.enabled", "false"
    if region:
        yield f"{prefix}endpoint.region", str(region)
    if options.get("requester_pays"):
        yield f"{prefix}requester.pays.enabled", "true"
    yield from ((prefix + name, value) for name, value in _s3_encryption(_mapping(options, "s3_additional_kwargs")))


def _s3_credentials(options: Mapping[str, Any], client: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    key = options.get("key") or options.get("username") or client.get("aws_access_key_id")
    secret = options.get("secret") or options.get("password") or client.get("aws_secret_access_key")
    token = options.get("token") or client.get("aws_session_token")
    if options.get("anon"):
        yield "aws.credentials.provider", _ANONYMOUS
    elif key and secret:
        yield "access.key", str(key)
        yield "secret.key", str(secret)
        if token:
            yield "session.token", str(token)
        yield "aws.credentials.provider", _SESSION_KEYS if token else _KEYS
    elif key or secret or token:
        raise InvalidArgumentError(
            "The storage options have only a part of the credentials: give both key and secret, and a token only with them, or "
            "none of the three, so that the environment's own credentials are used."
        )
    elif options.get("profile"):
        yield "auth.profile.name", str(options["profile"])
        yield "aws.credentials.provider", _PROFILE


def _s3_encryption(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind = parameters.get("ServerSideEncryption")
    if kind is None:
        return
    known = {"AES256": "SSE-S3", "aws:kms": "SSE-KMS", "aws:kms:dsse": "DSSE-KMS"}
    if kind not in known:
        raise InvalidArgumentError(
            f"Spark has no setting for ServerSideEncryption={kind!r}; it knows {', '.join(known)}. Use one of them, or let the "
            "bucket encrypt by default."
        )
    yield "encryption.algorithm", known[kind]
    if parameters.get("SSEKMSKeyId"):
        yield "encryption.key", str(parameters["SSEKMSKeyId"])


def _azure_account(authority: str, options: Mapping[str, Any]) -> tuple[str, str]:
    """Container, and host of the account."""
    container, at, host = authority.partition("@")
    if at:
        return container, host if "." in host else f"{host}.{_AZURE_HOST}"
    name = options.get("account_name") or _connection_string(options).get("AccountName")
    if not name:
        raise InvalidArgumentError(
            f"The location of the container {container!r} names no storage account, which Spark needs: write it as "
            f"abfss://{container}@ACCOUNT.{_AZURE_HOST}/path, or give the storage option account_name."
        )
    return container, f"{name}.{_AZURE_HOST}"


def _azure(host: str, options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    key = options.get("account_key") or _connection_string(options).get("AccountKey")
    client = [options.get(name) for name in ("client_id", "client_secret", "tenant_id")]
    auth = f"fs.azure.account.auth.type.{host}"
    oauth = "fs.azure.account.oauth2.client"
    if key:
        yield auth, "SharedKey"
        yield f"fs.azure.account.key.{host}", str(key)
    elif options.get("sas_token"):
        yield auth, "SAS"
        yield f"fs.azure.sas.fixed.token.{host}", str(options["sas_token"]).removeprefix("?")
    elif all(client):
        yield auth, "OAuth"
        yield (
            f"fs.azure.account.oauth.provider.type.{host}",
            "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
        )
        yield f"{oauth}.id.{host}", str(client[0])
        yield f"{oauth}.secret.{host}", str(client[1])
        yield f"{oauth}.endpoint.{host}", f"https://login.microsoftonline.com/{client[2]}/oauth2/token"
    elif any(client):
        raise InvalidArgumentError(
            "The storage options have only a part of a service principal: give client_id, client_secret and tenant_id."
        )


def _connection_string(options: Mapping[str, Any]) -> dict[str, str]:
    return dict(_ACCOUNT_IN_TEXT.findall(str(options.get("connection_string") or "")))


def _google(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if options.get("project"):
        yield "fs.gs.project.id", str(options["project"])
    if options.get("endpoint_url"):
        yield "fs.gs.storage.root.url", str(options["endpoint_url"])
    match options.get("token"):
        case None:
            return
        case "anon":
            yield "fs.gs.auth.type", "UNAUTHENTICATED"
        case "google_default":
            yield "fs.gs.auth.type", "APPLICATION_DEFAULT"
        case "cloud":
            yield "fs.gs.auth.type", "COMPUTE_ENGINE"
        case str(path) if path.endswith(".json"):
            yield "fs.gs.auth.type", "SERVICE_ACCOUNT_JSON_KEYFILE"
            yield "fs.gs.auth.service.account.json.keyfile", path
        case _:
            raise InvalidArgumentError(
                "Spark has no setting for this kind of the storage option token. Give the path of a service account's JSON file, "
                "which the executors can read too, or one of google_default, cloud and anon."
            )


def _mapping(options: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = options.get(name)
    return value if isinstance(value, Mapping) else {}
