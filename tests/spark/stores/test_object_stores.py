"""What Spark gets to reach object stores, and the errors of a session that cannot."""

from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster import connect
from cm_delta_dagster.errors import InvalidArgumentError, StorageError, StoreNotSupportedError
from cm_delta_dagster.spark.read.file_values import spark_file_key, spark_file_path
from cm_delta_dagster.spark.session.errors import mapped
from cm_delta_dagster.spark.stores.hadoop_options import (
    HadoopOptions,
    check_bucket,
    hadoop_options,
    spark_location,
)
from cm_delta_dagster.spark.stores.object_stores import SparkStorage, other_place

ACCOUNT = "acc.dfs.core.windows.net"


def places(location: str, options: dict[str, Any] | None = None, scheme: str | None = None) -> HadoopOptions:
    found = hadoop_options(location, options or {}, scheme=scheme)
    assert found is not None
    return found


def s3(options: dict[str, Any]) -> dict[str, str]:
    """Settings without the prefix of the bucket."""
    settings = places("s3://bkt/t", options).settings
    assert all(name.startswith("fs.s3a.bucket.bkt.") for name in settings)
    return {name.removeprefix("fs.s3a.bucket.bkt."): value for name, value in settings.items()}


@pytest.mark.parametrize(
    ("location", "in_spark"),
    [
        ("s3://bkt/a b/%20/ü", "s3a://bkt/a b/%20/ü"),
        ("s3a://bkt/t", "s3a://bkt/t"),
        ("gs://bkt/t", "gs://bkt/t"),
        ("gcs://bkt/t", "gs://bkt/t"),
        (f"abfss://c@{ACCOUNT}/t", f"abfss://c@{ACCOUNT}/t"),
        (f"abfs://c@{ACCOUNT}/t", f"abfs://c@{ACCOUNT}/t"),
        ("az://c/t", f"abfss://c@{ACCOUNT}/t"),
        ("az://c", f"abfss://c@{ACCOUNT}"),
    ],
)
def test_spark_gets_the_scheme_of_its_own_file_system(location: str, in_spark: str) -> None:
    found = places(location, {"account_name": "acc"})
    assert spark_location(location, found) == in_spark


@pytest.mark.parametrize(
    "bucket", ["my_bucket", "my-bucket", "a.b", "a.2024", "2024", "1a", "a.b_c", "a-.b", "MyBucket", "a..b"]
)
def test_a_bucket_whose_name_is_not_a_host_for_java_is_refused(bucket: str, spark: SparkSession) -> None:
    """S3A reads the name of the bucket from the host of the URI, of which Java's own parser is asked here."""
    jvm: Any = spark._jvm
    try:
        is_host = jvm.java.net.URI(f"s3a://{bucket}/x").getHost() == bucket
    except Py4JError:
        is_host = False
    if is_host:
        check_bucket(f"s3://{bucket}/x", places(f"s3://{bucket}/x"))
    else:
        with pytest.raises(StoreNotSupportedError, match="Spark cannot reach the bucket"):
            check_bucket(f"s3://{bucket}/x", places(f"s3://{bucket}/x"))
    check_bucket(f"s3://{bucket}/x", places(f"s3://{bucket}/x", scheme="s3"))


def test_the_scheme_can_be_chosen() -> None:
    found = places("s3://bkt/t", scheme="s3")
    assert spark_location("s3a://bkt/t/f", found) == "s3://bkt/t/f"


@pytest.mark.parametrize("location", ["file:///x", "/x", "memory://x/y", "hdfs://n/x"])
def test_other_locations_need_nothing(location: str) -> None:
    assert hadoop_options(location, {}) is None
    assert SparkStorage().location(location) == location


def test_files_have_one_key_whatever_the_scheme() -> None:
    assert spark_file_path("s3a://bkt/a b/f") == spark_file_path("s3://bkt/a b/f") == "s3://bkt/a%20b/f"
    assert spark_file_key("s3://bkt/a%20b/f") == "s3://bkt/a b/f"


def test_keys_of_s3() -> None:
    provider = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
    expected = {"access.key": "k", "secret.key": "s", "aws.credentials.provider": provider}
    assert s3({"key": "k", "secret": "s"}) == expected
    assert s3({"client_kwargs": {"aws_access_key_id": "k", "aws_secret_access_key": "s"}}) == expected
    short_lived = s3({"key": "k", "secret": "s", "token": "t"})
    assert short_lived["session.token"] == "t"
    assert short_lived["aws.credentials.provider"].endswith("TemporaryAWSCredentialsProvider")
    assert s3({"anon": True})["aws.credentials.provider"].endswith("AnonymousAWSCredentialsProvider")
    assert s3({"profile": "dev"})["auth.profile.name"] == "dev"
    assert s3({}) == {}


