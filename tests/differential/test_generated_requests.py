"""Requests that schemathesis generates from the description of both APIs: no error of the server, nothing changed by a refusal."""

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from cm_delta_dagster.server.settings import ServerSettings
from cm_delta_dagster.server.wires import NATIVE_PATH, UNITY_PATH
from tests.server.unity.conftest import files_below
from tests.support.cached_folders import or_skip
from tests.support.every_operation import OWNER, RECORDS_OF_REFUSALS, every_operation, fill
from tests.support.live_server import LiveServer, live_server
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


HOOKS = Path(__file__).with_name("generated_calls_hooks.py")
ENDS_USE = "(revoke|disable_grants|enable_grants|revoke_token|drop_table|wait_for_events)$"
"""Operations with which others could do nothing any more, and one that waits."""


def generate(
    server: LiveServer, directory: Path, principal: str, *, configuration: str, options: Sequence[str],
    calls: object = None,
) -> str:  # fmt: skip
    """What schemathesis prints of its requests with a token of ``principal``, if all are answered as its checks ask."""
    peer = or_skip(peer_environment, "schemathesis")
    (directory / "schemathesis.toml").write_text(configuration)
    run = ["-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run", f"{server.url}/openapi.json"]
    header = f"Authorization: Bearer {server.token_for(principal, by=principal)}"
    fixed = ["--seed", "1", "--generation-database", "none", "--no-color"]
    done = subprocess.run(
        [*peer.command(*run), "-H", header, *fixed, *options],
        cwd=directory, capture_output=True, text=True, timeout=3000, check=False,
        env=clean_variables() | {"CM_DELTA_TEST_KNOWN_CALLS": json.dumps(calls)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize(
    "existing",
    [pytest.param(False, id="any names", marks=pytest.mark.exhaustive), pytest.param(True, id="names that exist")],
)
def test_generated_requests_are_answered_without_an_error_of_the_server(tmp_path: Path, existing: bool) -> None:
    settings = ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    with live_server(settings) as server:
        wire = UnityWire(server)
        wire.create("t")
        wire.append("t")
        until(lambda: wire.load("t")["commits"] == [])
        before, files = wire.load("t"), files_below(wire.load("t")["metadata"]["location"])
        options = ["--max-examples", "20", "--phases", "coverage,fuzzing", "--checks", "not_a_server_error"]
        options += ["--include-path-regex", f"^{UNITY_PATH}"]
        if existing:  # Requests that succeed would end the test.
            options += ["--exclude-method", "DELETE", "--exclude-path-regex", "rename$"]
        configuration = EXISTING if existing else ""
        generate(server, tmp_path, "generated", configuration=configuration, options=options)
        assert wire.load("t") == before and files_below(before["metadata"]["location"]) == files
        wire.http.close()


@pytest.mark.timeout(3600)
@pytest.mark.exhaustive
@pytest.mark.parametrize("examples", [2, 100])
def test_generated_calls_of_the_own_api_are_answered_or_refused_without_a_change(tmp_path: Path, examples: int) -> None:
    """Each call of ``every_operation`` is varied, by the owner of everything."""
    settings = ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    with live_server(settings) as server:
        with server.catalog(owner=OWNER) as catalog:
            full = fill(catalog)
        bodies = {each.path: json.loads(each.arguments.encode(full.arguments_of(each))) for each in every_operation()}
        ignored = [*RECORDS_OF_REFUSALS, "last_used_ms", "position"]
        calls = {"calls": bodies, "database": f"{tmp_path}/catalog.db", "ignored": ignored}
        options = ["--max-examples", str(examples), "--phases", "examples,coverage,fuzzing"]
        options += ["--checks", "not_a_server_error,refused_call_changes_nothing"]
        options += ["--include-path-regex", f"^{NATIVE_PATH}/", "--exclude-path-regex", ENDS_USE]
        printed = generate(server, tmp_path, OWNER, configuration=f'hooks = "{HOOKS}"', options=options, calls=calls)
    cases = re.search(r"(\d+) generated, (\d+) passed", printed)
    assert cases is not None and int(cases[1]) == int(cases[2]) > 3000, printed[-3000:]
