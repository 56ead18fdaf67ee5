"""The commands of ``dg`` in a project of its own, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
PROJECT = """
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "shop"
registry_modules = ["cm_delta_dagster.orchestration"]
"""
DEFINITIONS = """
from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame

from cm_delta_dagster.orchestration import cm_delta_definitions

@dg.asset(key=["sales", "orders"], metadata={"mode": "merge", "merge_key": ["id"]})
def orders() -> DataFrame: ...

@dg.definitions
def defs() -> dg.Definitions:
    loaded = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    return cm_delta_definitions(dg.Definitions.merge(loaded, dg.Definitions([orders])))
"""


def dg_command(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), str(directory)])
    environment = {**os.environ, "PYTHONPATH": paths, "DAGSTER_HOME": str(directory)}
    command = [sys.executable, "-c", "from dagster_dg_cli.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_dg_scaffolds_a_component_and_refuses_a_wrong_contract(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "shop" / "defs").mkdir(parents=True)
    name = "cm_delta_dagster.orchestration.CatalogManagedDelta"
    options = ("--url", f"sqlite:///{tmp_path}/catalog.db", "--warehouse", str(tmp_path / "warehouse"))
    done = dg_command(tmp_path, "scaffold", "defs", name, "lake", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    written = yaml.safe_load((tmp_path / "shop" / "defs" / "lake" / "defs.yaml").read_text())
    assert written["type"] == name and written["attributes"]["catalog"]["url"].endswith("catalog.db")

    (tmp_path / "shop" / "definitions.py").write_text(DEFINITIONS)
    checked = dg_command(tmp_path, "check", "defs")
    assert checked.returncode != 0
    text = checked.stdout + checked.stderr
    assert "Asset sales/orders" in text and "probably 'on' is meant" in text
    assert "All component YAML validated successfully" in text