def test_endpoints_of_s3() -> None:
    own = {
        "endpoint": "http://minio:9000",
        "connection.ssl.enabled": "false",
        "path.style.access": "true",
        "endpoint.region": "us-east-1",
    }
    assert s3({"endpoint_url": "http://minio:9000"}) == own
    assert s3({"client_kwargs": {"endpoint_url": "http://minio:9000"}}) == own
    aws = s3({"endpoint_url": "https://s3.eu-west-1.amazonaws.com", "client_kwargs": {"region_name": "eu-west-1"}})
    assert aws["path.style.access"] == "false" and aws["endpoint.region"] == "eu-west-1"
    virtual = {"endpoint_url": "https://x.example", "config_kwargs": {"s3": {"addressing_style": "virtual"}}}
    assert s3(virtual)["path.style.access"] == "false"


def test_encryption_and_payment_of_s3() -> None:
    encrypted = {"s3_additional_kwargs": {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "id"}}
    assert s3(encrypted) == {"encryption.algorithm": "SSE-KMS", "encryption.key": "id"}
    assert s3({"requester_pays": True}) == {"requester.pays.enabled": "true"}


def test_credentials_of_azure() -> None:
    location = f"abfss://c@{ACCOUNT}/t"
    assert places(location, {"account_key": "k"}).settings == {
        f"fs.azure.account.auth.type.{ACCOUNT}": "SharedKey",
        f"fs.azure.account.key.{ACCOUNT}": "k",
    }
    text = "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a+b==;EndpointSuffix=core.windows.net"
    assert places("az://c/t", {"connection_string": text}).settings[f"fs.azure.account.key.{ACCOUNT}"] == "a+b=="
    assert places(location, {"sas_token": "?sv=1"}).settings[f"fs.azure.sas.fixed.token.{ACCOUNT}"] == "sv=1"
    client = places(location, {"client_id": "i", "client_secret": "s", "tenant_id": "t"}).settings
    assert client[f"fs.azure.account.oauth2.client.secret.{ACCOUNT}"] == "s"


def test_credentials_of_google() -> None:
    found = places("gs://bkt/t", {"project": "p", "token": "/keys/a.json"}).settings
    assert found == {
        "fs.gs.project.id": "p",
        "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
        "fs.gs.auth.service.account.json.keyfile": "/keys/a.json",
    }


