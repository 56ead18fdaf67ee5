"""Fetching the jars with which Spark reads and writes object stores, through Maven. Starts no Java session.

``hadoop-aws`` depends on a bundle of all AWS services (686 MB for Hadoop 3.5.0). S3A uses four modules of it; with their
dependencies that Spark does not ship they are 13 MB.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata, util
from pathlib import Path

from cm_delta_dagster.errors import EngineError, InvalidArgumentError

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <parent>
    <groupId>org.apache.hadoop</groupId><artifactId>hadoop-project</artifactId><version>{hadoop}</version><relativePath/>
  </parent>
  <groupId>cm-delta</groupId><artifactId>spark-jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
{dependencies}  </dependencies>
</project>
"""
_S3A = """    <dependency>
      <groupId>org.apache.hadoop</groupId><artifactId>hadoop-aws</artifactId><version>{hadoop}</version>
      <exclusions><exclusion>
        <groupId>software.amazon.awssdk</groupId><artifactId>bundle</artifactId>
      </exclusion></exclusions>
    </dependency>
"""
_ABFS = """    <dependency>
      <groupId>org.apache.hadoop</groupId><artifactId>hadoop-azure</artifactId><version>{hadoop}</version>
    </dependency>
"""
_GCS = """    <dependency>
      <groupId>com.google.cloud.bigdataoss</groupId><artifactId>gcs-connector</artifactId><version>3.1.9</version>
      <classifier>shaded</classifier>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
"""
_MODULE = """    <dependency>
      <groupId>software.amazon.awssdk</groupId><artifactId>{name}</artifactId>
      <version>${{aws-java-sdk-v2.version}}</version>
    </dependency>
"""
_CLOUD = """    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>spark-hadoop-cloud_2.13</artifactId><version>{version}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
"""
_SDK_MODULES = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
_WITH_SPARK = "io.netty,org.slf4j,commons-codec,commons-logging,org.apache.httpcomponents,com.fasterxml.jackson.core"
"""Groups of jars that Spark ships."""
OTHER_CLOUD = "4.1.1"
"""Version of ``spark-hadoop-cloud`` that the tests use with Spark 4.2.0, where Maven does not have that of the session's Spark."""

_HADOOP_JAR = re.compile(r"hadoop-client-api-(\d[\w.]*?)\.jar")
_ERROR = re.compile(r"\[ERROR\] (\S.*?)(?: -> \[Help|$)", re.MULTILINE)
_SECONDS = 900


class MissingCloudError(EngineError):
    """Maven does not have ``spark-hadoop-cloud`` of the version."""


class JarStore(StrEnum):
    """Object stores whose jars can be fetched."""

    S3 = "s3"
    AZURE = "azure"
    GCS = "gcs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkVersions:
    """Versions that jars have to fit.

    Attributes:
        cloud: of ``spark-hadoop-cloud``, without which data files are copied; None to leave it out.
    """

    spark: str
    hadoop: str
    cloud: str | None


def installed_versions(*, hadoop: str | None = None) -> SparkVersions:
    """Versions of the pyspark that is installed, without importing it; ``hadoop`` replaces that of its jars.

    Raises:
        InvalidArgumentError: there is no pyspark, or it brings no Hadoop and none is given.
    """
    package = util.find_spec("pyspark")
    if package is None or package.origin is None:
        raise InvalidArgumentError("pyspark is not installed in this environment. Install it with pip install pyspark.")
    spark = metadata.version("pyspark")
    if hadoop is not None:
        return SparkVersions(spark=spark, hadoop=hadoop, cloud=spark)
    jars = Path(package.origin).parent / "jars"
    versions = [match[1] for jar in jars.glob("hadoop-client-api-*.jar") if (match := _HADOOP_JAR.fullmatch(jar.name))]
    if not versions:
        raise InvalidArgumentError(
            f"There is no hadoop-client-api jar in {jars}, so the version of Hadoop is not known. Give it: --hadoop 3.5.0."
        )
    return SparkVersions(spark=spark, hadoop=versions[0], cloud=spark)


def fetch_jars(directory: Path, versions: SparkVersions, *, store: JarStore = JarStore.S3) -> list[Path]:
    """Copy the jars of ``store`` into ``directory`` with Maven; returns all jars there.

    Raises:
        MissingCloudError: Maven could not get ``spark-hadoop-cloud`` of that version.
        EngineError: there is no Maven, or it could not get another jar; the message has Maven's reason.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise EngineError(
            "There is no Maven (mvn) on PATH. Install it, or start Spark with the jars of the store as spark.jars.packages."
        )
    directory.mkdir(parents=True, exist_ok=True)
    pom = directory / "pom.xml"
    pom.write_text(_POM.format(hadoop=versions.hadoop, dependencies=_dependencies(store, versions)))
    arguments = ["-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    try:
        run = subprocess.run(
            [maven, *arguments, f"-DexcludeGroupIds={_WITH_SPARK}", f"-DoutputDirectory={directory.absolute()}"],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(
            f"Maven did not answer within {_SECONDS} seconds. Check the network and run again."
        ) from error
    finally:
        pom.unlink()
    if run.returncode:
        match = _ERROR.search(run.stdout + run.stderr)
        reason = match[1] if match else run.stderr[-500:]
        if versions.cloud is not None and f"spark-hadoop-cloud_2.13:jar:{versions.cloud}" in reason:
            raise MissingCloudError(
                f"Maven could not get spark-hadoop-cloud {versions.cloud}. Name another version with --spark-hadoop-cloud, or "
                f"leave it out with --spark-hadoop-cloud none. Maven's reason: {reason}"
            )
        raise EngineError(f"Maven could not get the jars. Check the network and Maven's settings. Its reason: {reason}")
    return sorted(directory.glob("*.jar"))


def _dependencies(store: JarStore, versions: SparkVersions) -> str:
    match store:
        case JarStore.AZURE:
            return _ABFS.format(hadoop=versions.hadoop)
        case JarStore.GCS:
            return _GCS
    modules = "".join(_MODULE.format(name=name) for name in _SDK_MODULES)
    cloud = "" if versions.cloud is None else _CLOUD.format(version=versions.cloud)
    return _S3A.format(hadoop=versions.hadoop) + modules + cloud
