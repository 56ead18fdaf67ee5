"""The page of old and new names, from the tables that make them errors: ``python -m tests.repository.renamed --write``."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from cm_delta_dagster.api.moved_names import MOVED_ARGUMENTS, MOVED_NAMES
from cm_delta_dagster.cli.moved_commands import MOVED_COMMANDS
from cm_delta_dagster.orchestration.metadata.moved_keys import ASSET_KEYS, INPUT_KEYS

PAGE = Path(__file__).parents[2] / "docs" / "renamed.md"

_HEAD = """# Renamed

Names of earlier releases, and what to write in their place. An old method is an `AttributeError`, and an old command or key of
metadata an error, that says the same. In this table `lake` is the connection, `table` a table, and `tx` a transaction over several
tables.
"""
_OLD_OBJECTS: Mapping[str, str] = {
    "Connection": "lake.",
    "DeltaTable": "table.",
    "PathDeltaTable": "table.",
    "TransactionTable": "table.",
}


def page() -> str:
    """The text of the page."""
    sections = [
        _section(f"`{kind}`", ((f"{_OLD_OBJECTS.get(kind, '')}{old}", new) for old, new in moves.items()))
        for kind, moves in MOVED_NAMES.items()
        if moves
    ]
    commands = ((f"cm-delta {old}", f"cm-delta {new}") for old, new in MOVED_COMMANDS.items())
    keys = [
        _section("Durations: arguments, fields and attributes of components", MOVED_ARGUMENTS.items()),
        _section("Metadata of assets, outputs and run tags", ASSET_KEYS.items()),
        _section("Metadata of inputs", INPUT_KEYS.items()),
    ]
    return "\n".join([_HEAD, *sections, _section("Command line", commands), *keys])


def _section(title: str, moves: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"| `{old}` | `{new}` |\n" for old, new in sorted(moves))
    return f"## {title}\n\n| old | new |\n|---|---|\n{rows}"


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page())
    else:
        print(page())