@pytest.mark.parametrize(
    ("location", "options"),
    [
        ("s3://bkt/t", {"key": "k"}),
        ("s3://bkt/t", {"token": "t"}),
        ("s3:///t", {}),
        ("s3://bkt/t", {"s3_additional_kwargs": {"ServerSideEncryption": "rot13"}}),
        ("az://c/t", {}),
        (f"abfss://c@{ACCOUNT}/t", {"client_id": "i"}),
        ("gs://bkt/t", {"token": {"private_key": "x"}}),
    ],
)
def test_options_that_spark_cannot_have_are_refused(location: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        hadoop_options(location, options)


def test_settings_are_not_in_the_representation() -> None:
    found = places("s3://bkt/t", {"key": "visible", "secret": "hidden"})
    storage = SparkStorage(places=found, read_options=found.settings, write_options=found.settings)
    assert not any(text in repr(found) + repr(storage) for text in ("visible", "hidden"))


def test_files_in_another_bucket_are_read_with_the_same_options() -> None:
    options = {"key": "k", "secret": "s"}
    found = places("s3://bkt/t", options)
    storage = SparkStorage(places=found, root="s3://bkt", store_options=options, read_options=found.settings)
    assert storage.options_for(pa.array(["s3://bkt/t/f"])) == found.settings
    both = storage.options_for(pa.array(["s3://bkt/t/f", "s3a://other/f"]))
    assert both["fs.s3a.bucket.other.secret.key"] == both["fs.s3a.bucket.bkt.secret.key"] == "s"


def test_the_error_of_a_session_without_jars_names_them(spark: SparkSession, tmp_path: Path, s3_endpoint: str) -> None:
    options = {"key": "k", "secret": "s", "endpoint_url": s3_endpoint}
    fsspec.filesystem("s3", **options, skip_instance_cache=True).mkdir("spark-jars")
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    with (
        connect(catalog, warehouse="s3://spark-jars/w", storage_options=options, spark=spark) as lake,
        pytest.raises(StoreNotSupportedError) as raised,
    ):
        lake.create_table_as("main.sales.orders", spark.range(3))
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    hadoop = jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    message = str(raised.value)
    assert f"org.apache.hadoop:hadoop-aws:{hadoop}" in message
    assert "spark.jars.packages" in message and "cm-delta spark-jars" in message


def test_a_bucket_with_an_underscore_can_be_used_without_spark(
    spark: SparkSession, tmp_path: Path, s3_endpoint: str
) -> None:
    options = {"key": "k", "secret": "s", "endpoint_url": s3_endpoint}
    fsspec.filesystem("s3", **options, skip_instance_cache=True).mkdir("under_score")
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    with connect(catalog, warehouse="s3://under_score/w", storage_options=options, spark=spark) as lake:
        table = lake.create_table("main.sales.orders", pa.schema([("id", pa.int64())]))
        assert table.version() == 0 and table.to_arrow().num_rows == 0
        with pytest.raises(StoreNotSupportedError, match="Spark cannot reach the bucket 'under_score'"):
            table.append(spark.range(3))
        assert table.version() == 0


@pytest.mark.parametrize(
    ("java", "message"),
    [
        (
            "org.apache.hadoop.fs.s3a.AWSRedirectException: Received permanent redirect response to region eu-west-1.",
            "region",
        ),
        (
            "java.nio.file.AccessDeniedException: b: The provided token has expired. (Status Code: 403):ExpiredToken",
            "expired",
        ),
        (
            "java.nio.file.AccessDeniedException: b: No such key (Status Code: 403):InvalidAccessKeyId",
            "does not accept",
        ),
        (
            "org.apache.hadoop.fs.s3a.auth.NoAuthWithAWSException: No AWS Credentials provided by EnvironmentVariableProvider",
            "Spark has no credentials for the store",
        ),
        ("java.nio.file.AccessDeniedException: b: (Status Code: 403):RequestTimeTooSkewed", "Set the clocks"),
        ("org.apache.hadoop.fs.s3a.AWSServiceIOException: b: (Status Code: 507): XMinioStorageFull", "Free space"),
        ("org.apache.hadoop.fs.s3a.AWSBadRequestException: b: (Service: S3, Status Code: 405)", "Check the endpoint"),
        ("java.nio.file.AccessDeniedException: b: FORBIDDEN (Service: S3, Status Code: 403)", "permissions"),
        ("org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://b/': Bucket does not exist", "found no bucket"),
    ],
)
def test_a_refusal_of_the_store_says_what_to_do(java: str, message: str) -> None:
    found = mapped(
        Py4JError(f"An error occurred while calling o1.parquet.\n: {java}\n\tat org.apache.X"), "writing rows"
    )
    assert type(found) is StorageError and message in str(found) and "\n" not in str(found)


def stored(files: Any) -> list[str]:
    """All objects but version checksums, which are written in the background."""
    return [name for name in files.find("spark-no-jars") if not name.endswith(".crc")]


def test_a_session_without_jars_computes_and_writes_nothing(
    spark: SparkSession, tmp_path: Path, s3_endpoint: str
) -> None:
    options = {"key": "k", "secret": "s", "endpoint_url": s3_endpoint}
    files = fsspec.filesystem("s3", **options, skip_instance_cache=True, use_listings_cache=False)
    files.mkdir("spark-no-jars")
    rows = spark.range(3).select("id", F.raise_error(F.lit("the rows were computed")).cast("string").alias("name"))
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    with connect(catalog, warehouse="s3://spark-no-jars/w", storage_options=options, spark=spark) as lake:
        table = lake.create_table("main.sales.orders", pa.schema([("id", pa.int64()), ("name", pa.string())]))
        before = stored(files)
        for act in (
            lambda: lake.create_table_as("main.sales.other", rows),
            lambda: table.append(rows),
            lambda: table.overwrite(rows),
            lambda: table.upsert(rows, on=["id"]),
        ):
            with pytest.raises(StoreNotSupportedError, match="no file system for s3a"):
                act()
        assert stored(files) == before and lake.tables() == ("main.sales.orders",)


def test_files_that_spark_reported_and_the_log_does_not_find_have_two_possible_causes() -> None:
    message = str(other_place("s3://b/t/x"))
    assert "reach different servers" in message and "another program has deleted the files" in message
