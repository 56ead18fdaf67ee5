"""Session policies permit one table."""

import fnmatch
import json

import pytest

from cm_delta_dagster.catalog.storage_credentials import FileAccess
from cm_delta_dagster.server.aws_roles import session_policy

TABLE = "s3://lake/w/main/sales/t-1"


def statements(location: str, access: FileAccess) -> list[dict[str, object]]:
    policy = json.loads(session_policy(location, access, partition="aws"))
    assert policy["Version"] == "2012-10-17"
    parsed: list[dict[str, object]] = policy["Statement"]
    assert {statement["Effect"] for statement in parsed} == {"Allow"}
    return parsed


def test_a_policy_permits_the_files_of_the_table_and_no_others() -> None:
    for access, actions in (
        (FileAccess.READ, ["s3:GetObject"]),
        (FileAccess.READ_WRITE, ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]),
    ):
        files, lists = statements(TABLE, access)
        assert files["Action"] == actions and files["Resource"] == "arn:aws:s3:::lake/w/main/sales/t-1/*"
        assert (lists["Action"], lists["Resource"]) == ("s3:ListBucket", "arn:aws:s3:::lake")
        prefixes = lists["Condition"]["StringLike"]["s3:prefix"]  # type: ignore[index]
        for prefix, permitted in (
            ("w/main/sales/t-1/_delta_log/", True),
            ("w/main/sales/t-1", True),
            ("w/main/sales/t-10/", False),
            ("w/main/sales/", False),
            ("", False),
        ):
            assert any(fnmatch.fnmatchcase(prefix, pattern) for pattern in prefixes) is permitted, prefix


@pytest.mark.parametrize(("location", "resource"), [("s3a://b/x*y?z", "b/x${*}y${?}z/*"), ("s3://b/$a/", "b/${$}a/*")])
def test_characters_that_stand_for_others_in_policies_stand_for_themselves(location: str, resource: str) -> None:
    assert statements(location, FileAccess.READ)[0]["Resource"] == f"arn:aws:s3:::{resource}"


def test_a_policy_is_ascii_and_has_the_partition_of_the_role() -> None:
    policy = session_policy("s3://lake/Übung", FileAccess.READ, partition="aws-cn")
    assert policy.isascii() and json.loads(policy)["Statement"][0]["Resource"] == "arn:aws-cn:s3:::lake/Übung/*"
