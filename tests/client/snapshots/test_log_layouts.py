"""Every layout of a log gives the same table: checkpoints of all kinds, compactions, hints, in any mixture and any state."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.log import last_checkpoint, log_files, version_checksum
from cm_delta_dagster.protocol.log.last_checkpoint import LastCheckpoint
from cm_delta_dagster.protocol.log.log_compaction import compact
from tests.support.foreign_log import Action, ForeignLog, add, contents, info, lines, metadata, remove, vector

_VERSIONS = 7
_FEATURES = ("deletionVectors", "v2Checkpoint", "domainMetadata")


def _file_action(draw: st.DrawFn, live: dict[str, str | None]) -> Action:
    """Adds a file, removes one, or gives one another deletion vector; ``live`` follows."""
    path = draw(st.sampled_from(["a", "b%20b", "c", "d=1/e"]))
    if path in live and draw(st.booleans()):
        old = live.pop(path)
        return remove(path, **({} if old is None else {"deletionVector": vector(old)}))
    new = draw(st.sampled_from([None, "00000", "00001"]))
    live[path] = new
    return add(path, **({} if new is None else {"deletionVector": vector(new)}), size=draw(st.integers(1, 9)))


@st.composite
def _histories(draw: st.DrawFn) -> list[list[Action]]:
    """Commits after version 0, each free of actions that reconcile with each other."""
    live: dict[str, str | None] = {}
    history = []
    for _ in range(_VERSIONS):
        before = dict(live)
        action = _file_action(draw, live)
        (path,) = {fields["path"] for fields in action.values()}
        commit = [info(), action]
        if "add" in action and path in before and before[path] != live[path]:
            old = before[path]
            commit.append(remove(path, **({} if old is None else {"deletionVector": vector(old)})))
        if draw(st.booleans()):
            commit.append({"txn": {"appId": draw(st.sampled_from("xy")), "version": draw(st.integers(0, 9))}})
        if draw(st.booleans()):
            removed = draw(st.booleans())
            commit.append({"domainMetadata": {"domain": "d", "configuration": "{}", "removed": removed}})
        if draw(st.integers(0, 4)) == 0:
            commit.append(metadata(delta__checkpointPolicy="v2", owner=draw(st.sampled_from("pq"))))
        history.append(commit)
    return history


_KINDS = ("classic", "multi-part", "v2-parquet", "v2-json", "v2-classic-name", "v2-inline", "compaction")


def _decorate(log: ForeignLog, kind: str, version: int) -> None:
    match kind:
        case "classic":
            log.classic_checkpoint(version)
        case "multi-part":
            log.multi_part_checkpoint(version, 3)
        case "v2-parquet":
            log.v2_checkpoint(version, prefix="file:/elsewhere/_delta_log/_sidecars/")
        case "v2-json":
            log.v2_checkpoint(version, file_format="json")
        case "v2-classic-name":
            log.v2_checkpoint(version, classic_name=True)
        case "v2-inline":
            log.v2_checkpoint(version, sidecars=False)
        case "compaction":
            start = max(0, version - 2)
            if start < version:
                commits = [commit.actions for commit in log.table.commits(start, version)]
                log.write(log_files.compaction_file_name(start, version), compact(commits, location=log.location))


def _cut(data: bytes, length: int) -> bytes:
    """``data`` cut off, never at the end of a line: such text looks complete."""
    kept = data[:length]
    while kept and (kept.endswith(b"\n") or data[len(kept) : len(kept) + 1] == b"\n"):
        kept = kept[:-1]
    return kept


@pytest.mark.requirements(
    "REC-13",
    "LC-5",
    "LC-7",
    "CKPT-14",
    "CKPT-17",
    "CKPT-MP-1",
    "CKPT-MP-2",
    "CKPT-V2-6",
    "CKPT-V2-8",
    "LASTCP-4",
    "V2ACT-1",
    "V2ACT-2",
    "V2ACT-3",
)
@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    history=_histories(),
    extras=st.lists(st.tuples(st.sampled_from(_KINDS), st.integers(0, _VERSIONS)), max_size=5),
    hint=st.none() | st.integers(0, _VERSIONS + 3),
    damage=st.none() | st.tuples(st.integers(0, 30), st.floats(0, 0.99)),
    asked=st.integers(0, _VERSIONS),
)
def test_every_way_to_a_version_leads_to_the_same_state(
    history: list[list[Action]],
    extras: list[tuple[str, int]],
    hint: int | None,
    damage: tuple[int, float] | None,
    asked: int,
) -> None:
    """With all commits there, nothing that is derived from them, whole or damaged, changes what is read."""
    log = ForeignLog()
    log.create(*_FEATURES, delta__checkpointPolicy="v2")
    for version, actions in enumerate(history, start=1):
        log.commit(version, *actions)
    expected = contents(log.state(asked))
    for kind, version in extras:
        _decorate(log, kind, version)
    if hint is not None:
        log.write("_last_checkpoint", last_checkpoint.encode(LastCheckpoint(version=hint, size=1)))
    derived = [
        status.location
        for status in log.store.list_recursive(log.directory)
        if not isinstance(log_files.parse_log_file(status.name), log_files.CommitFile)
    ]
    if damage is not None and derived:
        location = derived[damage[0] % len(derived)]
        data = log.store.read(location)
        log.store.write(location, _cut(data, int(len(data) * damage[1])))
    found = contents(log.state(asked))
    assert found == expected
    assert contents(log.table.snapshot(version=asked)) == expected


def _ten_versions() -> ForeignLog:
    log = ForeignLog()
    log.create(*_FEATURES, delta__checkpointPolicy="v2")
    for version in range(1, 11):
        log.commit(version, info(), add(f"f{version}"))
    return log


@pytest.mark.requirements("CKPT-V2-9", "CKPT-17", "TT-5")
def test_a_checkpoint_with_a_missing_sidecar_is_never_a_smaller_table() -> None:
    """Without the commits it is an error that names the sidecar, with them they are read."""
    log = _ten_versions()
    log.v2_checkpoint(8)
    sidecar = next(status for status in log.store.list_recursive(f"{log.directory}/_sidecars"))
    log.store.delete(sidecar.location)
    assert log.table.snapshot().num_files == 10
    for version in range(5):
        log.delete(log_files.commit_file_name(version))
    with pytest.raises(CorruptLogError, match=sidecar.name):
        log.table.snapshot()


@pytest.mark.requirements("CKPT-MP-2")
def test_an_incomplete_multi_part_checkpoint_is_none() -> None:
    """Parts of another number of parts do not fill the hole."""
    log = _ten_versions()
    log.multi_part_checkpoint(9, 3)
    log.multi_part_checkpoint(9, 4)
    log.delete(f"{9:020d}.checkpoint.{2:010d}.{3:010d}.parquet")
    log.delete(f"{9:020d}.checkpoint.{4:010d}.{4:010d}.parquet")
    assert log.table.snapshot().num_files == 10
    log.delete(log_files.commit_file_name(0))
    with pytest.raises(CorruptLogError, match="0"):
        log.table.snapshot()


@pytest.mark.requirements("CKPT-V2-3")
def test_a_checkpoint_of_another_version_than_its_name_says_is_not_used() -> None:
    """The checkpointMetadata row decides."""
    log = _ten_versions()
    log.v2_checkpoint(4, file_format="json")
    (name,) = (name for name in log.names() if ".checkpoint." in name)
    data = log.store.read(f"{log.directory}/{name}")
    log.delete(name)
    log.write(name.replace(f"{4:020d}", f"{9:020d}"), data)
    assert log.table.snapshot().num_files == 10


@pytest.mark.requirements("CKPT-17", "CKPT-V2-5", "REC-1")
@pytest.mark.parametrize("fault", ["two protocols", "files beside sidecars", "no metadata"])
def test_a_checkpoint_that_breaks_the_rules_is_passed_over(fault: str) -> None:
    log = _ten_versions()
    log.v2_checkpoint(9, file_format="json")
    (name,) = (name for name in log.names() if ".checkpoint." in name)
    rows = [json.loads(line) for line in log.store.read(f"{log.directory}/{name}").splitlines()]
    match fault:
        case "two protocols":
            rows += [row for row in rows if "protocol" in row]
        case "files beside sidecars":
            rows.append(add("stray"))
        case "no metadata":
            rows = [row for row in rows if "metaData" not in row]
    log.write(name, lines(*rows))
    assert log.table.snapshot().num_files == 10
    log.delete(log_files.commit_file_name(3))
    with pytest.raises(CorruptLogError, match=f"(?s)commits of 3 .*{name}"):
        log.table.snapshot()


@pytest.mark.requirements("LOG-2", "LOG-9", "CM-5")
@pytest.mark.parametrize(
    "name",
    [
        ".00000000000000000001.json.crc",
        "_last_checkpoint.tmp",
        "0000000000000000011.json",
        "000000000000000000011.json",
        "00000000000000000011.json.tmp",
        "00000000000000000011.checkpoint.parquet.tmp",
        "00000000000000000011.checkpoint.0000000001.parquet",
        "00000000000000000011.checkpoint.nouuid.parquet",
        "00000000000000000011.00000000000000000012.json",
        "_staged_commits/00000000000000000011.7d17ac10-5cc3-401b-bd1a-9c82dd2ea032.json",
        "_commits/00000000000000000011.json",
        "readme.txt",
    ],
)
def test_other_files_in_the_log_mean_nothing(name: str) -> None:
    log = _ten_versions()
    log.write(name, b"{ no action")
    assert log.table.snapshot().version == 10


@pytest.mark.requirements("LOG-17")
def test_a_moved_table_is_the_same_table() -> None:
    """With relative paths; sidecars named by their old absolute place are taken from the new one (V2ACT-2)."""
    log = _ten_versions()
    log.v2_checkpoint(8, prefix=f"{log.directory}/_sidecars/")
    for version in range(8):
        log.delete(log_files.commit_file_name(version))
    moved = ForeignLog("elsewhere")
    for status in list(log.store.list_recursive(log.location)):
        moved.store.write(status.location.replace(log.location, moved.location), log.store.read(status.location))
    assert contents(moved.table.snapshot()) == contents(log.table.snapshot())
    assert moved.table.snapshot().num_files == 10


@pytest.mark.requirements("DOM-8", "DOM-6", "LOG-6")
def test_unknown_domains_and_unknown_actions_do_not_block_reading() -> None:
    log = _ten_versions()
    log.commit(
        11,
        {"commitInfo": {}},
        {"domainMetadata": {"domain": "delta.fromTheFuture", "configuration": "[1]", "removed": False}},
        {"novelty": {"path": "x"}},
        add("g", novelField={"deep": [1]}),
    )
    snapshot = log.table.snapshot()
    assert (snapshot.num_files, snapshot.domains["delta.fromTheFuture"].configuration) == (11, "[1]")


def _commit_zero(**changes: Any) -> bytes:
    fields = {**metadata()["metaData"], **changes}
    return lines(info(), {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": fields})


def _geo_schema() -> str:
    field = {"name": "g", "type": "geometry(4326)", "nullable": True, "metadata": {}}
    return json.dumps({"type": "struct", "fields": [field]})


@pytest.mark.requirements("META-1", "META-2", "META-4")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": {"provider": "orc", "options": {}}}, "'orc'"),
        ({"partitionColumns": ["nope"]}, "nope"),
        ({"partitionColumns": ["day", "day"]}, "day"),
        ({"schemaString": "{"}, "JSON"),
        (
            {
                "schemaString": '{"type":"struct","fields":[{"name":"g","type":"geometry(4326)","nullable":true,"metadata":{}}]}'
            },
            "geometry",
        ),
        ({"schemaString": '"long"'}, "struct"),
        ({"id": 5}, "id"),
        ({"configuration": ["delta.appendOnly"]}, "configuration"),
        ({"partitionColumns": "day"}, "partitionColumns"),
    ],
)
def test_metadata_without_a_meaning_is_refused_by_name(changes: dict[str, Any], reason: str) -> None:
    """The message has the table, the version and the reason."""
    log = ForeignLog("named")
    log.write(log_files.commit_file_name(0), _commit_zero(**changes))
    with pytest.raises(Exception, match=f"(?s)foreign/named.*ersion 0.*{reason}"):
        log.table.snapshot()


@pytest.mark.requirements("REC-6", "LOG-8")
@pytest.mark.parametrize("name", ["metaData", "protocol"])
def test_two_actions_of_which_one_counts_in_a_commit_are_refused(name: str) -> None:
    """Their order means nothing, so that neither is the newest."""
    log = ForeignLog()
    log.create()
    line = next(
        line
        for line in log.store.read(f"{log.directory}/{log_files.commit_file_name(0)}").splitlines()
        if name.encode() in line
    )
    log.write(log_files.commit_file_name(1), lines(info()) + line + b"\n" + line + b"\n")
    with pytest.raises(CorruptLogError, match=name):
        log.table.snapshot()


@pytest.mark.requirements("CKPT-17", "CRC-11")
def test_a_json_checkpoint_cut_off_at_the_end_of_a_line_is_found_out_by_its_checksum() -> None:
    """The commits are read instead; without them it is an error, not a table with fewer files."""
    log = _ten_versions()
    log.v2_checkpoint(9, file_format="json", sidecars=False)
    value = version_checksum.build_checksum(log.state(9), txn_id="t", in_commit_timestamp=None)
    log.write(log_files.checksum_file_name(9), version_checksum.encode(value))
    (name,) = (name for name in log.names() if ".checkpoint." in name)
    data = log.store.read(f"{log.directory}/{name}")
    log.write(name, b"".join(data.splitlines(keepends=True)[:-1]))
    assert log.table.snapshot().num_files == 10
    log.delete(log_files.commit_file_name(2))
    with pytest.raises(CorruptLogError, match=f"{name}.* has 8 files"):
        log.table.snapshot()
