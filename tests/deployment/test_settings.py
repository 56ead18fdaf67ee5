"""The example deployment without starting it: variables of its resources, and the file for containers."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest
import yaml

from cm_delta_dagster.errors import InvalidArgumentError
from resources import deployment_resources, environment

ROOT = Path(__file__).parents[2]
REQUIRED = {
    "CM_DELTA_CATALOG_URL": "postgresql+psycopg://user:pass-word@host/catalog",
    "CM_DELTA_WAREHOUSE": "s3://bucket/tables",
    "CM_DELTA_SPARK": "local[2]",
}


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of a deployment that has the required variables only."""
    for name in vars(environment).values():
        if isinstance(name, str) and name.startswith("CM_DELTA_"):
            monkeypatch.delenv(name, raising=False)
    for name, value in {**REQUIRED, "CM_DELTA_DEPLOYMENT": "production"}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def start_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("start", ROOT / "deployment" / "start.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def spark() -> dict[str, Any]:
    """The settings as the run has them."""
    resource: Any = deployment_resources()["spark"]
    with resource.process_config_and_initialize_cm() as opened:
        found = {name: getattr(opened, name) for name in ("master", "remote", "jars")}
        own = {"spark.app.name", "spark.jars"}
        return {**found, "config": {key: value for key, value in opened.settings().items() if key not in own}}


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_variable_is_an_error_when_definitions_load(settings: pytest.MonkeyPatch, name: str) -> None:
    settings.setenv(name, "")
    with pytest.raises(InvalidArgumentError, match=f"^{name} is not set"):
        deployment_resources()


def test_all_missing_variables_are_in_one_error(settings: pytest.MonkeyPatch) -> None:
    for name in REQUIRED:
        settings.delenv(name)
    with pytest.raises(InvalidArgumentError, match=f"^{', '.join(REQUIRED)} are not set"):
        deployment_resources()


@pytest.mark.parametrize("name", ["CM_DELTA_STORAGE_OPTIONS", "CM_DELTA_SPARK_CONFIG"])
@pytest.mark.parametrize("text", ["no-json-at-all", '["a"]'])
def test_a_malformed_variable_is_named_without_its_value(settings: pytest.MonkeyPatch, name: str, text: str) -> None:
    settings.setenv(name, text)
    with pytest.raises(InvalidArgumentError, match=f"^{name} is not a JSON object") as refused:
        deployment_resources()
    assert text not in str(refused.value)


def test_spark_settings_have_to_be_text(settings: pytest.MonkeyPatch) -> None:
    settings.setenv("CM_DELTA_SPARK_CONFIG", json.dumps({"spark.cores.max": 2}))
    with pytest.raises(InvalidArgumentError, match=r"spark\.cores\.max .* must be text"):
        deployment_resources()


def test_a_directory_without_jars_is_an_error(settings: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings.setenv("CM_DELTA_SPARK_JARS", str(tmp_path))
    with pytest.raises(InvalidArgumentError, match="cm-delta spark-jars --to"):
        deployment_resources()


@pytest.mark.parametrize("place", ["local[2]", "spark://host:7077", "yarn"])
def test_a_master_is_a_classic_session(settings: pytest.MonkeyPatch, tmp_path: Path, place: str) -> None:
    (tmp_path / "a.jar").touch()
    settings.setenv("CM_DELTA_SPARK", place)
    settings.setenv("CM_DELTA_SPARK_JARS", str(tmp_path))
    settings.setenv("CM_DELTA_SPARK_CONFIG", json.dumps({"spark.cores.max": "2"}))
    config = {"spark.ui.port": "0", "spark.sql.session.timeZone": "UTC", "spark.cores.max": "2"}
    assert spark() == {"master": place, "remote": None, "jars": [str(tmp_path / "a.jar")], "config": config}


def test_a_connect_url_is_a_connect_session(settings: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings.setenv("CM_DELTA_SPARK", "sc://host:15002")
    assert spark()["remote"] == "sc://host:15002" and spark()["master"] is None
    (tmp_path / "a.jar").touch()
    settings.setenv("CM_DELTA_SPARK_JARS", str(tmp_path))
    with pytest.raises(InvalidArgumentError, match="Start the server with the jars"):
        deployment_resources()


def test_the_ui_shows_no_secret(settings: pytest.MonkeyPatch) -> None:
    settings.setenv("CM_DELTA_STORAGE_OPTIONS", json.dumps({"key": "a-key", "secret": "a-secret"}))
    settings.setenv("CM_DELTA_SPARK_CONFIG", json.dumps({"spark.hadoop.fs.s3a.secret.key": "a-secret"}))
    settings.setenv("CM_DELTA_SPARK", "sc://host/;token=pass-word")

    @dg.asset(required_resource_keys={"catalog", "spark"})
    def anything() -> None: ...

    definitions = dg.Definitions([anything], resources=deployment_resources())
    from dagster._core.remote_representation.external_data import RepositorySnap

    repository = definitions.get_repository_def()
    jobs = [job.get_job_snapshot() for job in repository.get_all_jobs()]
    shown = " ".join(dg.serialize_value(part) for part in (RepositorySnap.from_def(repository), *jobs))
    assert "CM_DELTA_STORAGE_OPTIONS" in shown
    assert re.findall("a-key|a-secret|pass-word", shown) == []


def test_containers_run_the_commands_of_the_script() -> None:
    services = yaml.safe_load((ROOT / "deployment" / "compose.yaml").read_text())["services"]
    commands = start_script().commands(host="0.0.0.0", code_port="4000", web_port="3000")
    assert {name: services[name]["command"] for name in commands} == commands
    assert set(services) == {*commands, "postgres"}


def test_containers_have_the_variables_that_they_need() -> None:
    services = yaml.safe_load((ROOT / "deployment" / "compose.yaml").read_text())["services"]
    known = {value for value in vars(environment).values() if isinstance(value, str) and value.startswith("CM_DELTA_")}
    # Both are set in the image; a container is no cluster, so that its own disk will do for the raw files.
    assert set(start_script().REQUIRED) | known <= {
        *services["code"]["environment"],
        "CM_DELTA_SPARK_JARS",
        "CM_DELTA_RAW",
    }
    for name in ("daemon", "webserver"):
        assert {"DAGSTER_POSTGRES_URL", "CM_DELTA_CODE_HOST", "CM_DELTA_CODE_PORT"} == set(
            services[name]["environment"]
        )
    image = (ROOT / "deployment" / "Dockerfile").read_text()
    assert "CM_DELTA_DEPLOYMENT=production" in image and "CM_DELTA_SPARK_JARS=/jars" in image


def test_the_script_names_missing_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    script = start_script()
    for name in script.REQUIRED:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit, match=f"^Set {', '.join(script.REQUIRED)} first"):
        script.environment()


def test_the_script_names_a_directory_without_jars(settings: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before a process is started."""
    settings.setenv("DAGSTER_POSTGRES_URL", "postgresql+psycopg2://host/dagster")
    settings.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    settings.setenv("CM_DELTA_SPARK_JARS", f"{tmp_path}/a.jar,{tmp_path}/b.jar")
    with pytest.raises(SystemExit, match=r"^CM_DELTA_SPARK_JARS must be a directory with jars"):
        start_script().environment()
    assert not (tmp_path / "home").exists()


def test_the_ui_of_each_session_has_a_port_of_its_own(settings: pytest.MonkeyPatch) -> None:
    assert spark()["config"]["spark.ui.port"] == "0"
    settings.setenv("CM_DELTA_SPARK_CONFIG", json.dumps({"spark.ui.port": "4050"}))
    assert spark()["config"]["spark.ui.port"] == "4050"
