"""References to the environment stay references in all that Dagster stores of a code location."""

import json
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_shared.serdes import serialize_value

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager, CatalogResource, SparkResource
from cm_delta_dagster.orchestration.runs.environment import as_references, resolved_options, variable_of

SECRETS = {
    "TEST_URL": "sqlite:////secret-in-url/catalog.db",
    "TEST_OPTIONS": json.dumps({"key": "secret-in-options"}),
    "TEST_KEY": "secret-of-a-key",
    "TEST_REMOTE": "sc://host/;token=secret-of-remote",
    "TEST_CONFIG": json.dumps({"spark.hadoop.x": "secret-in-config"}),
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    yield


def stored(resources: dict[str, Any]) -> str:
    """All that Dagster keeps of a code location with these resources: assets, jobs, schedules, their resources and defaults."""

    @dg.asset(required_resource_keys=set(resources))
    def written() -> None: ...

    job = dg.define_asset_job("job", [written])
    schedule = dg.ScheduleDefinition(job=job, cron_schedule="@daily")
    definitions = dg.Definitions(assets=[written], jobs=[job], schedules=[schedule], resources=resources)
    repository = definitions.get_repository_def()
    texts = [serialize_value(RepositorySnap.from_def(repository))]
    texts += [serialize_value(one.get_job_snapshot()) for one in repository.get_all_jobs()]
    return "\n".join(texts)


STORAGE_OPTIONS = {
    "all by EnvVar": dg.EnvVar("TEST_OPTIONS"),
    "all by env": {"env": "TEST_OPTIONS"},
    "one by EnvVar": {"key": dg.EnvVar("TEST_KEY")},
    "one by env": {"key": {"env": "TEST_KEY"}},
    "nested": {"s3://b": {"client_kwargs": {"verify": {"env": "TEST_KEY"}}, "list": [{"env": "TEST_KEY"}]}},
}


@pytest.mark.parametrize("form", STORAGE_OPTIONS)
def test_a_snapshot_has_references_and_no_values(form: str) -> None:
    options = STORAGE_OPTIONS[form]
    catalog = CatalogResource(url=dg.EnvVar("TEST_URL"), warehouse="s3://b/w", storage_options=options)
    by_text = CatalogResource(url={"env": "TEST_URL"}, warehouse="s3://b/w", storage_options=options)  # type: ignore[arg-type]
    spark = SparkResource(remote=dg.EnvVar("TEST_REMOTE"), config=dg.EnvVar("TEST_CONFIG"))  # type: ignore[arg-type]
    other = SparkResource(remote={"env": "TEST_REMOTE"}, config={"spark.hadoop.x": {"env": "TEST_KEY"}})  # type: ignore
    manager = CatalogManagedDeltaIOManager(catalog=catalog, spark=spark)
    text = stored({"catalog": catalog, "by_text": by_text, "spark": spark, "other": other, "io_manager": manager})
    assert "secret-" not in text
    assert all(name in text for name in ("TEST_URL", "TEST_REMOTE", "TEST_CONFIG"))
    assert "secret-" not in f"{catalog!r} {spark!r} {manager!r}"


def test_values_are_read_in_the_process_that_uses_them(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_URL", f"sqlite:///{tmp_path}/catalog.db")
    catalog = CatalogResource(
        url={"env": "TEST_URL"},  # type: ignore[arg-type]
        warehouse=f"file://{tmp_path}/w",
        storage_options={"s3://b": {"key": {"env": "TEST_KEY"}}, "s3://c": {"secret": dg.EnvVar("TEST_KEY")}},
    )
    seen: list[str] = []

    @dg.asset
    def reads(catalog: CatalogResource) -> None:
        seen.append(repr(catalog))
        by_prefix = catalog.client.stores.storage_options.by_prefix
        assert by_prefix == {"s3://b": {"key": "secret-of-a-key"}, "s3://c": {"secret": "secret-of-a-key"}}

    assert dg.materialize([reads], resources={"catalog": catalog}).success
    assert "sqlite" not in seen[0] and "secret-" not in seen[0]


def test_spark_settings_come_from_the_environment_of_the_run() -> None:
    given = SparkResource(config={"env": "TEST_CONFIG"}, defaults={"spark.hadoop.x": "1", "spark.hadoop.y": "2"})
    assert given.settings() == {
        "spark.app.name": "cm_delta_dagster",
        "spark.hadoop.x": "secret-in-config",
        "spark.hadoop.y": "2",
    }
    with given.process_config_and_initialize_cm() as opened:
        assert opened.settings() == given.settings()


def test_a_tag_of_commits_may_be_called_env(tmp_path: Any) -> None:
    catalog = CatalogResource(url=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path), commit_tags={"env": "prod"})
    with catalog.process_config_and_initialize_cm() as opened:
        assert opened.client.context.tags == {"env": "prod"}


def test_references_are_recognized() -> None:
    assert variable_of({"env": "A"}) == variable_of(dg.EnvVar("A")) == variable_of(dg.EnvVar.int("A")) == "A"
    assert [variable_of(value) for value in ("A", {"env": 1}, {"env": "A", "b": "c"}, {}, None)] == [None] * 5
    references = as_references({"a": {"env": "A"}, "b": [{"env": "B"}, 1], "c": "text"})
    assert (variable_of(references["a"]), variable_of(references["b"][0])) == ("A", "B")
    assert [*references["b"][1:], references["c"]] == [1, "text"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"env": "TEST_ABSENT"}, "TEST_ABSENT, which is not set"),
        ({"key": {"env": "TEST_ABSENT"}}, "TEST_ABSENT, which is not set"),
        ({"a": [{"b": {"env": "TEST_ABSENT"}}]}, "TEST_ABSENT, which is not set"),
        ({"env": "TEST_KEY"}, "TEST_KEY is not a JSON object"),
    ],
)
def test_a_reference_without_a_value_is_refused_without_showing_others(value: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as refused:
        resolved_options(value, name="storage_options")
    assert "secret-" not in str(refused.value)


def test_an_error_of_a_resource_shows_no_value() -> None:
    with pytest.raises(ValueError, match="warehouse") as refused:
        CatalogResource(
            url="postgresql://u:secret-of-url@h/db",
            warehouse=["secret-of-path"],  # type: ignore[arg-type]  # The test is about the error of a wrong type.
            storage_options={"key": "secret-of-a-key"},
        )
    assert "secret-" not in str(refused.value)
    with pytest.raises(InvalidArgumentError, match="both master and remote") as refused:
        SparkResource(master="local", remote="sc://host/;token=secret-of-remote").settings()
    assert "secret-" not in str(refused.value)
