"""The peers: delta-spark in a process of its own, and copies of our tables that peers without a catalog can open."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DELTA_VERSION = "4.4.0"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>peers</groupId><artifactId>peers</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>io.delta</groupId><artifactId>delta-spark_{spark}_2.13</artifactId><version>{delta}</version>
  </dependency></dependencies>
</project>
"""


def delta_jars(spark_version: str) -> list[str]:
    """Jars of delta-spark for this Spark, from Maven, kept in the user's cache folder.

    Without Maven the calling test is skipped, unless ``CM_DELTA_REQUIRE_PEERS`` is set: then it fails.
    """
    short = ".".join(spark_version.split(".")[:2])
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cm-delta-dagster"
    folder = cache / f"delta-{DELTA_VERSION}-spark-{short}"
    if not (folder / "complete").exists():
        if shutil.which("mvn") is None:
            message = "delta-spark is compared with only where Maven can fetch it; no mvn on the PATH"
            if os.environ.get("CM_DELTA_REQUIRE_PEERS"):
                pytest.fail(message)
            pytest.skip(message)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pom.xml").write_text(_POM.format(spark=short, delta=DELTA_VERSION))
        subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime",
             "-DincludeGroupIds=io.delta,org.locationtech.jts", f"-DoutputDirectory={folder}"],
            cwd=folder, check=True, timeout=900,
        )  # fmt: skip
        (folder / "complete").touch()
    wanted = ("delta-spark", "delta-storage", "jts-core")
    return [str(jar) for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(wanted)]


class DeltaSpark:
    """delta-spark in its own process: SQL statements in, rows out as JSON."""

    def __init__(self, jars: list[str], home: Path) -> None:
        script = Path(__file__).with_name("delta_spark_worker.py")
        self._log = (home / "delta-spark.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, str(script), ",".join(jars), str(home)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Run one statement; rows come with values as text (``CAST(... AS STRING)`` of each column) or None."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(statement) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"delta-spark ended: {Path(self._log.name).read_text()[-2000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return list(answer["rows"])

    def close(self) -> None:
        self._process.communicate("")
        self._log.close()


def readable_copy(location: str, target: Path) -> Path:
    """A copy of a published table without the features that bind it to a catalog, for peers that open tables by path."""
    source = Path(location.removeprefix("file://"))
    shutil.copytree(source, target)
    log = target / "_delta_log"
    bound = {"catalogManaged", "vacuumProtocolCheck"}
    for file in log.glob("*.json"):
        lines = []
        for line in file.read_text().splitlines():
            action = json.loads(line)
            if "protocol" in action:
                for key in ("readerFeatures", "writerFeatures"):
                    action["protocol"][key] = [name for name in action["protocol"][key] if name not in bound]
            lines.append(json.dumps(action))
        file.write_text("\n".join(lines) + "\n")
    for file in [*log.glob("*.crc"), *log.glob("*.checkpoint.*"), *log.glob("_last_checkpoint")]:
        file.unlink()
    shutil.rmtree(log / "_staged_commits", ignore_errors=True)
    return target
