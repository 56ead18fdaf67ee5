"""What clients sent to Unity Catalog 0.6.0, with delta-spark 4.4.0 and Delta Kernel 4.4.0, is answered here as it was there."""

import re
from pathlib import Path

import pytest

from cm_delta_dagster.server.settings import ServerSettings
from tests.support.live_server import live_server
from tests.support.unity_replay import Replay, recording
from tests.support.unity_wire import UnityWire

FOLDER = Path(__file__).parent / "recordings"
KNOWN = {
    # Unity Catalog answers in plain text.
    "basic": r"GET \S+/schemas/s1/tables: ",
    # For Unity Catalog a commit that changes only the domain of the clustering columns changes the metadata, too.
    "ddl": r"\((cluster by none|type widening property)\) \S+ \S+/tables/d: .metadata.(last-commit-|properties.delta.last)",
}
"""Differences that are meant."""


@pytest.mark.parametrize("name", sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.jsonl.gz")))
def test_the_requests_of_a_recording_get_the_recorded_answers(name: str, tmp_path: Path) -> None:
    settings = ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    with live_server(settings) as server:
        wire = UnityWire(server)
        replay = Replay(wire, recording(FOLDER / f"{name}.jsonl.gz"))
        replay.create_schemas()
        differences = [line for line in replay.differences() if not re.search(KNOWN.get(name, "^$"), line)]
        wire.http.close()
    assert not differences, "\n".join(differences)
