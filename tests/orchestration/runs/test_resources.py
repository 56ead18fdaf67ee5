"""The resources: when they are opened and closed, their settings, sessions that already run."""

import logging
import re
from dataclasses import asdict, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.client.settings import ClientSettings, OnCatalogBehind
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration import CatalogResource, ClientSettingsConfig, SparkResource
from cm_delta_dagster.orchestration.runs.resources import HasSparkSession, apply_settings
from tests.orchestration.log_tables import commit, make_table, resource_at


def test_the_catalog_is_opened_on_first_use_and_again_after_a_close(tmp_path: Path) -> None:
    resource = resource_at(tmp_path)
    assert not (tmp_path / "catalog.db").exists()
    make_table(resource.client, "main.s.t")
    first = resource.client
    assert resource.client is first
    resource.close()
    assert resource.client is not first
    assert str(resource.client.table("main.s.t").identifier) == "main.s.t"
    resource.close()


def test_secrets_come_from_the_environment_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    @dg.asset
    def looks(catalog: CatalogResource) -> None:
        seen.append((catalog.url, catalog.client.stores.storage_options.for_location("s3://bucket/x")))
        make_table(catalog.client, "main.s.t")

    resource = CatalogResource(
        url=dg.EnvVar("TEST_CATALOG_URL"),
        warehouse=f"file://{tmp_path}/w",
        storage_options={"s3://bucket": {"key": dg.EnvVar("TEST_CATALOG_KEY")}},
    )
    monkeypatch.setenv("TEST_CATALOG_URL", f"sqlite:///{tmp_path}/other.db")
    monkeypatch.setenv("TEST_CATALOG_KEY", "secret")
    dg.materialize([looks], resources={"catalog": resource})
    assert seen == [(f"sqlite:///{tmp_path}/other.db", {"key": "secret"})]
    assert (tmp_path / "other.db").exists()


def test_client_settings_as_config_have_the_same_fields_and_defaults() -> None:
    assert list(ClientSettingsConfig.model_fields) == [item.name for item in fields(ClientSettings)]
    assert ClientSettingsConfig().client_settings() == ClientSettings()


def test_the_client_of_a_catalog_resource_gets_its_settings(tmp_path: Path) -> None:
    seen = []
    settings = ClientSettingsConfig(max_commit_attempts=3, on_catalog_behind_storage=OnCatalogBehind.REFUSE)

    @dg.asset
    def looks(catalog: CatalogResource) -> None:
        seen.append(catalog.client.settings)

    resource = CatalogResource(
        url=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/w", settings=settings
    )
    dg.materialize([looks], resources={"catalog": resource})
    expected = {"max_commit_attempts": 3, "on_catalog_behind_storage": OnCatalogBehind.REFUSE}
    assert asdict(seen[0]) == {**asdict(ClientSettings()), **expected}


def test_the_commits_of_a_catalog_resource_have_its_tags(tmp_path: Path) -> None:
    resource = CatalogResource(
        url=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=str(tmp_path),
        commit_tags={"owner": "etl"},
        user_metadata="T-1",
    )
    with resource.process_config_and_initialize_cm() as opened:
        assert opened.client.context == CommitProperties(tags={"owner": "etl"}, user_metadata="T-1")


def test_the_settings_of_a_catalog_resource_are_a_config() -> None:
    with pytest.raises(ValueError, match="instance of ClientSettingsConfig"):
        CatalogResource(url="sqlite:///catalog.db", warehouse="w", settings=ClientSettings())


