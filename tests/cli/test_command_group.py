"""What ``cm-delta`` says about command lines that a newcomer gets wrong, and about jars."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.spark.stores.jars import OTHER_CLOUD, installed_versions

MAVEN = """#!/bin/sh
grep -q 'spark-hadoop-cloud_2.13</artifactId><version>{have}' pom.xml && touch "$(pwd)/a.jar" "$(pwd)/b.jar" && exit 0
echo "[ERROR] Failed to execute goal on project spark-jars: Could not resolve dependencies: {missing} was not found -> [Help 1]"
echo "[ERROR] For more information, run Maven with -X"
exit 1
"""
CLOUD = f"org.apache.spark:spark-hadoop-cloud_2.13:jar:{installed_versions().spark}"


@pytest.fixture
def url(tmp_path: Path) -> str:
    text = f"sqlite:///{tmp_path}/catalog.db"
    with SqlCatalog(text) as catalog:
        catalog.registry.identity()
    return text


def run(*arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(main, arguments, env=variables)


@pytest.mark.parametrize(
    "command", ["tables", "maintenance list-policies", "maintenance orphan-files --warehouse s3://b/w"]
)
@pytest.mark.parametrize("option", ["--storage-option", "--catalog"])
def test_an_option_after_the_command_is_shown_its_place(command: str, option: str) -> None:
    refused = run(*command.split(), option, "key=a")
    assert refused.exit_code == 2
    assert f"{option} belongs before the command: cm-delta {option} ..." in refused.output


def test_another_unknown_option_is_an_error_of_click() -> None:
    assert "No such option" in run("tables", "--nothing").output


@pytest.mark.parametrize(
    ("command", "call"),
    [
        ("vacuum", "`cm-delta sql 'VACUUM catalog.schema.table'`"),
        ("compact", "`cm-delta sql 'OPTIMIZE catalog.schema.table'`"),
        ("clean-log", "in Python: table.maintenance.clean_log()"),
    ],
)
def test_maintenance_is_shown_its_place(command: str, call: str) -> None:
    refused = run(command, "main.s.t")
    assert refused.exit_code == 2 and call in refused.output and "docs/maintenance.md" in refused.output


def test_an_unknown_command_lists_the_commands() -> None:
    refused = run("table")
    assert refused.exit_code == 2 and "maintenance" in refused.output and "spark-jars" in refused.output


def test_a_purge_needs_no_warehouse_to_show_its_plan(url: str) -> None:
    assert run("--catalog", url, "maintenance", "purge").output == "0 tables would be purged; nothing was deleted.\n"
    refused = run("--catalog", url, "maintenance", "purge", "--apply")
    assert refused.exit_code == 2 and "--apply needs --warehouse" in refused.output


def test_orphan_files_of_a_misspelled_warehouse_are_an_error(url: str, tmp_path: Path) -> None:
    refused = run("--catalog", url, "maintenance", "orphan-files", "--warehouse", f"{tmp_path}/werehouse")
    assert refused.exit_code == 1
    assert f"There is no object at file://{tmp_path}/werehouse. Check the spelling" in refused.output


def test_a_warehouse_without_its_scheme_is_named(url: str) -> None:
    refused = run(
        "--catalog", url, "--storage-option", "key=a", "maintenance", "orphan-files", "--warehouse", "lakedep/x"
    )
    assert "lakedep/x is a local directory" in refused.output and "such as s3://" in refused.output


def fetch(tmp_path: Path, *arguments: str, missing: str = CLOUD) -> Result:
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(MAVEN.format(have=OTHER_CLOUD, missing=missing))
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return run("spark-jars", "--to", str(tmp_path / "jars"), *arguments, PATH=path)


def test_another_version_of_the_committers_is_one_line(tmp_path: Path) -> None:
    fetched = fetch(tmp_path)
    assert fetched.exit_code == 0, fetched.output
    first, second, _, third = fetched.output.splitlines()
    version = installed_versions().spark
    assert first == f"Maven does not have spark-hadoop-cloud {version}. Trying {OTHER_CLOUD}."
    assert second.startswith("2 jars (")
    assert third.strip() == f'",".join(map(str, Path("{tmp_path}/jars").glob("*.jar")))'


def test_a_version_that_was_chosen_is_not_replaced(tmp_path: Path) -> None:
    chosen = "4.0.9"
    refused = fetch(tmp_path, "--spark-hadoop-cloud", chosen, missing=CLOUD.replace(installed_versions().spark, chosen))
    assert (
        refused.exit_code == 1 and f"could not get spark-hadoop-cloud {chosen}. Name another version" in refused.output
    )


def test_another_failure_of_maven_is_not_blamed_on_the_committers(tmp_path: Path) -> None:
    refused = fetch(tmp_path, missing="org.apache.hadoop:hadoop-aws:jar:3.5.0")
    assert refused.exit_code == 1 and "hadoop-aws:jar:3.5.0 was not found" in refused.output
    assert "spark-hadoop-cloud" not in refused.output
