"""Doctor reports a commit that no reader can use, and takes it back with consent."""

import uuid

import pytest

from cm_delta_dagster.advice import advice
from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.history import iterate_history
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError, RecoveryError
from cm_delta_dagster.operations.doctor import DoctorReport, Problem, Repair, doctor, plan_repair, repair_table
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.recovery.set_aside import files_set_aside
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.remedies import TakeBackCommit
from cm_delta_dagster.storage.stores import Stores
from tests.support.forced_commit import ratify, ratify_append, ratify_unreadable
from tests.support.lake import Lake
from tests.support.unreadable_commits import BY_NAME, CASES, Reading, UnreadableCommit, line_of

SOME = (
    "add.path above the table",
    "add.path dots between escaped slashes",
    "add.size many digits",
    "remove.path broken escape",
    "cdc.path escaped dots",
    "txn.version text",
    "domainMetadata.removed text",
    "metaData.schema no JSON",
    "metaData.without id",
    "protocol.without minWriterVersion",
    "commitInfo.inCommitTimestamp text",
    "line no JSON",
    "line action no object",
)


def opened(lake: Lake) -> Table:
    lake.client.wait_for_background()
    return lake.reopened().table("main.test.t")


def paths(lake: Lake) -> list[str]:
    return sorted(opened(lake).snapshot().files["path"].to_pylist())


def take_backs(report: DoctorReport) -> list[int | None]:
    return [finding.version for finding in report.findings if finding.repair is Repair.TAKE_BACK]


def check_take_back(lake: Lake, name: str) -> None:
    """Ratify the case on a table with one file, and take it back."""
    table = lake.new_table()
    lake.append(table, "old.parquet")
    version = ratify_unreadable(lake, table, BY_NAME[name])
    report = repair_table(opened(lake))
    assert take_backs(report) == [version] and not report.healthy
    (finding,) = [found for found in report.findings if found.repair is Repair.TAKE_BACK]
    assert (
        advice(TakeBackCommit(table="main.test.t", version=version)) in finding.message
        and f"ersion {version}" in finding.message
    )
    report = repair_table(opened(lake), take_back=[version])
    assert (report.failed, report.findings) == ((), ()), report.findings
    assert report.repaired[0].repair is Repair.TAKE_BACK
    assert paths(lake) == ["old.parquet"]
    lake.append(opened(lake), "after.parquet")
    assert paths(lake) == ["after.parquet", "old.parquet"]
    assert [entry.version for entry in iterate_history(opened(lake))] == [3, 2, 1, 0]


@pytest.mark.parametrize("name", SOME)
def test_the_commit_is_a_finding_and_is_taken_back_with_consent(lake: Lake, name: str) -> None:
    check_take_back(lake, name)


FAILING = [case.name for case in CASES if case.reading is Reading.FAILS]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] if at % 4 else []) for at, name in enumerate(FAILING)]
)
def test_every_commit_that_cannot_be_read_is_taken_back(lake: Lake, name: str) -> None:
    check_take_back(lake, name)


def test_a_commit_that_readers_understand_is_no_finding(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "old.parquet")
    ratify_unreadable(lake, table, BY_NAME["line unknown action nested deeply"])
    ratify_unreadable(lake, table, BY_NAME["commitInfo.unknown many digits"])
    assert repair_table(opened(lake)).healthy
    with pytest.raises(InvalidArgumentError, match="restore an older version"):
        repair_table(opened(lake), take_back=[1])


def test_an_append_keeps_its_valid_files_and_a_rewrite_is_taken_back_as_a_whole(lake: Lake) -> None:
    bad = BY_NAME["add.path above the table"]
    table = lake.new_table()
    lake.append(table, "old.parquet")
    lake.put(table, "good.parquet")
    lake.put(table, "new.parquet")
    append = ratify_unreadable(lake, table, bad, good=(line_of("add", path='"good.parquet"'), line_of("txn")))
    removal = line_of("remove", path='"old.parquet"')
    rewrite = ratify_unreadable(
        lake, table, bad, good=(removal, line_of("add", path='"new.parquet"'), line_of("txn", version="2"))
    )
    report = repair_table(opened(lake), take_back=[append, rewrite])
    assert (report.failed, report.findings) == ((), ())
    assert paths(lake) == ["good.parquet", "old.parquet"]
    assert opened(lake).snapshot().transactions["app"].version == 1
    assert files_set_aside(table) >= {f"{table.location}/new.parquet", f"{table.location}/good.parquet"}


