"""Requests that schemathesis generates from the description of Unity Catalog's API: no error of the server, nothing changed."""

import subprocess
from pathlib import Path

import pytest

from cm_delta_dagster.server.settings import ServerSettings
from cm_delta_dagster.server.wires import UNITY_PATH
from tests.server.unity.conftest import files_below
from tests.support.cached_folders import or_skip
from tests.support.live_server import live_server
from tests.support.peer_environments import clean_variables, peer_environment
from tests.support.unity_wire import UnityWire
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.peers]

EXISTING = """[parameters]
"path.catalog" = "main"
"path.schema" = "s"
"path.table" = "t"
"path.full_name" = "main.s.t"
"query.catalog_name" = "main"
"query.schema_name" = "s"
"""


@pytest.mark.parametrize("existing", [False, True], ids=["any names", "names that exist"])
def test_generated_requests_are_answered_without_an_error_of_the_server(tmp_path: Path, existing: bool) -> None:
    peer = or_skip(peer_environment, "schemathesis")
    settings = ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(EXISTING if existing else "")
    with live_server(settings) as server:
        wire = UnityWire(server)
        wire.create("t")
        wire.append("t")
        until(lambda: wire.load("t")["commits"] == [])
        before, files = wire.load("t"), files_below(wire.load("t")["metadata"]["location"])
        options = [
            "--seed",
            "1",
            "--max-examples",
            "20",
            "--phases",
            "coverage,fuzzing",
            "--generation-database",
            "none",
        ]
        options += ["--checks", "not_a_server_error", "--no-color", "--include-path-regex", f"^{UNITY_PATH}"]
        if existing:  # Requests that succeed would end the test.
            options += ["--exclude-method", "DELETE", "--exclude-path-regex", "rename$"]
        header = f"Authorization: Bearer {server.token_for('generated')}"
        run = ["-m", "schemathesis.cli", "--config-file", str(configuration), "run", f"{server.url}/openapi.json"]
        done = subprocess.run(
            [*peer.command(*run), "-H", header, *options],
            cwd=tmp_path, capture_output=True, text=True, timeout=500, env=clean_variables(), check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert wire.load("t") == before and files_below(before["metadata"]["location"]) == files
        wire.http.close()
