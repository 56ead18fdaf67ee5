"""The table of commands: each is where the table says, with its own help, and loads only what it needs."""

import inspect
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.cli import commands
from cm_delta_dagster.cli.command_table import GROUPS, PLACES, commands_of, summaries
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.cli.moved_commands import MOVED_COMMANDS
from tests.support.public_classes import NAMESPACES

LOADED = """
import json, sys
from cm_delta_dagster.cli.main import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("words", sorted(PLACES))
def test_the_table_reads_the_help_of_each_command_from_its_source(words: str) -> None:
    group, _, name = words.rpartition(" ")
    command = _command(words)
    assert command is not None and command.name == name
    assert inspect.cleandoc(command.help or "") == summaries(group)[name]


def _command(words: str) -> click.Command | None:
    """The command of these words; None if there is none."""
    command: click.Command | None = main
    for word in words.split():
        command = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
    return command


@pytest.mark.parametrize(("old", "new"), MOVED_COMMANDS.items())
def test_an_old_command_is_an_error_that_names_the_new_one(old: str, new: str) -> None:
    """The old words mean nothing else, and the new ones are a command that has the options."""
    assert _command(old) is None
    refused = CliRunner().invoke(main, [*old.split(), "main.sales.orders", "--apply"])
    assert refused.exit_code == 2 and refused.output.endswith(f"There is no command {old!r}. Write `cm-delta {new}`.\n")
    words, _, option = new.partition(" --")
    command = _command(words)
    assert command is not None
    assert not option or any(f"--{option}" in parameter.opts for parameter in command.params)


def test_the_groups_are_the_namespaces_of_a_connection() -> None:
    assert set(GROUPS) == set(NAMESPACES) and all(commands_of(group) for group in GROUPS)


def test_the_help_of_the_program_fits_on_one_screen() -> None:
    lines = CliRunner().invoke(main, ["--help"]).output.splitlines()
    commands, groups = (
        next(n for n, line in enumerate(lines) if line.startswith(start)) for start in ("Commands", "Groups")
    )
    assert len(lines) <= 50 and commands < groups
    assert [line.split()[0] for line in lines[groups + 1 :]] == list(GROUPS)


def test_every_module_of_commands_is_in_the_table() -> None:
    names = {module.name for module in pkgutil.iter_modules(commands.__path__)}
    assert {f"{commands.__name__}.{name}" for name in names} == {place.module for place in PLACES.values()}


def _modules_of(*arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_help_imports_no_catalog_and_no_library_for_rows() -> None:
    loaded = _modules_of("--help")
    assert not loaded & {"sqlalchemy", "pyarrow", "pandas", "numpy", "sqlglot", "pyspark", "fsspec"}


def test_a_command_that_needs_the_catalog_alone_imports_the_catalog_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    with SqlCatalog(url) as catalog:
        catalog.registry.identity()
    loaded = _modules_of("--catalog", url, "tables")
    assert not loaded & {"pandas", "sqlglot", "pyspark", "fsspec", "cm_delta_dagster.client.client"}
