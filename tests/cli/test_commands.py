"""The table of commands: each is where the table says, with the summary of its own help, and loads only what it needs."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.cli.commands import COMMANDS
from cm_delta_dagster.cli.main import main

LOADED = """
import json, sys
from cm_delta_dagster.cli.main import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_summary_is_the_first_sentence_of_the_help(name: str) -> None:
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command is not None and command.name == name
    assert command.get_short_help_str(200) == COMMANDS[name].summary


def test_every_module_of_commands_is_in_the_table() -> None:
    folder = Path(sys.modules["cm_delta_dagster.cli.main"].__file__ or "").parent
    files = {file.stem for file in folder.glob("*_command*.py")} - {"command_group"}
    assert files == {command.module for command in COMMANDS.values()}


def _modules_of(*arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_help_imports_no_catalog_and_no_library_for_rows() -> None:
    loaded = _modules_of("--help")
    assert not loaded & {"sqlalchemy", "pyarrow", "pandas", "numpy", "sqlglot", "pyspark", "fsspec"}


def test_a_command_that_needs_the_catalog_alone_imports_the_catalog_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    with SqlCatalog(url) as catalog:
        catalog.identity()
    loaded = _modules_of("--catalog", url, "tables")
    assert not loaded & {"pandas", "sqlglot", "pyspark", "fsspec", "cm_delta_dagster.client.client"}
