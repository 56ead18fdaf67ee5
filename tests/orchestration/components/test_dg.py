"""The commands of ``dg`` in a project of its own, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.server_process import free_port

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


SERVED = """
from pathlib import Path

import dagster as dg

from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager, CatalogResource, cm_delta_definitions

catalog = CatalogResource(url=dg.EnvVar("SHOP_SERVER"), token=dg.EnvVar("SHOP_TOKEN"))

@dg.asset(key=["sales", "orders"], io_manager_key="served", metadata={"mode": "merge", "on": "id"})
def orders(context) -> None: ...

@dg.definitions
def defs() -> dg.Definitions:
    loaded = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    own = dg.Definitions([orders], resources={"served": CatalogManagedDeltaIOManager(catalog=catalog)})
    return cm_delta_definitions(dg.Definitions.merge(loaded, own))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "is_set",
    [
        pytest.param(True, id="variables are set", marks=pytest.mark.exhaustive),
        pytest.param(False, id="variables are not set"),
    ],
)
def test_dg_checks_a_project_whose_server_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_set: bool
) -> None:
    """Tables are discovered with the values of the variables, so that their component requires these."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    catalog = {"url": "{{ env.SHOP_SERVER }}", "token": "{{ env.SHOP_TOKEN }}"}
    components: dict[str, tuple[str, dict[str, object]]] = {
        "lake": ("CatalogManagedDelta", {"catalog": catalog}),
        "commits": ("CommitSensor", {"tables": {"sales/orders": "main.sales.orders"}}),
        "maintenance": ("TableMaintenance", {"tables": ["main.sales.orders"], "cron": "5 * * * *"}),
    }
    if is_set:
        monkeypatch.setenv("SHOP_SERVER", f"http://127.0.0.1:{free_port()}")
        monkeypatch.setenv("SHOP_TOKEN", "secret")
        components["tables"] = ("DeltaTables", {"catalog": "lake", "scope": "main.sales", "commit_sensor": True})
    for name, (component, attributes) in components.items():
        (tmp_path / "shop" / "defs" / name).mkdir(parents=True)
        contents = {"type": f"cm_delta_dagster.orchestration.{component}", "attributes": attributes}
        (tmp_path / "shop" / "defs" / name / "defs.yaml").write_text(yaml.safe_dump(contents))
    (tmp_path / "shop" / "definitions.py").write_text(SERVED)
    for what in ("yaml", "defs"):
        done = dg_command(tmp_path, "check", what)
        assert done.returncode == 0, done.stdout + done.stderr
    assert ("shows no tables" in done.stdout + done.stderr) is is_set
