"""Digests of commits: equal for all attempts of one transaction, different for different changes."""

from dataclasses import replace

import pytest

from cm_delta_dagster.protocol.actions.actions import (
    Action,
    AddCdcFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
)
from cm_delta_dagster.protocol.actions.commit_json import decode_commit, encode_commit
from cm_delta_dagster.protocol.commits.commit_fingerprint import fingerprint
from tests.support.actions import add_file, remove_file

INFO = CommitInfo(in_commit_timestamp=1, txn_id="t", operation="WRITE")
ADD = add_file("a", size=5, stats='{"numRecords":1}')
METADATA = Metadata(id="i", schema_string="{}", configuration={"a": "b"})
TXN = SetTransaction(app_id="app", version=1, last_updated=1)
CDC = AddCdcFile(path="c", partition_values={}, size=1)
DOMAIN = DomainMetadata(domain="d", configuration="{}")
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)


def digest(*actions: Action, version: int = 1) -> str:
    return fingerprint(decode_commit(encode_commit([INFO, *actions]), version=version))


VERSION_KEYS = (
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
    "delta.requireCheckpointProtectionBeforeVersion",
)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((ADD,), (replace(ADD, modification_time=2, base_row_id=7, default_row_commit_version=3),)),
        ((ADD, add_file("b")), (add_file("b"), ADD)),
        ((TXN,), (replace(TXN, last_updated=2),)),
        ((remove_file("a"),), (remove_file("a", deletion_timestamp=9),)),
        ((), (DomainMetadata(domain="delta.rowTracking", configuration='{"rowIdHighWaterMark":1}'),)),
        ((METADATA,), (replace(METADATA, configuration={"a": "b", **dict.fromkeys(VERSION_KEYS, "5")}),)),
    ],
    ids=["times and row ids", "order", "time of a txn", "time of a remove", "row id mark", "properties of a version"],
)
def test_attempts_of_one_transaction_have_one_digest(first: tuple[Action, ...], second: tuple[Action, ...]) -> None:
    assert digest(*first) == digest(*second, version=2)


def test_different_changes_have_different_digests() -> None:
    commits: list[tuple[Action, ...]] = [
        (),
        (ADD,),
        *((replace(ADD, **changed),) for changed in (
            {"path": "b"},
            {"size": 6},
            {"stats": None},
            {"data_change": False},
            {"partition_values": {"p": "1"}},
        )),
        (add_file("a", "vector", size=5, stats=ADD.stats),),
        (ADD, add_file("b")),
        (remove_file("a"),),
        (CDC,),
        (replace(CDC, path="e"),),
        (TXN,),
        (replace(TXN, app_id="other"),),
        (replace(TXN, version=2),),
        (DOMAIN,),
        (replace(DOMAIN, domain="e"),),
        (replace(DOMAIN, configuration="[]"),),
        (replace(DOMAIN, removed=True),),
        (METADATA,),
        (replace(METADATA, configuration={"a": "c"}),),
        (replace(METADATA, description="d"),),
        (PROTOCOL,),
        (replace(PROTOCOL, min_writer_version=3),),
    ]  # fmt: skip
    digests = [digest(*actions) for actions in commits]
    assert len(set(digests)) == len(commits)
    assert all(len(one) == 64 and int(one, 16) >= 0 for one in digests)
