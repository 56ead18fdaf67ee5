"""Values of storage options: texts of true and false are decoded, unusable values are refused before the first request."""

from typing import Any

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.spark.stores.hadoop_options import hadoop_options
from cm_delta_dagster.storage.fsspec_store import FsspecStore

SECRET = "wJalrXUtnFEMI"
PACKAGES = {"s3": "s3fs", "abfss": "adlfs", "gs": "gcsfs"}


def store(scheme: str, options: dict[str, Any]) -> FsspecStore:
    pytest.importorskip(PACKAGES[scheme])
    return FsspecStore(scheme, options=options)


@pytest.mark.parametrize(
    "given", ["true", "TRUE", " yes", "1", 1, "on", True, "false", "False", "no ", "0", 0, "off", False, None]
)
def test_texts_of_true_and_false_are_decoded(given: object) -> None:
    decoded = None if given is None else str(given).strip().lower() in ("true", "yes", "1", "on")
    found = store("s3", {"anon": given, "key": "k", "secret": "s"})
    assert found.options["anon"] is decoded and found._filesystem.anon is decoded
    in_spark = hadoop_options("s3://b/t", found.options)
    assert in_spark is not None
    assert ("Anonymous" in in_spark.settings["fs.s3a.bucket.b.aws.credentials.provider"]) is bool(decoded)


def test_each_store_has_its_booleans() -> None:
    s3 = store("s3", {"use_ssl": "no", "client_kwargs": {"verify": "false", "use_ssl": "1"}, "requester_pays": "true"})
    assert s3.options["use_ssl"] is False and s3.options["client_kwargs"] == {"verify": False, "use_ssl": True}
    assert s3.options["requester_pays"] is True
    path = "/etc/ssl/own.pem"
    assert store("s3", {"client_kwargs": {"verify": path}}).options["client_kwargs"] == {"verify": path}
    azure = store("abfss", {"account_name": "a", "anon": "true", "default_fill_cache": "false"})
    assert azure.options["anon"] is True and azure.options["default_fill_cache"] is False
    google = store("gs", {"token": "anon", "requester_pays": "project-that-pays", "version_aware": "false"})
    assert google.options["requester_pays"] == "project-that-pays" and google.options["version_aware"] is False
    assert store("gs", {"token": "anon", "requester_pays": "false"}).options["requester_pays"] is False


@pytest.mark.parametrize(
    ("scheme", "options", "message"),
    [
        ("s3", {"anon": SECRET}, "The storage option anon is neither true nor false. Give true or false"),
        ("s3", {"use_ssl": ""}, "use_ssl is neither true nor false"),
        ("s3", {"anon": 2}, "anon is neither true nor false"),
        ("s3", {"anon": ["true"]}, "anon is neither true nor false"),
        ("s3", {"client_kwargs": {"use_ssl": SECRET}}, "client_kwargs.use_ssl is neither true nor false"),
        ("abfss", {"account_name": "a", "anon": SECRET}, "anon is neither true nor false"),
        ("s3", {"key": "k", "secret": f"{SECRET}\n"}, "secret has a line break or another control character"),
        ("s3", {"key": f"{SECRET}\r\n"}, "key has a line break"),
        (
            "s3",
            {"client_kwargs": {"aws_secret_access_key": f"{SECRET}\x00"}},
            "client_kwargs.aws_secret_access_key has",
        ),
        ("abfss", {"connection_string": f"AccountKey={SECRET}\n"}, "connection_string has a line break"),
        ("gs", {"token": f"{SECRET}\n"}, "token has a line break"),
        (
            "s3",
            {"endpoint_url": "localhost:9000"},
            "endpoint_url is 'localhost:9000', which does not begin with http://",
        ),
        ("s3", {"client_kwargs": {"endpoint_url": "minio:9000"}}, "client_kwargs.endpoint_url is 'minio:9000'"),
        ("s3", {"endpoint_url": f"me:{SECRET}@host:9000"}, "endpoint_url has an '@'"),
        ("s3", {"endpoint_url": "ftp://host"}, "endpoint_url is 'ftp://host'"),
        ("s3", {"endpoint_url": f"http://key:{SECRET}@host"}, "Give only the address of the server"),
        ("s3", {"endpoint_url": f"ftp://host/{SECRET}"}, "endpoint_url does not begin with http:// or https://"),
        ("s3", {"key": 5}, "key is of type int. Give a text."),
        ("s3", {"client_kwargs": {"endpoint_url": 5}}, "client_kwargs.endpoint_url is of type int"),
        ("s3", {"endpoint_url": "http:///path"}, "Give the whole address"),
        ("gs", {"token": "anon", "endpoint_url": "localhost:4443"}, "http://localhost:9000 for a server without TLS"),
    ],
)
def test_an_unusable_value_is_refused_without_showing_it(scheme: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        store(scheme, options)
    assert message in str(raised.value) and SECRET not in str(raised.value)


def test_a_key_of_a_service_account_has_lines() -> None:
    """``{"token": {...}}`` has the content of the JSON file; gcsfs reads it, and reports a key that it cannot read."""
    options = {"token": {"type": "service_account", "private_key": f"-----BEGIN\n{SECRET}\n"}}
    with pytest.raises(Exception) as raised:
        store("gs", options)
    assert "control character" not in str(raised.value)
