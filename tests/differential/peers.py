"""The peers: delta-spark in a process of its own, and copies of our tables that peers without a catalog can open."""

import base64
import datetime
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.protocol.log.log_files import (
    ClassicCheckpointFile,
    CommitFile,
    MultiPartCheckpointFile,
    V2CheckpointFile,
    parse_log_file,
)
from cm_delta_dagster.storage.stores import Stores
from tests.support.cached_folders import PeerUnavailableError, cached_folder
from tests.support.path_snapshots import load_path_snapshot

DELTA_VERSION = "4.4.0"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>peers</groupId><artifactId>peers</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>io.delta</groupId><artifactId>delta-spark_{spark}_2.13</artifactId><version>{delta}</version>
  </dependency></dependencies>
</project>
"""

_CATALOG_FEATURES = frozenset(("catalogManaged", "vacuumProtocolCheck"))
"""Features of our tables that a reader without their catalog, or without support for them, must refuse."""

_CHECKPOINTS = (ClassicCheckpointFile, MultiPartCheckpointFile, V2CheckpointFile)


def delta_jars(spark_version: str) -> list[str]:
    """Jars of delta-spark for this Spark, from Maven, kept in the user's cache folder.

    Raises:
        PeerUnavailableError: Maven is not installed, or does not fetch them.
    """
    short = ".".join(spark_version.split(".")[:2])
    folder = cached_folder(f"delta-{DELTA_VERSION}-spark-{short}", lambda unfinished: _fetch_jars(short, unfinished))
    wanted = ("delta-spark", "delta-storage", "jts-core")
    return [str(jar) for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(wanted)]


def _fetch_jars(spark: str, folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise PeerUnavailableError(
            "delta-spark is compared with only where Maven can fetch it; no mvn on the PATH. Install Maven."
        )
    (folder / "pom.xml").write_text(_POM.format(spark=spark, delta=DELTA_VERSION))
    done = subprocess.run(
        ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime",
         "-DincludeGroupIds=io.delta,org.locationtech.jts", f"-DoutputDirectory={folder}"],
        cwd=folder, check=False, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    if done.returncode:
        raise PeerUnavailableError(f"Maven did not fetch delta-spark. It wrote: {done.stdout.strip()[-600:]}")


class DeltaSpark:
    """delta-spark in its own process: SQL statements in, Arrow tables out."""

    def __init__(self, jars: list[str], home: Path) -> None:
        script = Path(__file__).with_name("delta_spark_worker.py")
        self._log = (home / "delta-spark.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, str(script), ",".join(jars), str(home)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip

    def sql(self, *statements: str) -> pa.Table:
        """Run the statements in order; the rows of the last one."""
        rows = self._ask({"sql": list(statements)})["rows"]
        return pa.ipc.open_stream(base64.b64decode(rows)).read_all()

    def validate_checksums(self, location: Path, versions: Sequence[int]) -> dict[int, str]:
        """Of each version "equal", or "none" without a checksum file.

        Raises:
            RuntimeError: delta-spark found a difference.
        """
        outcome = self._ask({"validate": str(location), "versions": list(versions)})["outcome"]
        return {int(version): said for version, said in outcome.items()}

    def stream(self, location: Path, options: dict[str, str], checkpoint: Path) -> dict[str, Any]:
        """Ids of each batch, the offset after it, and the error that ended the query; until nothing is left."""
        return self._ask({"stream": str(location), "options": options, "checkpoint": str(checkpoint)})

    def stream_into(
        self,
        target: Path,
        source: Path,
        checkpoint: Path,
        *,
        options: Mapping[str, str],
        sink: Mapping[str, str],
        mode: str = "append",
    ) -> str | None:
        """Stream the rows of one table into another until nothing is left; the error that ended the query."""
        request = {"stream_into": str(target), "from": str(source), "checkpoint": str(checkpoint), "mode": mode}
        error: str | None = self._ask({**request, "options": dict(options), "sink": dict(sink)})["stopped_by"]
        return error

    def transactions(self, location: Path | str) -> dict[str, int]:
        """The version that the table records for each application."""
        found: dict[str, int] = self._ask({"transactions": str(location)})["transactions"]
        return found

    def run_after(
        self, location: Path, winner: dict[str, Any], losers: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """What becomes of each loser after the winner; see ``delta_transactions``."""
        outcomes: list[dict[str, Any]] = self._ask(
            {"run_after": str(location), "winner": winner, "losers": list(losers)}
        )["outcomes"]
        return outcomes

    def rows(self, location: Path | str, version: int) -> pa.Table:
        """The rows of a table at one version."""
        return self.sql(f"select * from delta.`{location}` version as of {version}")

    def close(self) -> None:
        self._process.communicate("")
        self._log.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"delta-spark ended: {Path(self._log.name).read_text()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


def deltalake_rows(location: Path | str, version: int) -> pa.Table:
    """The rows of a table at one version as deltalake reads them."""
    table = deltalake.DeltaTable(str(location), version=version)
    reader = deltalake.QueryBuilder().register("t", table).execute("select * from t")
    return pa.table(reader.read_all())


def our_rows(spark: SparkSession, location: Path | str, version: int) -> pa.Table:
    """The rows of a table at one version as this package reads them by path."""
    stores = Stores()
    snapshot = load_path_snapshot(stores, f"file://{location}", version=version)
    return read(SnapshotScan(snapshot=snapshot, store=stores.store_for(snapshot.location)), spark=spark).toArrow()


def canonical(table: pa.Table) -> list[str]:
    """Rows in a form that is equal for equal rows, whatever their order and the Arrow types that carry them."""
    names = sorted(table.column_names)
    lines = [repr([(name, _plain(row[name])) for name in names]) for row in table.to_pylist()]
    return sorted(lines)


def _plain(value: Any) -> Any:
    match value:
        case datetime.datetime() if value.tzinfo is not None:
            return value.astimezone(datetime.UTC).isoformat()
        case dict():
            return {key: _plain(value[key]) for key in sorted(value)}
        case list():
            return [_plain(item) for item in value]
        case tuple():
            return tuple(_plain(item) for item in value)
        case _:
            return value


def published_copy(location: str, target: Path) -> Path:
    """A copy of a fully published table that peers can open by path.

    Nothing is changed but the lists of features in commits, compactions, checkpoints and checksums.
    """
    shutil.copytree(location.removeprefix("file://"), target, ignore=shutil.ignore_patterns("_staged_commits"))
    log = target / "_delta_log"
    for file in log.glob("*.json"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for action in lines:
            _strip(action.get("protocol"))
        file.write_text("".join(json.dumps(action) + "\n" for action in lines))
    for file in log.glob("*.crc"):
        content = json.loads(file.read_text())
        _strip(content["protocol"])
        file.write_text(json.dumps(content))
    for file in log.glob("*.checkpoint*.parquet"):
        table = pq.read_table(file)
        protocols = table["protocol"].to_pylist()
        for protocol in protocols:
            _strip(protocol)
        position = table.schema.get_field_index("protocol")
        column = pa.array(protocols, table.schema.field(position).type)
        pq.write_table(table.set_column(position, table.schema.field(position), column), file)
    return target


def _strip(protocol: dict[str, Any] | None) -> None:
    for key in ("readerFeatures", "writerFeatures"):
        if protocol is not None and protocol.get(key) is not None:
            protocol[key] = [name for name in protocol[key] if name not in _CATALOG_FEATURES]


def copy_without(source: Path, target: Path, *patterns: str) -> Path:
    """A copy of a table without the log files whose names match."""
    shutil.copytree(source, target)
    for pattern in patterns:
        for file in (target / "_delta_log").glob(pattern):
            file.unlink()
    return target


def copy_from_checkpoint(source: Path, target: Path) -> tuple[Path, int]:
    """A copy in which only the newest checkpoint has what was before it, and that checkpoint's version.

    Neither earlier commits nor checksums are left, so that a reader has to understand the checkpoint.
    """
    shutil.copytree(source, target)
    log = target / "_delta_log"
    parsed = {file: parse_log_file(file.name) for file in log.iterdir()}
    newest = max(named.version for named in parsed.values() if isinstance(named, _CHECKPOINTS))
    for file, named in parsed.items():
        old = isinstance(named, (CommitFile, *_CHECKPOINTS)) and named.version < newest
        if old or file.name.endswith((".crc", ".compacted.json")):
            file.unlink()
    return target, newest
