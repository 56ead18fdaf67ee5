"""One delta-spark process for all comparisons."""

from collections.abc import Iterator

import pyspark
import pytest

from tests.differential.peers import DeltaSpark, delta_jars


@pytest.fixture(scope="session")
def delta_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    peer = DeltaSpark(delta_jars(pyspark.__version__), tmp_path_factory.mktemp("delta-spark"))
    yield peer
    peer.close()