@pytest.mark.parametrize(
    "wrong", [{"max_commit_attempts": 0}, {"maintenance_lease": timedelta(0)}, {"read_threads": -1}], ids=str
)
def test_client_settings_out_of_range_are_refused_at_construction(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        ClientSettings(**wrong)
    with pytest.raises(ValueError, match=re.escape(str(refused.value))):
        ClientSettingsConfig(**wrong)


@pytest.mark.parametrize("value", ["7", "0"])
def test_a_client_setting_of_the_environment_is_validated_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    seen = []

    @dg.asset
    def looks(catalog: CatalogResource) -> None:
        seen.append(catalog.client.settings.max_commit_attempts)

    resource = CatalogResource(
        url=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"file://{tmp_path}/w",
        settings=ClientSettingsConfig(max_commit_attempts=dg.EnvVar.int("TEST_ATTEMPTS")),
    )
    monkeypatch.setenv("TEST_ATTEMPTS", value)
    if value == "7":
        dg.materialize([looks], resources={"catalog": resource})
        assert seen == [7]
        return
    with pytest.raises(dg.DagsterError) as failed:
        dg.materialize([looks], resources={"catalog": resource})
    assert "ClientSettings.max_commit_attempts cannot be 0" in str(failed.value.__cause__)
    assert seen == []


def test_client_settings_are_set_in_the_run_configuration(tmp_path: Path) -> None:
    seen = []

    @dg.asset
    def looks(catalog: CatalogResource) -> None:
        seen.append(catalog.client.settings)

    config = {
        "url": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/w",
        "settings": {"read_threads": 2, "on_catalog_behind_storage": "REFUSE"},
    }
    dg.materialize(
        [looks],
        resources={"catalog": CatalogResource.configure_at_launch()},
        run_config={"resources": {"catalog": {"config": config}}},
    )
    assert (seen[0].read_threads, seen[0].on_catalog_behind_storage) == (2, OnCatalogBehind.REFUSE)


def test_the_end_of_a_run_waits_for_work_in_the_background(tmp_path: Path) -> None:
    tables = []

    @dg.asset
    def writes(catalog: CatalogResource) -> None:
        tables.append(make_table(catalog.client, "main.s.t"))
        commit(tables[0])

    dg.materialize([writes], resources={"catalog": resource_at(tmp_path)})
    (table,) = tables
    names = [status.name for status in table.store.list_from(f"{table.location}/_delta_log")]
    assert "00000000000000000001.crc" in names


def test_a_session_is_classic_or_connect(spark: SparkSession) -> None:
    with pytest.raises(InvalidArgumentError, match="classic or Connect"):
        SparkResource(master="local", remote="sc://x").settings()
    with pytest.raises(InvalidArgumentError, match=r"spark\.jars"):
        SparkResource(jars=["a.jar"], config={"spark.jars": "b.jar"}).settings()
    asked = SparkResource(app_name="a", packages=["g:a:1", "g:b:2"], jars=["x.jar"], config={"k": "v"}).settings()
    assert asked == {"spark.app.name": "a", "spark.jars.packages": "g:a:1,g:b:2", "spark.jars": "x.jar", "k": "v"}


def test_a_running_session_is_used_and_never_stopped(spark: SparkSession) -> None:
    resource = SparkResource(
        master="local[7]",
        config={"spark.sql.session.timeZone": spark.conf.get("spark.sql.session.timeZone")},
        stop_on_teardown=True,
    )
    assert resource.spark_session.range(2).count() == 2
    resource.teardown_after_execution(dg.build_init_resource_context())
    assert spark.range(1).count() == 1
    assert isinstance(resource, HasSparkSession)


def test_a_connect_resource_does_not_take_a_classic_session(spark: SparkSession) -> None:
    with pytest.raises(InvalidArgumentError, match="a classic Spark session runs in this process"):
        SparkResource(remote="sc://127.0.0.1:1").spark_session  # noqa: B018
    assert spark.range(1).count() == 1


def test_settings_that_cannot_change_are_named_in_a_warning(spark: SparkSession) -> None:
    before, records = spark.conf.get("spark.sql.shuffle.partitions"), []
    handler = logging.Handler()
    handler.emit = records.append
    logger = dg.get_dagster_logger("cm_delta_dagster")
    logger.addHandler(handler)
    try:
        apply_settings(spark, {"spark.sql.shuffle.partitions": "3", "spark.driver.memory": "9g"})
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
        logger.removeHandler(handler)
    assert ["spark.driver.memory" in record.getMessage() for record in records] == [True]


def test_an_unknown_client_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="turn_seconds"):
        ClientSettingsConfig.model_validate({"turn_seconds": 3})
