"""After any harm, a repair makes no readable version unreadable, does not change its rows, and terminates."""

import json
from collections.abc import Callable

import pytest

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.operations.doctor import repair_table
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.compact_log import compact_log
from cm_delta_dagster.protocol.log.checkpoints import build_checkpoint
from tests.support.lake import Lake, broken_storage

LOG = "_delta_log"
LATEST = 8

Harm = Callable[[bytes], bytes | None]


def one_bit(data: bytes) -> bytes:
    """Change a byte in the middle, within the actions."""
    place = len(data) // 2
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def other_content(data: bytes) -> bytes:
    """Other content of the same size; for text, lines of JSON with other values."""
    for old, new in (
        (b'"path":"file-', b'"path":"elif-'),
        (b'"numFiles":', b'"numFilez":'),
        (b'"version":', b'"versiom":'),
    ):
        if old in data:
            return data.replace(old, new, 1)
    return b"x" * len(data)


HARMS: dict[str, Harm] = {
    "missing": lambda data: None,
    "truncated": lambda data: data[: len(data) * 2 // 3],
    "one bit": one_bit,
    "other content": other_content,
}

OBJECTS = {
    "first commit": f"{0:020d}.json",
    "commit below the checkpoint": f"{2:020d}.json",
    "commit of the checkpoint": f"{4:020d}.json",
    "commit above the checkpoint": f"{6:020d}.json",
    "staged copy of a published commit": f"_staged_commits/{6:020d}",
    "staged commit": f"_staged_commits/{LATEST:020d}",
    "checkpoint": f"{4:020d}.checkpoint.",
    "sidecar": "_sidecars/",
    "checksum of the checkpoint": f"{4:020d}.crc",
    "checksum": f"{6:020d}.crc",
    "compaction": ".compacted.json",
    "hint": "_last_checkpoint",
}


@pytest.fixture
def table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Versions 0 to 8: a checkpoint of 4 with a sidecar, a compaction of 1 to 3, 8 not published."""
    monkeypatch.setitem(build_checkpoint.__kwdefaults__, "max_inline", 1)
    table = lake.new_table()
    for number in range(4):
        lake.append(table, f"file-{number}.parquet")
    checkpoint(table)
    lake.append(table, "file-4.parquet")
    lake.remove(table, "file-0.parquet")
    lake.append(table, "file-5.parquet")
    compact_log(table, start=1, end=3)
    lake.client.wait_for_background()
    lake.store.fails = broken_storage("write_if_absent", f"{LOG}/{LATEST:020d}.json")
    lake.append(table, "file-6.parquet")
    lake.client.wait_for_background()
    lake.store.fails = lambda method, argument: None
    return table


def named(lake: Lake, table: Table, part: str) -> str:
    (name,) = [name for name in lake.files(table, LOG) if part in name and name.count("/") == part.count("/")]
    return f"{table.location}/{LOG}/{name}"


def readable(lake: Lake) -> dict[int, list[str]]:
    """The files of every version that a new client can read."""
    found = {}
    for version in range(LATEST + 1):
        try:
            snapshot = lake.reopened().table("main.test.t").snapshot(version=version)
        except CmDeltaError:
            continue
        found[version] = sorted(snapshot.files["path"].to_pylist())
    return found


HARMED = [(what, "with staged copies") for what in OBJECTS]
HARMED += [(what, "without") for what in OBJECTS if what.startswith(("commit", "checkpoint", "checksum"))]


@pytest.mark.parametrize(
    ("what", "copies", "harm"),
    [
        # Every second one always: two harms of each object, and each harm of every second object.
        pytest.param(*harmed, harm, marks=[pytest.mark.exhaustive] if (place + number) % 2 else [])
        for place, harmed in enumerate(HARMED)
        for number, harm in enumerate(HARMS)
    ],
)
def test_a_repair_never_harms(lake: Lake, table: Table, what: str, harm: str, copies: str) -> None:
    right = readable(lake)
    assert len(right) == LATEST + 1
    if copies == "without" and "staged" not in what:
        for status in lake.memory.list_from(f"{table.location}/{LOG}/_staged_commits"):
            if not status.name.startswith(f"{LATEST:020d}"):
                lake.memory.delete(status.location)
    location = named(lake, table, OBJECTS[what])
    data = lake.memory.read(location)
    changed = HARMS[harm](data)
    assert changed != data
    if changed is None:
        lake.memory.delete(location)
    else:
        lake.memory.write(location, changed)
    before = readable(lake)

    report = repair_table(lake.reopened().table("main.test.t"))
    assert report.failed == (), report.failed

    after = readable(lake)
    assert before.keys() <= after.keys()
    assert all(after[version] == right[version] for version in after), "a version has other rows than it had"
    kept = {lake.memory.read(status.location) for status in lake.memory.list_recursive(table.location)}
    assert changed is None or changed in kept, "what was replaced is not kept"
    again = repair_table(lake.reopened().table("main.test.t"))
    assert (again.repaired, again.failed, again.plan.steps) == ((), (), ())
    if report.healthy and not report.findings:
        assert after == right
    if copies == "with staged copies" and what != "first commit" and what != "staged commit":
        assert report.healthy and after == right, report.findings


def test_two_harms_of_one_table_are_repaired_in_order_of_trust(lake: Lake, table: Table) -> None:
    """Every derived file and several commits are damaged; the staged copies suffice to repair them."""
    right = readable(lake)
    for what in OBJECTS:
        if "staged" not in what and what not in ("first commit", "sidecar"):
            location = named(lake, table, OBJECTS[what])
            lake.memory.write(location, other_content(lake.memory.read(location)))
    report = repair_table(lake.reopened().table("main.test.t"))
    assert (report.failed, report.findings) == ((), ())
    assert readable(lake) == right
    (pointed,) = [name for name in lake.files(table, LOG) if ".checkpoint." in name and "/" not in name]
    hint = json.loads(lake.memory.read(f"{table.location}/{LOG}/_last_checkpoint"))
    assert pointed.startswith(f"{hint['version']:020d}")
