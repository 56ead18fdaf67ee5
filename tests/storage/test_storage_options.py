"""What a user says about object stores, and that nothing shows the secrets in it."""

import pickle

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.storage.storage_options import StorageOptions, is_secret, redacted, without_secrets
from cm_delta_dagster.storage.stores import Stores

SECRETS = {
    "key": "AKIAIOSFODNN7EXAMPLE",
    "secret": "wJalrXUtnFEMI",
    "client_kwargs": {"aws_session_token": "FwoGZXIvYXdzEBYaD", "endpoint_url": "http://host"},
}
TEXTS = ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI", "FwoGZXIvYXdzEBYaD")


def test_flat_options_apply_to_all_buckets_of_the_warehouses_store() -> None:
    options = StorageOptions.of(SECRETS, warehouse="s3a://bucket/w")
    for location in ("s3://bucket/w/x", "s3a://another/x", "S3://bucket"):
        assert options.for_location(location) == SECRETS
    for location in ("gs://bucket/x", "/bucket", "file:///x", "abfss://c@a.dfs.core.windows.net/x"):
        assert options.for_location(location) == {}


def test_flat_options_apply_to_one_account_of_azure() -> None:
    options = StorageOptions.of({"account_key": "abcd"}, warehouse="abfss://c@mine.dfs.core.windows.net/w")
    assert options.for_location("az://other@mine.blob.core.windows.net/x") == {"account_key": "abcd"}
    assert options.for_location("abfss://c@theirs.dfs.core.windows.net/x") == {}
    assert StorageOptions.of({"a": 1}, warehouse="az://c/w").for_location("abfs://d/x") == {"a": 1}


def test_the_longest_prefix_decides() -> None:
    options = StorageOptions.of(
        {
            "s3://": {"key": "1"},
            "s3a://bucket/": {"key": "2"},
            "s3://bucket/deep": {"key": "3"},
            "gcs://b": {"token": "t"},
        },
        warehouse="/data",
    )
    found = {place: options.for_location(place).get("key") for place in ("s3://a", "s3://bucket2/x", "s3://bucket")}
    assert found == {"s3://a": "1", "s3://bucket2/x": "1", "s3://bucket": "2"}
    assert options.for_location("s3a://bucket/deep/x")["key"] == "3"
    assert options.for_location("s3://bucket/deeper")["key"] == "2"
    assert options.for_location("gs://b/x") == {"token": "t"}


@pytest.mark.parametrize(
    ("options", "warehouse", "message"),
    [
        ({"s3://b": {"key": "wJalrXUtnFEMI"}, "secret": "wJalrXUtnFEMI"}, "s3://b/w", "mixes prefixes"),
        ({"s3://b": "wJalrXUtnFEMI"}, "s3://b/w", "mixes prefixes"),
        ({"s3://b": {}, "s3a://b/": {}}, "s3://b/w", "one store twice"),
        ({"key": "wJalrXUtnFEMI"}, "/data/warehouse", "takes no options"),
        ({"key": "wJalrXUtnFEMI"}, "file:///data", "takes no options"),
        (["key"], "s3://b/w", "is of type list"),
    ],
)
def test_contradicting_options_are_refused_without_showing_values(
    options: object, warehouse: str, message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as raised:
        StorageOptions.of(options, warehouse=warehouse)  # type: ignore[arg-type]
    assert "wJalr" not in str(raised.value)


def test_no_options_are_none() -> None:
    assert StorageOptions.of(None, warehouse="/x") == StorageOptions.of({}, warehouse="s3://b") == StorageOptions()


def test_secrets_are_not_shown() -> None:
    pytest.importorskip("s3fs")
    options = StorageOptions.of(SECRETS, warehouse="s3://b/w")
    stores = Stores(storage_options=options)
    store = stores.store_for("s3://b/w")
    for shown in (options, stores, store, pickle.loads(pickle.dumps(store)), pickle.loads(pickle.dumps(options))):
        for text in (repr(shown), str(shown), f"{shown}"):
            assert not any(secret in text for secret in TEXTS)
    assert pickle.loads(pickle.dumps(options)) == options
    assert "endpoint_url" in repr(options)


def test_names_of_secrets_and_the_text_of_their_values() -> None:
    names = ("key", "secret", "token", "password", "sas_token", "account_key", "connection_string", "credential")
    assert all(map(is_secret, (*names, "aws_secret_access_key", "fs.azure.account.key.a", "client_secret")))
    assert not any(map(is_secret, ("endpoint_url", "region_name", "anon", "account_name", "use_ssl", "project")))
    assert redacted({"token": {"private": "x"}, "region": ["http://u:p@h"], "project": object()}) == {
        "token": "***",
        "region": ["http://***@h"],
        "project": "<object>",
    }
    text = "key AKIAIOSFODNN7EXAMPLE of http://user:passw0rd@host refused, anon"
    assert without_secrets(text, {**SECRETS, "token": "anon"}) == "key *** of http://***@host refused, anon"


UNKNOWN = {
    "client_kwargs": {"proxies": {"https": "http://proxy/s3cr3t"}, "pin": 123456, "x": ["s3cr3t", {"y": "s3cr3t"}]},
    "own_header": "s3cr3t",
    "object": object(),
    "endpoint_url": "https://s3cr3t@host:9000/?sig=s3cr3t",
}


def test_only_values_that_are_known_to_be_no_secrets_are_shown() -> None:
    public = {"endpoint_url": "https://host:9000", "client_kwargs": {"region_name": "eu-1", "use_ssl": "no"}, "x": True}
    assert redacted({**public, "retries": 3, "y": None}) == {**public, "retries": 3, "y": None}
    shown = redacted(UNKNOWN)
    assert "s3cr3t" not in str(shown) and "123456" not in str(shown)
    assert shown["endpoint_url"] == "https://***@host:9000/?***"
    assert redacted({"s3://a@b": {"header": "s3cr3t", "anon": False}}) == {"s3://a@b": {"header": "***", "anon": False}}
    text = without_secrets("proxy http://proxy/s3cr3t refused s3cr3t 123456", UNKNOWN)
    assert text == "proxy *** refused *** ***"


def test_each_store_and_options_have_one_store() -> None:
    pytest.importorskip("s3fs")
    stores = Stores(storage_options=StorageOptions.of({"s3://a": {"key": "1234"}, "s3://b": {}}, warehouse="/w"))
    assert stores.store_for("s3://a/x") is stores.store_for("s3a://a/y")
    assert len({id(stores.store_for(place)) for place in ("s3://a/x", "s3://b/x", "s3://c/x")}) == 3


def test_the_account_of_an_azure_location_is_its_own() -> None:
    pytest.importorskip("adlfs")
    stores = Stores(storage_options=StorageOptions.of({"abfss://": {"account_key": "a2V5"}}, warehouse="/w"))
    one, other = (stores.store_for(f"abfss://c@{account}.dfs.core.windows.net/x") for account in ("one", "other"))
    assert one is not other
    assert stores.store_for("az://d@one.dfs.core.windows.net/y") is one
    named = StorageOptions.of({"abfss://": {"account_name": "mine", "account_key": "a2V5"}}, warehouse="/w")
    with pytest.raises(InvalidArgumentError, match="in the account 'theirs'"):
        Stores(storage_options=named).store_for("abfss://c@theirs.dfs.core.windows.net/x")