def test_what_is_taken_back_is_listed_and_the_original_is_set_aside(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "old.parquet")
    version = ratify_unreadable(lake, table, BY_NAME["add.path above the table"], good=(line_of("remove"),))
    (record,) = lake.catalog.coordinator.commit_records(table.table_id, start=version, end=version)
    original = lake.memory.read(f"{table.location}/_delta_log/_staged_commits/{record.file_name}")
    lake.client.wait_for_background()
    before = {status.location for status in lake.memory.list_recursive(table.location)}
    (step,) = [step for step in plan_repair(opened(lake), take_back=[version]).steps if step.repair is Repair.TAKE_BACK]
    assert (
        "add of '../x'" in step.description
        and "remove of 'old.parquet', because the commit is atomic" in step.description
    )
    assert {status.location for status in lake.memory.list_recursive(table.location)} == before
    repair_table(opened(lake), take_back=[version])
    aside = [
        status.location
        for status in lake.memory.list_recursive(f"{table.location}/_delta_log/_set_aside")
        if status.name == f"{version:020d}.json"
    ]
    assert [lake.memory.read(location) for location in aside] == [original]
    (entry,) = [entry for entry in lake.catalog.audit_log.audit() if entry.action == "take back commit"]
    assert (
        entry.scope == "main.test.t" and "../x" in (entry.reason or "") and f"version {version}" in (entry.before or "")
    )
    new = commit_json.decode_commit(
        lake.memory.read(f"{table.location}/_delta_log/{version:020d}.json"), version=version
    )
    assert new.commit_info is not None and new.commit_info.txn_id == record.txn_id
    assert new.commit_info.in_commit_timestamp == record.in_commit_timestamp
    assert "../x" in (new.commit_info.tags or {})["takenBack"]


@pytest.mark.parametrize("is_published", [False, True])
def test_later_commits_stay(lake: Lake, is_published: bool) -> None:
    table = lake.new_table()
    lake.append(table, "old.parquet")
    version = ratify_unreadable(lake, table, BY_NAME["add.path no UTF-8"])
    ratify_append(lake, table, "later.parquet")
    if is_published:
        publish(opened(lake))
    report = repair_table(opened(lake), take_back=[version])
    assert (report.failed, report.findings) == ((), ())
    assert paths(lake) == ["later.parquet", "old.parquet"]
    assert opened(lake).snapshot(version=version).files["path"].to_pylist() == ["old.parquet"]
    assert doctor(opened(lake)).healthy


def test_a_ratified_commit_whose_file_does_not_exist_is_taken_back(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "old.parquet")
    lake.clock.now += 1000
    version = ratify(lake, table, b"{}\n", txn_id=str(uuid.uuid4()), is_staged=False)
    ratify_append(lake, table, "later.parquet")
    report = repair_table(opened(lake))
    assert take_backs(report) == [version]
    assert Problem.COMMIT_LOST in [finding.problem for finding in report.findings]
    report = repair_table(opened(lake), take_back=[version])
    assert (report.failed, report.findings) == ((), ())
    assert paths(lake) == ["later.parquet", "old.parquet"]


def test_only_an_owner_takes_a_commit_back(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "old.parquet")
    version = ratify_unreadable(lake, table, BY_NAME["add.path the root"])
    url = f"sqlite:///{lake.directory}/catalog.db"
    with SqlCatalog(url, now_ms=lake.clock, principal="root") as catalog:
        catalog.access.enable_grants()
        catalog.access.grant([Privilege.ALTER, Privilege.MAINTAIN], "main.test.t", "ada")
        catalog.access.grant([Privilege.OWN], "main.test.t", "olga")
    for name, is_owner in (("ada", False), ("olga", True)):
        with SqlCatalog(url, warehouse="memory://lake/warehouse", now_ms=lake.clock, principal=name) as catalog:
            client = DeltaClient(catalog, stores=Stores(stores={"memory": lake.store}), now_ms=lake.clock)
            report = repair_table(client.table("main.test.t"), take_back=[version])
            client.close()
        assert report.healthy is is_owner
        assert any("recover" in failure for failure in report.failed) is not is_owner, report.failed


