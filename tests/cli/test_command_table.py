"""The table of commands: each is where the table says, with its own help, and loads only what it needs."""

import inspect
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.cli import commands
from cm_delta_dagster.cli.command_table import MODULES, summaries
from cm_delta_dagster.cli.main import main

LOADED = """
import json, sys
from cm_delta_dagster.cli.main import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("name", sorted(MODULES))
def test_the_table_reads_the_help_of_each_command_from_its_source(name: str) -> None:
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command is not None and command.name == name
    assert inspect.cleandoc(command.help or "") == summaries()[name]


def test_every_module_of_commands_is_in_the_table() -> None:
    names = {module.name for module in pkgutil.iter_modules(commands.__path__)}
    assert {f"{commands.__name__}.{name}" for name in names} == set(MODULES.values())


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
