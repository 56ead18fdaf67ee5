"""Readers in environments of their own: DuckDB with its extensions, and Sail."""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.peer_environments import PROJECT, PeerEnvironment, clean_variables, peer_environment
from tests.support.server_process import free_port, server_process

_PROGRAMS = Path(__file__).parent


def duckdb_answers(*statements: str, extensions: Sequence[str] = ("delta",)) -> list[Any]:
    """The rows of each statement as dictionaries, or the text of the error of one that failed."""
    request = {"extensions": extensions, "statements": statements}
    answers: list[Any] = peer_environment("duckdb").run_json(_PROGRAMS / "duckdb_program.py", request)
    return answers


def duckdb_rows(location: Path, versions: Iterable[int], directory: Path) -> dict[int, pa.Table | str]:
    """The rows of each version of a catalog-managed table as DuckDB reads them by path, or the text of its error.

    Args:
        directory: for the rows, which DuckDB writes there with their types.
    """
    files = {version: directory / f"{version}.parquet" for version in versions}
    statements = [
        statement
        for version, file in files.items()
        for statement in (
            f"ATTACH '{location}' AS v{version} (TYPE delta, MAX_CATALOG_VERSION {version})",
            f"COPY (FROM v{version}) TO '{file}' (FORMAT parquet)",
        )
    ]
    errors = duckdb_answers(*statements)[1::2]
    return {
        version: error if isinstance(error, str) else pq.read_table(file)
        for (version, file), error in zip(files.items(), errors, strict=True)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sail:
    """A running server of Sail, which speaks Spark Connect."""

    remote: str

    def rows(self, location: Path, versions: Iterable[int]) -> dict[int, pa.Table | str]:
        """The rows of each version of a table, or the text of the error."""
        listed = list(versions)
        statements = [f"SELECT * FROM delta.`{location}` VERSION AS OF {version}" for version in listed]
        return dict(zip(listed, self.answers(*statements), strict=True))

    def answers(self, *statements: str) -> list[pa.Table | str]:
        """The rows of each statement, or the text of the error of one that failed."""
        request = {"remote": self.remote, "statements": statements}
        answers = PROJECT.run_json(_PROGRAMS / "sail_program.py", request)
        return [_rows(answer["rows"]) if "rows" in answer else answer["error"] for answer in answers]


@contextmanager
def sail_server(
    environment: PeerEnvironment, directory: Path, variables: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Sail]:
    """Run Sail until the block ends.

    Args:
        environment: that with Sail.
        directory: the working directory of the server, below which it keeps tables of its own.
        variables: settings of Sail for its environment.
    """
    port = free_port()
    command = environment.command("-m", "pysail", "spark", "server", "--ip", "127.0.0.1", "--port", str(port))
    with server_process(command, port=port, directory=directory, environment=clean_variables() | dict(variables)):
        yield Sail(remote=f"sc://127.0.0.1:{port}")


def _rows(text: str) -> pa.Table:
    return pa.ipc.open_stream(base64.b64decode(text)).read_all()
