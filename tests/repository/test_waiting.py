"""Tests wait for a condition and not for a time: ``tests.support.waiting.until`` is the only place that sleeps and has a bound.

A test that sleeps until something must have happened fails on a loaded machine, and so does a test that compares a measured time.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.syntax_trees import parse

ROOT = Path(__file__).parents[2]
OWNER = "tests/support/waiting.py"
COPIED = ("tests/golden/check.py", "tests/golden/check_dml.py")
"""Checkers that are kept as they are elsewhere."""

_IN_SPARK = "runs in a Python process of Spark, which does not import the tests"
_RANDOM = "random faults at random times; the results are checked after all processes have ended"
SLEEPS: Mapping[str, str] = {
    "tests/budgets/spark_worker.py::main": "S3A keeps an answer for this long, by its own clock",
    "tests/catalog/sql/feed/test_entries.py::write": "a transaction stays open while others go on; any time is right",
    "tests/client/test_backoff.py::waits": "waits of threads that other tests left; any time is right",
    "tests/contracts/commit_coordinator_lock_contract.py::wait": "others try to get "
    "the lock meanwhile; any time is right",
    "tests/contracts/commit_feed_contract.py::a_feed_reader_misses_no_concurrent_commit": "a reader without it would keep the "
    "interpreter from the writers; any time is right",
    "tests/contracts/event_feed_contract.py::a_waiting_reader_is_woken_by_a_commit": "the other thread begins to wait, "
    "which cannot be observed; the answer is the same if the commit is earlier",
    "tests/faults/chaos.py::_run_processes": _RANDOM,
    "tests/faults/chaos_worker.py::_outcome_of": _RANDOM,
    "tests/faults/chaos_worker.py::_publish": _RANDOM,
    "tests/faults/chaos_worker.py::work": _RANDOM,
    "tests/faults/lease_holder.py::delete": "a slow store; any time is right",
    "tests/mutation/runner.py::_wait": "polls a process until it ends; one that uses no CPU time is ended",
    "tests/orchestration/runs/test_runs.py::wait": _IN_SPARK,
    "tests/spark/s3_places_worker.py::renewed": "keys expire by the clock of the library that reads them",
    "tests/spark/speculation_worker.py::slow_at_first": f"a slow task, which is killed; {_IN_SPARK}",
    "tests/spark/changes/test_key_ranges.py::waiting": _IN_SPARK,
    "tests/support/fault_proxy.py::_pass_on": "a server that does not answer",
    "tests/support/live_server.py::shutdown": "for no time: the loop closes the idle connections in its next rounds",
    "tests/support/recording_proxy.py::_pass_on": "the latency of a network",
}
"""Functions that sleep, and why."""

COMPARISONS: Mapping[str, str] = {
    "tests/faults/chaos.py::_run_processes": _RANDOM,
    "tests/model/runs.py::_node": "runs that are not used are stopped; whether they are does not change what is found",
    "tests/spark/changes/test_key_ranges.py::waiting": _IN_SPARK,
}
"""Functions that compare the time, and why."""

_CLOCKS = frozenset({"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "time", "time_ns"})


_MAY_WAIT = re.compile(rf"sleep|Event\(\)\.wait|\b(?:{'|'.join(sorted(_CLOCKS))})\(")
"""What a module must have in it to be worth parsing."""


def _is_sleep(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="time" | "asyncio"), attr="sleep") | ast.Name(id="sleep")):
            return True
        case ast.Call(
            func=ast.Attribute(value=ast.Call(func=ast.Attribute(attr="Event") | ast.Name(id="Event")), attr="wait")
        ):
            return True
        case _:
            return False


def _reads_clock(node: ast.AST) -> bool:
    """Whether an expression has a clock in it, outside of the arguments of other calls."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="time"), attr=name) | ast.Name(id=name)) if name in _CLOCKS:
            return True
        case ast.Call():
            return False
        case _:
            return any(_reads_clock(child) for child in ast.iter_child_nodes(node))


def _functions(node: ast.AST, owner: str = "") -> Iterator[tuple[str, list[ast.AST]]]:
    """The name of each function with its nodes, those of inner functions belonging to these."""
    own: list[ast.AST] = []
    inner: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
    left = list(ast.iter_child_nodes(node))
    while left:
        child = left.pop()
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner.append(child)
        else:
            own.append(child)
            left += ast.iter_child_nodes(child)
    yield owner, own
    for function in inner:
        yield from _functions(function, function.name)


def sleeps(source: str) -> set[str]:
    """Names of the functions that sleep."""
    return {name for name, nodes in _functions(parse(source)) if any(map(_is_sleep, nodes))}


def comparisons(source: str) -> set[str]:
    """Names of the functions that compare the time, or a time that they have measured."""
    found = set()
    for name, nodes in _functions(parse(source)):
        times = {
            target.id
            for node in nodes
            if isinstance(node, ast.Assign) and _reads_clock(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in nodes:
            if isinstance(node, ast.Compare) and (
                _reads_clock(node) or any(isinstance(one, ast.Name) and one.id in times for one in ast.walk(node))
            ):
                found.add(name)
    return found


def test_tests_wait_for_conditions_and_not_for_times() -> None:
    found: dict[str, set[str]] = {"sleeps": set(), "comparisons": set()}
    for file in sorted((ROOT / "tests").rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        if path != OWNER and path not in COPIED and file != Path(__file__):
            source = file.read_text()
            if not _MAY_WAIT.search(source):
                continue
            found["sleeps"] |= {f"{path}::{name}" for name in sleeps(source)}
            found["comparisons"] |= {f"{path}::{name}" for name in comparisons(source)}
    for kind, allowed in (("sleeps", SLEEPS), ("comparisons", COMPARISONS)):
        assert found[kind] - set(allowed) == set(), "wait with tests.support.waiting.until, or inject a clock"
        assert set(allowed) - found[kind] == set(), "these functions do not need an exception"


@pytest.mark.parametrize(
    ("line", "num_sleeps", "num_comparisons"),
    [
        ("time.sleep(1)", 1, 0),
        ("await asyncio.sleep(1)", 1, 0),
        ("sleep(1)", 1, 0),
        ("threading.Event().wait(1)", 1, 0),
        ("done.wait(1)", 0, 0),
        ("assert time.monotonic() - begun < 5", 0, 1),
        (
            "begun = time.perf_counter()\n    work()\n    took = time.perf_counter() - begun\n    assert took < other",
            0,
            1,
        ),
        ("while time.time() < end: pass", 0, 1),
        ("assert clock_at(time.time()) >= 0", 0, 0),
        ("now = time.time()\n    os.utime(path, (now, now))", 0, 0),
        ("snapshot(ratified_ms=int(time.time() * 1000))", 0, 0),
    ],
)
def test_each_way_to_sleep_and_to_compare_times_is_found(line: str, num_sleeps: int, num_comparisons: int) -> None:
    source = f"async def f():\n    {line}\n"
    assert (len(sleeps(source)), len(comparisons(source))) == (num_sleeps, num_comparisons)
