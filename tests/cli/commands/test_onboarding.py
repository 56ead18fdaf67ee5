"""``cm-delta onboarding``."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.cli.main import main
from tests.support.foreign_log import add, info, lines, metadata

NAME = "main.sales.orders"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Runner":
    monkeypatch.chdir(tmp_path)
    with SqlCatalog("sqlite:///catalog.db", warehouse="warehouse") as catalog:
        assert catalog.registry.list_tables() == ()
    log = tmp_path / "raw" / "_delta_log"
    log.mkdir(parents=True)
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64())}), tmp_path / "raw" / "a.parquet")
    plain = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    file = add("a.parquet", size=(tmp_path / "raw" / "a.parquet").stat().st_size)
    (log / f"{0:020d}.json").write_bytes(lines(info(), plain, metadata(), file))
    return Runner()


class Runner:
    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, env={"CM_DELTA_CATALOG_URL": "sqlite:///catalog.db"})


def test_a_table_is_adopted_exported_and_released(run: Runner, tmp_path: Path) -> None:
    shown = run("onboarding", "adopt", "raw", NAME, "--dry-run")
    assert shown.exit_code == 0 and "would become main.sales.orders" in shown.output
    assert shown.output.endswith("Nothing was changed.\n") and run("tables").output == ""
    plan = json.loads(run("onboarding", "adopt", "raw", NAME, "--dry-run", "--json").output)
    assert (plan["state"], plan["num_files"], plan["location"]) == ("path_table", 1, f"file://{tmp_path}/raw")
    done = json.loads(run("onboarding", "adopt", "raw", NAME, "--json").output)
    assert done == {"name": NAME, "location": f"file://{tmp_path}/raw", "version": 1}
    assert run("tables").output == f"{NAME}\n"
    assert (
        run("onboarding", "adopt", "raw", NAME).output
        == f"file://{tmp_path}/raw is the table {NAME} of the catalog, with version 1.\n"
    )
    assert "Nothing was written." in run("onboarding", "export", NAME, "exported", "--dry-run").output
    assert not Path("exported").exists()
    assert json.loads(run("onboarding", "export", NAME, "exported", "--json").output)["target_version"] == 0
    assert json.loads(run("onboarding", "release", NAME, "--dry-run", "--json").output)["is_interrupted"] is False
    assert "is released" in run("onboarding", "release", NAME).output
    assert run("tables").output == ""


def test_a_path_is_registered_for_reading(run: Runner, tmp_path: Path) -> None:
    assert "would stand for" in run("onboarding", "register", "raw", NAME, "--dry-run").output
    assert "No path is registered" in run("onboarding", "unregister", NAME).output
    found = json.loads(run("onboarding", "register", "raw", NAME, "--json").output)
    assert found == {"name": NAME, "location": f"file://{tmp_path}/raw", "version": 0}
    assert "stands for" in run("onboarding", "register", "raw", NAME).output and run("tables").output == ""
    assert run("onboarding", "unregister", NAME).exit_code == 0


def test_what_is_refused_is_a_message(run: Runner) -> None:
    assert "neither a Delta table" in run("onboarding", "adopt", "absent", NAME).output
    assert run("onboarding", "release", NAME).exit_code == run("onboarding", "export", NAME, "x").exit_code == 1
