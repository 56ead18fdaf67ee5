"""The page of clients: what each other engine does with tables of a catalog, and the tests in which it does.

``python -m tests.repository.clients --write`` writes ``docs/clients.md``; without the option the page is printed. A test states
what it proves in a marker: ``pytest.mark.client("Sail", "INSERT", "DELETE", by="server")``. With ``refuses="why"`` the test proves
that the client ends the act with an error, or with another result than it should have; its rows are not lost.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.differential.peers import DELTA_VERSION
from tests.support.kernel_java import KERNEL_VERSION
from tests.support.syntax_trees import parse

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "clients.md"
ACTS = (
    "list",
    "create",
    "read",
    "read a version",
    "INSERT",
    "UPDATE",
    "DELETE",
    "MERGE",
    "change properties",
    "rename",
    "drop",
    "publish",
    "checkpoint",
)
WAYS = {"server": "Through the server", "path": "By the path of the table"}
_ENVIRONMENTS = ROOT / "tests" / "support" / "peer_environments.toml"
_INTRODUCTION = """# Clients

What other engines do with tables of this package, as its tests run it. The marker `client` of a test names the client and the acts;
this page is generated from the markers by `python -m tests.repository.clients --write`. *yes*: a test does it and checks the
rows. An empty cell: no test does it. *no* has its reason below the table. [Other engines](other-engines.md) says how each one
connects.

*By path* is a copy of the table with all commits published and without the feature `catalogManaged`; DuckDB reads the table itself,
up to a version that is published. All of it was run on local files; for other stores see [Other engines](other-engines.md).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A test in which a client does an act: by the server or by path, and why it fails, if it does."""

    client: str
    act: str
    by: str
    refuses: str | None
    place: str


def versions() -> dict[str, str]:
    """The version of each client, in the order of the page."""
    with _ENVIRONMENTS.open("rb") as file:
        environments = tomllib.load(file)

    def pinned(environment: str, package: str) -> str:
        (version,) = (
            name.partition("==")[2]
            for name in environments[environment]["packages"]
            if name.partition("==")[0] == package
        )
        return str(version)

    return {
        "DuckDB": pinned("duckdb", "duckdb"),
        "Sail": pinned("sail", "pysail"),
        "Delta Kernel for Java": KERNEL_VERSION,
        "unitycatalog-client": pinned("unitycatalog", "unitycatalog-client"),
        "delta-spark": DELTA_VERSION,
        "deltalake": _installed("deltalake"),
    }


def _installed(package: str) -> str:
    """The version that the development extra installs."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    (version,) = {
        name.partition("==")[2] for names in extras.values() for name in names if name.startswith(f"{package}==")
    }
    return str(version)


@cache
def proofs() -> tuple[Proof, ...]:
    """Everything that the markers of tests state, by file and test."""
    return tuple(proof for file in sorted((ROOT / "tests").rglob("test_*.py")) for proof in _proofs_of(file))


def _proofs_of(file: Path) -> Iterator[Proof]:
    source = file.read_text()
    if "pytest.mark.client(" not in source:
        return
    for node in parse(source).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.client":
                client, *acts = (ast.literal_eval(argument) for argument in mark.args)
                options = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in mark.keywords}
                place = f"{file.relative_to(ROOT)}::{node.name}"
                for act in acts:
                    yield Proof(client=client, act=act, by=options["by"], refuses=options.get("refuses"), place=place)


def page() -> str:
    """The page as Markdown."""
    lines = [_INTRODUCTION]
    for by, title in WAYS.items():
        chosen = [proof for proof in proofs() if proof.by == by]
        clients = {
            name: version for name, version in versions().items() if any(proof.client == name for proof in chosen)
        }
        lines += [
            f"## {title}\n",
            "| act | " + " | ".join(f"{name} {version}" for name, version in clients.items()) + " |",
        ]
        lines.append("|---" * (len(clients) + 1) + "|")
        for act in ACTS:
            cells = [_cell([proof for proof in chosen if (proof.client, proof.act) == (name, act)]) for name in clients]
            if any(cells):
                lines.append(f"| {act} | " + " | ".join(cells) + " |")
        lines.append("")
        refused = {f"- {proof.client}, {proof.act}: {proof.refuses}" for proof in chosen if proof.refuses}
        lines += ["Not:\n", *sorted(refused), ""] if refused else []
    lines += ["## Tests\n", "| client | act | test |", "|---|---|---|"]
    for name in versions():
        for act in ACTS:
            places = dict.fromkeys(proof.place for proof in proofs() if (proof.client, proof.act) == (name, act))
            if places:
                lines.append(f"| {name} | {act} | {'<br>'.join(f'`{place}`' for place in places)} |")
    return "\n".join(lines) + "\n"


def _cell(chosen: list[Proof]) -> str:
    if not chosen:
        return ""
    works, fails = (any((proof.refuses is None) == is_done for proof in chosen) for is_done in (True, False))
    return "yes, with exceptions" if works and fails else "yes" if works else "no"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
    else:
        print(page())
