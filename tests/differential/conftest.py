"""One delta-spark process for all comparisons."""

from collections.abc import Iterator

import pyspark
import pytest

from tests.differential.peers import DeltaSpark, delta_jars
from tests.support.cached_folders import or_skip


@pytest.fixture(scope="session")
def delta_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    peer = DeltaSpark(or_skip(delta_jars, pyspark.__version__), tmp_path_factory.mktemp("delta-spark"))
    yield peer
    peer.close()
