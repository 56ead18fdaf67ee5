"""The resources: opened late, closed once, honest about a session that was there before."""

import logging

import dagster as dg
import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration import CatalogResource, SparkResource
from cm_delta_dagster.orchestration.resources import HasSparkSession, apply_settings
from tests.orchestration.log_tables import commit, make_table, resource_at


def test_the_catalog_is_opened_on_first_use_and_again_after_a_close(tmp_path):
    resource = resource_at(tmp_path)
    assert not (tmp_path / "catalog.db").exists()
    make_table(resource.client, "main.s.t")
    first = resource.client
    assert resource.client is first
    resource.close()
    assert resource.client is not first
    assert str(resource.client.table("main.s.t").identifier) == "main.s.t"
    resource.close()


def test_secrets_come_from_the_environment_of_the_run(tmp_path, monkeypatch):
    seen = []

    @dg.asset
    def looks(catalog: CatalogResource) -> None:
        seen.append((catalog.url, catalog.storage_options))
        make_table(catalog.client, "main.s.t")

    resource = CatalogResource(
        url=dg.EnvVar("TEST_CATALOG_URL"),
        warehouse=f"file://{tmp_path}/w",
        storage_options={"key": dg.EnvVar("TEST_CATALOG_KEY")},
    )
    monkeypatch.setenv("TEST_CATALOG_URL", f"sqlite:///{tmp_path}/other.db")
    monkeypatch.setenv("TEST_CATALOG_KEY", "secret")
    dg.materialize([looks], resources={"catalog": resource})
    assert seen == [(f"sqlite:///{tmp_path}/other.db", {"key": "secret"})]
    assert (tmp_path / "other.db").exists()


def test_the_end_of_a_run_waits_for_work_in_the_background(tmp_path):
    tables = []

    @dg.asset
    def writes(catalog: CatalogResource) -> None:
        tables.append(make_table(catalog.client, "main.s.t"))
        commit(tables[0])

    dg.materialize([writes], resources={"catalog": resource_at(tmp_path)})
    (table,) = tables
    names = [status.name for status in table.store.list_from(f"{table.location}/_delta_log")]
    assert "00000000000000000001.crc" in names


def test_a_session_is_classic_or_connect(spark):
    with pytest.raises(InvalidArgumentError, match="classic or Connect"):
        SparkResource(master="local", remote="sc://x").settings()
    with pytest.raises(InvalidArgumentError, match=r"spark\.jars"):
        SparkResource(jars=["a.jar"], config={"spark.jars": "b.jar"}).settings()
    asked = SparkResource(app_name="a", packages=["g:a:1", "g:b:2"], jars=["x.jar"], config={"k": "v"}).settings()
    assert asked == {"spark.app.name": "a", "spark.jars.packages": "g:a:1,g:b:2", "spark.jars": "x.jar", "k": "v"}


def test_a_running_session_is_taken_and_never_stopped(spark):
    resource = SparkResource(
        master="local[7]",
        config={"spark.sql.session.timeZone": spark.conf.get("spark.sql.session.timeZone")},
        stop_on_teardown=True,
    )
    assert resource.spark_session.range(2).count() == 2
    resource.teardown_after_execution(dg.build_init_resource_context())
    assert spark.range(1).count() == 1
    assert isinstance(resource, HasSparkSession)


def test_settings_that_cannot_change_are_named_in_a_warning(spark):
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
