"""The table of ``conflict_cases`` in delta-spark: it decides as the table says, and where we differ the table says why."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.protocol.actions.actions import CommitInfo, Protocol
from cm_delta_dagster.protocol.actions.commit_json import encode_action, encode_commit
from cm_delta_dagster.protocol.commits.conflicts import ConflictKind, IsolationLevel
from cm_delta_dagster.protocol.features.protocol_evolution import with_features
from cm_delta_dagster.protocol.log import log_files
from tests.differential.peers import DeltaSpark
from tests.support.conflict_cases import BASE, FEATURES, TABLES, Act, CaseTable, base_metadata

pytestmark = [pytest.mark.peers, pytest.mark.slow, pytest.mark.timeout(1800)]

_PLAIN = Protocol(
    min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=("appendOnly", "invariants")
)
_PROTOCOL = with_features(_PLAIN, FEATURES)
_EXCEPTIONS = {
    "ConcurrentAppendException": ConflictKind.CONCURRENT_APPEND,
    "ConcurrentDeleteReadException": ConflictKind.CONCURRENT_DELETE_READ,
    "ConcurrentDeleteDeleteException": ConflictKind.CONCURRENT_DELETE_DELETE,
    "ConcurrentTransactionException": ConflictKind.CONCURRENT_TRANSACTION,
    "MetadataChangedException": ConflictKind.METADATA_CHANGED,
    "ProtocolChangedException": ConflictKind.PROTOCOL_CHANGED,
}
_WEAK, _STRONG = IsolationLevel.WRITE_SERIALIZABLE, IsolationLevel.SERIALIZABLE
_ALWAYS = {("rows", "add a", _STRONG), ("rows", "del x", _WEAK), ("rows", "opt a", _WEAK), ("state", "dom e", _WEAK),
           ("state", "dv", _WEAK)}  # fmt: skip
"""Conflicts that hold an example of every rule and of every difference."""


def _conflicts() -> Iterator[Any]:
    for name, table in TABLES.items():
        for winner, act in table.acts.items():
            for level in (_WEAK, _STRONG) if act.is_blind_append else (_WEAK,):
                marks = () if (name, winner, level) in _ALWAYS else pytest.mark.exhaustive
                yield pytest.param(name, winner, level, marks=marks)


def _spec(act: Act, role: str, table: CaseTable, level: IsolationLevel) -> dict[str, Any]:
    actions = act.actions(role, _PROTOCOL, base_metadata("1", table, level))
    return {
        "reads": list(act.reads),
        "app_ids": [act.app_id] if act.app_id else [],
        "actions": [json.loads(encode_action(action)) for action in actions],
    }


@pytest.mark.requirements("OCC-5", "OCC-6", "OCC-7", "OCC-8", "OCC-9", "OCC-10", "OCC-11", "OCC-12", "OCC-14")
@pytest.mark.parametrize(("name", "winner", "level"), list(_conflicts()))
def test_delta_spark_decides_as_the_table_says(
    delta_spark: DeltaSpark, tmp_path: Path, name: str, winner: str, level: IsolationLevel
) -> None:
    """Real transactions of both sides on one snapshot; the level of a commit is recorded as by us."""
    table = TABLES[name]
    (tmp_path / "_delta_log").mkdir()
    start = [CommitInfo(operation="CREATE TABLE", timestamp=1), _PROTOCOL, base_metadata("1", table, level)]
    log_file = tmp_path / "_delta_log" / log_files.commit_file_name(0)
    log_file.write_bytes(encode_commit([*start, *BASE.values()]))
    losers = [_spec(act, "loser", table, level) for act in table.acts.values()]
    outcomes = delta_spark.run_after(tmp_path, _spec(table.acts[winner], "winner", table, level), losers)
    found = dict(zip(table.acts, outcomes, strict=True))
    expected = {
        case.loser: case.in_delta_spark for case in table.cases() if (case.winner, case.isolation) == (winner, level)
    }
    kinds = {loser: _EXCEPTIONS[outcome["error"]] if "error" in outcome else None for loser, outcome in found.items()}
    assert kinds == expected
    levels = {loser: outcome["level"] for loser, outcome in found.items() if "level" in outcome}
    assert levels == {
        loser: "SnapshotIsolation" if table.acts[loser].changes_no_row else level.value for loser in levels
    }
