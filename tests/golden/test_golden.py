"""Every counted golden case: tables of other writers with known contents, read without a JVM and through Spark.

``check.py`` compares; ``adapter.py`` has our entry points. The archive is unpacked once a session. Cases marked advisory are not
counted: readers differ there.
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.golden import adapter, check

_HERE = Path(__file__).parent
_CASES: list[dict[str, Any]] = json.loads((_HERE / "cases.json").read_text())
_COUNTED = [case for case in _CASES if not case.get("advisory")]

# Entry points of check.py and our functions for them, those on rows without a JVM.
_LOG: Mapping[str, str] = {
    name: name for name in ("files", "meta", "txn", "timestamp", "catalog_timestamp", "schema", "domains", "history")
}
_ARROW: Mapping[str, str] = {
    **_LOG,
    "reader": "read_arrow",
    "catalog": "catalog_arrow",
    "cdf": "cdf_arrow",
    "rowids": "rowids_arrow",
    "variant": "variant_arrow",
}
_SPARK: Mapping[str, str] = {
    "reader": "read",
    "catalog": "catalog",
    "cdf": "cdf",
    "rowids": "rowids",
    "variant": "variant",
}


def _groups() -> dict[tuple[str, str], list[dict[str, Any]]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for case in _COUNTED:
        groups[case["kind"], case["id"].split("/")[0]].append(case)
    return groups


_GROUPS = _groups()


@pytest.fixture(scope="session")
def entry_points() -> dict[str, Callable[..., Any]]:
    """Our functions by the names that ``check.run_case`` looks them up by."""
    return {entry: getattr(adapter, name) for entry, name in _ARROW.items()}


@pytest.mark.requirements(
    "LOG-1",
    "LOG-4",
    "LOG-9",
    "REC-1",
    "REC-13",
    "CM-R3",
    "CM-R4",
    "CM-R5",
    "CM-R6",
    "CM-R7",
    "CM-R8",
    "CM-R9",
    "TT-1",
    "TT-2",
    "TT-3",
    "TT-4",
    "TT-5",
    "TT-6",
    "TT-7",
    "ICT-9",
    "ICT-10",
    "ICT-11",
    "CKPT-14",
    "HIST-1",
    "TXN-2",
    "DOM-6",
)
@pytest.mark.parametrize(("kind", "corpus"), [pytest.param(*group, id="-".join(group)) for group in sorted(_GROUPS)])
def test_golden_cases_without_a_jvm(
    kind: str, corpus: str, golden_root: Path, entry_points: dict[str, Callable[..., Any]], tmp_path: Path
) -> None:
    failures = []
    for case in _GROUPS[kind, corpus]:
        status, why, _ = check.run_case(case, entry_points, str(golden_root), True, str(tmp_path), False)
        if status != "pass":
            failures.append(f"{status} {case['id']}: {why}")
    assert not failures, f"{len(failures)} of {len(_GROUPS[kind, corpus])}:\n" + "\n".join(failures)


def test_the_archive_holds_every_kind_of_case() -> None:
    """Guards against an archive of which a part is lost: the runs above are made from it."""
    assert len(_COUNTED) == 1455
    assert {check.KIND_ENTRY[kind] for kind, _ in _GROUPS} - {("files", "meta")} <= set(_ARROW)


@pytest.mark.golden_spark
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_golden_cases_through_spark(golden_root: Path, tmp_path: Path, step: int) -> None:
    """As above, through Spark: every sixth case or each, of the kinds that return rows, in one process of their own."""
    report, cases = tmp_path / "report.json", tmp_path / "cases.json"
    cases.write_text(json.dumps(_CASES[::step]))
    kinds = sorted(kind for kind, entry in check.KIND_ENTRY.items() if entry in _SPARK)
    options = [f"--{entry}=tests.golden.adapter:{name}" for entry, name in _SPARK.items()]
    command = [
        *(sys.executable, str(_HERE / "check.py"), f"--root={golden_root}", f"--cases={cases}"),
        *(f"--path={_HERE.parent.parent}", "--jobs=1", "--timeout=300", f"--kind={','.join(kinds)}"),
        *(f"--json={report}", "--quiet", *options),
    ]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, cwd=_HERE)
    results = json.loads(report.read_text())["results"]
    failures = [
        f"{result['status']} {result['id']}: {result['why']}"
        for result in results
        if result["status"] != "pass" and not result["advisory"]
    ]
    assert results and not failures, f"{len(failures)} of {len(results)}:\n" + "\n".join(failures)
