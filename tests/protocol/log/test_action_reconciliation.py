"""Action reconciliation."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.actions import (
    Action,
    AddCdcFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from cm_delta_dagster.protocol.actions.commit_json import CommitActions, decode_commit, encode_commit
from cm_delta_dagster.protocol.actions.file_columns import table_to_adds, table_to_removes
from cm_delta_dagster.protocol.log.action_reconciliation import FileState, TableState, replay
from cm_delta_dagster.protocol.log.log_compaction import compact
from tests.support.actions import add_file as _add
from tests.support.actions import remove_file as _remove

_LOCATION = "file:///data/t"
_PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
_METADATA = Metadata(id="i", schema_string="{}", configuration={"a": "1"}, name="first")
_START: tuple[Action, ...] = (_PROTOCOL, _METADATA)


def _commits(*commits: Sequence[Action], start: int = 0) -> list[CommitActions]:
    return [decode_commit(encode_commit(list(actions)), version=start + n) for n, actions in enumerate(commits)]


def _state(*commits: Sequence[Action]) -> TableState:
    return replay(None, _commits(_START, *commits), location=_LOCATION)


def _live(state: TableState) -> set[tuple[str, str | None]]:
    adds = table_to_adds(state.files.adds)
    found = [(add.path, add.deletion_vector and add.deletion_vector.path_or_inline_dv) for add in adds]
    assert len(found) == len(set(found))
    return set(found)


def _dead(state: TableState) -> set[tuple[str, str | None]]:
    removes = table_to_removes(state.files.removes)
    found = [(file.path, file.deletion_vector and file.deletion_vector.path_or_inline_dv) for file in removes]
    assert len(found) == len(set(found))
    return set(found)


def _comparable(state: TableState) -> tuple[object, ...]:
    return (
        state.version,
        state.protocol,
        state.metadata,
        dict(state.transactions),
        dict(state.domains),
        sorted(table_to_adds(state.files.adds), key=repr),
        sorted(table_to_removes(state.files.removes), key=repr),
    )


@pytest.mark.requirements("REC-5", "REC-6", "REC-8", "REC-9", "REC-10", "REC-14")
@pytest.mark.parametrize(
    ("commits", "live", "dead"),
    [
        ([[_add("a")], [_add("b")]], {("a", None), ("b", None)}, set()),
        ([[_add("a")], [_remove("a")]], set(), {("a", None)}),
        ([[_add("a")], [_remove("a")], [_add("a")]], {("a", None)}, set()),
        ([[_add("a")], [_remove("a"), _add("a", "v1")]], {("a", "v1")}, {("a", None)}),
        ([[_add("a")], [_add("a", "v1"), _remove("a")]], {("a", "v1")}, {("a", None)}),
        ([[_add("a", "v1")], [_remove("a")]], {("a", "v1")}, {("a", None)}),
        (
            [[_add("a", "v1")], [_remove("a", "v1"), _add("a", "v2")], [_remove("a", "v2")]],
            set(),
            {("a", "v1"), ("a", "v2")},
        ),
        ([[_remove("never")]], set(), {("never", None)}),
        ([[_add("a b")], [_remove("a%20b")]], set(), {("a%20b", None)}),
        ([[_add("a%20b")], [_remove("file:///data/t/a%20b")]], set(), {("file:///data/t/a%20b", None)}),
        ([[_add("file:/data/t/a")], [_remove("a")]], set(), {("a", None)}),
    ],
)
def test_the_newest_action_for_a_logical_file_decides(
    commits: list[list[Action]], live: set[tuple[str, str | None]], dead: set[tuple[str, str | None]]
) -> None:
    state = _state(*commits)
    assert (_live(state), _dead(state)) == (live, dead)


@pytest.mark.requirements("REC-5")
def test_the_key_of_a_file_without_a_vector_ignores_other_files() -> None:
    """One commit has files with deletion vectors, the other has none."""
    assert _live(_state([_add("a"), _add("b", "v")], [_remove("a")])) == {("b", "v")}
    assert _live(_state([_add("a"), _add("b")], [_remove("a"), _remove("b"), _add("b", "v")])) == {("b", "v")}


@pytest.mark.requirements("REC-8", "FILE-4")
def test_a_repeated_add_replaces_all_fields_of_the_file() -> None:
    (add,) = table_to_adds(_state([_add("a", size=1, stats="{}")], [_add("a", size=2)]).files.adds)
    assert (add.size, add.stats) == (2, None)


@pytest.mark.requirements("REC-2")
def test_the_newest_metadata_replaces_all_fields() -> None:
    newer = Metadata(id="i", schema_string="{}", configuration={"b": "2"})
    assert _state([newer]).metadata == newer


@pytest.mark.requirements("REC-3", "TXN-2", "TXN-3")
def test_the_newest_transaction_wins_even_with_a_smaller_version() -> None:
    state = _state([SetTransaction(app_id="a", version=9)], [SetTransaction(app_id="a", version=1)])
    assert state.transactions["a"].version == 1
    assert "b" not in state.transactions


@pytest.mark.requirements("REC-4", "DOM-6")
def test_a_removed_domain_can_be_added_again() -> None:
    first, gone = (
        DomainMetadata(domain="u.x", configuration="1"),
        DomainMetadata(domain="u.x", configuration="1", removed=True),
    )
    other = DomainMetadata(domain="delta.unknown", configuration="{}")
    assert dict(_state([first, other], [gone]).domains) == {"delta.unknown": other}
    assert _state([first], [gone], [first]).domains["u.x"] == first


@pytest.mark.requirements("REC-11")
def test_cdc_and_commit_info_are_not_part_of_the_state() -> None:
    cdc = AddCdcFile(path="_change_data/c", partition_values={}, size=1)
    assert _live(_state([CommitInfo(operation="WRITE"), cdc, _add("a")])) == {("a", None)}


@pytest.mark.requirements("REC-1", "LOG-7")
@pytest.mark.parametrize("kept", [(_PROTOCOL,), (_METADATA,), ()])
def test_a_log_without_protocol_or_metadata_is_corrupt(kept: tuple[Action, ...]) -> None:
    with pytest.raises(CorruptLogError):
        replay(None, _commits(kept), location=_LOCATION)


@pytest.mark.requirements("LOG-19")
def test_an_append_does_not_modify_the_older_state() -> None:
    """Files are reconciled on first access, and the older state does not change."""
    base = _state([_add("a")])
    newer = replay(base, _commits([_remove("a"), _add("b")], start=2), location=_LOCATION)
    assert "_sets" not in newer.files.__dict__
    assert "_sets" not in base.files.__dict__
    assert (_live(newer), _live(base)) == ({("b", None)}, {("a", None)})


@pytest.mark.requirements("REC-13")
def test_refreshes_do_not_keep_older_states_alive() -> None:
    """A client that reads after each commit keeps one older state."""
    state = _state([_add("f0")])
    for version in range(2, 200):
        state = replay(
            state, _commits([_remove(f"f{version - 2}"), _add(f"f{version - 1}")], start=version), location=_LOCATION
        )
        assert state.files.num_files == 1
    depth, files = 0, state.files
    while files._base is not None:
        depth, files = depth + 1, files._base
    assert depth <= 1


@pytest.mark.requirements("REC-13")
def test_many_commits_without_a_read_are_reconciled() -> None:
    state = _state()
    for version in range(1, 300):
        state = replay(state, _commits([_add(f"f{version % 50}", size=version)], start=version), location=_LOCATION)
    assert state.files.num_files == 50
    assert state.files.size_bytes == sum(range(250, 300))


@st.composite
def _histories(draw: st.DrawFn) -> list[list[Action]]:
    """Valid histories: files are added, get a deletion vector, are refreshed and removed; txns and domains change."""
    live: dict[str, str | None] = {}
    history: list[list[Action]] = [list(_START)]
    counter = itertools.count()
    for _ in range(draw(st.integers(1, 8))):
        actions: list[Action] = [CommitInfo(operation="WRITE")]
        for path in draw(st.sets(st.sampled_from(["a", "b", "c%20c", "d"]), max_size=3)):
            if path not in live:
                live[path] = None
                actions.append(_add(path, size=next(counter)))
                continue
            act = draw(st.sampled_from(["remove", "vector", "refresh"]))
            if act != "refresh":
                actions.append(_remove(path, live[path]))
            if act == "remove":
                del live[path]
                continue
            if act == "vector":
                live[path] = f"v{next(counter)}"
            actions.append(_add(path, live[path], size=next(counter)))
        if draw(st.booleans()):
            actions.append(SetTransaction(app_id=draw(st.sampled_from("xy")), version=draw(st.integers(0, 5))))
        if draw(st.booleans()):
            actions.append(DomainMetadata(domain="u", configuration="c", removed=draw(st.booleans())))
        if draw(st.booleans()):
            actions.append(Metadata(id="i", schema_string="{}", name=str(next(counter))))
        order = draw(st.permutations(actions[1:]))
        history.append([actions[0], *order])
    return history


@pytest.mark.requirements("REC-13", "REC-7", "LC-5")
@settings(deadline=None, max_examples=60)
@given(_histories(), st.data())
def test_replay_gives_the_same_state_from_any_base(history: list[list[Action]], data: st.DataObject) -> None:
    """Any prefix as base, reconciled or not, and any range compacted."""
    commits = _commits(*history)
    whole = replay(None, commits, location=_LOCATION)
    cut = data.draw(st.integers(1, len(commits)))
    base = replay(None, commits[:cut], location=_LOCATION)
    if data.draw(st.booleans()):
        # The access reconciles.
        assert _comparable(base) == _comparable(replay(None, commits[:cut], location=_LOCATION))
    assert _comparable(replay(base, commits[cut:], location=_LOCATION)) == _comparable(whole)
    start = data.draw(st.integers(0, len(commits) - 1))
    end = data.draw(st.integers(start, len(commits) - 1))
    if end > start:
        compacted = decode_commit(compact(commits[start : end + 1], location=_LOCATION), version=end)
        mixed = [*commits[:start], compacted, *commits[end + 1 :]]
        assert _comparable(replay(None, mixed, location=_LOCATION)) == _comparable(whole)
    live, dead = _live(whole), _dead(whole)
    assert not live & dead
    assert len({path for path, _ in live}) == len(live)


@pytest.mark.requirements("REC-5", "REC-6", "REC-7", "REC-8")
@settings(deadline=None, max_examples=60)
@given(_histories())
def test_replay_agrees_with_a_model_of_dictionaries(history: list[list[Action]]) -> None:
    model: dict[tuple[str, str | None], AddFile | RemoveFile] = {}
    for actions in history:
        files = [action for action in actions if isinstance(action, AddFile | RemoveFile)]
        for file in files:
            model[file.path, file.deletion_vector.unique_id if file.deletion_vector else None] = file
    state = replay(None, _commits(*history), location=_LOCATION)
    expected = [file for file in model.values() if isinstance(file, AddFile)]
    assert sorted(table_to_adds(state.files.adds), key=repr) == sorted(expected, key=repr)
    tombstones = [file for file in model.values() if isinstance(file, RemoveFile)]
    assert sorted(table_to_removes(state.files.removes), key=repr) == sorted(tombstones, key=repr)
    assert state.files.size_bytes == sum(file.size for file in expected)


@pytest.mark.requirements("REC-1")
def test_an_empty_state_has_no_files() -> None:
    assert (FileState.empty(_LOCATION).num_files, FileState.empty(_LOCATION).size_bytes) == (0, 0)


@pytest.mark.requirements("LOG-1")
def test_version_0_follows_the_state_before_it() -> None:
    """Versions are 0, 1, 2 and so on."""
    before = TableState.before_creation(protocol=_PROTOCOL, metadata=_METADATA, domains={}, location=_LOCATION)
    assert before.version + 1 == 0 == replay(before, _commits([_add("a")]), location=_LOCATION).version
    assert replay(before, [], location=_LOCATION).version == before.version


@pytest.mark.requirements("REC-13")
def test_many_commits_can_be_applied_one_by_one_before_the_files_are_read() -> None:
    """The depth of what is to be reconciled does not grow with the number of commits."""
    added, removed = _commits([_add("a")], [_remove("a")])
    files = FileState.empty(_LOCATION)
    for commit in [added, removed] * 1000:
        files = files.apply([commit])
    assert (files.num_files, files.removes.num_rows) == (0, 1)
