"""Storage options with names that the store does not have: one error before the first request, which names the right one."""

from typing import Any

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.storage.fsspec_store import FsspecStore

SECRET = "wJalrXUtnFEMI"
PACKAGES = {"s3": "s3fs", "abfss": "adlfs", "gs": "gcsfs"}


@pytest.mark.parametrize(
    ("scheme", "options", "meant"),
    [
        ("s3", {"acess_key": SECRET}, "Did you mean 'key'?"),
        ("s3", {"secrt": SECRET}, "Did you mean 'secret'?"),
        ("s3", {"AWS_SECRET_ACCESS_KEY": SECRET}, "Did you mean 'secret'?"),
        ("s3", {"fs.s3a.secret.key": SECRET}, "Did you mean 'secret'?"),
        ("s3", {"endpoint": "http://host"}, "Did you mean 'endpoint_url'?"),
        ("s3", {"region": "eu-central-1"}, 'Did you mean client_kwargs={"region_name": ...}?'),
        ("s3", {"client_kwargs.region": "x"}, 'Did you mean client_kwargs={"region_name": ...}?'),
        ("s3", {"client_kwargs": {"region": "x"}}, 'Did you mean client_kwargs={"region_name": ...}?'),
        ("s3", {"client_kwargs": {"xyz": SECRET}}, "no storage option 'client_kwargs.xyz'"),
        ("s3", {"config_kwargs": {"conect_timeout": 1}}, 'config_kwargs={"connect_timeout": ...}'),
        ("s3", {"client_kwargs": SECRET}, "client_kwargs is of type str"),
        ("s3", {"xyz": SECRET}, "Its options are anon, "),
        ("s3", {"account_key": SECRET}, "It is an option of Azure"),
        ("s3", {"project": "p"}, "It is an option of Google Cloud Storage"),
        ("abfss", {"acount_key": SECRET}, "Did you mean 'account_key'?"),
        ("abfss", {"secret": SECRET}, "It is an option of S3"),
        ("gs", {"credentials": "/key.json"}, "Did you mean 'token'?"),
        ("gs", {"key": SECRET}, "It is an option of S3"),
    ],
)
def test_an_unknown_name_is_refused(scheme: str, options: dict[str, Any], meant: str) -> None:
    pytest.importorskip(PACKAGES[scheme])
    with pytest.raises(InvalidArgumentError) as raised:
        FsspecStore(scheme, options=options)
    assert meant in str(raised.value)
    assert SECRET not in str(raised.value)


def test_names_that_the_store_has_are_taken() -> None:
    pytest.importorskip("s3fs")
    given = {
        "key": "k",
        "secret": "s",
        "endpoint_url": "http://127.0.0.1:1",
        "profile": None,
        "use_listings_cache": False,
        "client_kwargs": {"region_name": "eu-central-1", "verify": False},
        "config_kwargs": {"s3": {"addressing_style": "path"}, "retries": {"max_attempts": 2}},
        "s3_additional_kwargs": {"ServerSideEncryption": "AES256"},
    }
    FsspecStore("s3", options=given)
