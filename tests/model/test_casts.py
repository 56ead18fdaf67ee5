"""Every interleaving of small casts of the real client, with crashes and lost responses at every call, keeps the protocol.

What is checked in every state, at every call and at every end is in ``reference`` and ``observation``. The counts are shown at the
end of the run.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cm_delta_dagster.errors import (
    CommitConflictError,
    CommitRetriesExceededError,
    CommitStateUnknownError,
    TableAlreadyExistsError,
)
from tests.model.casts import (
    HOUR_MS,
    MODES,
    busy_writer,
    cast,
    checkpointer,
    creates,
    creation,
    creator,
    creator_with_rows,
    history_reader,
    log_cleaner,
    mode_changer,
    overwriter,
    publisher,
    reader,
    rival,
    row,
    staged_cleaner,
    stages,
    writer,
)
from tests.model.explorer import Cast, Counts, Explorer
from tests.model.observation import Chosen, Cleaned, Created, Read, Wrote
from tests.model.runs import LOOKING, SETTINGS, SHIPPED

Report = Callable[[str], None]
EACH_MODE = pytest.mark.parametrize("mode", MODES)
_FULL = [pytest.mark.model_full, pytest.mark.timeout(7200)]
LONG_EACH_MODE = pytest.mark.parametrize(
    "mode", ["staged", *(pytest.param(one, marks=_FULL) for one in MODES if one != "staged")]
)
LONG_UNLIKE_MODES = pytest.mark.parametrize("mode", ["staged", pytest.param("put-if-absent", marks=_FULL)])
FEW_ATTEMPTS = replace(SETTINGS, max_commit_attempts=4)


def explore(cast: Cast, report: Report) -> Explorer:
    """Explore, show the counts, and see that they are those of an exploration that did something."""
    with Explorer(cast) as explorer:
        counts = explorer.explore()
        report(f"{cast.name}: {counts}")
        _check(counts, cast)
        return explorer


def _check(counts: Counts, cast: Cast) -> None:
    assert counts.executions >= counts.interleavings > 0
    assert counts.transitions >= counts.states - 1 > 0
    assert counts.ends > 0 and counts.reads > 0 and counts.runs >= len(cast.members)
    assert counts.recoveries > 0 and counts.steps > 0
    assert bool(counts.crashes) is bool(cast.crashes) and bool(counts.losses) is bool(cast.losses)


def versions_of(explorer: Explorer, name: str) -> set[int]:
    """Versions that this writer was acknowledged."""
    return {ended.result.version for ended in explorer.results(name) if isinstance(ended.result, Wrote)}


def errors_of(explorer: Explorer, name: str) -> set[type[Exception]]:
    return {type(ended.error) for ended in explorer.results(name) if ended.error is not None}


def versions_read(explorer: Explorer) -> set[tuple[int, ...]]:
    """For each way in which the reader ended, the versions of its reads."""
    ends = (ended.result for ended in explorer.results("reader") if isinstance(ended.result, Read))
    return {tuple(version for version, _, _ in end.snapshots) for end in ends}


@pytest.mark.requirements(
    "CM-C1",
    "CM-C2",
    "CM-C3",
    "CM-W1",
    "CM-W2",
    "CM-W3",
    "CM-W4",
    "CM-P2",
    "CM-P3",
    "CM-P4",
    "OCC-12",
    "OCC-13",
    "ICT-5",
)
@EACH_MODE
def test_two_writers_lose_and_invent_nothing(mode: str, report: Report) -> None:
    explorer = explore(
        cast("two writers", writer("a"), writer("b"), mode=mode, crashes=2, losses=1, delays=True), report
    )
    assert versions_of(explorer, "a") == versions_of(explorer, "b") == {1, 2}


@pytest.mark.requirements("CM-W4")
@pytest.mark.model_full
@LONG_UNLIKE_MODES
def test_two_losses_in_a_row_are_an_unknown_outcome_and_never_a_wrong_one(mode: str, report: Report) -> None:
    explorer = explore(
        cast("two writers, two losses", writer("a"), writer("b"), mode=mode, crashes=0, losses=2, delays=True), report
    )
    assert CommitStateUnknownError in errors_of(explorer, "a")


@pytest.mark.requirements("ICT-4", "ICT-5")
@LONG_EACH_MODE
def test_writers_whose_clocks_differ_by_an_hour_make_growing_timestamps(mode: str, report: Report) -> None:
    early, late = writer("early", skew_ms=-HOUR_MS), writer("late", skew_ms=HOUR_MS)
    explorer = explore(cast("writers of different clocks", early, late, mode=mode), report)
    ends = [ended.result for name in ("early", "late") for ended in explorer.results(name) if ended.error is None]
    assert {end.version for end in ends} == {1, 2} and len({end.timestamp for end in ends}) > 2


@pytest.mark.requirements("OCC-5", "OCC-9", "OCC-10")
@LONG_EACH_MODE
def test_a_serializable_overwrite_conflicts_with_a_faster_append_or_replaces_it(mode: str, report: Report) -> None:
    serializable = {"delta.isolationLevel": "Serializable"}
    members, before = (writer("a"), overwriter("o")), (writer("x"),)
    name = "writer and serializable overwriter"
    explorer = explore(cast(name, *members, mode=mode, before=before, properties=serializable, losses=1), report)
    assert CommitConflictError in errors_of(explorer, "o")
    wrote = [ended.result for ended in explorer.results("o") if isinstance(ended.result, Wrote)]
    assert {end.version for end in wrote} == {2, 3}
    assert all(end.snapshot_rows == {row("o")} for end in wrote)


@pytest.mark.requirements("OCC-5", "OCC-9", "OCC-10")
@LONG_EACH_MODE
def test_of_two_overwrites_that_read_one_version_one_conflicts(mode: str, report: Report) -> None:
    members, before = (overwriter("o"), overwriter("p")), (writer("x"),)
    explorer = explore(cast("two overwriters", *members, mode=mode, before=before), report)
    for name in ("o", "p"):
        assert CommitConflictError in errors_of(explorer, name)
        wrote = [ended.result for ended in explorer.results(name) if isinstance(ended.result, Wrote)]
        assert {end.version for end in wrote} == {2, 3}
        assert all(end.snapshot_rows == {row(name)} for end in wrote)


@pytest.mark.requirements("CM-P1", "CM-P2", "CM-P3", "CM-P4", "CM-P5")
@LONG_EACH_MODE
def test_two_writers_and_a_publisher_publish_in_order_what_was_ratified(mode: str, report: Report) -> None:
    explore(cast("two writers and a publisher", writer("a"), writer("b"), publisher(), mode=mode, crashes=2), report)


@pytest.mark.requirements(
    "CM-R1", "CM-R2", "CM-R3", "CM-R4", "CM-R5", "CM-R6", "CM-R7", "CM-R8", "CM-R9", "CM-R10", "CACHE-4"
)
@LONG_EACH_MODE
def test_a_reader_beside_a_writer_and_a_publisher_reads_ratified_versions(mode: str, report: Report) -> None:
    members = (writer("a"), publisher(), reader())
    explorer = explore(cast("writer, publisher and reader", *members, mode=mode, crashes=2, losses=1), report)
    assert versions_read(explorer) == {(0, 0), (0, 1), (1, 1)}


@pytest.mark.requirements("CM-P7", "CM-W5")
@LONG_EACH_MODE
def test_a_cleaner_of_staged_files_takes_nothing_that_a_writer_or_reader_needs(mode: str, report: Report) -> None:
    members = (writer("a"), staged_cleaner(), reader())
    before = (writer("x"),)
    explorer = explore(cast("writer, staged cleaner and reader", *members, mode=mode, before=before), report)
    assert versions_read(explorer) == {(1, 1), (1, 2), (2, 2)}
    if mode == "staged":
        assert {ended.result for ended in explorer.results("cleaner")} == {Cleaned(1), Cleaned(2)}


@pytest.mark.requirements("CLEAN-4", "CLEAN-10", "CLEAN-11")
@LONG_EACH_MODE
def test_a_cleaner_of_the_log_takes_nothing_that_a_writer_or_reader_needs(mode: str, report: Report) -> None:
    members, before = (writer("a"), log_cleaner(), reader()), (writer("x"), checkpointer("y"))
    cleaned = cast("writer, log cleaner and reader", *members, mode=mode, before=before)
    explorer = explore(replace(cleaned, observer=history_reader(kept=2)), report)
    assert versions_read(explorer) == {(2, 2), (2, 3), (3, 3)}
    assert all(ended.result.num_files > 1 for ended in explorer.results("cleaner"))


@pytest.mark.requirements("CM-C3", "CM-C5", "CLEAN-11")
@pytest.mark.parametrize(
    ("crashes", "losses"),
    [
        pytest.param(2, 0, marks=pytest.mark.model_full),
        pytest.param(2, 1, marks=[pytest.mark.model_full, pytest.mark.timeout(7200)]),
    ],
)
def test_a_writer_that_creates_its_file_after_cleanup_was_at_its_version_has_lost(
    crashes: int, losses: int, report: Report
) -> None:
    """The file of the version that it asked for may have come and gone meanwhile."""
    members = (writer("a", starts=creates, may_fail=(CommitConflictError,)), rival("x", "y"))
    limits = {"crashes": crashes, "losses": losses}
    cleaned = cast("late writer and rival that cleans", *members, mode="put-if-absent", **limits)
    explorer = explore(replace(cleaned, observer=history_reader(kept=3)), report)
    assert versions_of(explorer, "a") == {1, 2, 3}
    unknown = {CommitStateUnknownError} if losses else set()
    assert errors_of(explorer, "a") >= {CommitConflictError, *unknown}


@pytest.mark.requirements("CM-C3", "CM-W4", "OCC-12", "OCC-15")
@pytest.mark.model_full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "inline"])
def test_writers_who_look_before_they_propose_again_lose_and_invent_nothing(mode: str, report: Report) -> None:
    """What they have seen may be old again when they propose."""
    members = (busy_writer("x", "a", settings=LOOKING), writer("b", settings=LOOKING))
    explorer = explore(cast("busy writer and writer, who look", *members, mode=mode, crashes=1, losses=1), report)
    assert (versions_of(explorer, "a"), versions_of(explorer, "b")) == ({2, 3}, {1, 2, 3})


@pytest.mark.requirements("CM-C7", "CM-C8", "CM-C13", "CM-P2", "CM-P5")
@LONG_EACH_MODE
def test_copies_and_late_reports_beside_a_writer_and_a_reader_change_nothing_that_is_read(
    mode: str, report: Report
) -> None:
    """Whatever is put off is done by the next commit, by others, or never."""
    members = (busy_writer("x", "a", settings=SHIPPED), replace(reader(), settings=SHIPPED))
    explorer = explore(cast("busy writer and reader, as shipped", *members, mode=mode), report)
    assert {version for pair in versions_read(explorer) for version in pair} == {0, 1, 2}


@pytest.mark.requirements("CM-C11", "CM-P2", "CM-P5", "OCC-12")
@LONG_UNLIKE_MODES
def test_copies_and_late_reports_of_two_writers_lose_and_invent_nothing(mode: str, report: Report) -> None:
    members = (busy_writer("x", "a", settings=SHIPPED), writer("b", settings=SHIPPED))
    explorer = explore(cast("busy writer and writer, as shipped", *members, mode=mode), report)
    assert (versions_of(explorer, "a"), versions_of(explorer, "b")) == ({2, 3}, {1, 2, 3})


@pytest.mark.requirements("CM-P7", "CLEAN-8")
def test_a_cleaner_beside_late_reports_takes_nothing_that_the_catalog_serves(report: Report) -> None:
    members = (busy_writer("x", "a", settings=SHIPPED), staged_cleaner(), publisher())
    explorer = explore(cast("busy writer, cleaner and publisher", *members, mode="staged", crashes=0), report)
    assert {ended.result for ended in explorer.results("cleaner")} >= {Cleaned(0), Cleaned(1)}


@pytest.mark.requirements("CKPT-17", "LASTCP-2", "LASTCP-3", "CM-M1")
@LONG_EACH_MODE
def test_checkpoints_and_checksums_beside_readers_change_nothing_that_is_read(mode: str, report: Report) -> None:
    members = (writer("a", works_inline=True), reader())
    properties = {"delta.checkpointInterval": "1"}
    name = "writer with checkpoints and reader"
    explorer = explore(cast(name, *members, mode=mode, properties=properties, crashes=2, losses=1), report)
    assert versions_read(explorer) == {(0, 0), (0, 1), (1, 1)}


@pytest.mark.requirements("CM-C3", "OCC-12")
@LONG_UNLIKE_MODES
def test_three_writers_on_one_version_become_three_versions(mode: str, report: Report) -> None:
    three = [writer(name, starts=stages) for name in ("a", "b", "c")]
    explorer = explore(cast("three writers on one version", *three, mode=mode), report)
    for name in ("a", "b", "c"):
        assert versions_of(explorer, name) == {1, 2, 3}


@pytest.mark.requirements("CM-C3", "CM-C5", "CM-C6", "CM-P2")
@pytest.mark.parametrize(
    ("mode", "policy"),
    [
        ("staged", "inline"),
        ("staged", "put_if_absent"),
        ("inline", "put_if_absent"),
        pytest.param("put-if-absent", "inline", marks=pytest.mark.model_full),
    ],
)
def test_writers_beside_a_change_of_the_commit_mode_lose_nothing(mode: str, policy: str, report: Report) -> None:
    # A switch that was left half-done is completed by the next client that sets the mode; until then writers wait.
    members = (writer("a", may_fail=(CommitRetriesExceededError,), settings=FEW_ATTEMPTS), mode_changer(policy))
    changed = cast(f"writer and choice of {policy}", *members, mode=mode, losses=1, delays=True)
    explorer = explore(
        replace(changed, recovery=(mode_changer(policy, "late mode_changer"), *changed.recovery)), report
    )
    assert {ended.result for ended in explorer.results("mode_changer") if ended.error is None} == {Chosen(policy)}
    assert versions_of(explorer, "a") >= {1}


@pytest.mark.requirements("CM-C3", "CM-C5", "CM-C6")
@pytest.mark.model_full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("policies", [("staged", "inline"), ("staged", "put_if_absent")])
def test_two_concurrent_changes_of_the_commit_mode_beside_a_writer_lose_nothing(
    policies: tuple[str, str], report: Report
) -> None:
    changers = (mode_changer(policies[0]), mode_changer(policies[1], "other"))
    late = writer("a", may_fail=(CommitRetriesExceededError,), settings=FEW_ATTEMPTS)
    changed = cast(f"writer and choices of {' and '.join(policies)}", late, *changers, mode="put-if-absent")
    explorer = explore(
        replace(changed, recovery=(mode_changer("staged", "late mode_changer"), *changed.recovery)), report
    )
    assert versions_of(explorer, "a") >= {1, 2}


@pytest.mark.requirements("CM-D1", "CM-D2", "CM-D3", "CM-D4", "CM-D5")
def test_one_of_two_creators_of_a_name_succeeds_and_the_other_gets_an_error(report: Report) -> None:
    members = (creator("a"), creator("b"))
    explorer = explore(creation("two creators", *members, crashes=2, losses=2, delays=True), report)
    for name in ("a", "b"):
        assert TableAlreadyExistsError in errors_of(explorer, name)
        assert any(isinstance(ended.result, Created) for ended in explorer.results(name))


@pytest.mark.requirements("CM-D3")
def test_two_who_open_or_create_one_name_get_one_table(report: Report) -> None:
    members = (creator("a", opens=True), creator("b", opens=True))
    explore(creation("two who open or create", *members, crashes=2, losses=1, delays=True), report)


@pytest.mark.requirements("CM-D1", "CM-D2", "CM-D3", "CM-D4", "CM-D5")
def test_of_two_who_create_one_name_with_rows_one_has_them_in_version_0_and_the_other_nothing(report: Report) -> None:
    members = (creator_with_rows("a"), creator_with_rows("b"))
    explorer = explore(creation("two creators with rows", *members, crashes=2, losses=1, delays=True), report)
    for name in ("a", "b"):
        assert TableAlreadyExistsError in errors_of(explorer, name)
        assert versions_of(explorer, name) == {0}


@pytest.mark.requirements("CM-D3", "CM-W3")
@pytest.mark.model_full
@pytest.mark.timeout(7200)
def test_two_who_write_to_or_create_one_name_both_have_their_rows(report: Report) -> None:
    members = (creator_with_rows("a", joins=True), creator_with_rows("b", joins=True))
    explorer = explore(creation("two who write or create", *members, crashes=1, losses=1), report)
    for name in ("a", "b"):
        assert versions_of(explorer, name) == {0, 1}


@LONG_UNLIKE_MODES
@pytest.mark.model_full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", [20261121])
def test_samples_of_a_large_cast_keep_the_protocol(mode: str, seed: int, report: Report) -> None:
    writers = [writer(f"w{number}", skew_ms=1000 * (number - 2)) for number in range(4)]
    others = (overwriter("o"), publisher(), reader(reads=3), staged_cleaner())
    large = cast("eight members, sampled", *writers, *others, mode=mode, crashes=3, losses=3, delays=True)
    with Explorer(large) as explorer:
        counts = explorer.sample(seed, 60)
    report(f"{large.name} with seeds {seed}/0 to {seed}/59: {counts}")
    assert counts.executions == 60 and counts.crashes > 0 and counts.losses > 0 and counts.reads > 60
    assert counts.transitions >= 60 * len(large.members)


def _full(mode: str) -> list[Cast]:
    a, b, c = writer("a"), writer("b"), writer("c")
    on_one_version = [writer(name, starts=stages) for name in ("a", "b", "c")]
    two = on_one_version[:2]
    old = (writer("x"), checkpointer("y"))
    all_lost: dict[str, Any] = {"losses": 1, "delays": True}
    return [
        creation(
            "three creators", creator("a"), creator("b"), creator("c", opens=True), crashes=3, losses=2, delays=True
        ),
        cast("two writers, publisher and reader", *two, publisher(), reader(reads=1), mode=mode),
        cast("writer, staged cleaner and publisher", a, staged_cleaner(), publisher(), mode=mode),
        cast("writer, staged cleaner and reader, two losses", a, staged_cleaner(), reader(), mode=mode, losses=2),
        replace(
            cast(
                "writer, log cleaner and reader, all lost",
                a,
                log_cleaner(),
                reader(),
                mode=mode,
                before=old,
                **all_lost,
            ),
            observer=history_reader(kept=2),
        ),
        cast("two writers and a publisher, all lost", a, b, publisher(), mode=mode, crashes=2, **all_lost),
        cast("three writers on one version, one loss", *on_one_version, mode=mode, crashes=2, losses=1),
        cast("three writers", a, b, c, mode=mode),
    ]


@pytest.mark.model_full
@pytest.mark.timeout(7200)
@LONG_EACH_MODE
@pytest.mark.parametrize("number", range(8))
def test_larger_casts_keep_the_protocol(mode: str, number: int, report: Report) -> None:
    explore(_full(mode)[number], report)
