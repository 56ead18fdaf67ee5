"""How the attributes of components name the environment: values are not read when definitions are loaded."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster.components.testing import create_defs_folder_sandbox
from dagster_shared.serdes import serialize_value

from cm_delta_dagster.orchestration import CatalogManagedDelta, CatalogSettings, DeltaTables, SparkResource
from cm_delta_dagster.orchestration.components.connection import SparkSettings
from tests.orchestration.log_tables import make_table, resource_at

pytestmark = [
    pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning"),
    pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.PreviewWarning"),
]

MODULE = "cm_delta_dagster.orchestration"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Variables with secrets; the catalog is in a directory whose name is one."""
    directory = tmp_path / "secret-in-url"
    values = {
        "TEST_URL": f"sqlite:///{directory}/catalog.db",
        "TEST_HOME": str(tmp_path),
        "TEST_OPTIONS": json.dumps({"s3://b": {"key": "secret-in-options"}}),
        "TEST_NUMBER": "123456789",
        "TEST_REMOTE": "sc://host/;token=secret-of-remote",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return directory


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "env": (
        {"url": {"env": "TEST_URL"}, "warehouse": {"env": "TEST_HOME"}, "storage_options": {"env": "TEST_OPTIONS"}},
        {"remote": {"env": "TEST_REMOTE"}},
    ),
    "template": (
        {"url": "{{ env.TEST_URL }}", "warehouse": "{{ env.TEST_HOME }}", "storage_options": "{{ env.TEST_OPTIONS }}"},
        {"remote": "{{ env.TEST_REMOTE }}", "config": {"spark.x": "{{ env.TEST_NUMBER }}"}},
    ),
    "call": (
        {"url": "{{ env('TEST_URL') }}", "warehouse": "{{ env('TEST_HOME', 'w') }}"},
        {"config": {"env": "TEST_OPTIONS"}},
    ),
    "nested": (
        {
            "url": {"env": "TEST_URL"},
            "warehouse": "w",
            "storage_options": {"s3://b": {"key": "{{ env.TEST_NUMBER }}", "secret": {"env": "TEST_NUMBER"}}},
        },
        {"config": {"spark.x": {"env": "TEST_NUMBER"}}},
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_a_reference_becomes_its_value_in_the_definitions(places: Path, form: str) -> None:
    catalog, spark = FORMS[form]
    with create_defs_folder_sandbox() as sandbox:
        contents = {"type": f"{MODULE}.CatalogManagedDelta", "attributes": {"catalog": catalog, "spark": spark}}
        sandbox.scaffold_component(component_cls=CatalogManagedDelta, defs_path="lake", defs_yaml_contents=contents)
        with sandbox.build_all_defs() as defs:
            text = serialize_value(RepositorySnap.from_def(defs.get_repository_def()))
            config = defs.resources["catalog"]._resolved_config_dict  # type: ignore[index]
    assert "secret-" not in text and "123456789" not in text
    assert (config["url"], "TEST_URL" in text) == ({"env": "TEST_URL"}, True)


def test_a_default_of_a_template_holds_if_the_variable_is_not_set() -> None:
    settings = CatalogSettings.resolve_from_dict(
        {"url": "{{ env('TEST_ABSENT', 'sqlite:///c.db') }}", "warehouse": "w"}
    )
    assert settings.url == "sqlite:///c.db"


def test_a_warehouse_can_have_a_variable_within_its_text(places: Path) -> None:
    settings = CatalogSettings.resolve_from_dict({"url": "sqlite:///c.db", "warehouse": "{{ env.TEST_HOME }}/w"})
    assert settings.warehouse == f"{places.parent}/w"


COMPUTED = [
    "{{ env.TEST_NUMBER | int }}",
    "{{ env.TEST_NUMBER | float }}",
    "{{ env.TEST_NUMBER == '123456789' }}",
    "{{ env('TEST_NUMBER') != '1' }}",
    "{{ env.TEST_NUMBER in ['1', '2'] }}",
    "{{ '1' in env.TEST_NUMBER }}",
    "{{ 'a' if env.TEST_NUMBER else 'b' }}",
    "{{ env.TEST_NUMBER or 'b' }}",
    "{{ env.TEST_NUMBER | default('b', true) }}",
    "{{ env.TEST_NUMBER[0] }}",
    "{{ env.TEST_NUMBER + 1 }}",
    "{{ env.TEST_NUMBER | list }}",
    "{{ env.TEST_NUMBER | length }}",
]


@pytest.mark.parametrize("template", COMPUTED)
def test_a_template_that_computes_with_a_variable_is_refused(places: Path, template: str) -> None:
    """Also where a part of a text would be allowed."""
    for options in ({"warehouse": "w", "storage_options": {"a": template}}, {"warehouse": template}):
        with pytest.raises(Exception, match="TEST_NUMBER or compares it") as refused:
            CatalogSettings.resolve_from_dict({"url": "sqlite:///c.db", **options})
        assert "123456789" not in str(refused.value)


JAR = "https://user:secret-of-jar@host/x.jar"


def test_references_to_jars_packages_and_the_name_stay_references(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_JAR", JAR)
    spark = {
        "app_name": "{{ env.TEST_JAR }}",
        "jars": ["{{ env.TEST_JAR }}", {"env": "TEST_JAR"}, "plain.jar"],
        "packages": [{"env": "TEST_JAR"}, "{{ env('TEST_JAR') }}", "a:b:1"],
    }
    with create_defs_folder_sandbox() as sandbox:
        catalog = {"url": "sqlite:///c.db", "warehouse": "w"}
        contents = {"type": f"{MODULE}.CatalogManagedDelta", "attributes": {"catalog": catalog, "spark": spark}}
        sandbox.scaffold_component(component_cls=CatalogManagedDelta, defs_path="lake", defs_yaml_contents=contents)
        with sandbox.build_all_defs() as defs:
            text = serialize_value(RepositorySnap.from_def(defs.get_repository_def()))
            resource = defs.resources["spark"]  # type: ignore[index]
            config = resource._resolved_config_dict
    assert "secret-" not in text and "TEST_JAR" in text
    reference = {"env": "TEST_JAR"}
    assert config["app_name"] == reference
    assert (config["jars"], config["packages"]) == (
        [reference, reference, "plain.jar"],
        [reference, reference, "a:b:1"],
    )
    with resource.process_config_and_initialize_cm() as running:
        settings = running.settings()
    assert settings["spark.jars"] == f"{JAR},{JAR},plain.jar" and settings["spark.app.name"] == JAR
    assert settings["spark.jars.packages"] == f"{JAR},{JAR},a:b:1"


@pytest.mark.parametrize("field", ["jars", "packages"])
def test_a_variable_cannot_be_a_part_of_a_jar_or_package(places: Path, field: str) -> None:
    with pytest.raises(Exception, match=r"write \{env: NAME\}") as refused:
        SparkSettings.resolve_from_dict({field: ["https://user:{{ env.TEST_NUMBER }}@host/x.jar"]})
    assert "123456789" not in str(refused.value)
    assert SparkSettings.resolve_from_dict({"app_name": "etl {{ env.TEST_NUMBER }}"}).app_name == "etl 123456789"


def test_settings_of_spark_are_not_shown() -> None:
    resource = SparkResource(
        defaults={"a": "secret-a"}, jars=["secret-b"], packages=["secret-c"], config={"d": "secret-d"}
    )
    settings = SparkSettings(jars=["secret-b"], packages=["secret-c"], config={"d": "secret-d"})
    assert "secret-" not in f"{resource!r} {settings!r}"


@pytest.mark.parametrize(
    "attributes",
    [
        {"url": "sqlite:///{{ env.TEST_URL }}", "warehouse": "w"},
        {"url": "sqlite:///c.db", "warehouse": "w", "storage_options": {"key": "a{{ env.TEST_NUMBER }}"}},
        {"url": "{{ env.TEST_URL | upper }}", "warehouse": "w"},
    ],
)
def test_what_may_be_a_secret_cannot_be_a_part_of_a_text(places: Path, attributes: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"write \{env: NAME\}") as refused:
        CatalogSettings.resolve_from_dict(attributes)
    assert "secret-" not in str(refused.value) and "123456789" not in str(refused.value)


def test_references_in_python_are_kept(places: Path) -> None:
    settings = CatalogSettings(url=dg.EnvVar("TEST_URL"), warehouse="w", storage_options={"env": "TEST_OPTIONS"})
    assert settings.resource()._resolved_config_dict["url"] == {"env": "TEST_URL"}
    spark = SparkSettings(config={"a": dg.EnvVar("TEST_NUMBER")}).resource()
    assert spark._resolved_config_dict["config"] == {"a": {"env": "TEST_NUMBER"}}
    assert "secret-" not in f"{settings!r} {spark!r}"


def test_discovery_reads_the_values_and_stores_none(places: Path, tmp_path: Path) -> None:
    catalog = resource_at(places)
    make_table(catalog.client, "main.s.t")
    catalog.close()
    settings = {
        "url": {"env": "TEST_URL"},
        "warehouse": f"file://{tmp_path}/w",
        "storage_options": {"env": "TEST_OPTIONS"},
    }
    tables = DeltaTables.resolve_from_dict({"catalog": settings, "scope": "main"})
    state = tmp_path / "state"
    tables.write_state_to_path(state)
    (table,) = json.loads(state.read_text())["tables"]
    assert table["name"] == "main.s.t"
    assert "secret-in-options" not in state.read_text() and "catalog.db" not in state.read_text()