def protocol_of(reader: int, writer: int, **features: str | None) -> str:
    lists = {"readerFeatures": None, "writerFeatures": None, **features}
    return line_of("protocol", minReaderVersion=str(reader), minWriterVersion=str(writer), **lists)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (protocol_of(0, 0), "versions start at 1"),
        (protocol_of(-1, -1), "versions start at 1"),
        (protocol_of(3, 7), "readerFeatures must be present"),
        (protocol_of(1, 2), "does not list the feature catalogManaged"),
        (line_of("protocol", readerFeatures='["catalogManaged","deletionVectors"]'), "which writerFeatures lacks"),
    ],
)
def test_a_protocol_that_no_client_can_use_is_taken_back(lake: Lake, line: str, why: str) -> None:
    table = lake.new_table()
    lake.append(table, "old.parquet")
    case = UnreadableCommit(name="", action="protocol", field="", reading=Reading.FAILS, line=line)
    version = ratify_unreadable(lake, table, case)
    assert [entry.version for entry in iterate_history(opened(lake))] == [2, 1, 0]
    report = doctor(opened(lake))
    assert take_backs(report) == [version]
    assert any(why in finding.message and f"ersion {version}" in finding.message for finding in report.findings)
    report = repair_table(opened(lake), take_back=[version])
    assert (report.failed, report.findings) == ((), ())
    lake.append(opened(lake), "after.parquet")
    assert paths(lake) == ["after.parquet", "old.parquet"]


@pytest.mark.parametrize("time", ["9223372036854775807", "1"])
def test_a_commit_with_another_time_than_the_catalog_has_is_taken_back(lake: Lake, time: str) -> None:
    table = lake.new_table()
    lake.append(table, "old.parquet")
    lake.put(table, "b.parquet")
    case = UnreadableCommit(
        name="", action="", field="", reading=Reading.WORKS, line=line_of("add"), info={"inCommitTimestamp": time}
    )
    version = ratify_unreadable(lake, table, case)
    assert paths(lake) == ["b.parquet", "old.parquet"]
    assert version in take_backs(doctor(opened(lake)))
    report = repair_table(opened(lake), take_back=[version])
    assert report.failed == () and take_backs(report) == []
    lake.append(opened(lake), "after.parquet")
    assert paths(lake) == ["after.parquet", "b.parquet", "old.parquet"]


def test_a_commit_without_commit_info_gets_one(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "old.parquet")
    lake.put(table, "b.parquet")
    lake.clock.now += 1000
    version = ratify(lake, table, f"{line_of('add')}\n".encode(), txn_id=str(uuid.uuid4()))
    (finding,) = [found for found in doctor(opened(lake)).findings if found.repair is Repair.TAKE_BACK]
    assert "changes: commitInfo, which the commit lacks. 1 of its" in finding.message
    assert repair_table(opened(lake), take_back=[version]).failed == ()
    assert paths(lake) == ["b.parquet", "old.parquet"]


def test_a_file_in_an_unknown_store_is_a_finding(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "old.parquet")
    case = UnreadableCommit(
        name="", action="", field="", reading=Reading.WORKS, line=line_of("add", path='"foo://x/y"')
    )
    ratify_unreadable(lake, table, case)
    (finding,) = [found for found in doctor(opened(lake)).findings if found.problem is Problem.FILE_MISSING]
    assert "foo://x/y" in finding.where and "'foo'" in finding.message


def test_a_record_that_has_changed_since_the_check_is_not_replaced(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "old.parquet")
    version = ratify_unreadable(lake, table, BY_NAME["add.path the root"])
    calls = []

    def changes(method: str, argument: object) -> Exception | None:
        if method == "replace_commit" and not calls:
            calls.append(argument)
            return RecoveryError("The record has changed.")
        return None

    lake.catalog.fails = changes
    report = repair_table(opened(lake), take_back=[version])
    assert len(report.failed) == 1 and "has changed" in report.failed[0]
    assert take_backs(report) == [version]
    lake.catalog.fails = lambda method, argument: None
    assert repair_table(opened(lake), take_back=[version]).healthy


@pytest.mark.parametrize("call", ["replace_commit", "write"])
def test_an_interrupted_repair_can_be_repeated(lake: Lake, call: str) -> None:
    table = lake.new_table()
    lake.append(table, "old.parquet")
    version = ratify_unreadable(lake, table, BY_NAME["add.path the root"])
    publish(opened(lake))

    def fails(method: str, argument: object) -> Exception | None:
        is_commit = method == "write" and str(argument).endswith(f"_delta_log/{version:020d}.json")
        return RecoveryError("Interrupted for the test.") if method == call and (is_commit or call != "write") else None

    target = lake.catalog if call == "replace_commit" else lake.store
    target.fails_after = fails if call == "replace_commit" else target.fails_after
    target.fails = fails if call == "write" else target.fails
    repair_table(opened(lake), take_back=[version])
    target.fails = target.fails_after = lambda method, argument: None
    assert paths(lake) == ["old.parquet"]  # From the staged file.
    assert repair_table(opened(lake)).healthy
    assert paths(lake) == ["old.parquet"]
