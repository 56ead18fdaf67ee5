"""Log compaction: the reconciliation of a range of commits."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import IllegalCommitError
from cm_delta_dagster.protocol.actions.actions import (
    Action,
    AddCdcFile,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
)
from cm_delta_dagster.protocol.actions.commit_json import CommitActions, decode_commit, encode_commit
from cm_delta_dagster.protocol.actions.file_columns import table_to_adds, table_to_removes
from cm_delta_dagster.protocol.log.action_reconciliation import replay
from cm_delta_dagster.protocol.log.log_compaction import compact
from tests.support.actions import add_file as _add
from tests.support.actions import remove_file as _remove

_LOCATION = "file:///data/t"


def _commit(version: int, *actions: Action) -> CommitActions:
    return decode_commit(encode_commit(actions), version=version)


def _files(compacted: CommitActions) -> tuple[list[str], list[str]]:
    return (
        sorted(add.path for add in table_to_adds(compacted.adds)),
        sorted(remove.path for remove in table_to_removes(compacted.removes)),
    )


@pytest.mark.requirements("LC-2", "LC-3")
def test_the_example_of_the_protocol_is_compacted_as_published() -> None:
    compacted = compact(
        [
            _commit(4, _add("f2"), _remove("f1")),
            _commit(5, _add("f3"), _add("f4"), SetTransaction(app_id="app", version=4389)),
            _commit(6, _remove("f3"), SetTransaction(app_id="app", version=4390)),
        ],
        location=_LOCATION,
    )
    decoded = decode_commit(compacted, version=6)
    assert _files(decoded) == (["f2", "f4"], ["f1", "f3"])
    assert decoded.transactions == (SetTransaction(app_id="app", version=4390),)
    assert len(compacted.splitlines()) == 5


@pytest.mark.requirements("LC-2")
@pytest.mark.parametrize(
    "steps", ["ar", "ra", "arar", "rara", "a-r", "a--r", "r-a", "-ar-", "ar-a-r", "a---r--a", "-----ra", "-----ar"]
)
def test_the_newest_action_of_a_file_counts(steps: str) -> None:
    """However many commits are between two of them."""
    actions: dict[str, list[Action]] = {"a": [_add("f")], "r": [_remove("f")], "-": [_add("other")]}
    commits = [_commit(version, *actions[step]) for version, step in enumerate(steps)]
    adds, removes = _files(decode_commit(compact(commits, location=_LOCATION), version=len(steps) - 1))
    is_added = steps.rindex("a") > steps.rindex("r")
    assert ("f" in adds, "f" in removes) == (is_added, not is_added)


@pytest.mark.requirements("LC-2", "LC-4", "LC-6", "X11")
def test_only_the_newest_small_actions_are_kept_and_no_commit_info() -> None:
    old, new = Metadata(id="i", schema_string="{}"), Metadata(id="i", schema_string="{}", name="n")
    compacted = compact(
        [
            _commit(
                1,
                CommitInfo(operation="WRITE"),
                Protocol(min_reader_version=1, min_writer_version=2),
                old,
                DomainMetadata(domain="d", configuration="1"),
                AddCdcFile(path="c", partition_values={}, size=1),
            ),
            _commit(2, CommitInfo(operation="WRITE"), new, DomainMetadata(domain="d", configuration="", removed=True)),
        ],
        location=_LOCATION,
    )
    decoded = decode_commit(compacted, version=2)
    assert decoded.commit_info is None and decoded.cdc == ()
    assert decoded.metadata == new and decoded.protocol == Protocol(min_reader_version=1, min_writer_version=2)
    assert [domain.removed for domain in decoded.domains] == [True]


@pytest.mark.requirements("LC-2", "REC-14")
def test_two_spellings_of_a_path_are_one_file() -> None:
    compacted = compact([_commit(1, _add("a%20b")), _commit(2, _remove("file:/data/t/a%20b"))], location=_LOCATION)
    assert _files(decode_commit(compacted, version=2)) == ([], ["file:/data/t/a%20b"])


@pytest.mark.requirements("LC-2", "REC-5", "REC-6")
def test_one_path_with_two_deletion_vectors_is_two_files() -> None:
    vector = DeletionVectorDescriptor(storage_type="i", path_or_inline_dv="x", size_in_bytes=1, cardinality=1)
    compacted = compact([_commit(1, _add("f")), _commit(2, _add("f", vector=vector), _remove("f"))], location=_LOCATION)
    decoded = decode_commit(compacted, version=2)
    assert [add.deletion_vector for add in table_to_adds(decoded.adds)] == [vector]
    assert [remove.deletion_vector for remove in table_to_removes(decoded.removes)] == [None]


@pytest.mark.requirements("LC-1")
@pytest.mark.parametrize("versions", [[], [3], [3, 5], [3, 3]])
def test_a_range_with_a_gap_or_of_one_commit_is_refused(versions: list[int]) -> None:
    with pytest.raises(IllegalCommitError, match="compacted"):
        compact([_commit(version, _add("f")) for version in versions], location=_LOCATION)


@pytest.mark.requirements("LC-5", "REC-13")
@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3), min_size=1), min_size=2, max_size=6))
def test_replaying_a_compaction_gives_the_state_of_its_commits(steps: list[dict[str, int]]) -> None:
    start = _commit(
        0,
        Protocol(min_reader_version=1, min_writer_version=2),
        Metadata(id="i", schema_string='{"type":"struct","fields":[]}'),
        _add("a"),
        _add("x"),
    )
    commits = [
        _commit(version, *(_add(path, size=size) if size else _remove(path) for path, size in step.items()))
        for version, step in enumerate(steps, start=1)
    ]
    base = replay(None, [start], location=_LOCATION)
    plain = replay(base, commits, location=_LOCATION)
    compacted = decode_commit(compact(commits[::-1], location=_LOCATION), version=len(steps))
    through = replay(base, [compacted], location=_LOCATION)
    assert _state(plain.files.adds) == _state(through.files.adds)
    assert _state(plain.files.removes) == _state(through.files.removes)


def _state(table: pa.Table) -> list[tuple[str, int | None]]:
    return sorted((row["path"], row["size"]) for row in table.select(["path", "size"]).to_pylist())
