"""The command ``cm-delta spark-jars``, which fetches what Spark needs for object stores."""

from dataclasses import replace
from pathlib import Path

import click

from cm_delta_dagster.cli.printer import note, output, show
from cm_delta_dagster.operations.maintenance.sizes import size_text
from cm_delta_dagster.spark.stores.jars import OTHER_CLOUD, JarStore, MissingCloudError, fetch_jars, installed_versions


@click.command("spark-jars")
@click.option("--to", "directory", required=True, metavar="DIR", help="Directory to copy the jars into.")
@click.option(
    "--store",
    type=click.Choice([store.value for store in JarStore]),
    default=JarStore.S3.value,
    show_default=True,
    help="Object store that Spark is to reach.",
)
@click.option("--hadoop", default=None, help="Version of Hadoop. Default: that of the installed pyspark.")
@click.option(
    "--spark-hadoop-cloud",
    "cloud",
    default=None,
    metavar="VERSION",
    help=f"For s3: version of spark-hadoop-cloud, or none. Default: that of pyspark; {OTHER_CLOUD} if Maven does not have it.",
)
@output("an object: hadoop, jars")
def spark_jars(directory: str, store: str, hadoop: str | None, cloud: str | None) -> None:
    """Copy the jars with which Spark reads and writes an object store into a directory, through Maven (mvn)."""
    versions = installed_versions(hadoop=hadoop)
    if cloud is not None:
        versions = replace(versions, cloud=None if cloud == "none" else cloud)
    try:
        jars = fetch_jars(Path(directory), versions, store=JarStore(store))
    except MissingCloudError:
        if cloud is not None or versions.cloud == OTHER_CLOUD:
            raise
        note(f"Maven does not have spark-hadoop-cloud {versions.cloud}. Trying {OTHER_CLOUD}.")
        versions = replace(versions, cloud=OTHER_CLOUD)
        jars = fetch_jars(Path(directory), versions, store=JarStore(store))
    size = size_text(sum(jar.stat().st_size for jar in jars))
    show(
        {"hadoop": versions.hadoop, "jars": list(map(str, jars))},
        f"{len(jars)} jars ({size}) for Hadoop {versions.hadoop} are in {directory}.",
        "Give them to Spark as spark.jars, a list with commas:",
        f'  ",".join(map(str, Path("{Path(directory).absolute()}").glob("*.jar")))',
    )
